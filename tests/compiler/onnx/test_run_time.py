"""Inputs of ONNX's operators known only at run time: axes, sizes, bounds, counts."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import treadle
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.tests.compiler.onnx.onnx_nodes import Node, same

CUBE = ("float32", ("a", "b", "c"))
few = settings(max_examples=25, deadline=None, derandomize=True)
shapes = st.tuples(*[st.integers(0, 4)] * 3)
full_shapes = st.tuples(*[st.integers(1, 4)] * 3)


@functools.cache
def node(*args, **attributes) -> Node:
    """One compiled program for all examples of a test: so nothing in it can know them."""
    return Node(*args, **attributes)


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    yield
    node.cache_clear()


def numbers(count: int, kind: str = "int64") -> tuple:
    return (kind, (count,))


def random(shape, kind="float32", seed=0):
    made = np.random.default_rng(seed).uniform(-2, 2, shape)
    return (made * (1 if np.dtype(kind).kind == "f" else 5)).astype(kind)


# ---- axes ----

REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_axes_of_reductions(name, keepdims):
    reduced = {count: node(f"Reduce{name}", CUBE, numbers(count), keepdims=keepdims) for count in (1, 2, 3)}

    @few
    @given(full_shapes, st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True), st.booleans())
    def check(shape, axes, negative):
        x = np.abs(random(shape)) if name == "LogSum" else random(shape)
        reduced[len(axes)].check(x, np.array(axes) - 3 * negative)

    check()
    assert reduced[2].on_host == []


@pytest.mark.parametrize("kind", ["float16", "float64", "int32"])
def test_axes_of_reductions_of_other_types(kind):
    x = random((2, 3, 4), kind)
    for name in ("L1", "Max", "Sum", "SumSquare"):
        reduced = node(f"Reduce{name}", (kind, (2, 3, 4)), numbers(2))
        wanted = [made.astype(kind) for made in reduced.expected(x, [-1, 0])]  # ONNX's own sums int32 to int64
        reduced.check(x, [-1, 0], expected=wanted, rtol=2e-3)


@pytest.mark.parametrize("name", ["L2", "LogSum", "LogSumExp", "Mean"])
def test_reductions_of_integers_are_cut_to_integers(name):
    x = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
    reduced = node(f"Reduce{name}", ("int32", ("a", "b")), numbers(1))
    wide = Node(f"Reduce{name}", ("float64", ("a", "b")), numbers(1)).expected(x.astype(np.float64), [1])
    reduced.check(x, [1], expected=[each.astype(np.int32) for each in wide])


def test_reducing_nothing_by_axes_of_a_run():
    x = np.zeros((2, 0, 4), np.float32)
    for name, value in (("Sum", 0), ("Prod", 1), ("Max", -np.inf)):
        made = node(f"Reduce{name}", CUBE, numbers(1)).run(x, [1])
        np.testing.assert_array_equal(made[0], np.full((2, 1, 4), value, np.float32))


def test_an_axis_twice_or_out_of_range_fails():
    reduced = node("ReduceSum", CUBE, numbers(2), keepdims=0)
    with pytest.raises(treadle.TreadleError, match="out of range"):
        reduced.run(random((2, 3, 4)), [0, 3])
    with pytest.raises(treadle.TreadleError):
        reduced.run(random((2, 3, 4)), [1, 1])


def test_how_many_axes_there_are_may_be_known_at_run_time_only():
    reduced = node("ReduceSum", CUBE, ("int64", ("k",)), keepdims=0)
    for axes in ([0], [1, -1], [0, 1, 2]):
        same(reduced.run(random((2, 3, 4)), axes), reduced.expected(random((2, 3, 4)), axes))


@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
@pytest.mark.parametrize("flags", [{}, {"exclusive": 1}, {"reverse": 1, "exclusive": 1}], ids=str)
def test_axis_of_running_totals(name, flags):
    running = node(name, CUBE, ("int64", ()), **flags)

    @few
    @given(shapes, st.integers(-3, 2))
    def check(shape, axis):
        running.check(random(shape), axis)

    check()
    assert running.on_host == []


@few
@given(full_shapes, st.lists(st.integers(-3, 2), min_size=2, max_size=2, unique_by=lambda axis: axis % 3))
def test_axes_to_squeeze(shape, axes):
    shape = tuple(1 if axis in (axes[0] % 3, axes[1] % 3) else size for axis, size in enumerate(shape))
    node("Squeeze", CUBE, numbers(2)).check(random(shape), axes)


@few
@given(shapes, st.lists(st.integers(-5, 4), min_size=2, max_size=2, unique_by=lambda axis: axis % 5))
def test_axes_to_put_in(shape, axes):
    node("Unsqueeze", CUBE, numbers(2)).check(random(shape), axes)


# ---- bounds ----

bounds = st.one_of(st.integers(-6, 6), st.sampled_from([-(2**63), 2**63 - 1, 2**31 - 1]))


@few
@given(
    shapes,
    *[st.tuples(bounds, bounds)] * 2,
    st.tuples(*[st.sampled_from([1, 2, -1, -3, 2**62])] * 2),
    st.permutations(range(-3, 0)),
)
def test_bounds_axes_and_steps_of_slices(shape, starts, ends, steps, axes):
    """The reference slices as Python does; by the standard "starts is clamped to [0, dims - 1] for negative stepping"."""
    sliced = node("Slice", CUBE, *[numbers(2)] * 4)
    x, axes = random(shape), axes[:2]
    clamped = [
        max(start, -shape[axis]) if step < 0 and shape[axis] else start
        for start, step, axis in zip(starts, steps, axes, strict=True)
    ]
    sliced.check(x, starts, ends, axes, steps, expected=sliced.expected(x, clamped, ends, axes, steps))


def test_bounds_are_as_many_as_the_axes():
    sliced = Node("Slice", CUBE, ("int64", ("k",)), ("int64", ("m",)), np.array([1, 2]))
    x = random((2, 3, 4))
    sliced.check(x, [1, 0], [3, 2])
    with pytest.raises(treadle.TreadleError):
        sliced.run(x, [1], [3, 2])


@few
@given(shapes, st.tuples(bounds, bounds), st.tuples(bounds, bounds))
def test_bounds_of_slices_of_known_axes(shape, starts, ends):
    sliced = node("Slice", CUBE, numbers(2, "int32"), numbers(2, "int32"))
    starts, ends = (np.clip(each, -(2**31), 2**31 - 1).astype(np.int32) for each in (starts, ends))
    sliced.check(random(shape), starts, ends)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads(mode):
    padded = node("Pad", CUBE, numbers(6), ("float32", ()) if mode == "constant" else None, mode=mode)

    @few
    @given(st.tuples(*[st.integers(4, 5)] * 3), st.tuples(*[st.integers(-1, 2)] * 6))
    def check(shape, pads):
        x, value = random(shape), {"constant_values": 2.5} if mode == "constant" else {}
        cut = x[tuple(slice(max(-pads[axis], 0), x.shape[axis] + min(pads[axis + 3], 0)) for axis in range(3))]
        wanted = np.pad(cut, [(max(pads[axis], 0), max(pads[axis + 3], 0)) for axis in range(3)], mode, **value)
        padded.check(x, pads, *map(np.float32, value.values()), expected=[wanted])

    check()
    assert padded.on_host == []


@few
@given(shapes, st.tuples(*[st.integers(0, 2)] * 4), st.permutations(range(3)))
def test_axes_to_pad(shape, pads, axes):
    node("Pad", CUBE, numbers(4), None, numbers(2)).check(random(shape), pads, axes[:2])


@few
@given(st.tuples(st.integers(0, 4), st.integers(0, 5)), st.integers(-6, 6))
def test_the_diagonal_of_triangles(shape, diagonal):
    for upper in (0, 1):
        node("Trilu", ("float32", ("a", "b")), ("int64", ()), upper=upper).check(random(shape), diagonal)


# ---- sizes ----


@few
@given(st.permutations([2, 3, 4]), st.sampled_from([(6, 4), (-1, 2), (0, -1), (12, -1), (24, 1)]))
def test_sizes_to_reshape_to(shape, sizes):
    node("Reshape", CUBE, numbers(2)).check(random(shape), sizes)


def test_zero_may_be_a_size_to_reshape_to():
    node("Reshape", CUBE, numbers(2), allowzero=1).check(random((0, 3, 4)), [0, 7])


def test_a_shape_that_does_not_fit_fails():
    with pytest.raises(treadle.TreadleError):
        node("Reshape", CUBE, numbers(2)).run(random((2, 3, 4)), [5, 5])


@few
@given(st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_sizes_to_expand_to(first, last, is_one):
    x = random((3, 1))
    node("Expand", ("float32", (3, 1)), numbers(3)).check(x, [first, 1 if is_one else 3, last])


@few
@given(shapes, shapes)
def test_repetitions(shape, repetitions):
    node("Tile", CUBE, numbers(3)).check(random(shape), repetitions)


def test_constants_of_a_computed_shape():
    made = node("ConstantOfShape", numbers(2))
    for sizes in ([2, 3], [0, 4]):
        made.check(np.array(sizes))
    with pytest.raises(treadle.TreadleError, match="-1"):
        made.run(np.array([2, -1]))


@few
@given(st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_sizes_to_split_to(sizes):
    x = random((sum(sizes), 2))
    node("Split", ("float32", ("a", 2)), numbers(2), outputs=2).check(x, sizes)


def test_sizes_that_do_not_part_the_axis_fail():
    with pytest.raises(treadle.TreadleError):
        node("Split", ("float32", ("a", 2)), numbers(2), outputs=2).run(random((4, 2)), [1, 2])


@few
@given(st.integers(0, 6), st.booleans())
def test_how_many_are_the_greatest(k, largest):
    x = np.random.default_rng(k).permutation(18).astype(np.float32).reshape(3, 6)
    node("TopK", ("float32", ("a", "b")), numbers(1), outputs=2, largest=int(largest)).check(x, [k])


@few
@given(st.integers(1, 5), st.lists(st.integers(-5, 4), min_size=1, max_size=4))
def test_the_depth_of_one_hot_numbers(depth, places):
    places = [place for place in places if -depth <= place < depth]
    node("OneHot", ("int64", ("n",)), ("int64", ()), ("float32", (2,)), axis=0).check(
        np.array(places, np.int64), depth, np.float32([2, 5])
    )


@pytest.mark.parametrize("kind", ["int64", "int32", "int16", "float32", "float64"])
def test_bounds_of_ranges(kind):
    made = node("Range", *[(kind, ())] * 3)

    @few
    @given(st.integers(-5, 5), st.integers(-5, 5), st.sampled_from([1, 2, -1, -3]))
    def check(start, limit, step):
        made.check(*(np.array(number, kind) for number in (start, limit, step)))

    check()
    assert made.on_host == []


def test_what_is_known_of_a_computed_shape_stays_known():
    """One size is read from a tensor; the other is a number, which the matrix product after it needs to know."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [
            helper.make_node("Concat", ["rows", "columns"], ["shape"], axis=0),
            helper.make_node("Reshape", ["x", "shape"], ["seen"]),
            helper.make_node("MatMul", ["seen", "weights"], ["y"]),
        ],
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("rows", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.array([4]), "columns"),
            numpy_helper.from_array(random((4, 2)), "weights"),
        ],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
    machine = treadle.VirtualMachine(treadle.compile(model, progress=False))
    x = random((12,))
    np.testing.assert_allclose(machine["main"](x, np.array([3])), x.reshape(3, 4) @ random((4, 2)), rtol=1e-5)


