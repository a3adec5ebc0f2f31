"""`treadle diff` and `treadle source`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle import debug
from treadle.formats.messages.errors import ArgumentError
from treadle.tools.cli import main
from treadle.tools.dev import planted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("difference")
    (made / "right.onnx").write_bytes(planted.model().SerializeToString())
    (made / "wrong.onnx").write_bytes(planted.model(wrong_weight=True).SerializeToString())
    return made


def test_the_same_executable_differs_in_nothing(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", str(folder / "right.onnx"), str(folder / "right.onnx")]) == 0
    assert "are the same" in capsys.readouterr().out


def test_a_wrong_weight_is_one_other_constant(folder: Path) -> None:
    made = [treadle.compile(folder / f"{name}.onnx", embed_native=False) for name in ("right", "wrong")]
    found = debug.diff(*made)
    assert [line[:20] for line in found.constants] == [f"{sign} float32[2, 24, 16]" for sign in "-+="]
    assert "1 of 768 elements differ, the first at [0, 3, 5]" in found.constants[2]
    assert (len(found.constants), found.signatures, found.primitives, found.instructions) == (3, [], [], {})
    assert repr(found) == "<Difference: 2 in constants>"


def test_what_two_programs_do_otherwise_in_one_place_is_named() -> None:
    x, weights = treadle.var("x", (2, 8)), np.arange(64, dtype=np.float32).reshape(8, 8)
    made = [
        treadle.compile(
            treadle.function([x], treadle.op.softmax(x @ array, axis=axis)), embed_native=False, progress=False
        )
        for array, axis in ((weights, 0), (weights.T.copy(), 1))
    ]
    found = debug.diff(*made)
    assert found.constants[-1].endswith("; they are the same numbers in another order")
    assert found.primitives[-1] == "= softmax, softmax: axis 0 and 1"


def test_levels_of_optimisation_differ_in_primitives_and_instructions(folder: Path) -> None:
    made = [treadle.compile(folder / "right.onnx", opt_level=level, embed_native=False) for level in (0, 2)]
    found = debug.diff(*made)
    assert found.primitives
    assert found.instructions["main"]
    assert found.metadata == ["- opt_level = 0", "+ opt_level = 2"]


@pytest.mark.parametrize(("form", "text"), [("python", "def "), ("llvm", "define "), ("asm", "kernel:")])
def test_source_shows_a_kernel(folder: Path, capsys: pytest.CaptureFixture, form: str, text: str) -> None:
    name = "matmul_packed_add_tanh_multiply_add"
    assert main(["source", str(folder / "right.onnx"), name, "--form", form]) == 0
    assert text in capsys.readouterr().out
    assert main(["source", str(folder / "right.onnx"), "matmul"]) == 2
    assert name in capsys.readouterr().err


def test_every_command_that_compiles_takes_a_level(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "zero.trdl"
    assert main(["compile", str(folder / "right.onnx"), "-o", str(output), "--opt-level", "0", "--no-kernels"]) == 0
    assert dict(treadle.load(output).program.metadata)["opt_level"] == "0"
    assert main(["source", str(folder / "right.onnx"), "--opt-level", "0"]) == 0


def test_files_and_models_are_told_apart_as_executables_are(tmp_path: Path) -> None:
    right, wrong = planted.model(), planted.model(wrong_weight=True)
    treadle.compile(wrong, embed_native=False, progress=False).export_library(tmp_path / "wrong.trdl")
    found = debug.diff(tmp_path / "wrong.trdl", right)
    assert (len(found.constants), found.primitives, found.instructions) == (3, [], {})
    with pytest.raises(ArgumentError, match="diff: expected an Executable, a model, or a file of either, got a dict"):
        debug.diff({}, right)
