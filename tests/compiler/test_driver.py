"""`treadle.compile`: what it takes, what it refuses, and what it leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle.compiler.builder.programs import Module, function, op, var
from treadle.formats.messages.errors import CompileError
from treadle.formats.types import TypeVariable

from .samples import SAMPLES, floats
from .test_compile import assert_equal


def linear() -> treadle.Module:  # type: ignore[valid-type]
    x, w, b = var("x", ("n", 3)), var("w", (3, 2)), var("b", (2,))
    return Module(main=function([x, w, b], op.relu(x @ w + b)), other=function([x], x + 1))


def test_parameters_become_constants() -> None:
    w, b = floats(3, 2), floats(2)
    executable = treadle.compile(linear(), params={"w": w, "b": b}, embed_native=False)
    assert executable.get_function_params("main") == ["x"]
    result = treadle.VirtualMachine(executable, kernels="cached")["main"](floats(4, 3))
    assert_equal(result, np.maximum(floats(4, 3) @ w + b, 0))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"v": floats(3, 2)}, "'main' has no parameter 'v'; its parameters: x, w, b"),
        ({"w": floats(2, 3)}, r"parameter 'w': expected float32\[3, 2\], got float32\[2, 3\]"),
        ({"w": np.zeros((3, 2))}, r"expected float32\[3, 2\], got float64\[3, 2\]"),
    ],
)
def test_parameters_that_do_not_fit(params: dict, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        treadle.compile(linear(), params=params)


def test_what_the_entry_does_not_reach_is_left_out() -> None:
    assert treadle.compile(linear(), entry="main", embed_native=False).globals == ["main"]
    assert treadle.compile(linear(), embed_native=False).globals == ["main", "other"]
    assert treadle.compile(treadle.Module(linear()), embed_native=False).globals == ["main", "other"]


def test_a_generic_function_is_not_an_entry() -> None:
    x, a = treadle.var("x", (2,), "float32"), treadle.var("a", TypeVariable("T"))
    same = treadle.function([a], a)
    functions = {"main": treadle.function([x], treadle.global_function("same")(x) + 1), "same": same}
    assert treadle.compile(functions, embed_native=False).globals[0] == "main"
    with pytest.raises(CompileError, match="entry 'same' is generic"):
        treadle.compile(functions, entry="same")


def test_an_entry_that_is_not_there() -> None:
    with pytest.raises(CompileError, match="no function 'start' to start at; the module has main, other"):
        treadle.compile(linear(), entry="start")


def test_a_thing_that_is_no_model() -> None:
    with pytest.raises(CompileError, match="cannot compile an int"):
        treadle.compile(3)


def test_what_is_compiled_already_says_what_runs_it() -> None:
    executable = treadle.compile(SAMPLES["double"].module, progress=False)
    with pytest.raises(CompileError, match=r"an Executable; .* treadle\.VirtualMachine\(executable\) runs it"):
        treadle.compile(executable)
    with pytest.raises(CompileError, match=r"a VirtualMachine; .* machine\.executable is what was compiled"):
        treadle.compile(treadle.VirtualMachine(executable))


@pytest.mark.parametrize("option", [{"opt_level": 99}, {"opt_level": -1}, {"opt_level": True}, {"opt_level": "2"}])
def test_an_optimisation_level_that_there_is_not(option: dict) -> None:
    with pytest.raises(CompileError, match=r"opt_level=.*expected a level from 0 to 2"):
        treadle.compile(SAMPLES["double"].module, progress=False, **option)


@pytest.mark.parametrize("target", ["llvm", 5, "", {}])
def test_a_target_that_is_none(target: object) -> None:
    with pytest.raises(CompileError, match=r"target=.*expected a Target"):
        treadle.compile(SAMPLES["double"].module, progress=False, target=target)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["path", "bytes", "proto"])
def test_models_come_as_path_bytes_or_proto(kind: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(name, 1, ["n", 2]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    source = {"path": tmp_path / "m.onnx", "bytes": model.SerializeToString(), "proto": model}[kind]
    executable = treadle.compile(source, embed_native=False)
    assert_equal(
        treadle.VirtualMachine(executable, kernels="cached")["main"](-floats(3, 2)), np.maximum(-floats(3, 2), 0)
    )


def test_native_code_gives_the_same_and_travels_in_the_file(tmp_path: Path) -> None:
    sample = SAMPLES["mlp"]
    executable = treadle.compile(sample.module, progress=False)
    executable.export_library(tmp_path / "mlp.trdl")
    loaded = treadle.load(tmp_path / "mlp.trdl")
    (kernels,) = loaded.native.values()
    assert len(kernels) == len(loaded.program.primitives)
    expected = treadle.VirtualMachine(treadle.compile(sample.module, embed_native=False), kernels="cached")
    result = treadle.VirtualMachine(loaded, trust_native=True)["main"](*sample.arguments)
    np.testing.assert_allclose(result, expected["main"](*sample.arguments), rtol=1e-5)


def test_compiling_with_cached_kernels_imports_no_numba() -> None:
    script = """
import sys
sys.path.insert(0, sys.argv[1])
import treadle
from tests.compiler.samples import SAMPLES
treadle.compile(SAMPLES["mlp"].module, progress=False)
print("numba" in sys.modules)
"""
    root = str(Path(__file__).parents[2])
    for expected in ("", "False"):  # the first run may have to build them
        done = subprocess.run([sys.executable, "-c", script, root], capture_output=True, text=True, check=True)
        assert done.stdout.strip().endswith(expected)


def test_a_model_without_the_package_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = {name: module for name, module in sys.modules.items() if name.startswith("treadle.compiler.onnx.")}
    for name, module in loaded.items():
        package, _, part = name.rpartition(".")
        monkeypatch.setattr(sys.modules[package], part, module)  # an import sets it, too: both are as before afterwards
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)  # as if it were not installed
    with pytest.raises(CompileError, match=r"pip install 'treadle\[onnx\]'"):
        treadle.compile(b"a model")
