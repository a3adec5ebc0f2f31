"""A compiled executable says which Treadle made it, and nothing of when and where."""

import json
import os
from pathlib import Path

import pytest
import treadle
from treadle.compiler.builder.programs import Module, function, op, var
from treadle.formats.executable import Executable
from treadle.formats.text.assembly import parse_assembly
from treadle.native import processes
from treadle.tools.cli import main

PRODUCER = f"treadle {treadle.__version__}"


def compiled() -> Executable:
    x = var("x", (2,))
    return treadle.compile(Module(main=function([x], op.add(x, x))), embed_native=False, progress=False)


def test_it_is_in_the_file_and_info_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    compiled().export_library(tmp_path / "model.trdl")
    assert treadle.load(tmp_path / "model.trdl").program.metadata["producer"] == PRODUCER
    assert main(["info", str(tmp_path / "model.trdl")]) == 0
    assert f"  producer: {PRODUCER}\n" in capsys.readouterr().out
    assert main(["info", "--json", str(tmp_path / "model.trdl")]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"]["producer"] == PRODUCER


def test_the_same_bytes_are_made_at_another_time_and_place(tmp_path: Path) -> None:
    code = """
import sys, treadle
x = treadle.var("x", (2,))
module = treadle.Module(main=treadle.function([x], treadle.op.add(x, x)))
sys.stdout.buffer.write(treadle.compile(module, embed_native=False, progress=False).as_bytes())
"""
    here = {**os.environ, "PYTHONHASHSEED": "6"}
    elsewhere = {**here, "HOSTNAME": "elsewhere", "USER": "somebody", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
    made = []
    for environment, folder in ((here, None), (elsewhere, tmp_path)):
        done = processes.run(code, capture_output=True, env=environment, cwd=folder)
        assert done.returncode == 0, done.stderr.decode()
        made.append(done.stdout)
    assert made[0] == made[1]
    assert made[0].startswith(b"\x89TRDL")


def test_a_file_without_one_is_read_and_saved_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "old.trdl"
    Executable(parse_assembly("func @main(x: float32[2]) -> float32[2] {\n  ret r0\n}\n")).export_library(path)
    assert main(["info", str(path)]) == 0
    assert "producer" not in capsys.readouterr().out
    assert treadle.load(path).as_bytes() == path.read_bytes()
