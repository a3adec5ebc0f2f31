"""Products of 8-bit integers, compiled, against the reference evaluator: the same bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.targets.cpu.target import of
from treadle.formats import dims
from treadle.formats.dtypes import DType
from treadle.formats.types import tensor

from .. import instruction_sets
from ..harness import NARROW, ON_X86, TARGET, Builder, built, check, definition_of, evaluate, random_array, run_kernel

CPUS = ["x86-64", "haswell", "alderlake", "skylake-avx512"]  # none, AVX2, the same with dots of bytes, AVX-512 without


def whole_range(type_, seed=0, sizes=None):
    """8-bit numbers among which the extreme ones are frequent, so that a product that saturates is found out."""
    if type_.dtype.itemsize > 1:
        return random_array(type_, seed, sizes)
    random, limits = np.random.default_rng(seed), np.iinfo(type_.dtype.numpy)
    shape = tuple(dims.evaluate(dim, sizes or {}) for dim in type_.shape)
    numbers = random.integers(limits.min, limits.max + 1, shape)
    return np.where(random.random(shape) < 0.5, numbers, random.choice([limits.min, limits.max], shape)).astype(
        type_.dtype.numpy
    )


def product_of(rows, words, columns, epilogue=()):
    """The definition of a product with a packed matrix, and what its first epilogue steps add."""
    rows = rows if isinstance(rows, tuple) else (rows,)
    a, panels = tensor("uint8", (*rows, 4 * words)), tensor("int8", (-(-columns // 16), words, 16, 4))
    build = Builder(a, panels, *(tensor("int32", e) for e in epilogue if isinstance(e, tuple)))
    value, added = build("matmul_integer_packed", 0, 1, columns=columns), 2
    for step in epilogue:
        if isinstance(step, tuple):
            value, added = build("add", value, added), added + 1
        else:
            value = build("cast", value, dtype=DType[step])
    return build.definition(value)


def check_product(rows, words, columns, epilogue=(), sizes=None, parts=1, target=TARGET):
    definition = product_of(rows, words, columns, epilogue)
    arrays = [whole_range(type_, seed, sizes) for seed, type_ in enumerate(definition.params)]
    check(definition, arrays, sizes, parts, target=target)


SIZES = st.sampled_from([1, 2, 3, 7, 15, 16, 17, 31, 33, 50])


@given(SIZES, SIZES, SIZES, st.integers(1, 5))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_any_size_in_any_number_of_parts(rows, words, columns, parts):
    check_product(rows, words, columns, parts=parts)


def test_symbolic_rows_serve_every_number_of_them():
    for rows in (0, 1, 2, 4, 7, 8, 13, 24, 40):
        check_product("n", 150, 91, ((91,), "float32"), {"n": rows}, parts=2)


@pytest.mark.parametrize("rows", [(1,), (3,), (1, 2), (9,), (2, 70)])
def test_long_sums_with_an_epilogue(rows):
    for words, columns, parts in ((9, 37, 1), (300, 149, 2), (513, 16, 3)):
        check_product(rows, words, columns, ((columns,), "float32"), None, parts)
        check_product(rows, words, columns, ((columns,), (*rows, columns), "float32", "uint8"), None, parts)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors(target):
    check_product(9, 20, 40, ((40,),), parts=2, target=target)
    check_product("n", 200, 90, ((90,),), {"n": 13}, 2, target)


@ON_X86
@pytest.mark.parametrize("cpu", CPUS)
def test_other_cpus_give_the_same_bits(cpu):
    target = of(instruction_sets.target(cpu))
    check_product(9, 20, 40, ((40,),), parts=2, target=target)
    check_product(2, 20, 40, ((40,),), parts=2, target=target)
    check_product((2, 19), 76, 40, ((40,),), parts=3, target=target)  # widened, two chunks of it


def test_any_number_of_parts_gives_the_same_bits():
    definition = product_of(40, 400, 170)
    arrays = [whole_range(type_, seed) for seed, type_ in enumerate(definition.params)]
    wanted = run_kernel(definition, arrays)[1][0]
    for parts in (2, 3, 5):
        np.testing.assert_array_equal(run_kernel(definition, arrays, parts=parts)[1][0], wanted)


# ---- convolutions ----


def check_convolution(
    shape, weights, *, parts=1, target=TARGET, start=True, symbolic=False, numbers=whole_range, **window
):
    """A convolution of a blocked image against the plain one; what lies behind its last channel is anything. `symbolic`: the
    sizes of images are the call's."""
    x, weight = (numbers(tensor(*type_), seed) for seed, type_ in enumerate((("uint8", shape), ("int8", weights))))
    image, packed = evaluate("pack_channels", x), evaluate("pack_integer_weights", weight)
    image[:, -1, ..., (shape[1] - 1) % 16 + 1 :] = 0xA5
    first = np.random.default_rng(2).integers(-99, 99, weights[0]).astype(np.int32)
    arrays = [image, packed, evaluate("pack_vector", first, axes=len(shape) - 2)][: 3 if start else 2]
    sizes = {f"d{axis}": size for axis, size in enumerate(shape[2:])} if symbolic else {}
    image_shape = (*image.shape[:2], *(sizes or shape[2:]), 16)
    build = Builder(tensor("uint8", image_shape), *(tensor(array.dtype.name, array.shape) for array in arrays[1:]))
    sums = build("conv_integer_blocked", *range(len(arrays)), **window)
    definition = build.definition(build("cast", sums, dtype=DType.float32))
    wanted = evaluate("conv_integer", x, weight, **window)
    if start:
        wanted = wanted + first.reshape(-1, *[1] * (len(shape) - 2))
    _, (got,) = run_kernel(definition, arrays, sizes, parts, target)
    np.testing.assert_array_equal(evaluate("unpack_channels", got, channels=weights[0]), wanted.astype(np.float32))
    check(definition, arrays, sizes, parts, target=target)
    return built(definition, target)


