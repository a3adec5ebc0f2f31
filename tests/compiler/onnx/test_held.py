"""Values of models whose length, presence or rank is known only at run time, against `onnx.reference`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import treadle
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser
from onnx.reference import ReferenceEvaluator
from treadle.formats.messages.errors import (
    ArgumentError,
    ExecutionError,
    ModelError,
    ShapeError,
    TreadleError,
    UnsupportedOperatorError,
)

HEAD = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1]> agraph '
A, B, C = np.float32([1, 2]), np.float32([3, 4, 5]), np.float32([6])


def machine(text: str) -> Any:
    """Compiled, saved, loaded, verified. What the cache lacks is evaluated."""
    executable = treadle.compile(parser.parse_model(HEAD + text), embed_native=False, progress=False)
    data = executable.as_bytes()
    assert treadle.load(data).as_bytes() == data
    return treadle.VirtualMachine(treadle.load(data), kernels="cached")["main"]


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if value is None else np.asarray(value).tolist()


def check(text: str, *inputs: Any) -> None:
    """Treadle gives what the reference gives."""
    model = parser.parse_model(HEAD + text)
    names = [info.name for info in model.graph.input]
    expected = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    found = machine(text)(*inputs)
    agree(found if len(expected) > 1 else [found], expected)


def agree(found: Any, expected: Any) -> None:
    """Lists of as many, and numbers as near as float32's are."""
    if isinstance(expected, (list, tuple)):
        assert isinstance(found, (list, tuple))
        for each, wanted in zip(found, expected, strict=True):
            agree(each, wanted)
    elif expected is None or np.asarray(expected).dtype.kind not in "fc":
        assert plain(found) == plain(expected)
    else:
        assert np.asarray(found).shape == np.asarray(expected).shape
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


@pytest.mark.parametrize("items", [[A], [A, B, C], [C, C, A, B]])
@pytest.mark.parametrize("place", [0, 1, -1, -2])
def test_sequences_that_are_inputs_are_read_and_changed(items: Sequence[np.ndarray], place: int) -> None:
    if not -len(items) <= place < len(items):
        pytest.skip("no such place")
    text = """(seq(float[n]) s, int64 i, float[m] t) => (float[?] at, seq(float[n]) put, seq(float[n]) behind, seq(float[n]) less,
        seq(float[n]) last, int64 count) {
        at = SequenceAt(s, i)  put = SequenceInsert(s, t, i)  behind = SequenceInsert(s, t)
        less = SequenceErase(s, i)  last = SequenceErase(s)  count = SequenceLength(s) }"""
    check(text, list(items), np.int64(place), np.float32([7, 8]))


def test_an_empty_sequence_becomes_one_of_what_a_run_inserts() -> None:
    text = """(double[n, m] x, int64 i) => (seq(double[n, m]) y) {
        none = SequenceEmpty <dtype = 11> ()  y = SequenceInsert(none, x, i) }"""
    assert plain(machine(text)(np.eye(2), np.int64(0))) == [np.eye(2).tolist()]


@pytest.mark.parametrize("place", [3, -4, 100])
def test_a_place_that_there_is_not_ends_the_run(place: int) -> None:
    text = "(seq(float[n]) s, int64 i) => (float[?] y) { y = SequenceAt(s, i) }"
    with pytest.raises(TreadleError):
        machine(text)([A, B, C], np.int64(place))


@pytest.mark.parametrize(("axis", "new_axis"), [(0, 0), (1, 0), (-1, 0), (0, 1), (2, 1), (-1, 1)])
def test_tensors_of_a_sequence_are_joined(axis: int, new_axis: int) -> None:
    text = f"""(seq(float[a, b]) s) => (float[?, ?{", ?" * new_axis}] y) {{
        y = ConcatFromSequence <axis = {axis}, new_axis = {new_axis}> (s) }}"""
    items = [np.arange(4, dtype=np.float32).reshape(2, 2) + 10 * k for k in range(3)]
    check(text, items)
    with pytest.raises(TreadleError):
        machine(text)([])


