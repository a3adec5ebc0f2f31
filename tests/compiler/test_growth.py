"""What compiling takes grows with the model, and no faster: calls of functions are counted, and C's."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper

SQUARE = [4, 4]
CONSTANT = numpy_helper.from_array(np.ones(SQUARE, np.float32), "c")


def value(name: str, shape: list, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes: list[onnx.NodeProto], results: list[str], inputs: list[onnx.ValueInfoProto] | None = None) -> bytes:
    inputs = [value("x", SQUARE), value("p", [], TensorProto.BOOL), value("m", [], TensorProto.INT64)] + (inputs or [])
    graph = helper.make_graph(nodes, "g", inputs, [value(name, None) for name in results], [CONSTANT])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


def branch(source: str, result: str) -> onnx.NodeProto:
    bodies = [
        helper.make_graph([helper.make_node(operator, [source, "c"], [name])], name, [], [value(name, SQUARE)])
        for operator, name in (("Add", f"{result}_then"), ("Mul", f"{result}_else"))
    ]
    return helper.make_node("If", ["p"], [result], then_branch=bodies[0], else_branch=bodies[1])


def loop(source: str, result: str) -> onnx.NodeProto:
    round_, going, state, on, made = (f"{result}_{name}" for name in ("round", "going", "state", "on", "made"))
    body = helper.make_graph(
        [helper.make_node("Identity", [going], [on]), helper.make_node("Add", [state, "c"], [made])],
        result,
        [value(round_, [], TensorProto.INT64), value(going, [], TensorProto.BOOL), value(state, SQUARE)],
        [value(on, [], TensorProto.BOOL), value(made, SQUARE)],
    )
    return helper.make_node("Loop", ["m", "", source], [result], body=body)


def softmax(source: str, result: str) -> onnx.NodeProto:
    return helper.make_node("Softmax", [source], [result], axis=int(result[1:]) % 2)


Make = Callable[[str, str], onnx.NodeProto]


def chain(make: Make) -> Callable[[int], bytes]:
    """Each takes what the one before it gives."""
    return lambda count: model([make(f"y{i - 1}" if i else "x", f"y{i}") for i in range(count)], [f"y{count - 1}"])


def side_by_side(make: Make) -> Callable[[int], bytes]:
    """All take the same, and are added at last: as many values live at once."""

    def made(count: int) -> bytes:
        names = [f"y{i}" for i in range(count)]
        return model([*(make("x", name) for name in names), helper.make_node("Sum", names, ["sum"])], ["sum"])

    return made


def joined(count: int) -> bytes:
    names = [f"y{i}" for i in range(count)]
    joined = helper.make_node("Concat", names, ["all"], axis=0)
    return model([*(softmax("x", name) for name in names), joined], ["all"])


def split(count: int) -> bytes:
    parts = [f"s{i}" for i in range(count)]
    apart = helper.make_node("Split", ["wide"], parts, axis=1, num_outputs=count)
    results = [softmax(part, f"y{i}") for i, part in enumerate(parts)]
    return model([apart, *results], [f"y{i}" for i in range(count)], [value("wide", [4, 4 * count])])


def sizes(count: int) -> bytes:
    """Inputs each of a size of its own."""
    inputs = [value(f"x{i}", [f"n{i}", 4]) for i in range(count)]
    return model([softmax(f"x{i}", f"y{i}") for i in range(count)], [f"y{i}" for i in range(count)], inputs)


def results(count: int) -> bytes:
    return model([softmax("x", f"y{i}") for i in range(count)], [f"y{i}" for i in range(count)])


def calls(content: bytes) -> int:
    """Of functions, and their ends."""
    events = itertools.count()
    sys.setprofile(lambda *event: next(events))
    try:
        treadle.compile(content, embed_native=False, progress=False)
    finally:
        sys.setprofile(None)
    return next(events)


@pytest.mark.parametrize(
    ("make", "count"),
    [
        pytest.param(chain(branch), 8, id="a chain of branches"),
        pytest.param(side_by_side(branch), 16, id="branches side by side"),
        pytest.param(chain(loop), 8, id="a chain of loops"),
        pytest.param(side_by_side(loop), 16, id="loops side by side"),
        pytest.param(chain(softmax), 16, id="a chain of operators"),
        pytest.param(joined, 16, id="what is joined"),
        pytest.param(split, 32, id="what is split"),
        pytest.param(sizes, 32, id="sizes"),
        pytest.param(results, 16, id="results"),
    ],
)
def test_compiling_grows_with_the_model_and_no_faster(make: Callable[[int], bytes], count: int) -> None:
    treadle.compile(make(2), embed_native=False)  # what is made at first use
    few, more, many = (calls(make(size * count)) for size in (1, 2, 4))
    assert many - more < 2.3 * (more - few)
