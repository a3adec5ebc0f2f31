"""Ranks that follow from the length of a vector, or of a tensor's rows, known only at run time, against `onnx.reference`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import treadle
from onnx import parser
from onnx.reference import ReferenceEvaluator
from treadle.formats.messages.errors import ModelError, ShapeError, TreadleError

HEAD = '<ir_version: 10, opset_import: ["" : 21]> agraph '
pytestmark = pytest.mark.filterwarnings("ignore:(?s).* can only be ")  # a node that suits one length says so
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def compiled(text: str) -> tuple[Any, Any]:
    model = parser.parse_model(HEAD + text)
    executable = treadle.compile(model, embed_native=False, progress=False)
    return model, treadle.VirtualMachine(executable, kernels="cached")["main"]


def check(text: str, *calls: Sequence[Any]) -> None:
    """Treadle gives what the reference gives, of one program for all calls."""
    model, call = compiled(text)
    for inputs in calls:
        expected = ReferenceEvaluator(model).run(
            None, {info.name: value for info, value in zip(model.graph.input, inputs, strict=True)}
        )
        found = call(*inputs)
        for each, wanted in zip(found if len(expected) > 1 else [found], expected, strict=True):
            assert np.asarray(each).shape == np.shape(wanted)
            np.testing.assert_array_equal(np.asarray(each), wanted)


def sizes(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_a_tensor_has_as_many_axes_as_sizes_came() -> None:
    text = "(int64[n] s, float x) => (y) { o = ConstantOfShape <value = float[1] {2}> (s)  y = Mul(o, x) }"
    check(text, *([sizes(*each), np.float32(3)] for each in [(2, 3), (), (2, 0, 1, 3), (1,) * 8]))
    with pytest.raises(TreadleError):
        compiled(text)[1](sizes(*(1,) * 9), np.float32(3))


@pytest.mark.parametrize(
    ("node", "vectors"),
    [
        ("Reshape(x, s)", [(6,), (3, -1, 1), (0, 3), (1, 1, 6, 1, 1)]),
        ("Expand(x, s)", [(1,), (4, 2, 3), (2, 1, 2, 3), ()]),
        ("Tile(x, s)", [(2, 1), (0, 3)]),
        ("Unsqueeze(x, s)", [(0,), (1, -1), (0, 1, 2)]),
        ("ReduceSum <keepdims = 0> (x, s)", [(0,), (1, -2), ()]),
        ("Pad(x, s)", [(0, 1, 2, 0)]),
        ("CenterCropPad(x, s)", [(4, 2)]),
        ("TopK <axis = 0> (x, s)", [(1,), (2,)]),
    ],
)
def test_nodes_take_vectors_of_any_length(node: str, vectors: Sequence[tuple[int, ...]]) -> None:
    outputs = "y, i" if "TopK" in node else "y"
    text = f"(float[a, b] x, int64[n] s) => ({outputs}) {{ {outputs} = {node} }}"
    check(text, *([X, sizes(*each)] for each in vectors))
    with pytest.raises(TreadleError):
        compiled(text)[1](X, sizes(*[1] * 12))


def test_axes_of_any_number_are_taken_away() -> None:
    text = "(float[a, 1, b, 1] x, int64[n] s) => (y) { y = Squeeze(x, s) }"
    check(text, *([X[:, None, :, None], sizes(*each)] for each in [(1,), (1, -1), (3, 1)]))


def test_slices_have_bounds_of_any_number() -> None:
    text = "(float[a, b] x, int64[n] s, int64[n] e, int64[n] t) => (y) { y = Slice(x, s, e, t) }"
    check(text, [X, sizes(0), sizes(1), sizes(1)], [X, sizes(1, 1), sizes(9, 2), sizes(0, -1)], [X, *[sizes()] * 3])
    check("(float[a, b] x, int64[n] s, int64[n] e) => (y) { y = Slice(x, s, e) }", [X, sizes(1, 1), sizes(9, 2)])


def test_a_node_has_as_many_parts_as_results() -> None:
    text = "(float[a, b] x, int64[n] s) => (y, z) { y, z = Split <axis = 1> (x, s) }"
    check(text, [X, sizes(1, 2)], [X, sizes(3, 0)])
    with pytest.raises(ShapeError):
        compiled(text)[1](X, sizes(1, 1, 1))


def test_factors_of_any_number_are_those_of_the_axes() -> None:
    text = '(float[1, 1, h, w] x, float[n] s) => (y) { y = Resize <mode = "nearest"> (x, , s) }'
    check(text, [X[None, None], np.float32([1, 1, 2, 2])])


def test_places_have_indices_of_any_number() -> None:
    check(
        "(float[a, b] x, int64[n, m] k) => (y) { y = GatherND(x, k) }",
        [X, np.int64([[1], [0]])],
        [X, np.int64([[1, 2], [0, 1], [1, 0]])],
    )
    text = "(float[a, b] x, int64[n, m] k, float[n] u) => (y) { y = ScatterND(x, k, u) }"
    check(text, [X, np.int64([[1, 2], [0, 1]]), np.float32([7, 8])])


def test_two_tensors_of_any_rank_broadcast() -> None:
    text = """(int64[n] s, int64[m] u) => (y) { a = ConstantOfShape <value = float[1] {1}> (s)
        b = ConstantOfShape <value = float[1] {3}> (u)  y = Add(a, b) }"""
    check(text, [sizes(2, 3), sizes(3)], [sizes(), sizes(3)], [sizes(1, 3), sizes(4, 2, 1)])


RANKED = """(bool c, float[a, b] x) => (y, n, w) { r = If(c) <
    then_branch = t () => (p) { k = Constant <value_ints = [0]> ()  p = Unsqueeze(x, k) },
    else_branch = e () => (q) { q = Identity(x) }>
    s = Shape(r)  o = ConstantOfShape(s)  y = Add(r, o)  n = Size(s)
    m = Constant <value_ints = [1]> ()  longer = Concat <axis = 0> (s, m)  w = Reshape(r, longer) }"""


def test_the_shape_of_a_tensor_of_any_rank_is_one_of_those_that_it_may_have() -> None:
    check(RANKED, [np.bool_(True), X], [np.bool_(False), X])


def test_a_length_that_suits_no_node_is_said_where_it_is_known() -> None:
    with pytest.raises(ModelError):
        compiled("(float[a, b] x, int64[3] s, int64[3] e) => (y) { y = Slice(x, s, e) }")


def test_axes_of_sizes_that_a_run_finds_are_taken_away_where_they_are_1() -> None:
    text = "(float[a, b] x, int64[3] s) => (y) { r = Reshape(x, s)  y = Squeeze(r) }"
    check(text, *([X, sizes(*each)] for each in [(2, 1, 3), (1, 6, 1), (2, 3, 1)]), [X[:1, :1], sizes(1, 1, 1)])
    text = "(float[n] x) => (y) { g = NonZero(x)  places = Squeeze(g)  y = Gather(x, places) }"
    check(text, *([np.float32(each)] for each in [(0, 1, 2, 3), (0, 0, 5), (0, 0)]))


@pytest.mark.parametrize("parts", [(1, 2), (1, 1, 1), (1, *[0] * 11, 2), (3,)])
def test_there_are_as_many_parts_as_sizes_came(parts: tuple[int, ...]) -> None:
    text = """(float[a, b] x, int64[n] s) => (y, c) { q = SplitToSequence <axis = 1> (x, s)
        z = Constant <value_int = -1> ()  y = SequenceAt(q, z)  c = SequenceLength(q) }"""
    check(text, [X, sizes(*parts)])
    for wrong in [(1, 1), (4, -1), (2, 2)]:
        with pytest.raises(TreadleError):
            compiled(text)[1](X, sizes(*wrong))


def test_rounds_that_are_not_written_out_after_all_leave_nothing_behind() -> None:
    """The first round makes a tensor of the shape, and only then is found to compute whether to go on."""
    text = """(float[n, m] x) => (y, w) { s = Shape(x)  k = Constant <value_int = 3> ()  z = Constant <value_ints = [0, 0]> ()
        g = Constant <value = bool {1}> ()
        y = Loop(k, g, z) <body = b (int64 i, bool c, int64[2] u) => (bool d, int64[2] v) {
            f = ReduceSum <keepdims = 0> (x)  h = Cast <to = 7> (f)  l = Mul(s, h)  v = Add(u, l)
            most = Constant <value_int = 100> ()  d = Less(h, most) }>
        t = ReduceSum <keepdims = 0> (x)  o = Cast <to = 7> (t)  w = Mul(s, o) }"""
    check(text, [np.ones((2, 3), np.float32)])
