"""Products and convolutions of bfloat16, compiled: near the reference, and with the same bits without the CPU's instruction."""

import dataclasses

import numpy as np
import pytest
from llvmlite import ir
from numba.core import types
from treadle.compiler.ir.evaluate import evaluate_definition
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.cpu.target import of
from treadle.compiler.targets.cpu.vectors.conversions import convert
from treadle.compiler.targets.cpu.vectors.lanes import ELEMENTS, FLOAT, Lanes
from treadle.compiler.targets.emulated.functions import FUNCTIONS
from treadle.compiler.targets.emulated.vectors import Vector
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import InferenceError
from treadle.formats.types import tensor
from treadle.native.numba_frontend import compiling_for

from .. import instruction_sets
from ..examples import Example
from ..harness import NARROW, ON_X86, TARGET, Builder, check, definition_of, evaluate, random_array, run_kernel
from ..kernels.test_interpreted import interpreted

pytest.importorskip("ml_dtypes")

FEATURE = "avx512bf16"


def product_of(rows, pairs, columns, *steps):
    """A product with a packed matrix, and steps after it: a shape of bfloat16 to add, or an element type."""
    rows = rows if isinstance(rows, tuple) else (rows,)
    operands = [
        (*rows, 2 * pairs),
        (-(-columns // 16), pairs, 16, 2),
        *(step for step in steps if isinstance(step, tuple)),
    ]
    build = Builder(*(tensor("bfloat16", shape) for shape in operands))
    value, added = build("matmul_bfloat16_packed", 0, 1, columns=columns), 2
    for step in steps:
        if isinstance(step, tuple):
            value = build("add", value, build("cast", added, dtype=DType.float32))
            added += 1
        else:
            value = build("cast", value, dtype=DType[step])
    return build.definition(value)


def arrays_of(definition, sizes=None):
    return [random_array(type_, seed, sizes) for seed, type_ in enumerate(definition.params)]


def without_instruction(target):
    features = target.native.features.replace(f"+{FEATURE}", f"-{FEATURE}")
    return dataclasses.replace(target, native=dataclasses.replace(target.native, features=features))


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
def test_products_agree_with_the_reference(target):
    for rows, pairs, columns, parts in ((1, 3, 5, 1), (3, 150, 91, 2), (9, 20, 40, 2), ((2, 13), 200, 33, 3)):
        definition = product_of(rows, pairs, columns)
        check(definition, arrays_of(definition), None, parts, 1e-5, 1e-4, target)


def test_symbolic_rows_serve_every_number_of_them():
    definition = product_of("n", 150, 91)
    for rows in (0, 1, 4, 8, 13):
        check(definition, arrays_of(definition, {"n": rows}), {"n": rows}, 2, 1e-5, 1e-4)


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
def test_cpus_without_the_instruction_give_the_same_bits(target):
    for rows in (1, 9):
        definition = product_of(rows, 150, 40)
        arrays = arrays_of(definition)
        results = [run_kernel(definition, arrays, target=each)[1][0] for each in (target, without_instruction(target))]
        assert results[0].tobytes() == results[1].tobytes()


def test_a_step_multiplies_and_adds_the_upper_halves_first():
    """Each product is exact, and each sum rounded once."""
    definition = product_of(7, 1, 16)
    a, panels = arrays_of(definition)
    (got,) = run_kernel(definition, [a, panels])[1]
    matrix = panels[0, 0].astype(np.float64)
    upper = (a[:, 1:].astype(np.float64) * matrix[:, 1]).astype(np.float32)
    np.testing.assert_array_equal(got, (a[:, :1].astype(np.float64) * matrix[:, 0] + upper).astype(np.float32))


@pytest.mark.parametrize("rows", [2, 9])
def test_results_of_bfloat16_are_rounded_once(rows):
    wide, narrow = (product_of(rows, 40, 37, (rows, 37), (37,), *end) for end in ((), ("bfloat16",)))
    arrays = arrays_of(wide)
    (wanted,), (got,) = (run_kernel(definition, arrays, parts=2)[1] for definition in (wide, narrow))
    assert got.tobytes() == wanted.astype(got.dtype).tobytes()


def test_what_is_rounded_is_not_rounded_again():
    """As a cast rounds, and so does what stores its result."""
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), [FLOAT]), "f")
    x = Lanes(ir.IRBuilder(function.append_basic_block()), function.args[0], types.float32)
    narrow = convert(x, ELEMENTS["bfloat16"][0])
    assert convert(convert(narrow, types.float32), narrow.dtype).value is narrow.value
    assert convert(convert(narrow, types.float32), ELEMENTS["float8_e5m2"][0]).value is not narrow.value