@pytest.mark.parametrize("count", [1, 2, 4, 5, 9])
def test_tensors_are_split_into_as_many_parts_as_a_run_tells(count: int) -> None:
    text = """(float[n, 2] x, int64 k) => (seq(float[?, ?]) y, int64 c, seq(float[?]) rows) {
        y = SplitToSequence <axis = 0> (x, k)  c = SequenceLength(y)
        rows = SplitToSequence <axis = 0, keepdims = 0> (x) }"""
    check(text, np.arange(10, dtype=np.float32).reshape(5, 2), np.int64(count))


def test_parts_of_sizes_that_are_an_input() -> None:
    text = "(float[n] x, int64[3] k) => (seq(float[?]) y) { y = SplitToSequence <axis = 0> (x, k) }"
    check(text, np.arange(6, dtype=np.float32), np.int64([1, 0, 5]))
    with pytest.raises(ShapeError):
        machine(text)(np.arange(6, dtype=np.float32), np.int64([1, 2, 1]))


def test_a_tensor_of_a_sequence_suits_the_weights_of_a_layer() -> None:
    text = """(seq(float[t, b, f]) s, int64 i, float[1, 8, 3] w, float[1, 8, 2] r, float[1, 2, 2] h) => (float[?, ?, ?, ?] y) {
        x = SequenceAt(s, i)  y = LSTM <hidden_size = 2> (x, w, r, , , h) }"""
    rng = np.random.default_rng(0)
    w, r, h, *items = (
        rng.normal(size=(n, m, k)).astype("f") for n, m, k in [(1, 8, 3), (1, 8, 2), (1, 2, 2), (4, 2, 3), (1, 2, 3)]
    )
    check(text, items, np.int64(1), w, r, h)
    with pytest.raises(ShapeError):
        machine(text)([items[0][..., :2]], np.int64(0), w, r, h)


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_a_tensor_of_a_sequence_suits_as_a_bias(operator: str) -> None:
    text = f"""(float[1, 4, 3, 3] x, float[4, 4, 2, 2] w, seq(float[k]) s, int64 i) => (float[?, ?, ?, ?] y) {{
        b = SequenceAt(s, i)  y = {operator} (x, w, b) }}"""
    x, w = np.ones((1, 4, 3, 3), np.float32), np.ones((4, 4, 2, 2), np.float32)
    check(text, x, w, [A, np.float32([1, 2, 3, 4])], np.int64(1))
    with pytest.raises(ShapeError):
        machine(text)(x, w, [A], np.int64(0))


MAPPED = """(seq(float[n]) s, float t) => (seq(float[n]) y, seq(int64[1]) z) {
    y, z = SequenceMap <body = b (float[n] e, float f) => (float[n] p, int64[1] q) { p = Mul(e, f) q = Shape(e) }> (s, t) }"""


@pytest.mark.parametrize("items", [[A], [A, B, C], []])
def test_a_graph_is_applied_to_each(items: list[np.ndarray]) -> None:
    call = machine(MAPPED)
    y, z = call(items, np.float32(2))
    assert plain(y) == [(2 * each).tolist() for each in items]
    assert plain(z) == [[len(each)] for each in items]


LOOP = """(int64 n, bool go, seq(float[k]) s) => (seq(float[k]) y) {
    y = Loop(n, go, s) <body = b (int64 i, bool c, seq(float[k]) before) => (bool d, seq(float[k]) after) {
        d = Identity(c)  f = Cast <to = 1> (i)  shape = Constant <value_ints = [1]> ()
        row = Reshape(f, shape)  after = SequenceInsert(before, row) }> }"""


@pytest.mark.parametrize("rounds", [0, 1, 50])
def test_sequences_grow_in_loops(rounds: int) -> None:
    found = machine(LOOP)(np.int64(rounds), np.bool_(True), [A])
    assert plain(found) == [A.tolist(), *([float(i)] for i in range(rounds))]


def test_a_long_sequence_is_no_deep_recursion() -> None:
    found = machine(LOOP)(np.int64(0), np.bool_(True), [C] * 100_000)
    assert len(found) == 100_000


BRANCHES = """(bool c, float[n] x) => (seq(float[?]) y) {
    y = If(c) <then_branch = t () => (seq(float[?]) a) { a = SequenceConstruct(x, x) },
               else_branch = e () => (seq(float[?]) b) { b = SequenceConstruct(x) }> }"""


def test_branches_give_sequences_of_different_lengths() -> None:
    call = machine(BRANCHES)
    assert plain(call(np.bool_(True), A)) == [[1, 2], [1, 2]]
    assert plain(call(np.bool_(False), A)) == [[1, 2]]


