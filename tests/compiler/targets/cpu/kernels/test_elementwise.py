"""Chains of elementwise operators, compiled, against the reference evaluator."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.targets.cpu import costs
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.cpu.target import of
from treadle.formats.dtypes import DType
from treadle.formats.types import tensor

from .. import instruction_sets
from ..harness import NARROW, ON_X86, TARGET, Builder, check, check_random, definition_of, random_array, run_kernel

UNARY = {
    "float": "negative abs sign exp expm1 log log1p sqrt rsqrt reciprocal square sin cos tan tanh erf floor ceil round trunc "
    "sinh cosh asin acos atan asinh acosh atanh "
    "sigmoid hard_sigmoid relu leaky_relu elu gelu silu hard_swish softplus softsign mish identity isnan isinf isfinite",
    "int": "negative abs sign square relu bitwise_invert identity",
    "uint": "abs square bitwise_invert identity",
    "bool": "logical_not identity",
}
COMPARISONS = "equal not_equal less less_equal greater greater_equal"
DIVISIONS = "divide floor_divide remainder fmod"
BINARY = {
    "float": f"add subtract multiply pow maximum minimum {DIVISIONS} {COMPARISONS}",
    "int": f"add subtract multiply maximum minimum bitwise_and bitwise_or bitwise_xor {DIVISIONS} {COMPARISONS}",
    "uint": f"add subtract multiply maximum minimum bitwise_and bitwise_or bitwise_xor {DIVISIONS} {COMPARISONS}",
    "bool": "logical_and logical_or logical_xor equal not_equal",
}
DTYPES = [
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]
ROUGH = {"float16": 1e-2, "float32": 3e-6, "float64": 1e-13}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_unary_operator(dtype):
    type_ = tensor(dtype, (37,))
    build = Builder(type_)
    results = [build(name, 0) for name in UNARY[type_.dtype.value.kind].split()]
    definition = build.definition(*results)
    x = random_array(type_) * (3 if type_.dtype.is_float else 1)
    check(definition, [x.astype(type_.dtype.numpy)], rtol=ROUGH.get(dtype, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_binary_operator(dtype):
    type_ = tensor(dtype, (37,))
    build = Builder(type_, type_)
    results = [build(name, 0, 1) for name in BINARY[type_.dtype.value.kind].split()]
    a, b = random_array(type_, 1), random_array(type_, 2)
    if dtype != "bool":
        b[b == 0] = 1
        a[:3], b[:3] = a[3], a[3]
    check(build.definition(*results), [a, b], rtol=ROUGH.get(dtype, 0))


present = st.tuples(*[st.booleans()] * 4)


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(*[st.sampled_from([1, 2, 3, 7, 50])] * 3),
    st.sampled_from([2, 3, 5, 15, 17, 20, 33, 63]),
    st.lists(present, min_size=1, max_size=3),
    st.booleans(),
    st.integers(1, 3),
)
def test_tensors_that_lack_axes_beside_a_short_one(outer, last, others, is_long, parts):
    shape = (*outer, last)
    shapes = [tuple(size if has else 1 for size, has in zip(shape, has_axis, strict=True)) for has_axis in others]
    build = Builder(tensor("float32", shape), *(tensor("float32", other) for other in shapes))
    result = 0
    for k in range(len(shapes)):
        result = build("tanh", build("multiply", result, 1 + k)) if is_long else build("add", result, 1 + k)
    check_random(build.definition(result), parts=parts)


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int32"])
def test_a_short_axis_of_other_types_and_vectors(dtype, target):
    for shapes in (((200, 3), (3,)), ((5, 40, 7), (5, 1, 7)), ((60, 5), (60, 1)), ((4, 60, 5), (60, 1))):
        types = [tensor(dtype, shape) for shape in shapes]
        check(definition_of("add", types), [random_array(type_) for type_ in types], parts=2, target=target)


def test_masks_along_a_short_axis():
    build = Builder(tensor("bool", (3,)), tensor("float32", (100, 3)), tensor("float32", (100, 1)))
    check_random(build.definition(build("where", 0, 1, 2)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts_to_every_type(dtype):
    type_ = tensor(dtype, (37,))
    build = Builder(type_)
    results = [build("cast", 0, dtype=other) for other in DTYPES]
    x = random_array(type_)
    if type_.dtype.is_float:
        x[:6] = [np.nan, np.inf, -np.inf, 3e4, -3e4, 300.7]
    for target in (TARGET, *NARROW):
        check(build.definition(*results), [x], target=target)


@pytest.mark.parametrize(
    "native",
    [
        pytest.param(TARGET.native, id="host"),
        pytest.param(instruction_sets.target("x86-64"), id="plain", marks=ON_X86),
    ],
)
def test_float16_is_converted_as_by_numpy(native):
    """All of its numbers, and neighbours of all that lie in the middle of two; also on a CPU that has no instruction for it."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = halves.astype(np.float64)
        middles = (wide[:-1] + wide[1:]) / 2
        numbers = np.concatenate([wide, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)])
        for dtype, x in (("float16", halves), ("float32", numbers.astype(np.float32)), ("float64", numbers)):
            build = Builder(tensor(dtype, x.shape))
            others = [other for other in ("float16", "float32", "float64") if other != dtype]
            definition = build.definition(*(build("cast", 0, dtype=other) for other in others))
            code, results = run_kernel(definition, [x], target=of(native))
            assert code == 0
            for other, got in zip(others, results, strict=True):
                np.testing.assert_array_equal(got, x.astype(other))


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
def test_floats_beyond_an_integers_range_become_its_nearest_value(target):
    edges = [limit * sign for power in (7, 8, 15, 16, 31, 32, 63, 64) for limit in [2.0**power] for sign in (1, -1)]
    x = np.array([*edges, 1e30, -1e30, np.inf, -np.inf, np.nan, 0.99, -0.99], np.float32)
    integers = [dtype for dtype in DTYPES if "int" in dtype]
    build = Builder(tensor("float32", x.shape))
    definition = build.definition(*(build("cast", 0, dtype=dtype) for dtype in integers))
    code, results = run_kernel(definition, [x], target=target)
    assert code == 0
    for dtype, got in zip(integers, results, strict=True):
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        wanted = [0 if np.isnan(value) else min(max(int(np.clip(value, -1e20, 1e20)), least), most) for value in x]
        np.testing.assert_array_equal(got, np.array(wanted, dtype))