@pytest.mark.parametrize("behind", ["Conv(seen, filters)", "ConvTranspose(seen, filters)", "MatMul(rows, matrix)"])
def test_sizes_that_only_a_run_knows_meet_those_of_weights(behind):
    """A reshape leaves channels to be computed (-1) beside a quotient that may be below 0: a run checks them."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        graph (float[h, w] x, float[3, 3, 1, 1] filters, float[3, 2] matrix) => (y) {{
            h = Shape<end = 1>(x)
            one = Constant<value_ints = [1]>()
            minus = Constant<value_ints = [-1]>()
            two = Constant<value_ints = [2]>()
            less = Sub(h, one)
            half = Div(less, two)
            wanted = Concat<axis = 0>(one, minus, half, one)
            seen = Reshape(x, wanted)
            rows = Transpose<perm = [0, 2, 3, 1]>(seen)
            y = {behind}
        }}""")
    machine = treadle.VirtualMachine(treadle.compile(model, progress=False))
    weights = random((3, 3, 1, 1), seed=1), random((3, 2), seed=2)
    feeds = dict(zip(("x", "filters", "matrix"), (random((3, 1)), *weights), strict=True))
    expected = ReferenceEvaluator(model).run(None, feeds)[0]
    np.testing.assert_allclose(machine["main"](*feeds.values()), expected, rtol=1e-5)
    with pytest.raises(treadle.TreadleError, match="3"):
        machine["main"](random((5, 6)), *weights)  # 30 elements in 2 rows: 15 channels