# ---- ranks ----


def of_any_rank(text: str) -> Any:
    """A model whose sequences hold tensors of any rank, which the text form does not know."""
    model = parser.parse_model(HEAD + text)
    for info in model.graph.input:
        if info.type.HasField("sequence_type"):
            info.type.sequence_type.elem_type.tensor_type.ClearField("shape")
    return treadle.VirtualMachine(treadle.compile(model, embed_native=False, progress=False), kernels="cached")["main"]


@pytest.mark.parametrize(
    ("shape", "axis", "new_axis"), [((3,), 0, 0), ((2, 3), 1, 0), ((2, 3), -1, 1), ((), 0, 1), ((1, 2, 2), 1, 1)]
)
def test_tensors_of_any_rank_are_joined(shape: tuple[int, ...], axis: int, new_axis: int) -> None:
    call = of_any_rank(
        f"""(seq(float[?]) s) => (y, z) {{ y = ConcatFromSequence <axis = {axis}, new_axis = {new_axis}> (s)
        i = Constant <value_int = 0> ()  t = SequenceAt(s, i)  u = SequenceConstruct(t, t)
        z = ConcatFromSequence <axis = {axis}, new_axis = {new_axis}> (u) }}"""
    )
    items = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 10 * k for k in range(3)]
    join = np.stack if new_axis else np.concatenate
    y, z = call(items)
    assert plain(y) == join(items, axis=axis).tolist()
    assert plain(z) == join([items[0]] * 2, axis=axis).tolist()
    with pytest.raises(ExecutionError):
        call([*items, np.zeros((1, 1, 1, 1), np.float32)])


def test_tensors_of_any_rank_get_another_axis() -> None:
    call = of_any_rank("""(seq(float[?]) s, int64 i) => (y) {
        t = SequenceAt(s, i)  first = Constant <value_ints = [0]> ()  y = Unsqueeze(t, first) }""")
    for items in ([A], [np.ones((1,) * 7, np.float32)]):
        assert plain(call(items, np.int64(0))) == [items[0].tolist()]


def test_tensors_of_any_rank_pass_through() -> None:
    text = "(seq(float) s) => (seq(float) y) { y = Identity(s) }"
    model = parser.parse_model(HEAD + text)
    for info in (*model.graph.input, *model.graph.output):  # the text form knows no tensors of unknown rank
        info.type.sequence_type.elem_type.tensor_type.ClearField("shape")
    data = treadle.compile(model, embed_native=False, progress=False).as_bytes()
    call = treadle.VirtualMachine(treadle.load(data))["main"]
    items = [np.float32(3), A, np.ones((2, 1, 3), np.float32)]
    assert plain(call(items)) == plain(items)
    with pytest.raises(ArgumentError, match="less than 9 axes"):
        call([np.zeros((1,) * 9, np.float32)])


RANKS = """(bool c, float[n] x, float[2, n] y) => (float[2, n] z) {{
    v = If(c) <then_branch = t () => (float[n] a) {{ a = Neg(x) }}, else_branch = e () => (float[2, n] b) {{ b = Neg(y) }}>
    z = {} }}"""


@pytest.mark.parametrize("node", ["Add(v, y)", "Mul(Exp(v), y)", "Sub(y, Add(v, v))"])
def test_branches_give_tensors_of_different_ranks(node: str) -> None:
    x, y = np.float32([1, 2, 3]), np.float32([[1, 0, 2], [4, 5, 6]])
    for condition in (True, False):
        check(RANKS.format(node) if "(" not in node[4:] else _nested(node), np.bool_(condition), x, y)


def _nested(node: str) -> str:
    """The text form has no nested calls."""
    outer, inner = node.split("(", 1)
    called = "Exp(v)" if "Exp" in inner else "Add(v, v)"
    return RANKS.format(f"{outer}({inner.replace(called, 'w')}").replace("    z =", f"    w = {called}\n    z =")


def test_a_rank_that_does_not_suit_a_node_ends_the_run() -> None:
    text = RANKS.format("MatMul(y, w)").replace("    z =", "    w = Transpose <perm = [1, 0]> (v)\n    z =")
    call = machine(text)
    x, y = np.float32([1, 2]), np.float32([[1, 0], [4, 5]])
    assert plain(call(np.bool_(False), x, y)) == (y @ -y.T).tolist()
    with pytest.raises(TreadleError):
        call(np.bool_(True), x, y)