def test_nan_and_infinity_behave_as_numpys():
    build = Builder(tensor("float32", (6,)), tensor("float32", (6,)))
    names = "maximum minimum divide remainder fmod floor_divide equal not_equal less greater_equal"
    results = [build(name, 0, 1) for name in names.split()]
    results += [build(name, 0) for name in ("relu", "abs", "sign", "round", "clip")]
    a = np.array([np.nan, 1, np.inf, -np.inf, 0, -0.5], np.float32)
    b = np.array([1, np.nan, np.inf, 2, 0, np.inf], np.float32)
    check(build.definition(*results), [a, b])


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if "int" in dtype])
def test_quotients_of_extreme_integers(dtype, target):
    """Of the least and the greatest ones, and of those beside multiples of the divisor, the quotient is exact."""
    limits, random = np.iinfo(dtype), np.random.default_rng(3)
    few = [1, 2, 3, 7, 10, limits.max - 1, limits.max, *([-1, -3, limits.min] if limits.min else [])]
    divisors = np.concatenate([np.array(few, dtype), random.integers(2, limits.max, 30, dtype)])
    multiples = limits.max // divisors.astype(object)
    beside = [
        np.array([b * m + shift for b, m in zip(divisors.astype(object), multiples, strict=True)]) for shift in (-1, 0)
    ]
    rows = [*beside, *(np.full(len(divisors), value, object) for value in (limits.min, limits.max, 1, 0))]
    a = np.array([[min(max(int(x), limits.min), limits.max) for x in row] for row in rows], dtype)
    shapes = tensor(dtype, a.shape), tensor(dtype, divisors.shape)
    for operator in DIVISIONS.split():
        check(definition_of(operator, list(shapes)), [a, divisors], target=target)


