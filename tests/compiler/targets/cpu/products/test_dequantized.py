"""Products with 2 to 8-bit integers, compiled, against the reference evaluator."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.targets.cpu.operators.dequantized import PACKINGS
from treadle.compiler.targets.cpu.operators.packing import pack_matrix
from treadle.compiler.targets.cpu.target import of
from treadle.formats.messages.errors import InferenceError
from treadle.formats.types import tensor

from .. import instruction_sets
from ..harness import NARROW, TARGET, Builder, check, definition_of, evaluate, run_kernel, without
from .test_quantized import CPUS, ON_X86


def operands(rows, depth, columns, group, zeros, bits=4, seed=0):
    """a, and a packed matrix of narrow integers, their scales, and zero points if wanted."""
    random, groups = np.random.default_rng(seed), -(-depth // group)
    parts = [
        random.standard_normal((*np.atleast_1d(rows), depth)).astype(np.float32),
        PACKINGS[bits].packed(random.integers(0, 1 << bits, (depth, columns)).astype(np.uint8)),
        pack_matrix(random.uniform(-0.1, 0.2, (groups, columns)).astype(np.float32)),
        pack_matrix(random.integers(0, 1 << bits, (groups, columns)).astype(np.uint8)),
    ]
    return parts if zeros else parts[:3]


def product_of(arrays, columns, group, rows=None, epilogue=(), bits=4, int8_rows=False):
    """The definition of a product with an epilogue: names of unary operators, or shapes of tensors to add."""
    a = arrays[0].shape if rows is None else (rows, arrays[0].shape[-1])
    types = [tensor("float32", a), *(tensor(array.dtype.name, array.shape) for array in arrays[1:])]
    build = Builder(*types, *(tensor("float32", shape) for shape in epilogue if isinstance(shape, tuple)))
    sizes = {"columns": columns, "group": group, "bits": bits, "int8_rows": int8_rows}
    value, added = build("matmul_dequantized", *range(len(types)), **sizes), len(types)
    for step in epilogue:
        value = build("add", value, added) if isinstance(step, tuple) else build(step, value)
        added += isinstance(step, tuple)
    return build.definition(value)


def check_product(rows, depth, columns, group, zeros, epilogue=(), parts=1, target=TARGET, symbolic=False, bits=4):
    arrays = operands(rows, depth, columns, group, zeros, bits)
    definition = product_of(arrays, columns, group, "n" if symbolic else None, epilogue, bits)
    more = [np.ones(shape, np.float32) for shape in epilogue if isinstance(shape, tuple)]
    sizes = {"n": rows} if symbolic else None
    check(definition, [*arrays, *more], sizes, parts, 1e-5, 1e-6 * depth**0.5 * (1 << bits) / 16, target)


SIZES = st.sampled_from([1, 2, 3, 8, 15, 16, 17, 33, 50])


@given(
    SIZES,
    st.sampled_from([1, 7, 8, 31, 32, 33, 130, 200]),
    SIZES,
    st.sampled_from([8, 24, 32, 128]),
    st.booleans(),
    st.sampled_from([4, 8]),
)
@settings(max_examples=16, deadline=None, derandomize=True)
def test_any_size_in_any_number_of_parts(rows, depth, columns, group, zeros, bits):
    check_product(rows, depth, columns, group, zeros, parts=1 + rows % 3, bits=bits)


@pytest.mark.parametrize(("zeros", "bits"), [(False, 4), (True, 4), (True, 8)])
def test_symbolic_rows_serve_every_number_of_them(zeros, bits):
    for rows in (0, 1, 2, 4, 7, 8, 13, 24, 40):
        check_product(rows, 300, 91, 64, zeros, ((91,), "relu"), 2, symbolic=True, bits=bits)


@pytest.mark.parametrize("rows", [1, 3, 4, 9, (2, 1), (1, 70)])
def test_epilogues(rows):
    shape = (*np.atleast_1d(rows).tolist(), 149)
    check_product(rows, 700, 149, 128, True, ((149,), shape, "relu"), 3)


def test_an_epilogue_that_repeats_within_a_batch():
    check_product((2, 3), 200, 37, 32, True, ((2, 1, 37),), 2)
    check_product((2, 30), 200, 37, 32, False, ((1, 30, 37),), 2)


def test_one_column_is_a_product_too():
    operands = [tensor("uint32", (1, 4, 16)), tensor("float32", (1, 2, 16)), tensor("uint8", (1, 2, 16))]
    definition = definition_of("matmul_dequantized", [tensor("float32", (3, 32)), *operands], columns=1, group=16)
    assert definition.results == (tensor("float32", (3, 1)),)


def test_no_rows():
    check_product(0, 40, 20, 8, True)
    check_product((3, 0), 40, 20, 8, False)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors(target, bits):
    for rows in (1, 4, 9):
        check_product(rows, 200, 40, 32, rows < 9, ((40,),), 2, target, bits=bits)


@ON_X86
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("cpu", CPUS)
def test_other_cpus(cpu, bits):
    target = of(instruction_sets.target(cpu))
    for rows, zeros in ((2, True), (9, False), (70, True)):
        check_product(rows, 330, 50, 32, zeros, ((50,),), 2, target, bits=bits)
    for rows in (1, 5, 23):
        check_product(rows, 200, 40, 64, True, ("relu",), 2, target, symbolic=True, bits=bits)


@pytest.mark.parametrize("rows", [1, 30])
def test_any_number_of_parts_gives_the_same_bits(rows):
    arrays = operands(rows, 400, 170, 32, True)
    definition = product_of(arrays, 170, 32)
    wanted = run_kernel(definition, arrays)[1][0]
    for parts in (2, 3, 5):
        np.testing.assert_array_equal(run_kernel(definition, arrays, parts=parts)[1][0], wanted)
        np.testing.assert_array_equal(run_kernel(definition, arrays, parts=parts, at_once=True)[1][0], wanted)


def test_few_rows_err_no_more_than_float32_does():
    """Whatever the size of elements is, and however unlike it is among those of a group."""
    random = np.random.default_rng(3)
    for bits, spread, size in itertools.product((4, 8), (0, 1, 6), (1e-30, 1.0, 1e30)):
        arrays = operands(2, 512, 32, 32, True, bits, seed=spread)
        a = arrays[0] * 10.0 ** random.uniform(-spread, 0, arrays[0].shape) * size
        arrays[0] = a.astype(np.float32)
        matrix, scales = dequantized(arrays[1:], 32, bits)
        (got,) = run_kernel(product_of(arrays, 32, 32, bits=bits), arrays)[1]
        wanted, bound = arrays[0].astype(np.float64) @ matrix, np.abs(arrays[0]) @ (np.abs(scales) * (1 << bits))
        assert np.all(np.abs(got - wanted) <= 3e-7 * bound)


def dequantized(operands, group, bits):
    """What they stand for, in float64, and the scales of all its elements."""
    panels, scales, zeros = operands

    def spread(panel):
        return np.repeat(panel.transpose(1, 0, 2).reshape(panel.shape[1], -1), group, 0).astype(np.float64)

    return (PACKINGS[bits].unpacked(panels) - spread(zeros)) * spread(scales), spread(scales)


@pytest.mark.parametrize("zeros", [False, True])
def test_what_is_not_finite_stays_so(zeros):
    arrays = operands(4, 96, 20, 32, zeros)
    arrays[0][0, 5], arrays[0][1, 40], arrays[0][2, 95] = np.nan, np.inf, -np.inf
    definition = product_of(arrays, 20, 32)
    (got,) = run_kernel(definition, arrays)[1]
    assert np.isnan(got[0]).all()
    assert not np.isfinite(got[1:3]).any()
    assert np.isfinite(got[3]).all()


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 256), (8, 32), (8, 256)])
@pytest.mark.parametrize("least", [1.0, 0.5, -1.0])
def test_the_greatest_sums_are_exact(bits, group, least):
    arrays = operands(2, 512, 20, group, False, bits)
    arrays[0] = np.random.default_rng(1).uniform(least, 1, arrays[0].shape).astype(np.float32)
    # where bytes are not multiplied, they are sums of float32, and rounded as those are
    rtol = 1e-6 if TARGET.multiplies_bytes else 2e-6
    for word in (0, 0xFFFFFFFF):
        arrays[1][...] = word
        check(product_of(arrays, 20, group, bits=bits), arrays, rtol=rtol, atol=1e-4)


def test_zeros_give_zeros():
    arrays = operands(2, 64, 20, 32, False)
    arrays[0][...] = 0
    np.testing.assert_array_equal(run_kernel(product_of(arrays, 20, 32), arrays)[1][0], np.zeros((2, 20), np.float32))


@settings(max_examples=25, deadline=None)
@given(
    SIZES,
    st.sampled_from([7, 32, 130, 200]),
    SIZES,
    st.sampled_from([16, 32, 128]),
    st.booleans(),
    st.sampled_from([2, 4, 8]),
)
def test_rows_of_int8_have_the_bits_of_their_reference(rows, depth, columns, group, zeros, bits):
    arrays = operands(rows, depth, columns, group, zeros, bits)
    definition = product_of(arrays, columns, group, "n", bits=bits, int8_rows=True)
    _, (got,) = run_kernel(definition, arrays, {"n": rows}, 2)
    wanted = evaluate("matmul_dequantized", *arrays, columns=columns, group=group, bits=bits, int8_rows=True)
    assert got.tobytes() == wanted.tobytes()
    exact = evaluate("matmul_dequantized", *arrays, columns=columns, group=group, bits=bits)
    assert np.abs(got - exact).max() <= 0.02 * max(1, np.abs(exact).max())


@pytest.mark.parametrize("epilogue", ["relu", "silu"])
def test_rows_of_int8_take_an_epilogue(epilogue):
    """Its kernel's names are none of theirs."""
    arrays = operands(13, 64, 20, 32, False)
    check(product_of(arrays, 20, 32, "n", (epilogue,), int8_rows=True), arrays, {"n": 13}, 2, 1e-5, 1e-5)