@pytest.mark.parametrize(("start", "end", "wanted"), [(-6, -9, [0]), (-9, -6, [0]), (9, -4, [4, 3, 2]), (2, 0, [2, 1])])
def test_a_backward_slice_from_before_all_elements_begins_at_the_first(start, end, wanted):
    sliced = node("Slice", ("float32", ("n",)), numbers(1), numbers(1), numbers(1), numbers(1))
    x = np.arange(5, dtype=np.float32)
    expected = [np.array(wanted, np.float32)]
    sliced.check(x, [start], [end], [0], [-1], expected=expected)
    sliced.check(x[:0], [start], [end], [0], [-1], expected=[x[:0]])


@pytest.mark.parametrize("end", [-(2**63) + 1, -(2**48), 2**62, 2])
def test_bounds_beyond_all_sizes_stay_numbers(end):
    """Such a bound and a symbolic size make no dimension: files hold coefficients of 47 bits."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        graph (float[n, m] x, int64[1] axis) => (y) {{
            start = Constant<value_ints = [0]>()
            end = Constant<value_ints = [{end}]>()
            y = Slice(x, start, end, axis)
        }}""")
    executable = treadle.load(treadle.compile(model, progress=False, embed_native=False).as_bytes())
    machine = treadle.VirtualMachine(executable, kernels="cached")
    for axis in (0, 1):
        feeds = {"x": random((3, 4)), "axis": np.array([axis])}
        np.testing.assert_array_equal(machine["main"](*feeds.values()), ReferenceEvaluator(model).run(None, feeds)[0])


