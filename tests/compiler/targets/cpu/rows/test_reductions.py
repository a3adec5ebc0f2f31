"""Reductions, softmax and normalisations, compiled, against the reference evaluator."""

import math

import numpy as np
import pytest
import treadle
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle import op
from treadle.formats.types import tensor

from ..harness import NARROW, TARGET, Builder, check, check_random, definition_of, random_array, run_kernel

NUMERIC = ["sum", "prod", "max", "min", "sum_of_squares", "l1_norm"]
FLOAT = [*NUMERIC, "mean", "l2_norm", "log_sum_exp"]
dim = st.sampled_from([0, 1, 3, 17, 70])
shapes = st.tuples(dim, dim, dim)
axes = st.sampled_from([(0,), (1,), (2,), (0, 2), (1, 2), None])


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["sum", "max", "mean"]), shapes, axes, st.booleans(), st.integers(1, 3))
def test_any_shape_and_axes(operator, shape, axes, keepdims, parts):
    definition = definition_of(operator, [tensor("float32", shape)], axes=axes, keepdims=keepdims)
    summed = math.prod(
        shape[axis] for axis in (axes or range(3))
    )  # numbers about 1, of both signs: so grows their sum's error
    check_random(definition, parts=parts, atol=max(1e-5, 1e-6 * summed**0.5))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("operator", FLOAT)
def test_every_operator_along_and_across(operator, axis):
    check_random(definition_of(operator, [tensor("float32", (19, 83))], axes=(axis,)), parts=2, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int64", "uint16"])
def test_other_element_types(dtype):
    for operator in ("sum", "max", "min"):
        check_random(definition_of(operator, [tensor(dtype, (5, 19))], axes=(1,)))


@pytest.mark.parametrize("operator", ["any", "all"])
def test_truth(operator):
    for axis in (0, 1):
        check_random(definition_of(operator, [tensor("bool", (3, 90))], axes=(axis,)))


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.integers(1, 5000), st.sampled_from([(0,), (1,)]))
def test_symbolic_sizes(n, m, axes):
    check_random(definition_of("mean", [tensor("float32", ("n", "m"))], axes=axes), {"n": n, "m": m}, atol=1e-4)


