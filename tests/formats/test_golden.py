"""Files of every format version ever released load, mean what they meant, and are written as they were."""

from pathlib import Path

import pytest
from treadle.formats.executable import NativeKernel, load
from treadle.formats.text.assembly import parse_assembly

GOLDEN = Path(__file__).parent / "golden"
NATIVE = {"x86-64": {"00ff": NativeKernel(b"object", (1, -2), 64, 1000), "0100": NativeKernel(b"object", (), 0, 0)}}


@pytest.mark.parametrize("version", [1])
def test_a_released_format_stays_readable(version: int) -> None:
    path = GOLDEN / f"version_{version}.trdl"
    executable = load(path)
    executable.check_constants()
    text = path.with_suffix(".tasm").read_text(encoding="utf-8")
    assert executable.as_text() == text
    assert executable.native == NATIVE
    assert executable.as_bytes() == path.read_bytes()
    assert executable.with_native({}).as_bytes() == type(executable)(parse_assembly(text)).as_bytes()
