"""Matrix products, compiled, against the reference evaluator."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.compiler.operators import lookup
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.cpu.target import of
from treadle.formats.dtypes import DType
from treadle.formats.types import tensor

from .. import instruction_sets
from ..harness import (
    NARROW,
    ON_X86,
    TARGET,
    Builder,
    built,
    check,
    check_random,
    definition_of,
    normal,
    random_array,
    run_kernel,
)


def product(a, b, epilogue=(), sizes=None, parts=1, target=TARGET, operator="matmul", **attributes):
    """Checks one product with an epilogue: names of unary operators, or shapes of tensors to add."""
    build = Builder(*(tensor("float32", shape) for shape in (a, b, *(e for e in epilogue if isinstance(e, tuple)))))
    value, added = build(operator, 0, 1, **attributes), 2
    for step in epilogue:
        value = build("add", value, added) if isinstance(step, tuple) else build(step, value)
        added += isinstance(step, tuple)
    definition = build.definition(value)
    arrays = [random_array(type_, seed, sizes) for seed, type_ in enumerate(definition.params)]
    depth = arrays[0].shape[-2 if attributes.get("transpose_a") else -1]
    check(definition, arrays, sizes, parts, 1e-5, 2e-5 * math.sqrt(depth), target)
    return built(definition, target)


SIZES = st.sampled_from([1, 2, 3, 7, 14, 15, 16, 17, 31, 33, 48, 50])


@given(SIZES, SIZES, SIZES, st.integers(1, 5))
@settings(max_examples=6, deadline=None, derandomize=True)
def test_any_size_in_any_number_of_parts(rows, depth, columns, parts):
    product((rows, depth), (depth, columns), parts=parts)


def test_batches_broadcast():
    product((3, 1, 5, 4), (2, 4, 20), parts=4)
    product((1, 5, 4), (2, 3, 4, 20), parts=4)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_transposed_operands(transpose_a, transpose_b):
    a, b = ((2, 6, 9), (2, 21, 6)) if transpose_b else ((2, 6, 9), (2, 6, 21))
    a = a if transpose_a else (2, 9, 6)
    turned = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    product(a, b, operator="matmul_transposed", **turned)


def test_rows_in_few_cache_sets_are_copied_apart():
    rows = TARGET.l2_bytes // (4 * 136) + 5  # of a result that leaves L2
    few_ways = dataclasses.replace(TARGET, l1_bytes=32 << 10)
    kernel = product((rows, 1024), (1024, 136), parts=2, target=few_ways)
    assert kernel.scratch_bytes > 4 * 1024 * 20


def test_symbolic_rows_serve_every_number_of_them():
    for rows in (0, 1, 3, 4, 7, 8, 9, 13, 14, 15, 22, 24, 40):
        product(("n", 9), (9, 37), ((37,), "relu"), {"n": rows}, parts=2)


def test_symbolic_rows_of_tiles_three_blocks_wide():
    for rows in (0, 1, 3, 4, 5, 8, 12, 13, 24):
        product(("n", 200), (6, 200, 16), ((91,),), {"n": rows}, 2, operator="matmul_packed", columns=91)


def test_symbolic_rows_in_several_bands():
    depth = 4096
    band = TARGET.l2_bytes * 3 // 4 // (4 * depth) // 8 * 8
    for rows in (band - 1, band + 3, 2 * band + 9):
        product(("n", depth), (depth, 132), (), {"n": rows}, parts=2)


@given(st.sampled_from([1, 5, 16, 27, 64]), st.sampled_from([193, 256, 300, 515]), SIZES, st.integers(1, 4))
@settings(max_examples=6, deadline=None, derandomize=True)
def test_long_sums_are_gathered_chunk_by_chunk(rows, depth, columns, parts):
    for shape, sizes in ((rows, {}), ("n", {"n": rows})):
        product((shape, depth), (depth, columns), ((columns,), "relu"), sizes, parts)
        blocks = -(-columns // 16)
        product((shape, depth), (blocks, depth, 16), (), sizes, parts, operator="matmul_packed", columns=columns)
        product((shape, depth), (columns, depth), (), sizes, parts, operator="matmul_transposed", transpose_b=True)


@pytest.mark.parametrize("columns", [64, 512])
def test_more_rows_than_wait_at_a_time_for_their_sums(columns):
    product((500, 260), (260, columns), parts=2)  # b is copied: one band
    product(("n", 260), (columns, 260), (), {"n": 500}, 2, operator="matmul_transposed", transpose_b=True)


@pytest.mark.parametrize("epilogue", [(), ("erf",), ((77,), "relu")])
def test_a_last_block_that_is_not_whole_belongs_to_a_tile(epilogue):
    product((3, 21, 40), (3, 40, 77), epilogue, parts=4)
    product((21, 200), (200, 77), epilogue, parts=2)
    product((21, 40), (5, 40, 16), epilogue, operator="matmul_packed", columns=77)
    product(("n", 40), (77, 40), epilogue, {"n": 21}, operator="matmul_transposed", transpose_b=True)


@pytest.mark.parametrize("columns", [150, 176])
def test_results_of_short_sums_are_stored_row_by_row(columns):
    for depth in (0, 3, 16):
        product((2, 37, depth), (depth, columns), ((columns,), "relu"), parts=3)
        product((2, depth, 37), (2, depth, columns), parts=3, operator="matmul_transposed", transpose_a=True)
    product(("n", 3), (3, columns), (), {"n": 29}, 3)
    product((20, 3), (3, "m"), (), {"m": columns}, 3)
    product(("n", 5), (-(-columns // 16), 5, 16), (), {"n": 29}, 2, operator="matmul_packed", columns=columns)


@pytest.mark.parametrize("columns", [141, 512])
def test_stripes_of_a_large_matrix_are_copied(columns):
    for batch, parts in (((), 3), ((2,), 5)):
        product((*batch, 401, 700), (*batch, 700, columns), ((columns,),), parts=parts)
        product(
            (*batch, 401, 700), (*batch, columns, 700), (), None, parts, operator="matmul_transposed", transpose_b=True
        )


def test_long_sums_have_the_same_bits_in_any_number_of_parts():
    build = Builder(tensor("float32", (40, 400)), tensor("float32", (11, 400, 16)))
    definition = build.definition(build("matmul_packed", 0, 1, columns=170))
    arrays = [random_array(type_, seed) for seed, type_ in enumerate(definition.params)]
    wanted = run_kernel(definition, arrays)[1][0]
    for parts in (2, 3, 5):
        np.testing.assert_array_equal(run_kernel(definition, arrays, parts=parts)[1][0], wanted)


def test_symbolic_batch_and_length_as_in_attention():
    sizes = {"b": 2, "s": 19}
    product(("b", 3, "s", 8), ("b", 3, "s", 8), ("tanh",), sizes, operator="matmul_transposed", transpose_b=True)
    product(("b", 3, "s", "s"), ("b", 3, "s", 8), (), sizes)


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_panels_of_16_bits_give_what_those_of_float32_do(narrow, target):
    halves = normal(9, 300, 16).astype(DType[narrow].numpy)
    wide = halves.astype(np.float32)
    for rows, parts in ((1, 1), (1, 3), (3, 2), (4, 1), (23, 2)):
        x = normal(rows, 300)
        for axis in (rows, "n"):
            results = []
            for panels in (wide, halves):
                build = Builder(tensor("float32", (axis, 300)), tensor(panels.dtype.name, (9, 300, 16)))
                definition = build.definition(build("relu", build("matmul_packed", 0, 1, columns=141)))
                sizes = {"n": rows} if axis == "n" else None
                arrays = [x, panels]
                check(definition, arrays, sizes, parts, 1e-5, 4e-4, target)
                results.append(run_kernel(definition, arrays, sizes, parts, target)[1][0])
            few = (
                {"rtol": 1e-5, "atol": 1e-4} if rows <= 4 else {"rtol": 0, "atol": 0}
            )  # whose sums are of other chunks
            np.testing.assert_allclose(*results, **few)


@pytest.mark.parametrize("added", [(24,), (1,), (10, 1), (2, 10, 24), (2, 1, 24), (10, 24), ()])
def test_epilogue_operands_broadcast(added):
    product((2, 10, 5), (5, 24), (added,), parts=3)


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize("turned", list(itertools.product((False, True), repeat=2)))
def test_known_and_unknown_sizes_in_any_mix_are_written_or_left_to_others(turned, target):
    """What is copied is of known depth: no template is in doubt about that."""
    for rows, depth, columns in itertools.product((3, 500, "n"), (5, 2048, "k"), (16, 4096, "m")):
        a = (depth, rows) if turned[0] else (rows, depth)
        b = (columns, depth) if turned[1] else (depth, columns)
        types = [tensor("float32", a), tensor("float32", b)]
        definition = definition_of("matmul_transposed", types, transpose_a=turned[0], transpose_b=turned[1])
        assert lower(definition, target) is not None or (turned[1] and depth == "k")


def test_long_epilogues_run_in_a_loop():
    product((10, 5), (5, 40), ((40,), "gelu", "sigmoid"), parts=2)


@pytest.mark.parametrize("target", NARROW, ids=lambda target: f"{target.vector_bytes} bytes")
def test_narrow_vectors(target):
    product((9, 12), (12, 40), ((40,), "relu"), target=target, parts=2)
    product((9, 12), (40, 12), target=target, operator="matmul_transposed", transpose_b=True)
    product(("n", 200), (200, 90), ((90,),), {"n": 13}, 2, target)
    product((13, 3), (3, 77), target=target, parts=2)
    product((13, 20), (20, 77), target=target, parts=2)
    product((401, 700), (700, 141), ((141,),), parts=3, target=target)  # b is copied by stripes


@pytest.mark.parametrize("columns", [1, 16, 30, 96])
def test_packed_matrix(columns):
    matrix = normal(11, columns)
    (panels,) = lookup("pack_matrix").evaluate([matrix])
    build = Builder(tensor("float32", (2, 7, 11)), tensor("float32", panels.shape))
    definition = build.definition(build("matmul_packed", 0, 1, columns=columns))
    a = normal(2, 7, 11)
    _, (got,) = run_kernel(definition, [a, panels], parts=2)
    np.testing.assert_allclose(got, a @ matrix, rtol=1e-5, atol=1e-4)


def test_kernels_of_one_tile_share_their_text():
    wide = dataclasses.replace(TARGET, vector_bytes=64, vector_registers=32)  # the tile depends on the vectors
    keys = {product((m, k), (k, n), target=wide).object_key for m, k, n in ((32, 18, 64), (56, 20, 128))}
    assert len(keys) == 1


SHAPES = [
    ((5, 7), (7, 37)),
    ((9,), (9, 20)),
    ((6, 9), (9,)),
    ((9,), (9,)),
    ((3, 1, 6, 4), (2, 4, 5)),
    ((2, 5, 0), (0, 3)),
    ((2, 21, 7), (2, 7, 37)),  # rows enough to copy columns for
    ((19, 150), (150, 16)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int32", "uint64"])
def test_other_element_types_and_vectors(dtype):
    for a, b in SHAPES:
        check_random(definition_of("matmul", [tensor(dtype, a), tensor(dtype, b)]), parts=3)


@given(SIZES, SIZES, SIZES)
@settings(max_examples=6, deadline=None, derandomize=True)
def test_one_kernel_of_doubles_for_every_size(rows, depth, columns):
    params = [tensor("float64", ("n", "m", "k")), tensor("float64", ("k", "c"))]
    check_random(definition_of("matmul", params), {"n": 2, "m": rows, "k": depth, "c": columns}, parts=2)


@ON_X86
def test_a_cpu_without_fused_multiply_adds():
    plain = of(instruction_sets.target("x86-64"))
    assert not plain.has_fma
    product((5, 9), (9, 20), target=plain)


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize("rows", [(1,), (2,), (1, 3), (2, 2)])
def test_few_rows_of_packed_matrices(rows, target):
    for depth, columns, parts in ((9, 37, 1), (300, 149, 2), (513, 16, 3), (1, 1, 1)):
        panels = (-(-columns // 16), depth, 16)
        epilogue = ((columns,), (*rows, columns), "gelu")
        product((*rows, depth), panels, epilogue, None, parts, target, "matmul_packed", columns=columns)


@pytest.mark.parametrize("added", [(149,), ("n", 149), (1, "s", 149)])
def test_one_row_where_there_may_be_many(added):
    shape = (1, "s", 300) if len(added) == 3 else ("n", 300)
    for rows in (1, 2, 15):
        product(shape, (10, 300, 16), (added, "gelu"), {"n": rows, "s": rows}, 3, operator="matmul_packed", columns=149)


@pytest.mark.parametrize("target", [TARGET, *NARROW])
@pytest.mark.parametrize("depth", [9, 130, 300, 1025, "k"])
def test_a_row_alone_has_the_bits_that_it_has_among_others(depth, target):
    build = Builder(tensor("float32", ("n", depth)), tensor("float32", (10, depth, 16)), tensor("float32", (149,)))
    product = build("matmul_packed", 0, 1, columns=149)
    definition = build.definition(build("gelu", build("add", product, 2)))
    sizes = {"n": 9, "k": 500}
    arrays = [random_array(type_, seed, sizes) for seed, type_ in enumerate(definition.params)]
    together = run_kernel(definition, arrays, sizes, target=target)[1][0]
    for row in range(9):
        alone = run_kernel(definition, [arrays[0][row : row + 1], *arrays[1:]], {**sizes, "n": 1}, target=target)[1][0]
        assert alone.tobytes() == together[row : row + 1].tobytes()


@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_have_the_same_bits_in_any_number_of_parts(rows):
    build = Builder(tensor("float32", (rows, 300)), tensor("float32", (11, 300, 16)))
    definition = build.definition(build("matmul_packed", 0, 1, columns=170))
    arrays = [random_array(type_, seed) for seed, type_ in enumerate(definition.params)]
    wanted = run_kernel(definition, arrays)[1][0]
    for parts in (2, 3, 5, 11):
        np.testing.assert_array_equal(run_kernel(definition, arrays, parts=parts)[1][0], wanted)


@pytest.mark.parametrize(
    ("operator", "a", "b", "panels", "lane"),
    [
        ("matmul_packed", "float32", "float32", (2, 8, 16), 4),
        ("matmul_packed", "float32", "bfloat16", (2, 8, 16), 2),
        ("matmul_integer_packed", "uint8", "int8", (2, 2, 16, 4), 4),
        ("matmul_bfloat16_packed", "bfloat16", "bfloat16", (2, 4, 16, 2), 4),
    ],
)
def test_few_rows_are_shared_by_the_bytes_that_are_read(operator, a, b, panels, lane):
    kernel = lower(definition_of(operator, [tensor(a, (1, 8)), tensor(b, panels)], columns=20), TARGET)
    assert f"columns * depth * {lane} // " in kernel.source
