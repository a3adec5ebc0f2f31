"""The command line: what it prints, what it exits with, and how fast it starts."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import parser
from treadle.native.platform import ObjectCache
from treadle.tools import cli, digits, doctor
from treadle.tools.cli import main

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
    assert main(["compile", f"{folder}/add.onnx", "-o", f"{folder}/add.trdl", "--no-kernels"]) == 0
    assert main(["as", f"{folder}/loop.tasm", "-o", f"{folder}/loop.trdl"]) == 0
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
    assert main(["compile", f"{folder}/double.ir", "-o", f"{folder}/double.trdl", "--no-kernels"]) == 0
    capsys.readouterr()
    assert main(["run", f"{folder}/double.trdl", "--kernels", "cached", "--input", "x=1,2"]) == 0
    assert capsys.readouterr().out == "y: float32[2] [2., 4.]\n"


def test_a_program_becomes_an_onnx_file(folder: Path, capsys: pytest.CaptureFixture) -> None:
    text, written = folder / "written.ir", folder / "written.onnx"
    text.write_text("func @main(x: float32[n]) -> float32[n] {\n  y = exp(x)\n  y\n}\n")
    assert main(["to-onnx", str(text), "-o", str(written), "--opset", "13"]) == 0
    assert re.fullmatch(rf"{written}: 1 nodes, opset 13, \d+ B\n", capsys.readouterr().out)
    assert main(["run", str(written), "--input", "x=2xf32=0"]) == 0
    assert main(["to-onnx", str(folder / "add.trdl"), "-o", str(written)]) == 2
    assert "executable, which to-onnx does not take" in capsys.readouterr().err


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
        (["run", "{}/loop.tasm", "--max-steps", "100"], 5, "more than 100 steps; raise --max-steps"),
        (["run", "{}/loop.trdl", "--max-steps", "100"], 5, "more than 100 steps; raise --max-steps"),
        (["run", "{}/loop.trdl", "--max-seconds", "0.05"], 5, "more than 0.05 s; raise --max-seconds"),
        (["info", "{}/nowhere.trdl"], 2, "there is no file"),
        (["as", "{}/nowhere.tasm"], 2, "there is no file"),
        (
            ["compile", "{}/add.onnx", "-o", "{}/no/such/folder.trdl", "--no-kernels"],
            4,
            "cannot be written: there is no folder",
        ),
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


def test_a_module_that_knows_a_models_operators_is_imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = MODEL.replace('"" : 17', '"" : 17, "own" : 1').replace("Add", "own.Plus")
    (folder / "plus.onnx").write_bytes(parser.parse_model(text).SerializeToString())
    (folder / "knows_plus.py").write_text(
        "import treadle\n@treadle.onnx_operator('Plus', domain='own')\ndef plus(a, b):\n    return a + b\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["compile", f"{folder}/plus.onnx", "-o", f"{folder}/plus.trdl", "--no-kernels"]) == 3
    options = ["--no-kernels", "--import", "knows_plus"]
    assert main(["compile", f"{folder}/plus.onnx", "-o", f"{folder}/plus.trdl", *options]) == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [(None, "No module named 'my_module'; Python looks in the working directory"), ("1 / 0", "ZeroDivision")],
)
def test_a_module_that_cannot_be_imported_is_usage(
    text: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    if text:
        (tmp_path / "my_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["knobs", "--import", "my_module"]) == 2
    assert f"--import my_module: {why}" in capsys.readouterr().err.replace("ModuleNotFoundError: ", "")


def test_a_file_in_place_of_a_module_is_told_its_name(capsys: pytest.CaptureFixture) -> None:
    assert main(["knobs", "--import", "mine/operators.py"]) == 2
    assert "a module's name is expected, such as mine.operators, not its file's" in capsys.readouterr().err


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
    assert (
        main(["compile", f"{folder}/add.onnx", "--print-after", "simplify", "--no-kernels", "-o", f"{folder}/p.trdl"])
        == 0
    )
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
    assert sum(file.stat().st_size for file in (tmp_path / "new").rglob("*") if file.is_file()) < 10_000  # no engine


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


def test_who_closes_the_output_gets_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["dis", f"{folder}/add.trdl"]) == 0
    assert sys.stdout.fileno() > 0


def test_the_digits_model_needs_no_data_to_compile(folder: Path) -> None:
    assert main(["compile", str(digits.MODEL), "-o", f"{folder}/digits.trdl", "--no-kernels"]) == 0


def treadle(*arguments: str, **options: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "treadle", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


def test_each_module_adds_the_commands_that_it_names() -> None:
    homes = {name: home for group in cli.grouped().values() for name, home in group.items()}
    for home in set(homes.values()):
        own = {name for name in homes if homes[name] == home}
        assert cli._commands(cli._parser(min(own))).keys() == own, home
    assert cli._commands(cli._parser()).keys() == homes.keys()


def test_a_module_with_a_command_is_all_that_a_command_takes(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text('COMMANDS = {\n    "Run models": ("greet", "cheer"),\n}\n\nprint("imported")\n')
    (tmp_path / "helper.py").write_text("NAMES = {}\n")
    assert cli.grouped(tmp_path)["Run models"] == {"cheer": ".greet", "greet": ".greet"}


@pytest.mark.parametrize("title", cli._GROUPS)
def test_each_group_has_an_example_which_is_one_of_its_commands(title: str) -> None:
    program, *words = shlex.split(cli._GROUPS[title])
    assert program == "treadle"
    assert cli._parser().parse_args(words).command_name in cli.grouped()[title]


def test_help_lists_each_command_once_by_group(capsys: pytest.CaptureFixture) -> None:
    assert main(["--help"]) == 0
    parts = re.split(r"^(\S.*):$", capsys.readouterr().out, flags=re.MULTILINE)
    listed = {
        title: re.findall(r"^  ([\w-]+)  ", text, re.MULTILINE)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    del listed["options"]
    assert listed == {title: list(names) for title, names in cli.grouped().items()}


def test_without_a_command_the_help_is_shown() -> None:
    done = treadle()
    assert (done.returncode, done.stderr) == (0, "")
    assert "treadle [-h] [--version] COMMAND" in done.stdout


def test_a_wrong_command_is_one_sentence(folder: Path, capsys: pytest.CaptureFixture) -> None:
    for arguments, message in (
        (["rnu"], "treadle: there is no command 'rnu'; did you mean run?; `treadle --help` lists them\n"),
        (
            [f"{folder}/add.onnx"],
            f"treadle: the command is missing: `treadle run {folder}/add.onnx` runs the program, ",
        ),
        (["run"], "treadle run: the following arguments are required: program; `treadle run --help` says more\n"),
        (
            ["info", "x", "--optlevel", "9"],
            "treadle info: there is no option --optlevel; did you mean --opt-level?; `treadle info --help` lists them\n",
        ),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith(message)
        assert error.count("\n") == 1


def test_faults_of_ours_are_one_line_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("some\nthing")

    monkeypatch.setattr("treadle.tools.program_files.ProgramFile.foreign", fail)
    assert main(["info", f"{folder}/add.trdl"]) == 4
    error = "treadle info: a fault of Treadle, please report it (RuntimeError: some thing); --debug shows where\n"
    assert capsys.readouterr().err == error


def test_a_missing_package_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'onnx'", name="onnx")

    monkeypatch.setattr("treadle.compiler.onnx.importer.from_onnx", fail)
    assert main(["info", f"{folder}/add.onnx"]) == 4
    assert "the package onnx is needed: pip install 'treadle[onnx]'\n" in capsys.readouterr().err


def test_a_folder_that_there_is_not_is_told_before_anything_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("treadle.compile", lambda *_, **__: pytest.fail("compiled"))
    assert main(["compile", f"{folder}/add.onnx", "-o", f"{folder}/no/x.trdl"]) == 4
    assert f"x.trdl' cannot be written: there is no folder '{folder}/no'" in capsys.readouterr().err
    monkeypatch.setattr("treadle.tools.serve._is_missing", lambda _: pytest.fail("packages were looked for"))
    assert main(["serve", f"{folder}/x.onnx"]) == 2
    assert "there is no file or folder" in capsys.readouterr().err


def test_a_reader_that_goes_is_no_error(folder: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m treadle dis {shlex.quote(str(folder))}/add.trdl | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_is_quiet(folder: Path) -> None:
    command = [sys.executable, "-m", "treadle", "run", f"{folder}/loop.trdl", "--kernels", "cached"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):  # it runs
        process.communicate(timeout=3)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130


@pytest.mark.parametrize(
    "inputs",
    [
        ["x=random", "w=0.5", "--dim", "n=3"],
        ["x=3x2=random", "w=0.5"],
        ["3x2=random", "0.5"],
        ["w=0.5", "x=3x2=random:0"],
    ],
)
def test_shapes_need_no_element_type(folder: Path, inputs: list[str], capsys: pytest.CaptureFixture) -> None:
    given = [word for text in inputs for word in ([text] if text.startswith(("--", "n=")) else ["--input", text])]
    assert run(folder, *given, "--json") == 0
    assert json.loads(capsys.readouterr().out)["outputs"]["y"]["shape"] == [3, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--input", "x=x.npy", "--input", "w=1"], "'x=x.npy': x.npy is a file; write @ before its name: x=@x.npy"),
        (["--input", "x=random", "--input", "w=1"], "write one, as in x=1x2=random, or its size: --dim n=1"),
        (["--input", "x=random", "--input", "w=1", "--dim", "m=1"], "no symbolic dimension 'm'; there is n"),
    ],
)
def test_inputs_that_do_not_fit_say_what_to_write(
    folder: Path, given: list[str], message: str, capsys: pytest.CaptureFixture
) -> None:
    assert run(folder, *given) == 2
    assert message in capsys.readouterr().err


def test_doctor_knows_which_variables_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CAHCE", "/tmp")
    monkeypatch.setenv("TREADLE_NUM_THREADS", "many")
    monkeypatch.setenv("TREADLE_TARGET", "abacus")
    found = {finding.name: finding for finding in doctor.examine()}
    assert "no such variable; did you mean TREADLE_CACHE" in found["TREADLE_CAHCE"].problem
    assert "TREADLE_NUM_THREADS='many': a number from 1 on is expected" in found["TREADLE_NUM_THREADS"].problem
    assert "LLVM knows no CPU 'abacus'" in found["TREADLE_TARGET"].problem


def test_doctor_counts_the_cpus_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.native.processors.cpu_quota", lambda: 0.5)
    found = {finding.name: finding.value for finding in doctor.examine()}
    assert found["CPUs"].startswith("1 for this process")
    assert "the time of 0.5 (control group)" in found["CPUs"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "x.trdl", "--inptu", "x=random"], "treadle run: there is no option --inptu; did you mean --input"),
        (["info", "--jsn=1", "x.trdl"], "treadle info: there is no option --jsn; did you mean --json?"),
        (["verify", "x.trdl", "y.trdl"], "treadle verify: 'y.trdl' is one argument too many"),
    ],
)
def test_a_word_that_a_command_does_not_take_is_named(
    words: list[str], message: str, capsys: pytest.CaptureFixture
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err
