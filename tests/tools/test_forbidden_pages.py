"""Kernels between forbidden pages: what leaves its tensors dies, and the parent counts it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from treadle.tools.dev.fuzz.forbidden_pages import Fenced

CHILD = """
import ctypes, sys
import numpy as np
from treadle.tools.dev.fuzz.forbidden_pages import Fenced
fenced = Fenced(np.zeros({count}, np.float32), at_start={at_start}, writable={writable})
begin, size = fenced.address, fenced.array.nbytes
ctypes.{action}
print("alive" if fenced.is_clean() else "dirty", flush=True)
"""


def outcome(action: str, count: int = 5, at_start: bool = False, writable: bool = True) -> str:
    text = CHILD.format(action=action, count=count, at_start=at_start, writable=writable)
    child = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert child.returncode <= 0, child.stderr
    return "dead" if child.returncode else child.stdout.strip()


@pytest.mark.parametrize("count", [5, 0, 1024])
def test_a_byte_before_or_behind_is_death(count: int) -> None:
    assert outcome("string_at(begin + size, 1)", count) == "dead"
    assert outcome("memset(begin + size, 0, 1)", count) == "dead"
    assert outcome("memset(begin - 1, 0, 1)", count, at_start=True) == "dead"
    assert outcome("memset(begin, 1, size)", count) == "alive"


def test_what_is_written_beside_a_tensor_within_its_page_is_seen() -> None:
    assert outcome("memset(begin - 1, 0, 1)") == "dirty"
    assert outcome("memset(begin + size, 0, 1)", at_start=True) == "dirty"


def test_inputs_cannot_be_written() -> None:
    assert outcome("string_at(begin, 20)", writable=False) == "alive"
    assert outcome("memset(begin, 0, 1)", writable=False) == "dead"


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("slack", [0, 4, 60])
def test_a_copy_has_the_elements_and_starts_at_a_multiple_of_four(at_start: bool, slack: int) -> None:
    for shape in ((), (7,), (0, 3), (3, 700)):
        array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
        fenced = Fenced(array, slack, at_start=at_start)
        np.testing.assert_array_equal(fenced.array, array)
        assert fenced.address % 4 == 0
        assert fenced.is_clean()