@ON_X86
@pytest.mark.parametrize("cpu", ["haswell", "icelake-server", "cooperlake", "znver4", "neoverse-n1", "neoverse-v1"])
def test_the_instruction_is_used_where_the_cpu_has_it(cpu):
    """By its text, which runs nowhere."""
    kernel = lower(product_of(9, 20, 40), of(instruction_sets.target(cpu)))
    names = {FEATURE: "dot_bfloat16_512(", "bf16": "square_bfmmla("}
    for feature, name in names.items():
        assert (name in kernel.source) == (feature in instruction_sets.FEATURES[cpu])


@pytest.mark.skipif(not TARGET.dot_bfloat16, reason="this CPU multiplies no bfloat16")
def test_native_kernels_have_the_bits_of_the_emulator():
    """Whatever the numbers: sums that lose digits, subnormal ones, infinities."""
    definition = product_of(5, 40, 40)
    arrays = arrays_of(definition)
    bits = np.random.default_rng(0).integers(0, 1 << 16, arrays[0].shape, np.uint16)
    arrays[0][:2] = (bits & 0xBFFF).view(arrays[0].dtype)[:2]  # below 2
    arrays[0][3], arrays[1][:, ::3] = 2.0**-63, 2.0**-64  # products that are no normal numbers
    kernel = lower(definition, TARGET)
    example = Example("product", definition, {}, arrays)
    ran, (code, (got,)) = interpreted(example, kernel), run_kernel(definition, arrays)
    assert ran.code == code == 0
    assert got.tobytes() == ran.outputs[0].tobytes()


def test_sums_are_rounded_to_odd_by_the_instruction_of_arm():
    total, x, w = (
        np.float32([1, 1, -1, 0, 2**-126]),
        *(
            np.array(each, DType.bfloat16.numpy).view(np.int32)
            for each in (
                [2**-13, 0, 2**-30, 0, -(2**-30), 0, 2**-80, 2**-80, 0, 0],
                [2**-12, 1, 1, 1, 1, 1, 2**-80, 1, 1, 1],
            )
        ),
    )
    found = FUNCTIONS["dot_bfloat16_odd"](Vector(total), Vector(x), Vector(w)).array
    assert found.tolist() == [1 + 2**-23, 1 + 2**-23, -1 - 2**-23, 2**-80, 2**-126]


