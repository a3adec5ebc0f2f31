"""Compilations end where their caller's bounds are passed, and say where; no constant grows beyond its limit."""

from __future__ import annotations

import mmap
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from onnx import helper, numpy_helper
from treadle.compiler import bounds, ir
from treadle.compiler.named_weights import computed
from treadle.compiler.passes import Options, passes_of
from treadle.formats import limits
from treadle.formats.messages.errors import CompileBudgetError, CompileError
from treadle.tools.cli import main
from treadle.tools.dev import zoo

PASSES = list(dict.fromkeys(each.name for _, each in passes_of(Options())))


def layers(count: int = 3) -> bytes:
    return zoo.mlp((8,) * (count + 1)).SerializeToString()


def late(monkeypatch: pytest.MonkeyPatch, step: str, nodes: int = 2) -> None:
    """The clock jumps ahead at that node of a step."""
    jump = iter([0.0] * nodes)
    real = time.monotonic

    def now() -> float:
        current = bounds._current.get()
        return real() + (1e6 if current and step in current.step and next(jump, 1) else 0)

    monkeypatch.setattr(bounds.time, "monotonic", now)


@pytest.mark.parametrize("step", ["import of the model", *(f"pass {name}" for name in PASSES), "code generation"])
def test_an_error_names_the_step_that_took_too_long(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    late(monkeypatch, step, 0)
    with pytest.raises(CompileBudgetError, match=f"longer than max_seconds=60, in the {step}|in {step}") as caught:
        treadle.compile(layers(), embed_native=False, max_seconds=60)
    assert step in caught.value.step
    assert caught.value.budget == "seconds"


@pytest.mark.parametrize("step", ["import of the model", "pass infer_types", "pass fold_constants", "pass fuse"])
def test_an_error_names_the_node(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    late(monkeypatch, step)
    with pytest.raises(CompileBudgetError, match=r"\[node '") as caught:
        treadle.compile(layers(), embed_native=False, max_seconds=60)
    assert caught.value.node


def test_the_error_is_one_of_compiling() -> None:
    with pytest.raises(CompileError):
        treadle.compile(layers(), max_seconds=0)


def test_kernels_are_built_within_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    late(monkeypatch, "building kernels", 0)
    with pytest.raises(CompileBudgetError, match="building kernels"):
        treadle.compile(layers(), max_seconds=60)


def large(nbytes: int) -> bytes:
    """One number expanded to a number of bytes; a product of it is a constant."""
    size = int((nbytes / 4) ** 0.5)
    weights = [
        numpy_helper.from_array(np.float32(2).reshape(1, 1), "one"),
        numpy_helper.from_array(np.array([size, size]), "shape"),
    ]
    x = helper.make_tensor_value_info("x", 1, (1, size))
    y = helper.make_tensor_value_info("y", 1, None)
    nodes = [
        helper.make_node("Expand", ["one", "shape"], ["wide"], name="the large one"),
        helper.make_node("MatMul", ["x", "wide"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def test_what_would_take_too_much_memory_is_not_made() -> None:
    treadle.compile(large(64 << 20), embed_native=False, max_memory=1 << 30)
    with pytest.raises(CompileBudgetError, match=r"more than max_memory=1000000 bytes .* in the pass") as caught:
        treadle.compile(large(64 << 20), embed_native=False, max_memory=1_000_000)
    assert caught.value.budget == "memory"
    assert caught.value.node == "the large one"


def test_memory_that_is_held_meanwhile_is_noticed() -> None:
    pages = partial(
        mmap.mmap, -1, 1 << 25, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )  # malloc's may be resident before
    with bounds.bounded(max_memory=1 << 20), pages() as kept:
        kept.write(bytes(1 << 25))
        time.sleep(0.1)
        with pytest.raises(CompileBudgetError, match="so far"):
            bounds.check()


def test_nothing_is_left_behind(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "model.onnx").write_bytes(layers())
    threads = threading.active_count()
    for option in (["--max-seconds", "0"], ["--max-memory", "0"]):
        assert main(["compile", f"{tmp_path}/model.onnx", "-o", f"{tmp_path}/made.trdl", *option]) == 5
        assert f"{option[0]}=0" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert threading.active_count() == threads
    assert treadle.compile(layers(), embed_native=False)  # the next one has no bounds


@pytest.mark.parametrize("value", [-1, True, "3", float("nan")])
@pytest.mark.parametrize("name", ["max_seconds", "max_memory"])
def test_what_is_no_bound(name: str, value: Any) -> None:
    with pytest.raises(CompileError, match=f"{name}=.*: expected a number"):
        treadle.compile(layers(), **{name: value})


# ---- what takes long is told ----


@dataclass(frozen=True)
class Slow:
    """A pass that runs until something is told, or for `seconds`."""

    capsys: pytest.CaptureFixture
    seconds: float
    name: str = "slow"

    def __call__(self, module: ir.Module) -> ir.Module:
        end = time.monotonic() + self.seconds
        while not (told := self.capsys.readouterr().err) and time.monotonic() < end:
            time.sleep(0.01)
        print(told, file=sys.stderr)
        return module


@pytest.mark.parametrize(("progress", "seconds"), [(True, 60), (False, 0.2)])
def test_a_step_that_takes_long_is_told(
    progress: bool, seconds: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(bounds, "_SILENCE", 0.05)
    monkeypatch.setattr(bounds, "_LOOK", 0.01)
    slow = treadle.after("infer_types", Slow(capsys, seconds))
    treadle.compile(layers(), embed_native=False, passes=[slow], progress=progress)
    assert ("treadle: the pass slow, 0 s so far" in capsys.readouterr().err) == progress


def test_steps_of_a_compilation_are_told_by_one_thread() -> None:
    threads = threading.active_count()
    with bounds.telling() as outer:
        bounds.step("outer")
        with bounds.telling() as inner:
            inner.begin(lambda: "inner")
            assert (inner is outer, outer.text()) == (True, "inner")
            assert threading.active_count() == threads + 1
        assert outer.text() == "outer"
    assert threading.active_count() == threads


# ---- the limit of what is folded ----


def repeated(operator: str) -> Callable[[int], bytes]:
    """A model whose constant is one number, repeated."""

    def model(count: int) -> bytes:
        inputs = {"Tile": ["one", "many"], "Expand": ["one", "many"], "ConstantOfShape": ["many"]}.get(operator)
        weights = [numpy_helper.from_array(np.array([count]), "many"), numpy_helper.from_array(np.ones(1, "f"), "one")]
        nodes = [helper.make_node(operator, inputs, ["c"])] if inputs else []
        if operator == "Range":
            weights += [numpy_helper.from_array(np.float32(v), name) for name, v in (("0", 0), ("n", count), ("1", 1))]
            nodes = [helper.make_node("Range", ["0", "n", "1"], ["c"])]
        nodes += [helper.make_node("CumSum", ["c", "axis"], ["d"]), helper.make_node("Add", ["d", "x"], ["y"])]
        weights.append(numpy_helper.from_array(np.int64(0), "axis"))
        x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy")
        x.type.tensor_type.shape.dim.add().dim_value = 1
        graph = helper.make_graph(nodes, "g", [x], [y], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()

    return model


@pytest.mark.parametrize("operator", ["Tile", "Expand", "ConstantOfShape"])
def test_no_constant_is_larger_than_its_limit(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, allowed = repeated(operator), 1 << 22
    executables = [treadle.compile(model(size), embed_native=False) for size in (1 << 16, limits.FOLDED_BYTES)]
    constants = [sum(array.nbytes for array in each.program.constants) for each in executables]
    assert constants[0] >= 1 << 16
    assert constants[1] < allowed


def test_a_range_that_is_too_long_is_refused() -> None:
    with pytest.raises(CompileError, match=r"Range: .* not bounds of a tensor that Treadle would make"):
        treadle.compile(repeated("Range")(limits.FOLDED_BYTES), embed_native=False)


def test_passes_make_no_constant_that_is_too_large() -> None:
    one = ir.Constant(np.ones((1, 1), np.float32))
    with pytest.raises(CompileError, match=r"broadcast_to of float32.* which is too large"):
        computed("broadcast_to", one, shape=(1 << 20, 1 << 20))
