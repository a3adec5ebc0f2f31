"""The command line: what it prints, what it exits with, and how fast it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import parser
from treadle.tools import digits, doctor
from treadle.tools.cli import main
from treadle.vm.native import ObjectCache

MODEL = (
    '<ir_version: 8, opset_import: ["" : 17]> agraph (float[n, 2] x, float[2] w) => (float[n, 2] y) { y = Add(x, w) }'
)
LOOP = """\
func @main() -> int64[1] {
L0:
  goto L0
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its executable, and a program that never ends."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "add.onnx").write_bytes(parser.parse_model(MODEL).SerializeToString())
    (folder / "loop.tasm").write_text(LOOP)
    assert main(["compile", f"{folder}/add.onnx", "--no-kernels"]) == 0
    assert main(["as", f"{folder}/loop.tasm"]) == 0
    return folder


def run(folder: Path, *options: str) -> int:
    return main(["run", f"{folder}/add.trdl", "--kernels", "cached", *options])


def test_run_prints_small_results(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(folder, "--input", "x=1x2xf32=1,2", "--input", "w=0.5") == 0
    assert capsys.readouterr().out == "y: float32[1, 2] [[1.5, 2.5]]\n"


def test_names_may_be_left_out(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(folder, "--input", "1x2xf32=1,2", "--input", "0.5") == 0
    assert "[[1.5, 2.5]]" in capsys.readouterr().out


def test_a_model_can_be_run_at_once(folder: Path, capsys: pytest.CaptureFixture) -> None:
    inputs = ["--input", "1x2xf32=1,2", "--input", "0.5"]
    assert main(["run", f"{folder}/add.onnx", "--kernels", "cached", *inputs]) == 0
    assert "[[1.5, 2.5]]" in capsys.readouterr().out


def test_a_text_of_the_ir_can_be_compiled(folder: Path, capsys: pytest.CaptureFixture) -> None:
    (folder / "double.ir").write_text("func @main(x: float32[2]) {\n  y: float32[2] = add(x, x)\n  y\n}\n")
    assert main(["compile", f"{folder}/double.ir", "--no-kernels"]) == 0
    capsys.readouterr()
    assert main(["run", f"{folder}/double.trdl", "--kernels", "cached", "--input", "x=1,2"]) == 0
    assert capsys.readouterr().out == "y: float32[2] [2., 4.]\n"


def test_results_can_be_saved_and_compared(folder: Path, capsys: pytest.CaptureFixture) -> None:
    inputs = ["--input", "x=3x2xf32=random:1", "--input", "w=random:2"]
    assert run(folder, *inputs, "--output", f"y=@{folder}/y.npy") == 0
    assert np.load(folder / "y.npy").shape == (3, 2)
    assert run(folder, *inputs, "--expected-output", f"@{folder}/y.npy") == 0
    capsys.readouterr()
    assert run(folder, *inputs, "--expected-output", "y=3x2xf32=9") == 1
    assert "output 'y': 6 of 6 elements differ by more than rtol=0.001" in capsys.readouterr().out


def test_json(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(folder, "--input", "1x2xf32=1,2", "--input", "0.5", "--expected-output", "f32=0", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["outputs"] == {"y": {"dtype": "float32", "shape": [1, 2], "elements": [[1.5, 2.5]]}}
    assert len(report["mismatches"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "{}/nowhere.trdl"], 2, "there is no file"),
        (["run", "{}/add.trdl"], 2, "no --input for 'x', 'w'; x is float32[n, 2]"),
        (["run", "{}/add.trdl", "--input", "z=1"], 2, "there is no input 'z'; there is x, w"),
        (["run", "{}/add.trdl", "--function", "f"], 2, "there is no function 'f'; there is main"),
        (["run", "{}/add.onnx.trdl"], 2, "there is no file"),
        (["compile", "{}/add.onnx", "--print-after", "magic"], 2, "no pass is called magic"),
        (["run", "{}/loop.tasm"], 3, "not a Treadle file"),
        (["run", "{}/loop.trdl", "--max-steps", "100"], 5, "more than 100 steps; raise --max-steps"),
        (["run", "{}/loop.trdl", "--max-seconds", "0.05"], 5, "more than 0.05 s; raise --max-seconds"),
        (["info", "{}/nowhere.trdl"], 2, "there is no file"),
        (["as", "{}/nowhere.tasm"], 2, "there is no file"),
        (["compile", "{}/add.onnx", "-o", "{}/no/such/folder.trdl", "--no-kernels"], 4, "No such file or directory"),
        (
            ["run", "{}/add.trdl", "--kernels", "cached", "--input", "1x3xf32=1", "--input", "1"],
            4,
            "expected float32[n, 2]",
        ),
        (["compile", "{}/add.onnx", "--shape", "q=1"], 3, "the model's inputs are 'x', 'w'"),
    ],
)
def test_errors_are_one_line_and_a_code(
    folder: Path, capsys: pytest.CaptureFixture, arguments: list[str], code: int, message: str
) -> None:
    assert main([argument.format(folder) for argument in arguments]) == code
    error = capsys.readouterr().err
    assert error.startswith(f"treadle {arguments[0]}: ")
    assert error.count("\n") == 1
    assert message in error


def test_wrong_options_are_usage(capsys: pytest.CaptureFixture) -> None:
    assert main(["run"]) == 2
    assert main(["nonsense"]) == 2


def test_debug_shows_the_traceback(folder: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        main(["run", f"{folder}/nowhere.trdl", "--debug"])


def test_unsupported_operators_are_listed(folder: Path, capsys: pytest.CaptureFixture) -> None:
    model = MODEL.replace("y = Add(x, w)", "h = Foo(x) y = Bar(h, w)").replace("Bar(h", "Bar(x")
    (folder / "odd.onnx").write_bytes(parser.parse_model(model).SerializeToString())
    assert main(["compile", f"{folder}/odd.onnx"]) == 3
    assert "2 nodes are not supported: Foo (Foo h): " in capsys.readouterr().err


def test_shapes_can_be_given(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["compile", f"{folder}/add.onnx", "-o", f"{folder}/a4.trdl", "--shape", "x=4,2", "--no-kernels"]) == 0
    assert main(["info", f"{folder}/a4.trdl"]) == 0
    assert "  main\n    in   x  float32[4, 2]\n    in   w  float32[2]\n" in capsys.readouterr().out


def test_what_a_program_imports_is_told_and_asked_for(folder: Path, capsys: pytest.CaptureFixture) -> None:
    text = "import f: fn(float32[n]) -> ()\nfunc @main(x: float32[2]) -> () { call_import r1, f (r0)\n ret r1 }"
    (folder / "imports.tasm").write_text(text)
    assert main(["as", f"{folder}/imports.tasm", "-o", f"{folder}/imports.trdl"]) == 0
    assert main(["info", f"{folder}/imports.trdl"]) == 0
    assert "import f: fn(float32[n]) -> ()" in capsys.readouterr().out
    assert main(["run", f"{folder}/imports.trdl", "--input", "1,2"]) in (3, 4)
    assert "a function that it was not given: f: fn(float32[n]) -> ()" in capsys.readouterr().err


def test_print_after(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["compile", f"{folder}/add.onnx", "--print-after", "simplify", "--no-kernels"]) == 0
    assert "# after simplify" in capsys.readouterr().out


def test_doctor_is_content_without_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_OPTIONAL", {"no_such_package": "pip install it, to do more"})
    (finding,) = (finding for finding in doctor.examine() if finding.name == "no_such_package")
    assert finding == doctor.Finding("no_such_package", "not installed; pip install it, to do more")


def test_a_model_is_known_by_its_content(folder: Path, capsys: pytest.CaptureFixture) -> None:
    (folder / "plain").write_bytes((folder / "add.onnx").read_bytes())
    assert main(["compile", f"{folder}/plain", "-o", f"{folder}/plain.trdl", "--no-kernels"]) == 0
    assert (folder / "plain.trdl").read_bytes() == (folder / "add.trdl").read_bytes()


def test_doctor_looks_and_builds_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TREADLE_CACHE": str(tmp_path / "new")}
    command = [sys.executable, "-m", "treadle.tools.cli", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["engine"]["value"].startswith("not built yet")
    assert not done.stderr


def test_doctor_tries_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    assert not ObjectCache(tmp_path / "new" / "folder").problem()
    assert ObjectCache(tmp_path / "file" / "folder").problem()


def test_doctor_and_knobs(capsys: pytest.CaptureFixture) -> None:
    main(["doctor", "--json"])
    found = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert found.keys() >= {"treadle", "python", "numba", "processor", "vectors", "threads", "cache", "engine"}
    assert main(["knobs"]) == 0
    assert "TREADLE_CACHE" in capsys.readouterr().out


def test_looking_into_a_file_imports_no_compiler(folder: Path) -> None:
    code = (
        "import sys; from treadle.tools.cli import main; main(['info', sys.argv[1]]);"
        "print([name for name in sys.modules if name.split('.')[0] in ('numba', 'llvmlite', 'onnx', 'tqdm')"
        " or name.startswith('treadle.compiler')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"{folder}/add.trdl"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_digits_model_needs_no_data_to_compile(folder: Path) -> None:
    assert main(["compile", str(digits.MODEL), "-o", f"{folder}/digits.trdl", "--no-kernels"]) == 0
