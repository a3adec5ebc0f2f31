"""Every command takes a program of each kind, in a file or on standard input, whatever its name; and says what else a file is."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
import treadle
from onnx import parser
from treadle.formats.messages.file_kinds import kind_of_whole
from treadle.tools.cli import main
from treadle.tools.program_files import _shape_argument
from treadle.tools.serve import served_folder

MODEL = '<ir_version: 8, opset_import: ["" : 17]> agraph (float[n, 2] x) => (float[n, 2] y) { y = Add(x, x) }'
PROGRAMS = ("onnx", "ir", "assembly", "executable")
COMMANDS = {  # with the options that it needs
    "info": (),
    "stats": (),
    "verify": (),
    "dis": (),
    "source": (),
    "run": ("--input", "x=3x2=1", "--kernels", "cached"),
    "profile": ("--dim", "n=3", "--repeat", "1", "--memory", "--kernels", "cached"),
    "compare": ("--against", "reference"),
    "nonfinite": (),
    "dump": ("-o", "dump"),
    "compile": ("-o", "out.trdl", "--no-kernels"),
    "warmup": (),
}
OTHERS = {  # what is not a program, and what every command says of it
    "array.npy": "array.npy is not a program; it is one of NumPy's arrays (.npy): an array is an argument of a program: `treadle",
    "arrays.npz": "is not a program; it is a file of NumPy's arrays (.npz): treadle.load_params takes it",
    "pickled.onnx": "is not a program; it is a pickle, which could run anything; Treadle reads none: export the model to ONNX",
    "archive.pt": "is not a program; it is a zip archive, as PyTorch and Keras save models: export the model to ONNX",
    "script.py": "is not a program; it is a text of Python's: a framework exports its models to ONNX",
    "model.gguf": "is a GGUF file",
    "empty.onnx": "is empty; expected a .onnx model",
    "bytes.bin": "is not a program: it begins with",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of each kind, under a name without ending; and other files."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "onnx").write_bytes(parser.parse_model(MODEL).SerializeToString())
    x = treadle.var("x", ("n", 2))
    module = treadle.Module(main=treadle.function([x], x + x))
    (folder / "ir").write_text(str(module))
    executable = treadle.compile(module, progress=False, embed_native=False)
    (folder / "assembly").write_text(executable.as_text())
    executable.export_library(folder / "executable")
    np.save(folder / "array.npy", np.ones(2))
    np.savez(folder / "arrays.npz", w=np.ones(2))
    (folder / "pickled.onnx").write_bytes(b"\x80\x04K\x01.")
    (folder / "archive.pt").write_bytes(b"PK\x03\x04" + bytes(40))
    (folder / "script.py").write_text("import torch\n")
    (folder / "model.gguf").write_bytes(b"GGUF" + bytes(60))
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "bytes.bin").write_bytes(b"\xff\x00\xee" + bytes(60))
    return folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_every_command_takes_every_kind(files, command, kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, str(files / kind), *COMMANDS[command]]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_every_command_reads_standard_input(files, command, kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((files / kind).read_bytes())))
    assert main([command, "-", *COMMANDS[command]]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_program_is_told_in_a_sentence(files, command, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, str(files / name), *COMMANDS[command]]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"treadle {command}: ")
    assert OTHERS[name] in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("onnx", "`treadle compile` makes an executable of it"),
        ("ir", "`treadle compile` makes an executable of it"),
        ("executable", "`treadle run` runs it"),
    ],
)
def test_as_takes_assembly_alone(files, kind, advice, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["as", str(files / kind)]) == 2
    assert advice in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_made_lies_in_the_working_directory(files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = sorted(files.iterdir())
    assert main(["as", str(files / "assembly")]) == main(["compile", str(files / "onnx"), "--no-kernels"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["assembly.trdl", "onnx.trdl"]
    assert sorted(files.iterdir()) == before


def test_no_program_is_written_over_by_what_is_made_of_it(files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.trdl").write_bytes((files / "executable").read_bytes())
    assert main(["compile", "m.trdl"]) == 2
    assert "m.trdl itself would be written over; write -o FILE.trdl" in capsys.readouterr().err
    assert (tmp_path / "m.trdl").read_bytes() == (files / "executable").read_bytes()


def test_standard_input_has_no_name(files, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((files / "onnx").read_bytes())))
    assert main(["compile", "-"]) == 2
    assert "write -o FILE.trdl, or -o - for standard output" in capsys.readouterr().err


def test_an_executable_gets_the_kernels_of_this_machine(files, tmp_path):
    assert main(["compile", str(files / "executable"), "-o", str(tmp_path / "built.trdl")]) == 0
    assert not treadle.load(files / "executable").native
    assert treadle.load(tmp_path / "built.trdl").native


def test_options_of_models_are_refused_for_executables(files, tmp_path, capsys):
    assert main(["compile", str(files / "executable"), "-o", str(tmp_path / "x"), "--shape", "x=1,2"]) == 2
    assert "--shape is for models, which are compiled" in capsys.readouterr().err


def test_a_function_of_a_text_is_compiled_by_its_name(tmp_path, capsys):
    (tmp_path / "two.ir").write_text("func @twice(x: float32[2]) {\n  y: float32[2] = add(x, x)\n  y\n}\n")
    arguments = ["--function", "twice", "--input", "x=1,2", "--kernels", "cached"]
    assert main(["run", str(tmp_path / "two.ir"), *arguments]) == 0
    assert capsys.readouterr().out == "y: float32[2] [2., 4.]\n"
    assert main(["info", str(tmp_path / "two.ir")]) == 0
    assert "twice" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("func @main() -> int64[1] {\nL0:\n  goto L0\n}\n", "assembly"),
        ("func @main(x: float32[2]) -> float32[2] {\n  rett r0\n}\n", "assembly"),
        ("func @main(x: float32[2]) {\n  x\n}\n", "ir"),
        ("func @main(x: float32[2], r1: float32[2]) {\n  add: float32[2] = add(x, r1)\n  add\n}\n", "ir"),
        (
            "const c0 float32[9999] = base64 {\n" + 200 * (95 * "A" + "\n") + "}\n\nfunc @f() {\n  ret r0\n}\n",
            "assembly",
        ),
    ],
)
def test_texts_are_told_apart_by_their_functions(text, kind):
    assert kind_of_whole(text.encode()).name == kind


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_is_served_as_a_folder_that_holds_it_alone(files, kind, tmp_path, monkeypatch):
    (tmp_path / "my net.x").write_bytes((files / kind).read_bytes())
    (tmp_path / "my net.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with served_folder("my net.x") as folder:
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["my_net.json", "my_net.trdl"][kind != "executable" :]
        machine = treadle.VirtualMachine(treadle.load(folder / "my_net.trdl"), kernels="cached")
        assert machine["main"](np.ones((3, 2), np.float32)).numpy().tolist() == [[2, 2]] * 3
    assert not folder.exists()
    assert (tmp_path / "my net.x").exists()


def test_a_folder_is_served_as_it_is_and_standard_input_as_model(files, tmp_path, monkeypatch):
    with served_folder(str(tmp_path)) as folder:
        assert folder == tmp_path
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((files / "onnx").read_bytes())))
    with served_folder("-") as folder:
        assert [path.name for path in folder.iterdir()] == ["model.trdl"]


def test_a_file_that_replaces_a_served_one_is_served(files, tmp_path):
    (tmp_path / "net.trdl").write_bytes((files / "executable").read_bytes())
    with served_folder(str(tmp_path / "net.trdl")) as folder:
        before = (folder / "net.trdl").stat()
        (tmp_path / "net.trdl").unlink()
        (tmp_path / "net.trdl").write_bytes((files / "executable").read_bytes() + b"x")
        assert (folder / "net.trdl").stat().st_size == before.st_size + 1


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *zip(
            PROGRAMS,
            ("an ONNX model, as an", "a text of the IR, as an", "assembly text, as an", "Treadle"),
            strict=True,
        )
    ],
)
def test_info_says_what_a_file_is(files, kind, what, capsys):
    assert main(["info", str(files / kind)]) == 0
    assert capsys.readouterr().out.startswith(f"{files / kind}: {what} executable, format 1, ")


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("x=n,3,224", ["n", 3, 224]),
        ("x=[n, 3, 224]", ["n", 3, 224]),
        ("x=1x3x224", [1, 3, 224]),
        ("x=nx3x224", ["n", 3, 224]),
        ("x=1x3", [1, 3]),
        ("x=max4", ["max4"]),
        ("max_len=128", [128]),
        ("x=", []),
    ],
)
def test_shapes_are_written_as_types_are_too(text, sizes):
    assert _shape_argument(text)[1] == sizes