def test_constants_stand_in_the_text():
    build = Builder(tensor("float32", (20,)), tensor("int64", (20,)))
    half, two = build("constant", value=0.5, dtype="float32"), build("constant", value=2, dtype="int64")
    lowest = build("constant", value=-np.inf, dtype="float32")
    results = [build(name, 0, half) for name in ("add", "maximum", "pow", "less")]
    results += [
        build("subtract", half, 0),
        build("maximum", 0, lowest),
        build("where", build("greater", 0, half), half, 0),
    ]
    results += [build(name, 1, two) for name in ("multiply", "divide", "remainder", "pow")]
    results += [build("clip", 0, min=-0.5, max=0.25), build("clip", 1, min=-7), build("add", half, half)]
    definition = build.definition(*results[:-1])
    check_random(definition)
    assert "0.5" in lower(definition, TARGET).source
    check_random(build.definition(results[-1]))


shapes = st.tuples(*[st.sampled_from([0, 1, 1, 3, 16, 17, 40])] * 3)
masks = st.sampled_from([(1, 1, 1), (0, 0, 1), (0, 1, 0), (1, 0, 1), (0, 0, 0)])


@settings(max_examples=25, deadline=None)
@given(shapes, masks, masks, st.integers(1, 3))
def test_broadcasting(whole, first, second, parts):
    def masked(mask):
        return tuple(size if present else 1 for size, present in zip(whole, mask, strict=True))

    build = Builder(tensor("float32", whole), tensor("float32", masked(first)), tensor("float32", masked(second)[1:]))
    total = build("add", build("multiply", 0, 1), 2)
    check_random(build.definition(total, build("relu", total)), parts=parts)


BLOCKED = [
    ((2, 3, 5, 7, 16), (3, 1, 1, 16), (3, 1, 1, 16)),
    ((2, 3, 5, 7, 16), (1, 1, 1, 16), (2, 3, 5, 7, 1)),
    ((2, 3, 300, 32), (3, 1, 32), (3, 1, 1)),
    ((2, 300, 64), (1, 64), (300, 1)),
    ((5, 0, 16), (16,), (5, 1, 16)),
]


@pytest.mark.parametrize("shapes", BLOCKED)
def test_channel_blocked_images(shapes):
    build = Builder(*(tensor("float32", shape) for shape in shapes))
    for parts in (1, 3):
        check_random(build.definition(build("relu", build("add", build("multiply", 0, 1), 2))), parts=parts)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 70), st.integers(1, 9000), st.integers(1, 3))
def test_one_kernel_serves_every_size(n, m, parts):
    build = Builder(tensor("float32", ("n", "m")), tensor("float32", ("m",)))
    check_random(build.definition(build("add", 0, 1)), {"n": n, "m": m}, parts)


def test_equal_patterns_of_other_sizes_share_their_text():
    def source(*shape):
        return lower(definition_of("relu", [tensor("float32", shape)]), TARGET).source

    assert source(3, 4, 5) == source(100) == source(1, 37)


@pytest.mark.parametrize("operator", ["add", "multiply"])
def test_the_order_of_commuting_operands_is_not_in_the_text(operator):
    def source(*operands):
        build = Builder(tensor("float32", (3, 20)), tensor("float32", (3, 20)))
        square = build("square", 0)
        return lower(build.definition(build(operator, *((square, 1)[i] for i in operands))), TARGET).source

    assert source(0, 1) == source(1, 0)