GROWN = """(int64 n, float[k] x) => (y, int64 count) {{
    y, counts = Loop(n, , x) <body = b (int64 i, bool c, float[k] s) => (bool d, t, int64 r) {{
        d = Identity(c)  first = Constant <value_ints = [{axis}]> ()  t = Unsqueeze(s, first)  r = Size(s) }}>
    count = ReduceSum <keepdims = 0> (counts) }}"""


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("rounds", [0, 1, 3, 7])
def test_a_state_of_a_loop_gets_another_axis_each_round(rounds: int, axis: int) -> None:
    y, count = machine(GROWN.format(axis=axis))(np.int64(rounds), A)
    assert np.asarray(y).shape == ((1,) * rounds + (2,) if axis == 0 else (2,) + (1,) * rounds)
    assert plain(count) == 2 * rounds


def test_a_state_of_more_axes_than_there_may_be_ends_the_run() -> None:
    with pytest.raises(TreadleError):
        machine(GROWN.format(axis=0))(np.int64(8), A)


def test_texts_of_all_rounds_are_put_together() -> None:
    text = """(string[n, 2] x, int64 k) => (y, z) {
        y = Scan <num_scan_inputs = 1, body = b (string[2] s) => (string[2] t) { t = StringConcat(s, s) }> (x)
        go = Constant <value_int = 1> ()  on = Cast <to = 9> (go)
        z = Loop(k, on) <body = c (int64 i, bool c) => (bool d, string u) { d = Identity(c)  u = Cast <to = 8> (i) }> }"""
    call = machine(text)
    for rows in (0, 1, 3):
        y, z = call(np.array([["a", "é"]] * rows, object).reshape(rows, 2), np.int64(rows))
        assert plain(y) == [["aa", "éé"]] * rows
        assert plain(z) == [str(number) for number in range(rows)]


# ---- optional values ----


def test_branches_give_a_tensor_or_nothing() -> None:
    text = """(bool c, float[n] x) => (optional(float[n]) y, bool has) {
        y = If(c) <then_branch = t () => (optional(float[n]) a) { a = Optional(x) },
                   else_branch = e () => (optional(float[n]) b) { b = Optional <type = float[n]> () }>
        has = OptionalHasElement(y) }"""
    call = machine(text)
    assert plain(call(np.bool_(True), A)) == [[1, 2], True]
    assert plain(call(np.bool_(False), A)) == [None, False]


def test_optional_sequences_are_inputs() -> None:
    text = """(optional(seq(float[n])) s) => (bool has, int64 count) {
        has = OptionalHasElement(s) t = OptionalGetElement(s) count = SequenceLength(t) }"""
    assert plain(machine(text)([A, B])) == [True, 2]
    with pytest.raises(ExecutionError):
        machine(text)(None)


# ---- gradients ----

UNARY = ["Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Tanh", "Sigmoid", "Relu", "Abs", "Sin", "Cos", "Erf", "Softmax"]


def numeric(call: Any, inputs: list[np.ndarray], place: int) -> np.ndarray:
    """The derivative of the sum of what a call gives first, by central differences."""
    found = np.zeros_like(inputs[place])
    for index in np.ndindex(found.shape):
        values = []
        for step in (1e-5, -1e-5):
            moved = [each.copy() for each in inputs]
            moved[place][index] += step
            values.append(np.asarray(call(*moved)[0]).sum())
        found[index] = (values[0] - values[1]) / 2e-5
    return found


