"""Kernels between forbidden pages: what leaves its tensors dies, and the parent counts it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from treadle.tools.forbidden_pages import guarded

CHILD = """
import ctypes, sys
import numpy as np
from treadle.tools.forbidden_pages import guarded
array = guarded(np.zeros({count}, np.float32), at_start={at_start}, writable={writable})
ctypes.{action}
print("alive", flush=True)
"""


def survives(action: str, count: int = 5, at_start: bool = False, writable: bool = True) -> bool:
    text = CHILD.format(action=action, count=count, at_start=at_start, writable=writable)
    child = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert child.returncode < 0 or child.stdout == "alive\n", child.stderr
    return child.returncode == 0


@pytest.mark.parametrize("count", [5, 0, 1024])
def test_a_byte_before_or_behind_is_death(count: int) -> None:
    assert not survives("string_at(array.ctypes.data + array.nbytes, 1)", count)
    assert not survives("memset(array.ctypes.data + array.nbytes, 0, 1)", count)
    assert not survives("memset(array.ctypes.data - 1, 0, 1)", count, at_start=True)
    assert survives("memset(array.ctypes.data, 1, array.nbytes)", count)


def test_inputs_cannot_be_written() -> None:
    assert survives("string_at(array.ctypes.data, 20)", writable=False)
    assert not survives("memset(array.ctypes.data, 0, 1)", writable=False)


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("slack", [0, 4, 60])
def test_a_copy_has_the_elements_and_starts_at_a_multiple_of_four(at_start: bool, slack: int) -> None:
    for shape in ((), (7,), (0, 3), (3, 700)):
        array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
        copy = guarded(array, slack, at_start=at_start)
        np.testing.assert_array_equal(copy, array)
        assert copy.ctypes.data % 4 == 0
