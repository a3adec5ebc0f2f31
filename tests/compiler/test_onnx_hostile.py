"""Models that ask for more than they say: they compile, or are refused by name, in seconds and in little memory."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper
from treadle.compiler import effort
from treadle.compiler.frontend import onnx_table
from treadle.compiler.frontend.onnx import from_onnx
from treadle.formats.errors import CompileError, FileError, LimitError, ModelError, TreadleError

SECONDS = 20  # of this process; seconds alone, and room for slow machines
NODE = helper.make_node


def info(name: str, shape: Sequence[int | str] | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def tensor(name: str, value: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    weights: Sequence[onnx.TensorProto] = (),
    *,
    shape: Sequence[int | str] = (4,),
    kind: int = TensorProto.FLOAT,
    functions: Sequence[onnx.FunctionProto] = (),
) -> bytes:
    """A model of one input x and one output y."""
    graph = helper.make_graph(nodes, "g", [info("x", shape, kind)], [info("y", None, kind)], list(weights))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions)).SerializeToString()


def functions_that_call_ten() -> bytes:
    """10^15 nodes."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = []
    for level in range(15):
        operator, domain = (f"f{level + 1}", "f") if level < 14 else ("Relu", "")
        body = [NODE(operator, [f"v{i}" if i else "x"], [f"v{i + 1}"], domain=domain) for i in range(10)]
        functions.append(helper.make_function("f", f"f{level}", ["x"], ["v10"], body, opsets))
    return model([NODE("f0", ["x"], ["y"], domain="f")], functions=functions)


def nested_loops(depth: int, rounds: int) -> bytes:
    """rounds^depth additions."""

    def body(level: int) -> onnx.GraphProto:
        state = f"s{level}"
        if level == 0:
            nodes = [NODE("Add", [state, state], ["next0"])]
        else:
            nodes = [
                NODE("Constant", [], [f"count{level}"], value=tensor("", np.int64(rounds))),
                NODE("Constant", [], [f"true{level}"], value=tensor("", np.array(True))),
                NODE("Loop", [f"count{level}", f"true{level}", state], [f"next{level}"], body=body(level - 1)),
            ]
        inputs = [info(f"i{level}", [], TensorProto.INT64), info(f"c{level}", [], TensorProto.BOOL), info(state, [4])]
        outputs = [info(f"go{level}", [], TensorProto.BOOL), info(f"next{level}", [4])]
        return helper.make_graph([NODE("Identity", [f"c{level}"], [f"go{level}"]), *nodes], "b", inputs, outputs)

    weights = [tensor("n", np.int64(rounds)), tensor("true", np.array(True))]
    return model([NODE("Loop", ["n", "true", "x"], ["y"], body=body(depth - 1))], weights)


def reduced(nodes: Sequence[onnx.NodeProto], weights: Sequence[onnx.TensorProto], kind: int) -> bytes:
    """A model that adds the sum of the tensor `big` to its input."""
    ends = [NODE("ReduceSum", ["big"], ["sum"]), NODE("Add", ["x", "sum"], ["y"])]
    return model([*nodes, *ends], weights, shape=(1,), kind=kind)


def repeated(operator: str, count: int) -> bytes:
    weights = [tensor("one", np.array([1])), tensor("shape", np.array([count]))]
    return reduced([NODE(operator, ["one", "shape"], ["big"])], weights, TensorProto.INT64)


def product_of_constants(size: int, dtype: type) -> bytes:
    made = NODE("ConstantOfShape", ["shape"], ["ones"], value=tensor("", np.ones(1, dtype)))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    product = NODE("MatMul", ["ones", "ones"], ["big"])
    return reduced([made, product], [tensor("shape", np.array([size, size]))], kind)


def many_large_constants(size: int) -> bytes:
    """60 of so many floats, and their cumulative sums."""
    nodes, last = [], "x"
    for i in range(60):
        nodes += [
            NODE("ConstantOfShape", ["shape"], [f"zeros{i}"]),
            NODE("CumSum", [f"zeros{i}", "axis"], [f"sums{i}"]),
            NODE("ReduceMax", [f"sums{i}"], [f"max{i}"]),
            NODE("Add", [last, f"max{i}"], [f"y{i}"]),
        ]
        last = f"y{i}"
    weights = [tensor("shape", np.array([size])), tensor("axis", np.array(0))]
    return model([*nodes, NODE("Identity", [last], ["y"])], weights, shape=(1,))


def doubled_dimensions() -> bytes:
    """A list of 16^12 symbolic dimensions."""
    doubling = [NODE("Concat", [f"v{i}"] * 16, [f"v{i + 1}"], axis=0) for i in range(12)]
    nodes = [
        NODE("Shape", ["x"], ["v0"]),
        *doubling,
        NODE("ReduceSum", ["v12"], ["s"]),
        NODE("Cast", ["s"], ["y"], to=1),
    ]
    return model(nodes, shape=("n",))