def check_gradient(body: str, **shapes: tuple[int, ...]) -> None:
    names = ", ".join(shapes)
    infos = ", ".join(f"double[{', '.join(map(str, shape))}] {name}" for name, shape in shapes.items())
    outputs = ", ".join(f"double[{', '.join('?' * len(shape))}] d{name}" for name, shape in shapes.items())
    xs = ", ".join(f'"{name}"' for name in shapes)
    text = f"""({infos}) => (double[?, ?] y, {outputs}) {{ {body}
        {", ".join(f"d{name}" for name in shapes)} = ai.onnx.preview.training.Gradient <xs = [{xs}], y = "y"> ({names}) }}"""
    call = machine(text)
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.5, 2, shape) for shape in shapes.values()]
    for place, found in enumerate(call(*inputs)[1:]):
        np.testing.assert_allclose(np.asarray(found), numeric(call, inputs, place), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", UNARY)
def test_gradients_of_functions_of_one_number(operator: str) -> None:
    check_gradient(f"t = {operator}(x) y = Mul(t, x)", x=(2, 3))


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"])
@pytest.mark.parametrize("shapes", [{"a": (2, 3), "b": (2, 3)}, {"a": (2, 3), "b": (3,)}, {"a": (2, 1), "b": (1, 3)}])
def test_gradients_of_what_broadcasts(operator: str, shapes: dict[str, tuple[int, ...]]) -> None:
    check_gradient(f"t = {operator}(a, b) y = Mul(t, t)", **shapes)


def test_gradients_of_products_sums_and_views() -> None:
    check_gradient("y = MatMul(a, b)", a=(2, 3), b=(3, 4))
    check_gradient("y = Gemm <transB = 1> (a, b, c)", a=(2, 3), b=(4, 3), c=(4,))
    check_gradient("t = Transpose(a) u = Mul(t, t) y = Concat <axis = 1> (u, t)", a=(2, 3))
    check_gradient("m = ReduceMean <keepdims = 1> (a) d = Sub(a, m) y = Mul(d, d)", a=(2, 3))
    check_gradient("m = ReduceSum <keepdims = 1> (a) y = Mul(a, m)", a=(2, 3))


def test_gradients_at_other_values_and_of_what_does_not_depend() -> None:
    text = """(float[2] a, float[2] b, float[2] c) => (float[2] da, float[2] db) { y = Mul(a, a)
        da, db = ai.onnx.preview.training.Gradient <xs = ["a", "b"], y = "y"> (c, b) }"""
    assert plain(machine(text)(A, A, np.float32([5, 6]))) == [[10, 12], [0, 0]]


def test_gradients_by_what_lies_between() -> None:
    text = """(float[2] a) => (float[2] dh) { h = Exp(a) y = Mul(h, h)
        dh = ai.onnx.preview.training.Gradient <xs = ["h"], y = "y"> (a) }"""
    assert plain(machine(text)(A)) == [2, 4]


def test_what_has_no_gradient_is_said() -> None:
    text = """(float[2] a) => (float[2] d) { y = Asinh(a)
        d = ai.onnx.preview.training.Gradient <xs = ["a"], y = "y"> (a) }"""
    with pytest.raises(UnsupportedOperatorError, match="the derivative of asinh is not known"):
        machine(text)
    with pytest.raises(ModelError, match="values for the tensors"):
        machine(text.replace("(a) }", "(a, a) }"))


# ---- images ----


@pytest.mark.parametrize("form", ["PNG", "BMP", "PPM", "TIFF"])
@pytest.mark.parametrize("order", ["RGB", "BGR", "Grayscale"])
def test_images_are_decoded(form: str, order: str) -> None:
    image = pytest.importorskip("PIL.Image")
    text = f'(uint8[n] x) => (uint8[h, w, c] y) {{ y = ImageDecoder <pixel_format = "{order}"> (x) }}'
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    file = io.BytesIO()
    image.fromarray(pixels).save(file, form)
    found = np.asarray(machine(text)(np.frombuffer(file.getvalue(), np.uint8)))
    grey = np.asarray(image.fromarray(pixels).convert("L"))[:, :, None]
    np.testing.assert_array_equal(found, {"RGB": pixels, "BGR": pixels[:, :, ::-1], "Grayscale": grey}[order])


def test_what_is_no_image_is_an_empty_one() -> None:
    pytest.importorskip("PIL.Image")
    call = machine("(uint8[n] x) => (uint8[h, w, c] y) { y = ImageDecoder(x) }")

    @settings(max_examples=50, deadline=None)
    @given(st.binary(max_size=200))
    def check_bytes(data: bytes) -> None:
        for content in (data, b"\x89PNG\r\n\x1a\n" + data, b"BM" + data, b"P6 9999999 9999999 255\n" + data):
            assert np.asarray(call(np.frombuffer(content, np.uint8))).shape == (0, 0, 3)

    check_bytes()


# ---- the form in executables ----


def test_outputs_that_no_program_can_give_are_listed() -> None:
    text = """(float[1,1,1,1,1,1,1,1,1] x, float[2] y) => (seq(float[]) both, seq(float[]) twice) {
        both = SequenceConstruct(x, y)  twice = SequenceConstruct(y, x) }"""
    with pytest.raises(UnsupportedOperatorError) as caught:
        machine(text)
    listed = [(kind, name) for kind, name, _ in caught.value.operators]
    assert listed == [("output", "both"), ("output", "twice")]


def test_a_type_that_only_has_the_name_is_no_array_of_any_rank() -> None:
    from treadle.formats.host_values import RANKED, form_of
    from treadle.formats.types import Constructor, DataTypeDefinition

    names = [constructor.name for constructor in RANKED.constructors]
    wrong = DataTypeDefinition("Ranked[x]", (), tuple(Constructor(name, ()) for name in names))
    assert form_of(wrong) == ""


# ---- sizes that a run finds, where they meet ----


def compressed(node: str, other: str = "float[m] y") -> str:
    """A node of `v`, as long as a run finds, and `y`."""
    return f"(float[n] x, bool[n] c, {other}) => (float[?] z) {{ v = Compress <axis = 0> (x, c)  {node} }}"


@pytest.mark.parametrize(
    "node", ["z = Add(v, y)", "w = Sub(y, v)  z = Mul(w, y)", "w = Mul(v, v)  u = Add(w, y)  z = Sub(v, u)"]
)
def test_one_of_two_sizes_may_be_1(node: str) -> None:
    text = compressed(node)
    call = machine(text)
    x = np.float32([1, 2, 3, 4])
    for kept, length in [(1, 3), (3, 1), (3, 3), (1, 1), (0, 1), (1, 0), (0, 0)]:
        inputs = x, np.arange(4) < kept, np.arange(length, dtype=np.float32)
        expected = ReferenceEvaluator(parser.parse_model(HEAD + text)).run(None, dict(zip("xcy", inputs, strict=True)))
        agree([call(*inputs)], expected)
    with pytest.raises(ShapeError, match=r"expected a tensor of shape \[[23]\], got \[[23]\]"):
        call(x, np.arange(4) < 2, np.float32([1, 2, 3]))


def test_a_size_that_a_run_finds_meets_a_number() -> None:
    text = compressed("z = Add(v, y)", "float[3] y")
    for kept in (1, 3):
        check(text, np.float32([1, 2, 3, 4]), np.arange(4) < kept, np.float32([5, 6, 7]))
    with pytest.raises(ShapeError):
        machine(text)(np.float32([1, 2, 3, 4]), np.arange(4) < 2, np.float32([5, 6, 7]))


def test_they_meet_among_batches_of_matrices() -> None:
    text = """(float[n, k, k] x, bool[n] c, float[m, k, k] y) => (float[?, k, k] z) {
        v = Compress <axis = 0> (x, c)  w = MatMul(v, y)  z = Max(w, v, y) }"""
    rng = np.random.default_rng(0)
    for kept, count in [(1, 2), (2, 1), (2, 2)]:
        inputs = rng.normal(size=(3, 2, 2)).astype("f"), np.arange(3) < kept, rng.normal(size=(count, 2, 2)).astype("f")
        check(text, *inputs)


@pytest.mark.parametrize("length", [2, 3])
def test_a_size_that_never_is_another_one_may_be_1(length: int) -> None:
    text = "(float[m] x) => (float[?] z) { a, b = Split <axis = 0, num_outputs = 2> (x)  z = Add(b, x) }"
    check(text, np.arange(length, dtype=np.float32))
    with pytest.raises(ShapeError):
        machine(text)(np.zeros(4, np.float32))


def test_ranks_that_an_operator_cannot_have_are_left_out():
    """Of the ranks that a tensor out of a sequence may have, updates of rows by one number fit those from 1 on."""
    text = """(seq(float[]) s, int64[2, 1] rows) => (float[] y) {
        x = SequenceAt(s, zero) y = ScatterND<reduction: string = "mul">(x, rows, x) }"""
    text = text.replace("{", "<int64 zero = {0}> {", 1)
    check(text, [np.float32([[1, 2], [3, 4]])], np.array([[1], [0]]))
    with pytest.raises(TreadleError):
        machine(text)([np.float32(3)], np.array([[0], [0]]))