@pytest.mark.parametrize("axes", [(1,), (2,), (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_prologue_and_epilogue(axes, keepdims):
    whole = (3, 20, 35)
    left = tuple(size for axis, size in enumerate(whole) if axis not in axes)
    build = Builder(tensor("float32", whole), tensor("float32", whole[1:]), tensor("float32", left[-1:]))
    total = build("sum", build("exp", build("multiply", 0, 1)), axes=axes, keepdims=keepdims)
    result = total if keepdims else build("add", total, 2)
    check_random(build.definition(build("sqrt", result), result), parts=2)


def test_sums_are_as_exact_as_numpys():
    random = np.random.default_rng(0)
    for shape, axis in (((1_000_000,), 0), ((10_000, 64), 0)):
        x = random.random(shape, np.float32)
        definition = definition_of("sum", [tensor("float32", shape)], axes=(axis,))
        _, (got,) = run_kernel(definition, [x])
        exact = x.astype(np.float64).sum(axis)
        error, numpys = (np.max(np.abs(total - exact) / exact) for total in (got, x.sum(axis)))
        assert error <= max(2 * numpys, 1e-7)


def test_any_number_of_parts_gives_the_same_bits():
    x = random_array(tensor("float32", (37, 1000)))
    for axis in (0, 1):
        definition = definition_of("sum", [tensor("float32", x.shape)], axes=(axis,))
        results = {run_kernel(definition, [x], parts=parts)[1][0].tobytes() for parts in (1, 2, 3, 7, 50)}
        assert len(results) == 1


def test_nan_is_the_greatest_and_the_least():
    x = random_array(tensor("float32", (3, 40)))
    x[1, 39] = x[2, 0] = np.nan
    for operator in ("max", "min"):
        for axis in (0, 1):
            check(definition_of(operator, [tensor("float32", x.shape)], axes=(axis,)), [x])


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(["argmax", "argmin"]), st.integers(1, 50), st.integers(1, 150), st.booleans(), st.booleans())
def test_places_of_extremes(operator, n, m, last, with_nan):
    random = np.random.default_rng(n * 150 + m)
    x = random.integers(-3, 3, (n, m)).astype(np.float32)
    if with_nan:
        x[random.random(x.shape) < 0.1] = np.nan
    for axis in (0, 1):
        check(definition_of(operator, [tensor("float32", (n, m))], axis=axis, select_last_index=last), [x], parts=2)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint8"])
@pytest.mark.parametrize("target", [TARGET, *NARROW])
def test_places_of_extremes_of_columns_of_other_types(dtype, target):
    type_ = tensor(dtype, (2, 9, 70))
    check(definition_of("argmax", [type_], axis=1), [random_array(type_)], target=target)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(["softmax", "log_softmax"]), shapes, st.integers(0, 2), st.integers(1, 3))
def test_softmax(operator, shape, axis, parts):
    check_random(definition_of(operator, [tensor("float32", shape)], axis=axis), parts=parts)


@pytest.mark.parametrize("operator", ["softmax", "log_softmax"])
@pytest.mark.parametrize("columns", [16, 255, 256, 1500])
def test_softmax_of_columns_that_lie_apart(operator, columns):
    build = Builder(tensor("float32", (2, 7, 5, columns)), tensor("float32", (7, 1, columns)))
    result = build(operator, build("add", 0, 1), axis=1)
    check_random(build.definition(result), parts=3)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_softmax_of_other_types_across_rows(dtype):
    check_random(definition_of("softmax", [tensor(dtype, (5, 700))], axis=0))


def test_softmax_of_large_and_infinite_elements():
    x = np.array([[1e4, 1e4, -1e4], [-np.inf, 0, 1], [np.inf, 0, 1], [np.nan, 0, 1]], np.float32)
    for operator in ("softmax", "log_softmax"):
        check(definition_of(operator, [tensor("float32", (4, 3))], axis=-1), [x])


def test_softmax_with_scale_mask_and_what_follows():
    shape = (2, 5, 37)
    build = Builder(tensor("float32", shape), tensor("float32", (37,)), tensor("float32", shape))
    scale = build("constant", value=0.125, dtype="float32")
    weights = build("softmax", build("add", build("multiply", 0, scale), 1), axis=-1)
    check_random(build.definition(build("multiply", weights, 2)))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_softmax_of_other_types(dtype):
    check_random(definition_of("softmax", [tensor(dtype, (4, 33))], axis=-1))


NORMALIZATIONS = [
    ("layer_normalization", (5, 3, 77), [(77,), (77,)], {}),
    ("layer_normalization", (5, 3, 7), [(3, 7), (3, 7)], {"axis": 1, "epsilon": 1e-3}),
    ("layer_normalization", (5, 33), [], {}),
    ("rms_normalization", (5, 77), [(77,)], {}),
    ("instance_normalization", (2, 3, 5, 7), [(3,), (3,)], {}),
    ("group_normalization", (2, 6, 5, 7), [(6,), (6,)], {"groups": 3}),
    ("batch_normalization", (2, 3, 5, 7), [(3,)] * 4, {}),
    ("batch_normalization", (20, 3), [(3,)] * 4, {}),
    ("local_response_normalization", (2, 7, 5, 9), [], {"size": 5}),
    ("local_response_normalization", (2, 7, 40), [], {"size": 4, "beta": 0.5, "alpha": 0.1}),
]


@pytest.mark.parametrize(("operator", "shape", "others", "attributes"), NORMALIZATIONS)
def test_normalizations(operator, shape, others, attributes):
    params = [tensor("float32", each) for each in (shape, *others)]
    arrays = [np.abs(random_array(param, seed)) + 0.1 for seed, param in enumerate(params)]
    for parts in (1, 3):
        check(definition_of(operator, params, **attributes), arrays, parts=parts, rtol=2e-5, atol=1e-5)


def test_a_large_mean_does_not_cancel_the_variance():
    x = random_array(tensor("float32", (4, 512))) + 1000
    check(definition_of("layer_normalization", [tensor("float32", x.shape)]), [x], rtol=1e-3, atol=1e-3)


def test_normalization_with_epilogue():
    build = Builder(tensor("float32", (6, 40)), tensor("float32", (40,)), tensor("float32", (6, 40)))
    normal = build("layer_normalization", 0, 1)
    check_random(build.definition(build("gelu", build("add", normal, 2)), normal))


OF_ROWS = {
    "sum": lambda x: op.sum(x, axes=(-1,)),
    "mean": lambda x: op.mean(x * 2, axes=(-1,), keepdims=True),
    "softmax": lambda x: op.softmax(x, axis=-1),
    "layer_normalization": lambda x: op.layer_normalization(x + 1, np.ones(67, np.float32), np.ones(67, np.float32)),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_row_has_the_same_bits_wherever_it_is_and_however_many_there_are(name: str) -> None:
    """Rows are worked on in groups: those that are left over are added up in the same order."""
    x = treadle.var("x", ("n", 67))
    machine = treadle.VirtualMachine(treadle.compile(treadle.function([x], OF_ROWS[name](x)), progress=False))
    rows = np.random.default_rng(0).standard_normal((11, 67)).astype(np.float32)
    together = machine["main"](rows).numpy()
    for count in range(1, 11):
        for first in (0, 11 - count):
            few = machine["main"](rows[first : first + count]).numpy()
            assert few.tobytes() == together[first : first + count].tobytes()
