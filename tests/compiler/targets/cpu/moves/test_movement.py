"""Data movement, gathering, padding and pooling, compiled, against the reference evaluator."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.ir.evaluate import evaluate_definition
from treadle.compiler.targets.cpu.kernels.kernel import UNFIT
from treadle.formats import dims
from treadle.formats.dtypes import DType
from treadle.formats.primitive import PrimitiveDefinition
from treadle.formats.types import tensor
from treadle.native.convention import FEW

from ..harness import NARROW, TARGET, Builder, check, check_random, definition_of, random_array, run_kernel

dim = st.sampled_from([0, 1, 2, 5, 16, 37])


@settings(max_examples=25, deadline=None)
@given(st.tuples(dim, dim, dim), st.permutations(range(3)), st.integers(1, 3))
def test_permutations(shape, axes, parts):
    check_random(definition_of("permute_dims", [tensor("float32", shape)], axes=tuple(axes)), parts=parts)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "int64", "bool"])
def test_transposing_other_element_sizes(dtype):
    check_random(definition_of("permute_dims", [tensor(dtype, (53, 37))], axes=(1, 0)))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([9, 16, 37, 128, 1024]),
    st.integers(1, 100),
    st.sampled_from(["uint8", "uint16", "float32", "int64"]),
    st.integers(1, 3),
    st.sampled_from([TARGET, *NARROW]),
)
def test_tiles_of_what_is_left_over(rows, columns, dtype, parts, target):
    type_ = tensor(dtype, (2, rows, columns))
    check(definition_of("permute_dims", [type_], axes=(0, 2, 1)), [random_array(type_)], parts=parts, target=target)


@pytest.mark.parametrize("count", FEW)
def test_groups_of_a_few_neighbours(count):
    for shape in ((2, 37, count), (2, count, 37)):
        check_random(definition_of("permute_dims", [tensor("float32", shape)], axes=(0, 2, 1)), parts=2)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
@pytest.mark.parametrize("count", [3, 7, 12])
def test_groups_of_a_few_neighbours_in_narrow_vectors(count, target):
    for axes in ((1, 0), (0, 1)):
        type_ = tensor("float32", tuple((37, count)[axis] for axis in axes))
        check(definition_of("permute_dims", [type_], axes=(1, 0)), [random_array(type_)], target=target)


short = st.sampled_from([1, 2, 3, 4, 6, 7, 20])


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(*[short] * 5),
    st.permutations(range(5)),
    st.sampled_from(["uint8", "float32", "int64"]),
    st.integers(1, 3),
)
def test_permutations_of_short_axes(shape, axes, dtype, parts):
    check_random(definition_of("permute_dims", [tensor(dtype, shape)], axes=tuple(axes)), parts=parts)


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize("shape", [(2, 96, 300, 7), (6, 41, 14, 4), (3, 5, 2000, 2)])
def test_permutations_in_several_pieces(shape, target):
    type_ = tensor("float32", shape)
    for axes in ((1, 3, 2, 0), (3, 2, 0, 1), (2, 0, 1, 3)):
        check(definition_of("permute_dims", [type_], axes=axes), [random_array(type_)], parts=2, target=target)


@settings(max_examples=20, deadline=None)
@given(st.tuples(*[st.integers(1, 3)] * 4), st.tuples(*[short] * 4), st.integers(1, 3))
def test_repetition_of_short_axes(repetitions, shape, parts):
    check_random(definition_of("tile", [tensor("float32", shape)], repetitions=repetitions), parts=parts)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
@pytest.mark.parametrize("repetitions", [(1, 2, 4, 3), (3, 1, 4, 2), (2, 2, 1, 3)])
def test_pieces_that_are_repeated(repetitions, dtype):
    for shape in ((5, 6, 10, 3), (2, 9, 340, 3)):
        check_random(definition_of("tile", [tensor(dtype, shape)], repetitions=repetitions), parts=3)


@settings(max_examples=20, deadline=None)
@given(st.tuples(*[st.sampled_from([-3, -1, 1, 2, 3])] * 3), st.tuples(*[short] * 3), st.integers(0, 2))
def test_slices_with_strides(steps, shape, more):
    starts = tuple(min(more, size - 1) if step > 0 else -1 for step, size in zip(steps, shape, strict=True))
    ends = tuple(2**31 if step > 0 else -(2**31) for step in steps)
    attributes = {"starts": starts, "ends": ends, "axes": (1, 2, 3), "steps": steps}
    check_random(definition_of("slice", [tensor("float32", (9, *shape))], **attributes), parts=2)


def test_permutation_of_four_axes():
    for axes in itertools.islice(itertools.permutations(range(4)), 1, 24, 5):
        check_random(definition_of("permute_dims", [tensor("float32", (3, 4, 18, 20))], axes=axes))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 3))
def test_one_kernel_transposes_every_size(n, m, parts):
    definition = definition_of("permute_dims", [tensor("float32", (2, "n", 3, "m"))], axes=(0, 2, 3, 1))
    check_random(definition, {"n": n, "m": m}, parts)


@pytest.mark.parametrize(("shape", "blocks"), [((2, 12, 5, 37), (2, 3)), ((1, 8, 6, 5, 16), (2, 2)), ((2, 6, 9), (3,))])
def test_depth_to_space(shape, blocks):
    check_random(definition_of("depth_to_space", [tensor("float32", shape)], blocks=blocks), parts=3)


REPETITIONS = [
    ("broadcast_to", (5, 1, 3), {"shape": (2, 5, 4, 3)}),
    ("broadcast_to", (5, 1), {"shape": (2, 5, 40)}),
    ("tile", (5, 3), {"repetitions": (2, 3)}),
    ("tile", (5, 3), {"repetitions": (0, 3)}),
]


@pytest.mark.parametrize(("operator", "shape", "attributes"), REPETITIONS)
def test_repetition(operator, shape, attributes):
    check_random(definition_of(operator, [tensor("float32", shape)], **attributes), parts=2)


@pytest.mark.parametrize("operator", ["concat", "stack"])
def test_joining_a_tensor_with_itself(operator):
    build = Builder(tensor("float32", (3, 5)), tensor("float32", (3, 5)))
    check_random(build.definition(build(operator, 1, 0, 1, axis=1)), parts=2)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float32", "float64"])
def test_ranges(dtype):
    for start, stop, step in (("n", "n + 37", 1), (-3, "5 * n", 7), (40, "n", -3), (5, 5, 1)):
        bounds = {"start": dims.parse(str(start)), "stop": dims.parse(str(stop))}
        check_random(definition_of("arange", [], **bounds, step=step, dtype=DType[dtype]), {"n": 4}, parts=3)


@pytest.mark.parametrize("operator", ["concat", "stack"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_joining(operator, axis):
    shapes = [[4, 3, 18] for _ in range(3)]
    if operator == "concat":
        for i, shape in enumerate(shapes):
            shape[axis] += i
    check_random(definition_of(operator, [tensor("float32", shape) for shape in shapes], axis=axis), parts=2)


def test_joining_symbolic_sizes():
    definition = definition_of("concat", [tensor("float32", ("n", 3)), tensor("float32", ("m", 3))], axis=0)
    check_random(definition, {"n": 4, "m": 9})


def putting() -> PrimitiveDefinition:
    params = [tensor("float32", ("b", 3, "room", 5)), tensor("float32", ("b", 3, "n", 5))]
    return definition_of("put_slice", params, start=dims.parse("held"), axis=2)


@pytest.mark.parametrize(("held", "n"), [(0, 0), (0, 9), (2, 3), (8, 1)])
@pytest.mark.parametrize("over", [None, 0])
def test_slices_are_put_in_place(held: int, n: int, over: int | None):
    sizes = {"b": 2, "room": 9, "held": held, "n": n}
    arrays = [random_array(param, seed, sizes) for seed, param in enumerate(putting().params)]
    expected = arrays[0].copy()
    expected[:, :, held : held + n] = arrays[1]
    for parts in (1, 4):
        code, (made,) = run_kernel(putting(), arrays, sizes, parts=parts, over=over)
        assert code == 0
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(("held", "n"), [(9, 1), (3, 7), (10, 0), (1 << 46, 1)])
def test_slices_that_are_not_within_a_tensor_are_not_put(held: int, n: int):
    sizes = {"b": 2, "room": 9, "held": held, "n": n}
    arrays = [random_array(param, seed, sizes) for seed, param in enumerate(putting().params)]
    code, (made,) = run_kernel(putting(), arrays, sizes, over=0)
    assert code == UNFIT
    np.testing.assert_array_equal(made, arrays[0])


@pytest.mark.parametrize("axis", [0, 1])
def test_parting(axis):
    sizes = (3, 0, 17)
    definition = definition_of("split", [tensor("int16", (20, 20))], axis=axis, sizes=sizes)
    check_random(definition, parts=3)


bound = st.integers(-25, 25)
step = st.sampled_from([1, 2, 3, -1, -2])


@settings(max_examples=25, deadline=None)
@given(st.tuples(bound, bound), st.tuples(bound, bound), st.tuples(step, step))
def test_slices(starts, ends, steps):
    definition = definition_of("slice", [tensor("float32", (20, 21))], starts=starts, ends=ends, steps=steps)
    check_random(definition, parts=2)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 30))
def test_slices_of_symbolic_axes(n):
    for start, end in ((1, 2**62), (-3, 2**62), (0, -2), (2, 7)):
        x = tensor("float32", ("n", 5))
        check_random(definition_of("slice", [x], starts=(start,), ends=(end,), axes=(0,)), {"n": n})


@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_symbolic_bounds_below_zero_count_from_the_end(step):
    at = dims.variable("at")
    for start, end in ((at - 4, at - 1), (at - 4, 2**62), (1, -at), (-at - 1, at - 6)):
        attributes = {"starts": (start,), "ends": (end,), "axes": (0,), "steps": (step,)}
        definition = definition_of("slice", [tensor("float32", ("n", 5))], **attributes)
        for n, place in itertools.product((0, 1, 4, 7), range(10)):
            x, sizes = random_array(definition.params[0], sizes={"n": n}), {"n": n, "at": place}
            picked = slice(*(dims.evaluate(bound, sizes) for bound in (start, end)), step)
            code, (got,) = run_kernel(definition, [x], sizes)
            assert code == 0
            np.testing.assert_array_equal(got, x[picked])
            (wanted,) = evaluate_definition(definition, [x], [sizes[name] for name in definition.variables])
            np.testing.assert_array_equal(got, wanted)


pad = st.sampled_from([0, 0, 1, 3])


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["constant", "edge", "reflect"]), st.tuples(*[pad] * 6), st.integers(1, 3), st.sampled_from([7, 37])
)
def test_padding(mode, pads, parts, length):
    definition = definition_of("pad", [tensor("float32", (3, 4, length))], pads=pads, mode=mode)
    check_random(definition, parts=parts)


def test_padding_with_a_value_of_other_types():
    for dtype, value in (("int8", 7), ("float16", 1.5), ("float64", -0.5), ("bool", 1)):
        for end in (3, 30):
            check_random(definition_of("pad", [tensor(dtype, (3, 4))], pads=(1, 0, 2, end), value=value))


@pytest.mark.parametrize(("mode", "least"), [("edge", 1), ("reflect", 2)])
def test_padding_of_a_symbolic_axis_fails_where_it_is_too_short(mode, least):
    definition = definition_of("pad", [tensor("float32", ("n",))], pads=(1, 1), mode=mode)
    assert run_kernel(definition, [np.zeros(least - 1, np.float32)], {"n": least - 1})[0] == 1
    check_random(definition, {"n": least})
    check_random(definition_of("pad", [tensor("float32", ("n", 2))], pads=(0, 1, 0, 0), mode=mode), {"n": least - 1})


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_taking(dtype, axis):
    x = random_array(tensor("float32", (6, 7, 18)))
    indices = np.random.default_rng(0).integers(-x.shape[axis], x.shape[axis], (2, 5)).astype(dtype)
    params = [tensor("float32", x.shape), tensor(dtype, indices.shape)]
    check(definition_of("take", params, axis=axis), [x, indices], parts=3)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_taking_the_same_from_many_rows(dtype):
    x, indices = random_array(tensor(dtype, (50, 30))), np.random.default_rng(0).integers(-30, 30, 1500)
    params = [tensor(dtype, x.shape), tensor("int64", indices.shape)]
    check(definition_of("take", params, axis=1), [x, indices], parts=3)


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_taking_from_a_list(dtype, target):
    x, indices = random_array(tensor(dtype, (300,))), np.random.default_rng(0).integers(-300, 300, (7, 11))
    params = [tensor(dtype, x.shape), tensor("int64", indices.shape)]
    check(definition_of("take", params, axis=0), [x, indices], parts=2, target=target)
    indices[5, 3] = 300
    assert run_kernel(definition_of("take", params, axis=0), [x, indices], target=target)[0] == 1


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_taking_along_an_axis(dtype, axis):
    x = random_array(tensor(dtype, (6, 7, 18)))
    shape = tuple(4 if place == axis else size for place, size in enumerate(x.shape))
    indices = np.random.default_rng(0).integers(-x.shape[axis], x.shape[axis], shape)
    params = [tensor(dtype, x.shape), tensor("int64", shape)]
    check(definition_of("take_along_axis", params, axis=axis), [x, indices], parts=2)


@pytest.mark.parametrize("index", [4, -5, 2**62, -(2**63)])
def test_an_index_out_of_range_is_a_failure(index):
    for operator, indices in (("take", np.array([0, index])), ("take_along_axis", np.array([[0, 0], [index, 0]]))):
        params = [tensor("float32", (4, 2)), tensor("int64", indices.shape)]
        definition = definition_of(operator, params, axis=0)
        x = random_array(params[0])
        assert run_kernel(definition, [x, indices])[0] == 1
    params, indices = [tensor("float32", (20, 4)), tensor("int64", (16,))], np.array([0, index] * 8)
    assert run_kernel(definition_of("take", params, axis=1), [random_array(params[0]), indices])[0] == 1


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_short_axes_to_the_front_and_to_the_end(count, dtype):
    for shape, axes in (
        ((3, 70, count), (0, 2, 1)),
        ((2, count, 5, 14), (0, 2, 3, 1)),
        ((5000, count), (1, 0)),
        ((count, 9), (1, 0)),
    ):
        check_random(definition_of("permute_dims", [tensor(dtype, shape)], axes=axes), parts=2)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_short_axes_in_narrow_vectors(target):
    for dtype in ("float32", "float64"):
        for shape in ((37, 3), (3, 37)):
            x = tensor(dtype, shape)
            check(definition_of("permute_dims", [x], axes=(1, 0)), [random_array(x)], target=target)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_runs_of_any_length(dtype):
    for length in (*range(1, 18), 33):
        x = tensor(dtype, (9, 40))
        check_random(definition_of("slice", [x], starts=(3,), ends=(3 + length,), axes=(1,)), parts=2)
        check_random(definition_of("concat", [tensor(dtype, (9, length)), x], axis=1), parts=3)


WINDOWS = [
    ((2, 3, 16, 17), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((1, 3, 12, 80), {"kernel": (2, 3), "dilations": (2, 2)}),
    ((1, 2, 5, 70), {"kernel": (3, 3), "pads": (1, 1, 1, 1)}),
    ((2, 3, 15, 17, 16), {"kernel": (3, 3, 1), "strides": (2, 2, 1), "pads": (1, 1, 0, 1, 1, 0)}),
    ((2, 3, 7, 7, 16), {"kernel": (7, 7, 1)}),
    ((2, 3, 15), {"kernel": (3,), "strides": (2,), "pads": (1, 1)}),
    ((2, 3, 5, 6, 7), {"kernel": (3, 2, 3), "strides": (2, 1, 2), "pads": (1, 1, 1, 1, 1, 1), "dilations": (1, 2, 1)}),
    # many images of short lines
    ((2, 9, 7, 9), {"kernel": (3, 3), "pads": (1, 1, 1, 1)}),
    ((1, 35, 13, 11), {"kernel": (2, 3), "strides": (2, 3), "pads": (0, 2, 1, 0), "dilations": (1, 2)}),
    ((40, 1, 30), {"kernel": (5,), "strides": (4,), "pads": (2, 2)}),
    ((1, 33, 3, 5, 6), {"kernel": (2, 3, 3), "strides": (1, 1, 2), "pads": (0, 1, 1, 1, 1, 1)}),
]


@pytest.mark.parametrize(("shape", "window"), WINDOWS)
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_greatest_under_windows(shape, window, ceil_mode):
    check_random(definition_of("max_pool", [tensor("float32", shape)], ceil_mode=ceil_mode, **window), parts=3)


@pytest.mark.parametrize(("shape", "window"), WINDOWS)
@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_mean_under_windows(shape, window, count_include_pad, ceil_mode):
    attributes = {"count_include_pad": count_include_pad, "ceil_mode": ceil_mode, **window}
    check_random(definition_of("average_pool", [tensor("float32", shape)], **attributes), parts=3)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_windows_in_narrow_vectors(target):
    for shape, window in WINDOWS:
        for operator in ("max_pool", "average_pool"):
            definition = definition_of(operator, [tensor("float32", shape)], **window)
            check(definition, [random_array(definition.params[0])], target=target)


def test_lines_in_several_pieces():
    for shape, window in (
        ((1, 2, 3000), {"kernel": (4,), "strides": (3,)}),
        ((1, 1, 3, 700, 16), {"kernel": (2, 5, 1)}),
    ):
        for operator in ("max_pool", "average_pool"):
            check_random(definition_of(operator, [tensor("float32", shape)], **window), parts=2)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float64"])
def test_windows_of_other_types(dtype):
    check_random(definition_of("max_pool", [tensor(dtype, (2, 3, 15, 17))], kernel=(3, 3)))


@pytest.mark.parametrize("planes", [1, 18])
def test_nan_under_a_window(planes):
    x = random_array(tensor("float32", (1, planes, 6, 40)))
    x[0, 0, 2, 3] = x[0, -1, 5, 39] = np.nan
    check(definition_of("max_pool", [tensor("float32", x.shape)], kernel=(2, 2)), [x])