WINDOWS = [
    ((1, 3, 17, 19), (20, 3, 7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
    ((1, 40, 9, 33), (33, 40, 3, 3), {"pads": (1, 0, 2, 1), "dilations": (2, 1)}),
    ((2, 27, 7, 9), (16, 27, 1, 1), {"strides": (2, 2)}),
    ((1, 20, 31), (17, 20, 5), {"pads": (2, 2), "strides": (2,)}),
    ((2, 64, 9, 8), (96, 32, 3, 3), {"pads": (1, 1, 1, 1), "groups": 2}),
]


def check_convolution(shape, weights, target=TARGET, symbolic=False, **window):
    """Against the plain one of the same numbers; what lies behind the image's last channel is NaN."""
    x, weight = (random_array(tensor("bfloat16", sizes), seed) for seed, sizes in enumerate((shape, weights)))
    image, packed = evaluate("pack_channels", x), evaluate("pack_bfloat16_weights", weight)
    image[:, -1, ..., (shape[1] - 1) % 16 + 1 :] = np.nan
    start = random_array(tensor("float32", weights[:1]), 2)
    arrays = [image, packed, evaluate("pack_vector", start, axes=len(shape) - 2)]
    sizes = {f"d{axis}": size for axis, size in enumerate(shape[2:])} if symbolic else {}
    types = [tensor("bfloat16", (*image.shape[:2], *(sizes or shape[2:]), 16)), tensor("bfloat16", packed.shape)]
    build = Builder(*types, tensor("float32", arrays[2].shape))
    definition = build.definition(build("conv_bfloat16_blocked", 0, 1, 2, channels=weights[1], **window))
    _, (got,) = run_kernel(definition, arrays, sizes, 2, target)
    wanted = evaluate("conv", x.astype(np.float32), weight.astype(np.float32), start, **window)
    np.testing.assert_allclose(evaluate("unpack_channels", got, channels=weights[0]), wanted, rtol=1e-5, atol=1e-4)
    return got


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("shape", "weights", "window"), WINDOWS, ids=str)
def test_convolutions_of_blocked_images(shape, weights, window, symbolic):
    check_convolution(shape, weights, symbolic=symbolic, **window)


@pytest.mark.parametrize("target", [TARGET, NARROW[0]], ids=lambda target: f"{target.vector_bytes} bytes")
def test_convolutions_have_the_same_bits_without_the_instruction(target):
    results = [
        check_convolution(*WINDOWS[1][:2], each, **WINDOWS[1][2]) for each in (target, without_instruction(target))
    ]
    np.testing.assert_array_equal(*(evaluate("unpack_channels", got, channels=33) for got in results))


def test_weights_of_more_words_than_a_pixel_has_are_refused():
    for operator, dtypes, each, attributes in (
        ("conv_integer_blocked", ("uint8", "int8"), 4, {}),
        ("conv_bfloat16_blocked", ("bfloat16", "bfloat16"), 2, {"channels": 16}),
    ):
        types = [tensor(dtypes[0], (1, 1, 5, 16)), tensor(dtypes[1], (1, 1, 3, 16 // each + 1, 16, each))]
        with pytest.raises(InferenceError, match="at most"):
            definition_of(operator, types, **attributes)


def test_panels_are_of_numbers_rounded_to_even():
    matrix = np.float32([[1 + 2**-8, 1 + 3 * 2**-8, 3.5]])
    panels = evaluate("pack_bfloat16_matrix", matrix)
    assert panels.shape == (1, 1, 16, 2)
    np.testing.assert_array_equal(panels[0, 0, :4, 0].astype(np.float32), [1, 1 + 2**-6, 3.5, 0])
    assert not panels[..., 1].any()


def test_the_emulator_takes_no_lower_half_for_an_upper_one():
    x, w = (np.array(pair, DType.bfloat16.numpy).view(np.int32) for pair in ([2, 3], [5, 7]))
    with compiling_for(TARGET.native):
        total = FUNCTIONS["dot_bfloat16_512"](Vector(np.float32([1])), Vector(x), Vector(w))
    assert total.array.tolist() == [1 + 2 * 5 + 3 * 7]


@pytest.mark.parametrize("name", ["bfloat16_pairs", "bfloat16_words"])
def test_words_of_bfloat16_are_rounded_to_even(name):
    """Numbers below the least normal one are zeros of their sign, as the instruction makes them."""
    a = np.float32([1 + 2**-8, 1 + 3 * 2**-8, -2.5, 2**-126, 2**-127, -(2**-130), 3.4e38, -np.inf] * 2)
    b = np.linspace(-3, 7, 16, dtype=np.float32) ** 3
    normal = [np.where(abs(each) < np.float32(2**-126), np.copysign(np.float32(0), each), each) for each in (a, b)]
    halves = np.stack([each.astype(DType.bfloat16.numpy) for each in normal])
    wanted = halves.reshape(-1, 2) if name == "bfloat16_pairs" else halves.T
    assert (
        FUNCTIONS[name](Vector(a), Vector(b)).array.tolist() == np.ascontiguousarray(wanted).view("i4")[:, 0].tolist()
    )


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
@pytest.mark.parametrize(("members", "stride"), [(1, 1), (4, 2)])
def test_depthwise_convolutions_widen_what_they_read(target, members, stride):
    """The bits of float32 images of the same numbers."""
    image = random_array(tensor("bfloat16", (2, 2, 9, 33, 16)))
    arrays = [image, *(random_array(tensor("float32", (2, *shape, 16)), 1) for shape in ((members, 3, 5), (1, 1)))]
    results = []
    for x in (image, image.astype(np.float32)):
        types = [tensor(DType.of(each.dtype), each.shape) for each in (x, *arrays[1:])]
        definition = definition_of("conv_depthwise", types, pads=(1, 2, 1, 2), strides=(stride, stride))
        results.append(run_kernel(definition, [x, *arrays[1:]], None, 2, target)[1][0])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
def test_what_is_rounded_for_products_is_normal(target):
    """To the nearest, ties to even; below the least normal number, zeros. In an epilogue, and alone."""
    numbers = np.float32([1 + 2**-8, 1 + 3 * 2**-8, 2**-126, 2**-127, -(2**-130), 0.0, -0.0, 3.4e38, -np.inf, np.nan])
    x = np.concatenate([numbers, np.linspace(-3, 7, 27, dtype=np.float32) ** 3])
    build = Builder(tensor("float32", x.shape))
    definition = build.definition(build("round_bfloat16", build("negative", 0)))
    (wanted,) = evaluate_definition(definition, [x], [])
    assert np.signbit(wanted[4:6]).tolist() == [False, True]
    (code, (got,)) = run_kernel(definition, [x], target=target)
    assert code == 0
    np.testing.assert_array_equal(got.astype("f"), wanted.astype("f"))
    np.testing.assert_array_equal(np.signbit(got[:-1]), np.signbit(wanted[:-1]))
    assert FUNCTIONS["round_bfloat16"](Vector(x)).array[:9].tolist() == (-wanted.astype("f"))[:9].tolist()