def test_division_by_zero_is_a_failure_but_not_in_lanes_that_do_not_count():
    definition = definition_of("divide", [tensor("int32", (19,)), tensor("int32", (19,))])
    a, b = np.arange(19, dtype=np.int32), np.full(19, 3, np.int32)
    assert run_kernel(definition, [a, b])[0] == 0
    for place in (0, 18):
        zero = b.copy()
        zero[place] = 0
        assert run_kernel(definition, [a, zero])[0] == 2


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_shifts_by_any_distance(dtype, target):
    type_, bits = tensor(dtype, (100,)), 8 * np.dtype(dtype).itemsize
    build = Builder(type_, type_)
    definition = build.definition(build("shift_left", 0, 1), build("shift_right", 0, 1))
    distances = np.array([0, 1, bits - 1, bits, bits + 1, 127, 3, 5]).astype(dtype)
    if dtype.startswith("int"):
        distances[6:] = -1, np.iinfo(dtype).min
    check(definition, [random_array(type_), np.resize(distances, 100)], target=target)


def test_the_least_integer_divided_by_minus_one_wraps_around():
    definition = definition_of("divide", [tensor("int64", (1,)), tensor("int64", (1,))])
    check(definition, [np.array([np.iinfo(np.int64).min]), np.array([-1])])


def test_a_tensor_filled_with_one_value():
    check(definition_of("full", [], shape=(3, 5), value=2.5, dtype="float32"), [])


def test_integer_powers_are_left_to_the_reference():
    assert lower(definition_of("pow", [tensor("int64", (3,)), tensor("int64", (3,))]), TARGET) is None


def test_outputs_of_several_shapes_are_not_one_kernel():
    build = Builder(tensor("float32", (3,)), tensor("float32", (2, 3)))
    assert lower(build.definition(build("exp", 0), build("add", 0, 1)), TARGET) is None


def test_dtypes_of_the_tests_are_all_there_are():
    assert {dtype.name for dtype in DType if dtype.is_numpys} == set(DTYPES)


STAGES = st.sampled_from(["float16", "float32", "float64"])


@settings(max_examples=20, deadline=None)
@given(STAGES, st.sampled_from([1, 15, 33, 1023, 1024, 1031, 4096, 5003]), st.integers(1, 3), st.integers(1, 3))
def test_chains_of_several_stages(dtype, size, rows, parts):
    whole = tensor(dtype, (rows, size))
    build = Builder(whole, tensor(dtype, (rows, 1)), tensor(dtype, ()))
    first = build("multiply", build("sigmoid", 0), 1)
    is_less = build("less", first, 2)
    second = build("tanh", first)
    third = build("where", is_less, build("exp", second), build("add", 0, second))
    half = build("constant", value=0.5, dtype=dtype)
    check_random(build.definition(third, first, build("multiply", build("erf", third), half)), parts=parts)


@pytest.mark.parametrize("target", NARROW)
def test_stages_of_narrow_vectors(target):
    build = Builder(tensor("float32", (1029,)))
    definition = build.definition(build("exp", build("tanh", build("sigmoid", 0))))
    check(definition, [random_array(definition.params[0])], rtol=1e-5, target=target)


@pytest.mark.parametrize("target", [TARGET, NARROW[0]], ids=lambda target: f"{target.vector_bytes} bytes")
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "uint8"), ("uint8", "bool")])
def test_long_chains_of_bytes_are_looked_up(dtypes, target):
    def chain(size):
        build = Builder(
            tensor(dtypes[0], (3, size)), tensor("float32", ()), tensor(dtypes[0], ()), tensor(dtypes[1], ())
        )
        there = build("erf", build("log", build("dequantize", 0, 1, 2)))
        return build.definition(build("isnan", there) if dtypes[1] == "bool" else build("quantize", there, 1, 3))

    codes = (np.arange(3 * 6000) % 256).astype(np.uint8).view(dtypes[0]).reshape(3, -1)
    others = [np.float32(0.02), np.asarray(3, dtypes[0]), np.asarray(1, dtypes[1])]
    assert "store_uint8" in lower(chain(6000), target).source
    assert "store_uint8" not in lower(chain(1000), target).source
    wanted = run_kernel(chain(1000), [codes[:, :1000].copy(), *others], target=target)[1][0]
    for parts in (1, 3):
        got = run_kernel(chain(6000), [codes, *others], parts=parts, target=target)[1][0]
        np.testing.assert_array_equal(got[:, :1000], wanted)
        np.testing.assert_array_equal(got.ravel()[256:], got.ravel()[:-256])