WINDOWS = [
    ((1, 3, 17, 19), (20, 3, 7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
    ((2, 16, 9, 8), (16, 16, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 40, 9, 33), (33, 40, 3, 3), {"pads": (1, 0, 2, 1), "dilations": (2, 1)}),
    ((1, 64, 14, 14), (70, 64, 1, 1), {}),
    ((2, 24, 7, 9), (16, 24, 1, 1), {"strides": (2, 2)}),
    ((1, 7, 5, 6), (5, 7, 2, 5), {"pads": (0, 4, 1, 4)}),
    ((1, 20, 31), (17, 20, 5), {"pads": (2, 2), "strides": (2,)}),
    ((2, 64, 9, 8), (96, 32, 3, 3), {"pads": (1, 1, 1, 1), "groups": 2}),
    ((1, 12, 4, 6, 5), (9, 12, 3, 2, 3), {"pads": (1, 0, 1, 1, 1, 0)}),
]


@pytest.mark.parametrize(("shape", "weights", "window"), WINDOWS, ids=str)
def test_convolutions_of_blocked_images(shape, weights, window):
    for parts in (1, 3):
        check_convolution(shape, weights, parts=parts, start=parts == 1, **window)


@ON_X86
@pytest.mark.parametrize(
    ("shape", "weights", "window"),
    [
        *WINDOWS[:5],
        WINDOWS[7],
        ((1, 19, 11, 13), (37, 19, 3, 5), {"pads": (2, 0, 1, 3), "strides": (1, 2)}),
        ((1, 40, 9, 33), (33, 40, 3, 3), {"pads": (1, 2, 1, 1), "dilations": (1, 2)}),
    ],
    ids=str,
)
def test_convolutions_of_widened_images(shape, weights, window):
    for parts in (1, 3):
        check_convolution(shape, weights, parts=parts, target=of(instruction_sets.target("haswell")), **window)


@ON_X86
def test_winograd_is_exact_for_the_greatest_sums():
    """Of as many channels as are summed at once, and of more."""

    def greatest(type_, seed):
        limits = np.iinfo(type_.dtype.numpy)
        return np.full(type_.shape, limits.max if type_.dtype is DType.uint8 else limits.min, type_.dtype.numpy)

    for channels in (112, 128, 130):
        for numbers, parts in ((greatest, 1), (whole_range, 3)):
            shape, weights, target = (1, channels, 5, 7), (20, channels, 3, 3), of(instruction_sets.target("haswell"))
            check_convolution(shape, weights, parts=parts, target=target, numbers=numbers, pads=(1, 1, 1, 1))


@pytest.mark.parametrize(("shape", "weights", "window"), WINDOWS[:-1], ids=str)
def test_convolutions_of_images_of_any_size(shape, weights, window):
    check_convolution(shape, weights, parts=3, symbolic=True, **window)


def test_image_sizes_share_a_kernel():
    kernels = {
        check_convolution((1, 20, height, 9), (17, 20, 3, 3), symbolic=True, pads=(1, 1, 1, 1)).object_key
        for height in (1, 2, 40)
    }
    assert len(kernels) == 1


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_convolutions_by_narrow_vectors(target):
    for shape, weights, window in WINDOWS[:3]:
        check_convolution(shape, weights, target=target, **window)


@ON_X86
@pytest.mark.parametrize("cpu", CPUS)
def test_convolutions_by_other_cpus(cpu):
    check_convolution((1, 20, 5, 9), (17, 20, 3, 3), target=of(instruction_sets.target(cpu)))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 77])
