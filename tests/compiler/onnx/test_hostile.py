"""Models that ask for more than they say: they compile, or are refused by name, in seconds and in little memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper
from treadle.compiler import effort
from treadle.compiler.onnx import table
from treadle.compiler.onnx.importer import from_onnx
from treadle.compiler.operators import lookup
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import CompileError, FileError, LimitError, ModelError, TreadleError
from treadle.formats.types import TensorType

from ...timing import soon

SECONDS = 20  # of CPU time, that one may take; the longest takes ten
NODE = helper.make_node


def info(name: str, shape: Sequence[int | str] | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def tensor(name: str, value: Any) -> onnx.TensorProto:
    array = np.asarray(value)
    return numpy_helper.from_array(array.astype(object) if array.dtype.kind == "U" else array, name)


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


def reduced(nodes: Sequence[onnx.NodeProto], weights: Sequence[onnx.TensorProto], kind: int, size: int = 1) -> bytes:
    """A model that adds the sum of the tensor `big` to its input."""
    ends = [NODE("ReduceSum", ["big"], ["sum"]), NODE("Add", ["x", "sum"], ["y"])]
    return model([*nodes, *ends], weights, shape=(size,), kind=kind)


def repeated(operator: str, count: int) -> bytes:
    weights = [tensor("one", np.array([1])), tensor("shape", np.array([count]))]
    return reduced([NODE(operator, ["one", "shape"], ["big"])], weights, TensorProto.INT64)


def product_of_constants(size: int, dtype: type) -> bytes:
    made = NODE("ConstantOfShape", ["shape"], ["ones"], value=tensor("", np.ones(1, dtype)))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    product = NODE("MatMul", ["ones", "ones"], ["big"])
    return reduced([made, product], [tensor("shape", np.array([size, size]))], kind)


def many_large_constants(size: int) -> bytes:
    """60 vectors of a length, and their cumulative sums."""
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


def tensors_of_any_rank(count: int) -> bytes:
    """The maximum of many operands, each of one of nine ranks."""
    names = [f"t{i}" for i in range(count)]
    nodes = [NODE("SequenceAt", ["s", "place"], [name]) for name in names]
    given = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    nodes += [NODE("Max", names, ["z"]), NODE("SequenceConstruct", ["z"], ["y"])]
    result = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [result], [tensor("place", np.array(0))])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def many_gradients(count: int) -> bytes:
    """Of each node of a chain, by all before it."""
    nodes, training = [], "ai.onnx.preview.training"
    for i in range(count):
        before = f"v{i}" if i else "x"
        nodes += [NODE("Tanh", [before], [f"v{i + 1}"])]
        nodes += [NODE("Gradient", ["x"], [f"d{i}"], domain=training, xs=["x"], y=f"v{i + 1}")]
    graph = helper.make_graph(nodes, "g", [info("x", [4])], [info(f"d{count - 1}", None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(training, 1)]
    return helper.make_model(graph, opset_imports=opsets).SerializeToString()


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
    "gradients of 400 nodes": lambda: many_gradients(400),
    "nine ranks of each of six tensors": lambda: tensors_of_any_rank(6),
    "a number expanded to 10^12": lambda: repeated("Expand", 10**12),
    "a sequence of 10^9 parts": lambda: model(
        [NODE("SplitToSequence", ["x"], ["s"], axis=0), NODE("ConcatFromSequence", ["s"], ["y"], axis=0)],
        shape=(10**9,),
    ),
    "a shape of 10^6 sizes known only at run time": lambda: model(
        [NODE("Expand", ["one", "x"], ["y"])], [tensor("one", np.array([1]))], shape=(10**6,), kind=TensorProto.INT64
    ),
    "sums over 10^4 axes known only at run time": lambda: reduced(
        [NODE("ReduceSum", ["ones", "x"], ["big"])],
        [tensor("ones", np.ones((2, 2), np.int64))],
        TensorProto.INT64,
        10**4,
    ),
    "a tensor of 10^4 axes known only at run time": lambda: reduced(
        [NODE("Reshape", ["ones", "x"], ["big"])], [tensor("ones", np.ones((2, 2), np.int64))], TensorProto.INT64, 10**4
    ),
}


@pytest.mark.parametrize("name", COMPILED)
def test_work_that_can_wait_is_left_to_the_program(name: str) -> None:
    content = COMPILED[name]()
    with soon(SECONDS):
        treadle.compile(content, embed_native=False)


def doubled_texts() -> bytes:
    """A text that is appended to itself 25 times, a hundred of them: 10 GB."""
    nodes = [NODE("StringConcat", [f"t{i}", f"t{i}"], [f"t{i + 1}"]) for i in range(25)]
    ends = [NODE("Shape", ["t25"], ["s"]), NODE("Cast", ["s"], ["c"], to=1), NODE("Add", ["x", "c"], ["y"])]
    return model([*nodes, *ends, NODE("Identity", ["t25"], ["z"])], [tensor("t0", np.array(["ab "] * 100, object))])


def resized_number(mode: str) -> bytes:
    """400 MB, of which an evaluation takes some twenty times as much for itself."""
    node = NODE("Resize", ["one", "", "", "size"], ["big"], mode=mode)
    return reduced(
        [node], [tensor("one", np.ones(1, np.float32)), tensor("size", np.array([10**8]))], TensorProto.FLOAT
    )


def printed_numbers() -> bytes:
    made = [NODE("ConstantOfShape", ["shape"], ["zeros"]), NODE("Cast", ["zeros"], ["texts"], to=TensorProto.STRING)]
    ends = [NODE("Shape", ["texts"], ["s"]), NODE("Cast", ["s"], ["c"], to=1), NODE("Add", ["x", "c"], ["y"])]
    return model([*made, *ends], [tensor("shape", np.array([10**6]))])


SMALL = {
    "numbers as texts": printed_numbers,
    "texts": doubled_texts,
    "cubic": lambda: resized_number("cubic"),
    "nearest": lambda: resized_number("nearest"),
}


@pytest.mark.parametrize("name", SMALL)
def test_what_folding_takes_on_the_way_is_counted_too(name: str) -> None:
    content = SMALL[name]()
    tracemalloc.start()
    try:
        treadle.compile(content, embed_native=False)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("count", "is_folded"), [(10**6, True), (10**8, False)])
def test_what_an_evaluation_takes_for_itself_is_bounded(count: int, is_folded: bool) -> None:
    types = [TensorType(DType.float32, (count,))]
    with effort.bounded(0):
        assert effort.may_fold(lookup("cumulative_sum"), types, types, (("axis", 0),), []) is is_folded


def test_short_texts_are_folded() -> None:
    nodes = [NODE("StringConcat", ["a", "a"], ["aa"]), NODE("RegexFullMatch", ["aa"], ["m"], pattern="(ab)+")]
    content = model(
        [*nodes, NODE("Cast", ["m"], ["c"], to=1), NODE("Add", ["x", "c"], ["y"])], [tensor("a", ["ab"] * 4)]
    )
    executable = treadle.compile(content, embed_native=False)
    assert not [each for each in executable.program.primitives if "text" in each.name]
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(treadle.VirtualMachine(executable, kernels="cached")["main"](x).numpy(), x + 1)


@pytest.mark.parametrize("shape", [(2**63 - 1,), (16, 2**47, 3), (2**46, 2**46), (2**46, "n", 4), (1,) * 33])
def test_inputs_that_no_memory_holds_are_refused_by_name(shape: Sequence[int | str]) -> None:
    with pytest.raises(ModelError, match=r"input 'x'.* (has a dimension|has more than|has rank)"):
        treadle.compile(model([NODE("Relu", ["x"], ["y"])], shape=shape), embed_native=False)


@pytest.mark.serial
@pytest.mark.parametrize("name", REFUSED)
def test_work_without_bounds_is_refused_by_name(name: str) -> None:
    content = REFUSED[name]()
    with soon(SECONDS), pytest.raises((CompileError, LimitError), match=r"node|f0 y|more work"):
        treadle.compile(content, embed_native=False)


@pytest.mark.parametrize("operator", ["Mul", "Div"])
def test_arithmetic_of_dimensions_stays_short(operator: str) -> None:
    """Long dimensions get names, of which the next ones are made."""
    with soon(SECONDS):
        executable = treadle.compile(repeated_arithmetic(operator), embed_native=False)
    assert len(executable.as_bytes()) < 1 << 20


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
    assert np.array_equal(machine["main"](x).numpy(), x * np.float32(0))  # 2^-500 is not a float32
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
    assert table.find("", "Relu", 17) is not None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Any) -> None:
    path = tmp_path / "none.onnx"
    with pytest.raises(FileError, match=r"the model .* cannot be read") as caught:
        treadle.compile(path)
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.filename == str(path)
    with pytest.raises(FileError, match=r"has no model: expected onnx/model.onnx or model.onnx"):
        treadle.compile(tmp_path)  # a model's folder, which is empty


@pytest.mark.parametrize("name", [b"the node", b"input x"])
def test_names_that_are_no_text_are_refused(name: bytes) -> None:
    content = model([NODE("Relu", ["x"], ["y"], name="the node"), NODE("Neg", ["y"], ["input x"])])
    damaged = content.replace(name, name[:-1] + b"\xff")
    assert damaged != content
    with pytest.raises(ModelError, match="a name in the model is not UTF-8"):
        treadle.compile(damaged, embed_native=False)