def test_an_output_may_lie_where_an_input_of_a_later_stage_is():
    build = Builder(tensor("float32", (3000,)))
    long = build("tanh", 0)
    definition = build.definition(build("add", build("exp", long), 0), long)
    kernel = lower(definition, TARGET)
    stores = [line for line in kernel.source.splitlines() if "vstore(p" in line]
    assert "exp" in kernel.source[: kernel.source.index(stores[0])]


quotients = st.sampled_from([0.3, 1, 1 - 2**-24, 3, 1000.5, 2.0**22, 2.0**23, 1e9, 1e30, np.inf])
divisors = st.floats(width=32, allow_subnormal=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(quotients, divisors, st.booleans()), min_size=1, max_size=40))
def test_remainders_are_exact(cases):
    with np.errstate(all="ignore"):
        b = np.array([divisor for _, divisor, _ in cases], np.float32)
        a = np.array([quotient * (-1 if sign else 1) for quotient, _, sign in cases], np.float32) * b
        expected = np.fmod(a, b)
    _, (result,) = run_kernel(definition_of("fmod", [tensor("float32", ("n",))] * 2), [a, b], {"n": len(cases)})
    assert np.array_equal(result, expected, equal_nan=True)
    is_number = ~np.isnan(expected)
    assert np.array_equal(np.signbit(result[is_number]), np.signbit(expected[is_number]))


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize("slack", [0, 20])
def test_large_results_are_written_past_the_caches(target, slack, monkeypatch):
    monkeypatch.setattr(costs, "STREAMED_BYTES", 0)
    for shape, parts in (((7, 53), 2), ((9000,), 3), ((3, 5, 48), 1)):
        x, y = tensor("float32", shape), tensor("float32", shape[-1:])
        b = Builder(x, y)
        b("exp", b("add", 0, 1))
        definition = b.definition(2, 3)
        assert "vstream" in lower(definition, target).source
        arrays = [random_array(x), random_array(y, 1)]
        outputs = run_kernel(definition, arrays, parts=parts, target=target, slack=slack)[1]
        np.testing.assert_allclose(outputs[0], arrays[0] + arrays[1])
        np.testing.assert_allclose(outputs[1], np.exp(arrays[0] + arrays[1]), rtol=1e-6)
        moved = definition_of(
            "permute_dims", [tensor("float32", (2, *shape, 40))], axes=(1, 0, *range(2, len(shape) + 2))
        )
        assert "vstream" in lower(moved, target).source
        (array,) = (random_array(param) for param in moved.params)
        np.testing.assert_array_equal(run_kernel(moved, [array], parts=parts, slack=slack)[1][0], array.swapaxes(0, 1))


@pytest.mark.parametrize("pixels", [32, 35])
@pytest.mark.parametrize("slack", [0, 20])
def test_large_images_are_unpacked_past_the_caches(pixels, slack, monkeypatch):
    monkeypatch.setattr(costs, "STREAMED_BYTES", 0)
    for dtype, target in itertools.product(("float32", "uint8"), [TARGET, *NARROW]):
        x = tensor(dtype, (2, 3, pixels, 16))
        definition = definition_of("unpack_channels", [x], channels=37)
        assert "_stream(" in lower(definition, target).source
        array = random_array(x)
        plain = np.moveaxis(array, 3, 2).reshape(2, 48, pixels)[:, :37]
        outputs = run_kernel(definition, [array], parts=2, target=target, slack=slack)[1]
        np.testing.assert_array_equal(outputs[0], plain)
