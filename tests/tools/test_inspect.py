"""The commands that look into executables, as a user types them."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
from treadle.formats.executable import Executable, load
from treadle.formats.messages.errors import FormatError, VerificationError
from treadle.formats.text.assembly import parse_assembly
from treadle.tools import inspect
from treadle.tools.cli import main

TEXT = """\
const c0 float32[100] = base64 {
LINES
}

func @main(x: float32[100]) -> float32[100]  refs=2 ints=0 frame=0 {
  load_const r1, c0  from "weights"
  ret r1
}
""".replace("LINES", "\n".join(["A" * 96] * 5 + ["A" * 54 + "=="]))


def treadle(*arguments: object) -> None:
    parser = argparse.ArgumentParser()
    inspect.add_commands(parser.add_subparsers())
    options = parser.parse_args(list(map(str, arguments)))
    options.command(options)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.trdl"
    Executable(parse_assembly(TEXT)).export_library(path)
    return path


def test_as_is_the_inverse_of_dis(model: Path, tmp_path: Path) -> None:
    for name, options in {"whole": (), "apart": ("--constants", tmp_path / "weights.trdc")}.items():
        treadle("dis", model, "-o", tmp_path / f"{name}.tasm", *options)
        treadle("as", tmp_path / f"{name}.tasm", "-o", tmp_path / f"{name}.trdl")
        assert (tmp_path / f"{name}.trdl").read_bytes() == model.read_bytes()
    assert (tmp_path / "whole.tasm").read_text() == TEXT
    assert len((tmp_path / "apart.tasm").read_text()) < len(TEXT) - 300


def test_dis_on_the_terminal_leaves_large_constants_out(model: Path, capsys: pytest.CaptureFixture) -> None:
    treadle("dis", model)
    assert "const c0 float32[100] = elided\n" in capsys.readouterr().out


def test_dis_of_one_function_shows_offsets(model: Path, capsys: pytest.CaptureFixture) -> None:
    treadle("dis", model, "-f", "main")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["0", "load_const"], ["3", "ret"]]
    assert lines[0].endswith("# weights")


def test_json_has_stable_keys(model: Path, capsys: pytest.CaptureFixture) -> None:
    found = {}
    for command in ("info", "stats", "verify", "dis"):
        treadle(command, model, "--json")
        found[command] = json.loads(capsys.readouterr().out)
    params = [{"name": "x", "type": "float32[100]"}]
    assert found["info"]["functions"] == [{"name": "main", "params": params, "result": "float32[100]"}]
    assert found["stats"]["functions"][0]["instructions"] == 2
    assert found["stats"]["sections"]["constants"] == 448
    assert found["verify"] == {"verified": True, "functions": 1, "instructions": 2, "primitives": 0, "constants": 1}
    assert found["dis"][0]["opname"] == "load_const"


def test_info_of_text(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "model.tasm").write_text(TEXT)
    treadle("info", tmp_path / "model.tasm")
    assert (
        "  main\n    in   x       float32[100]\n    out  output  float32[100]\n  constants: 1, 400 B\n"
        in capsys.readouterr().out
    )


def test_verify_finds_what_loading_does_not(model: Path, tmp_path: Path) -> None:
    text = TEXT.replace("ret r1", "ret r9").replace("refs=2", "refs=9")
    Executable(parse_assembly(text)).export_library(tmp_path / "bad.trdl")
    load(tmp_path / "bad.trdl")
    with pytest.raises(VerificationError):
        treadle("verify", tmp_path / "bad.trdl")
    data = bytearray(model.read_bytes())
    data[data.index(bytes(400)) + 9] = 1
    model.write_bytes(data)
    with pytest.raises(FormatError, match="damaged"):
        treadle("verify", model)


def test_assembled_text_is_verified(tmp_path: Path) -> None:
    (tmp_path / "bad.tasm").write_text(TEXT.replace("ret r1", "ret r9").replace("refs=2", "refs=9"))
    line = TEXT[: TEXT.index("ret r1")].count("\n") + 1
    for command in ("as", "verify"):
        with pytest.raises(VerificationError, match=rf"code: line {line}, `ret r9`: src of ret: .*instruction \d+"):
            treadle(command, tmp_path / "bad.tasm")
    assert not (tmp_path / "bad.trdl").exists()


def test_looking_inside_imports_no_compiler() -> None:
    code = "import sys, treadle.tools.inspect, treadle.formats.text.report, treadle.vm.verify.verifier; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "llvmlite", "onnx", "treadle.compiler.ir"} & set(modules)


def test_as_says_what_it_wrote_and_verifies_what_primitives_compute(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = """\
prim relu(%0: float32[2]) -> float32[2] {
  %1 = relu(%0) : float32[2]
  return %1
}

func @main(x: float32[2]) -> float32[2] {
  alloc_tensor r1, float32[2]
  call relu (r0) -> (r1)
  ret r1
}
"""
    Path("right.tasm").write_text(text)
    assert main(["as", "right.tasm"]) == 0
    assert "1 functions, 1 primitives, no native code" in capsys.readouterr().out
    Path("wrong.tasm").write_text(text.replace("relu(%0)", "rellu(%0)"))
    assert main(["as", "wrong.tasm"]) == 3
    assert "there is no operator 'rellu'; did you mean relu" in capsys.readouterr().err
    assert not Path("wrong.trdl").exists()
    again = Executable.from_text(text).as_text()
    assert Executable.from_text(again).as_text() == again