def test_depthwise_convolutions_read_integers(dtype, zero):
    for (channels, *size), members, (window, attributes) in (
        ((20, 9, 33), 1, ((3, 3), {"pads": (1, 1, 1, 1)})),
        ((20, 9, 33), 4, ((3, 3), {"pads": (1, 1, 1, 1)})),
        ((16, 12, 7), 1, ((5, 3), {"pads": (0, 1, 2, 1), "strides": (2, 2)})),
        ((33, 5, 40), 1, ((1, 4), {"pads": (0, 3, 0, 3), "dilations": (1, 2)})),
    ):
        x = whole_range(tensor(dtype, (2, channels, *size)))
        weight = whole_range(tensor("int8", (channels, members, *window)), 1)
        image, packed = evaluate("pack_channels", x), evaluate("pack_planar_weights", weight.astype(np.float32))
        build = Builder(tensor(dtype, image.shape), tensor("float32", packed.shape))
        definition = build.definition(build("conv_depthwise", 0, 1, **attributes, zero=zero))
        point = np.asarray(zero, x.dtype)
        groups = channels // members
        wanted = evaluate("conv_integer", x, weight, point, groups=groups, dtype=DType.float32, **attributes)
        for parts, target in ((1, TARGET), (3, TARGET), (2, NARROW[1])):
            _, (got,) = run_kernel(definition, [image, packed], parts=parts, target=target)
            np.testing.assert_array_equal(evaluate("unpack_channels", got, channels=channels), wanted)


@pytest.mark.parametrize("last", [False, True])
def test_bytes_are_packed_into_blocks_and_back(last):
    for channels, size in ((3, (17, 19)), (16, (9,)), (40, (5, 20))):
        plain = (2, *size, channels) if last else (2, channels, *size)
        packed = (2, -(-channels // 16), *size, 16)
        definition = definition_of("pack_channels", [tensor("uint8", plain)], last=last)
        check(definition, [whole_range(tensor("uint8", plain))], parts=3)
        definition = definition_of("unpack_channels", [tensor("uint8", packed)], channels=channels, last=last)
        check(definition, [whole_range(tensor("uint8", packed))], parts=3)