def levels_of_a_detector(count: int) -> str:
    """Maps of ever fewer elements, all of which lie in one tensor; then each level's again, from where its sizes say."""
    lines = ["minus = Constant<value_ints = [-1]>()", "sum_0 = Constant<value_ints = [0]>()", "map_0 = Identity(x)"]
    for k in range(1, count + 1):
        lines += [
            f"map_{k} = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(map_{k - 1})",
            f"row_{k} = Reshape(map_{k}, minus)",
            f"shape_{k} = Shape(map_{k})",
            f"size_{k} = ReduceProd(shape_{k}, zero)",
            f"sum_{k} = Add(sum_{k - 1}, size_{k})",
        ]
    rows = ", ".join(f"row_{k}" for k in range(1, count + 1))
    lines += [f"rows = Concat<axis = 0>({rows})"]
    for k in range(1, count + 1):
        lines += [f"part_{k} = Slice(rows, sum_{k - 1}, sum_{k}, zero)", f"y_{k} = Reshape(part_{k}, shape_{k})"]
    return "\n".join(["zero = Constant<value_ints = [0]>()", *lines])


def test_sizes_of_all_levels_of_a_detector():
    """Sums of products of quotients, which slices repeat: named, they do not grow out of the limits."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    levels = ", ".join(f"y_{k}" for k in range(1, 7))
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        graph (float[1, 1, h, w] x) => ({levels}) {{ {levels_of_a_detector(6)} }}""")
    machine = treadle.VirtualMachine(treadle.compile(model, progress=False))
    x = random((1, 1, 90, 70))
    for mine, wanted in zip(machine["main"](x), ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(mine, wanted)


# ---- scalars in place of lists ----


def test_a_scalar_of_axes_is_a_list_of_one():
    x, flat = random((1, 2, 1)), random((2, 3))
    squeezed = node("Squeeze", ("float32", x.shape), ("int64", ()))
    unsqueezed = node("Unsqueeze", ("float32", flat.shape), ("int64", ()))
    for axis in (0, 2, -1):
        assert np.array_equal(squeezed.run(x, np.array(axis))[0], x.squeeze(axis))
        assert np.array_equal(unsqueezed.run(flat, np.array(axis))[0], np.expand_dims(flat, axis))


@pytest.mark.parametrize("name", ["Unsqueeze", "Squeeze", "Reshape", "Expand", "Tile"])
def test_lists_of_lists_are_refused_by_name(name):
    with pytest.raises(treadle.TreadleError, match=r"expected a list of integers, got int64\[1, 2\]"):
        _ = Node(name, CUBE, ("int64", (1, 2))).executable


@pytest.mark.parametrize("name", ["ConstantOfShape", "Expand", "Reshape"])
def test_sizes_that_no_array_has_are_refused_though_one_of_them_is_0(name):
    given = {"Expand": (np.zeros((0, 1, 1), np.float32),), "Reshape": (np.zeros(0, np.float32),)}.get(name, ())
    attributes = {"allowzero": 1} if name == "Reshape" else {}
    made = Node(name, *(("float32", each.shape) for each in given), ("int64", (3,)), **attributes)
    for sizes in ([0, 1 << 46, 1 << 46], [1 << 46, 0, 1 << 46]):
        with pytest.raises(treadle.TreadleError, match="which no tensor has"):
            made.run(*given, np.array(sizes))