def repeated_arithmetic(operator: str) -> bytes:
    """Of the dimensions n + m, what an operator makes of the last result, and the sum of both, forty times."""
    nodes = [NODE("Shape", ["x"], ["shape"]), NODE("ReduceSum", ["shape"], ["v0"])]
    for i in range(40):
        nodes += [NODE(operator, [f"v{i}", f"v{i}" if operator == "Mul" else "three"], [f"w{i}"])]
        nodes += [NODE("Add", [f"w{i}", f"v{i}"], [f"v{i + 1}"])]
    nodes += [NODE("Cast", ["v40"], ["y"], to=1)]
    return model(nodes, [tensor("three", np.array([3]))], shape=("n", "m"))


COMPILED: dict[str, Callable[[], bytes]] = {
    "four loops of 500 rounds": lambda: nested_loops(4, 500),
    "a number expanded to 10^11": lambda: repeated("Expand", 10**11),
    "a number tiled to 10^11": lambda: repeated("Tile", 10**11),
    "a product of 6,000^3": lambda: product_of_constants(6000, np.float32),
    "a product of integers, 4,000^3": lambda: product_of_constants(4000, np.int64),
}
REFUSED: dict[str, Callable[[], bytes]] = {
    "functions that call ten each": functions_that_call_ten,
    "24 loops in each other": lambda: nested_loops(24, 100_000),
    "a list of 16^12 dimensions": doubled_dimensions,
    "squares of dimensions": lambda: repeated_arithmetic("Mul"),
    "quotients of quotients": lambda: repeated_arithmetic("Div"),
    "a number expanded to 10^12": lambda: repeated("Expand", 10**12),
}


@pytest.mark.parametrize("name", COMPILED)
def test_work_that_can_wait_is_left_to_the_program(name: str) -> None:
    content = COMPILED[name]()
    start = time.process_time()
    treadle.compile(content, embed_native=False)
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize("name", REFUSED)
def test_work_without_bounds_is_refused_by_name(name: str) -> None:
    content = REFUSED[name]()
    start = time.process_time()
    with pytest.raises((CompileError, LimitError), match=r"node|f0 y|more work"):
        treadle.compile(content, embed_native=False)
    assert time.process_time() - start < SECONDS


def test_folding_takes_no_more_memory_than_the_model_explains(monkeypatch: Any) -> None:
    size = 10**6
    monkeypatch.setattr(effort, "BASE_BYTES", 8 * 4 * size)
    content = many_large_constants(size)
    tracemalloc.start()
    try:
        treadle.compile(content, embed_native=False)
        assert tracemalloc.get_traced_memory()[1] < (8 + 6) * 4 * size  # an operator's own temporaries on top
    finally:
        tracemalloc.stop()


def test_nested_loops_still_give_their_value() -> None:
    machine = treadle.VirtualMachine(treadle.compile(nested_loops(3, 8)))
    x = np.full(4, 2.0**-500, np.float32)
    assert np.array_equal(machine["main"](x).numpy(), x * np.float32(0))  # 2^-500 is no float32
    y = np.full(4, 2.0**-140, np.float32)
    # 8^3 additions of a value to itself
    assert np.array_equal(machine["main"](y).numpy(), np.full(4, np.inf, np.float32))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("r"),
        ValueError("v"),
        OSError(5, "Input/output error", "weights.bin"),
        struct.error("s"),
        IndexError("i"),
        KeyError("k"),
        MemoryError(),
        RecursionError(),
        ZeroDivisionError(),
        AssertionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_an_importer_raises_becomes_an_error_of_ours(error: Exception, monkeypatch: Any) -> None:
    def broken(*_: Any) -> Any:
        raise error

    monkeypatch.setitem(from_onnx.__globals__, "find", lambda *_: broken)
    content = model([NODE("Relu", ["x"], ["y"], name="the node")])
    with pytest.raises(TreadleError) as caught:
        from_onnx(content)
    assert isinstance(caught.value, FileError if isinstance(error, OSError) else ModelError)
    assert isinstance(error, OSError) or caught.value.node == "the node"


def test_importers_are_found_in_the_table() -> None:
    """Else the test above would replace nothing."""
    assert onnx_table.find("", "Relu", 17) is not None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Any) -> None:
    for path, kind in ((tmp_path / "none.onnx", FileNotFoundError), (tmp_path, OSError)):
        with pytest.raises(FileError, match=r"the model .* cannot be read") as caught:
            treadle.compile(path)
        assert isinstance(caught.value, kind)
        assert caught.value.filename == str(path)


@pytest.mark.parametrize("name", [b"the node", b"input x"])
def test_names_that_are_no_text_are_refused(name: bytes) -> None:
    content = model([NODE("Relu", ["x"], ["y"], name="the node"), NODE("Neg", ["y"], ["input x"])])
    damaged = content.replace(name, name[:-1] + b"\xff")
    assert damaged != content
    with pytest.raises(ModelError, match="a name in the model is not UTF-8"):
        treadle.compile(damaged, embed_native=False)
