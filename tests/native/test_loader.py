"""Object files loaded without LLVM: the same answers as with it, and nothing but FormatError for damaged files."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.compiler.targets.cpu.toolchain.worker import compile_kernel
from treadle.formats.messages.errors import FormatError
from treadle.native import loader
from treadle.native import platform as native

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="other systems' objects are loaded by LLVM"
)


SOURCE = """
def kernel(args, scratch, part, parts):
    total = sin(convert_float64(part) + 0.25) * 1e6
    for i in range(parts):
        if i % 5 == 0:
            total = total + 3.5
        elif i % 5 == 1:
            total = total * 1.0625
        elif i % 5 == 2:
            total = total - cos(total)
        elif i % 5 == 3:
            total = total / 1.75
        else:
            total = -total
    return convert_int64(total)
"""  # with constants in sections of their own, and a table of jumps


@pytest.fixture(scope="module")
def parsed() -> tuple[list[str], bytes]:
    return native._split(compile_kernel("k", SOURCE, 4, native.host_target()))


def call(address: int, part: int, parts: int) -> int:
    result = (ctypes.c_int64 * 2)()
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_uint64] * 6)(address)
    assert function(ctypes.addressof(result), ctypes.addressof(result) + 8, 0, 0, part, parts) == 0
    return result[0]


def test_code_does_what_llvm_loads(parsed):
    (plain,) = loader.load([parsed[1]])
    (other,) = native._load_with_llvm([parsed])
    assert [call(plain["k"], i, 7 * i) for i in range(9)] == [call(other["k"], i, 7 * i) for i in range(9)]


def test_several_files_are_loaded_together(parsed):
    first, second = loader.load([parsed[1], parsed[1]])
    assert first["k"] != second["k"]
    assert call(first["k"], 3, 4) == call(second["k"], 3, 4)


def test_other_files_are_left_to_llvm(parsed):
    assert loader.load([parsed[1][:18] + b"\xb7" + parsed[1][19:]]) is None  # of another machine


@given(st.data())
def test_damaged_files_are_refused_or_loaded(parsed, data):
    """What is loaded is not called: that it is what was stored is the cache's business."""
    damaged = bytearray(parsed[1])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        loader.load([bytes(damaged[: data.draw(st.integers(0, len(damaged)))])])


@pytest.mark.parametrize("field", [24, 32], ids=["offset", "size"])
@pytest.mark.parametrize("value", [1 << 40, (1 << 64) - 1])
def test_places_beyond_the_file_are_refused(parsed, field, value):
    (table,), (count,) = struct.unpack_from("<Q", parsed[1], 40), struct.unpack_from("<H", parsed[1], 60)
    refused = 0
    for place in (40, *(table + 64 * section + field for section in range(count))):
        damaged = bytearray(parsed[1])
        struct.pack_into("<Q", damaged, place, value)
        try:
            loader.load([bytes(damaged)])
        except FormatError:
            refused += 1
    assert refused >= 3  # the table, the code and what refers from it; some sections are not read


def test_a_warm_start_does_without_llvm():
    source = "import sys; from treadle.vm import core; core.engine(); sys.exit('llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == 0