@pytest.mark.parametrize(
    "target", [*NARROW, without(NARROW[0], "vnni")], ids=lambda each: f"{each.vector_bytes} {each.dot}"
)
def test_rows_of_int8_are_the_same_on_any_cpu(target):
    arrays = operands(13, 200, 37, 32, True)
    results = [
        run_kernel(product_of(arrays, 37, 32, int8_rows=True), arrays, target=each)[1][0] for each in (TARGET, target)
    ]
    assert results[0].tobytes() == results[1].tobytes()


WRONG = [
    ({"panels": (2, 3, 16)}, "dimension 4"),
    ({"panels": (1, 4, 16)}, "panels"),
    ({"panels": (2, 4, 8)}, "panels"),
    ({"scales": (2, 3, 16)}, "dimension 2"),
    ({"scales": (2, 16)}, "panels"),
    ({"zeros": (2, 1, 16)}, "dimension 2"),
    ({"group": 12}, "groups of whole words"),
    ({"group": 0}, "groups of whole words"),
    ({"columns": 0}, "columns"),
    ({"bits": 3}, "2 or 4 or 8 bits"),
    ({"bits": 8}, "dimension 8"),
    ({"columns": 40}, "panels"),
]


@pytest.mark.parametrize(("changes", "text"), WRONG, ids=str)
def test_sizes_that_do_not_fit_are_refused(changes, text):
    """So that no file makes a kernel read what is not there."""
    shapes = {"panels": (2, 4, 16), "scales": (2, 2, 16), "zeros": (2, 2, 16)} | changes
    types = [tensor("float32", (3, 32))]
    types += [
        tensor(kind, shapes[name]) for kind, name in (("uint32", "panels"), ("float32", "scales"), ("uint8", "zeros"))
    ]
    attributes = {"columns": 30, "group": 16} | {
        name: changes[name] for name in changes.keys() & {"columns", "group", "bits"}
    }
    definition_of("matmul_dequantized", [tensor("float32", (3, 32)), *_right()], columns=30, group=16)
    with pytest.raises(InferenceError, match=text):
        definition_of("matmul_dequantized", types, **attributes)


def _right():
    return tensor("uint32", (2, 4, 16)), tensor("float32", (2, 2, 16)), tensor("uint8", (2, 2, 16))
