"""Attention, compiled, against the reference evaluator."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from treadle.formats.messages.errors import InferenceError
from treadle.formats.types import tensor

from ..harness import NARROW, TARGET, Builder, check, check_random, definition_of, random_array, run_kernel, without

HEADS_LAST = (0, 2, 1, 3)


def attention(q, k, v, mask=None, sizes=None, parts=1, target=TARGET, arrays=(), **attributes):
    """Checks one attention of random operands, the last of which may be given."""
    types = [tensor("float32", shape) for shape in (q, k, v)] + ([tensor(*mask)] if mask else [])
    definition = definition_of("attention", types, **attributes)
    operands = [random_array(type_, seed, sizes) for seed, type_ in enumerate(types)]
    operands[len(operands) - len(arrays) :] = arrays
    check(definition, operands, sizes, parts, 1e-5, 1e-5, target)


@pytest.mark.parametrize("queries", [1, 3, 4, 17, 150])
@pytest.mark.parametrize(("depth", "width"), [(32, 32), (24, 40), (5, 64)])
def test_any_size_in_any_number_of_parts(queries, depth, width):
    for keys, parts in ((1, 1), (77, 2), (300, 5)):
        attention((3, queries, depth), (3, keys, depth), (3, keys, width), parts=parts, scale=0.3)


def test_heads_stay_where_the_projection_left_them():
    axes = dict.fromkeys(("q_axes", "k_axes", "v_axes", "result_axes"), HEADS_LAST)
    attention((2, 19, 3, 32), (2, 21, 3, 32), (2, 21, 3, 32), scale=0.2, **axes)


@pytest.mark.parametrize("keys", [40, 300])
def test_keys_that_are_turned_serve_neighbouring_units_alone(keys):
    for sizes, shape in ((None, (2, 6, 300, 16)), ({"b": 2, "l": 300, "m": keys}, ("b", 6, "l", 16))):
        cached = (shape[0], 3, "m" if sizes else keys, 16)
        for parts in (1, 5):
            attention(shape, cached, cached, sizes=sizes, parts=parts, repeat=2)


@pytest.mark.parametrize("queries", [2, 19])
def test_operands_may_be_parts_of_tensors(queries):
    axes = dict.fromkeys(("q_axes", "k_axes", "v_axes", "result_axes"), HEADS_LAST)
    joined, apart = (2, queries, 3, 5, 24), (3, 2, 21, 5, 24)
    attention(joined, joined, joined, scale=0.2, q_part=(2, 0), k_part=(2, 1), v_part=(2, 2), **axes)
    attention((3, 5, queries, 24), (5, 21, 24), (5, 21, 24), scale=0.2, q_part=(0, 1))
    attention(joined, apart, (2, 21, 5, 24), scale=0.2, q_part=(2, 2), k_part=(0, 1), parts=2, **axes)
    sizes, joined = {"b": 2, "l": queries}, ("b", "l", 3, 4, 16)
    attention(joined, joined, joined, sizes=sizes, q_part=(2, 1), k_part=(2, 2), v_part=(2, 0), **axes)


@pytest.mark.parametrize("part", [(5, 0), (2, 3), (-1, 0), (2,), (0, 0)])
def test_parts_that_there_are_not_are_refused(part):
    types = [tensor("float32", ("b", 7, 3, 5, 24))] + [tensor("float32", ("b", 5, 7, 24))] * 2
    with pytest.raises(InferenceError):
        definition_of("attention", types, q_part=part, q_axes=HEADS_LAST)


@pytest.mark.parametrize("queries", [1, 20])
def test_groups_of_heads_share_keys_and_values(queries):
    attention((2, 6, queries, 24), (2, 2, 40, 24), (2, 2, 40, 32), ("float32", (6, queries, 1)), parts=3, repeat=3)
    axes = dict.fromkeys(("q_axes", "k_axes", "v_axes", "result_axes"), HEADS_LAST)
    sizes = {"b": 2, "l": queries, "m": 40}
    attention(("b", "l", 4, 24), ("b", "m", 1, 24), ("b", "m", 1, 24), sizes=sizes, repeat=4, **axes)


@pytest.mark.parametrize("shape", [(2, 1, 1, 140), (1, 3, 20, 140), (140,), (20, 1), ()])
def test_masks_broadcast(shape):
    attention((2, 3, 20, 16), (2, 3, 140, 16), (2, 3, 140, 16), ("float32", shape))
    attention((2, 3, 20, 16), (2, 3, 140, 16), (2, 3, 140, 16), ("bool", shape), masked=-10000.0)


@pytest.mark.parametrize("queries", [2, 160])
def test_causal_masks_hide_whole_spans(queries):
    mask = np.where(np.tri(queries, 300, 300 - queries), 0, -np.inf).astype(np.float32)
    shape = (queries, 300)
    attention((2, queries, 16), (2, 300, 16), (2, 300, 16), ("float32", shape), arrays=[mask[:, ::-1]])


def test_a_row_without_keys_is_no_number_and_one_of_lowest_scores_is_the_mean():
    hidden = np.array([[-np.inf], [np.finfo(np.float32).min], [0]] * 2, np.float32)
    attention((6, 16), (9, 16), (9, 16), ("float32", (6, 1)), arrays=[hidden])


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 3), (1, 140), (0, 5), (2, 0)])
def test_symbolic_batch_and_length(batch, length):
    sizes, shape = {"b": batch, "l": length, "m": 2 * length}, ("b", "l", 2, 32)
    axes = dict.fromkeys(("q_axes", "k_axes", "v_axes", "result_axes"), HEADS_LAST)
    cached = ("b", "m", 2, 32)
    attention(shape, cached, cached, ("float32", ("b", 1, 1, "m")), sizes, 2, **axes)


@pytest.mark.parametrize("vector_bytes", [32, 16])
def test_narrow_vectors(vector_bytes):
    target = dataclasses.replace(TARGET, vector_bytes=vector_bytes, vector_registers=16)
    attention((2, 33, 24), (2, 40, 24), (2, 40, 24), ("float32", (33, 40)), target=target)
    mask = np.where(np.tri(33, 40, dtype=bool), 0, -np.inf).astype(np.float32)
    attention((2, 33, 24), (2, 40, 24), (2, 40, 24), ("float32", (33, 40)), arrays=[mask], target=target)


@pytest.mark.parametrize("queries", [1, 20])
@pytest.mark.parametrize("special", [-10.0, -86.0, -88.0, -110.0, -1e30, -np.inf, np.inf, np.nan])
def test_weights_far_below_the_greatest_vanish_and_what_is_no_number_spreads(queries, special):
    mask = np.zeros((queries, 200), np.float32)
    mask[0, 7] = special
    attention((queries, 16), (200, 16), (200, 16), ("float32", (queries, 200)), arrays=[mask])


@pytest.mark.parametrize("lowest", [-1e4, -3.4028234663852886e38, -np.inf])
@pytest.mark.parametrize(("queries", "keys"), [(40, 40), (70, 600), (300, 300)])
def test_what_causal_masks_hide_is_left_out(queries, keys, lowest):
    seen, q = np.tri(queries, keys, keys - queries, dtype=bool), (2, queries, 20)
    mask = np.where(seen, 0, lowest).astype(np.float32)
    attention(q, (2, keys, 20), (2, keys, 24), ("float32", mask.shape), arrays=[mask])
    attention(q, (2, keys, 20), (2, keys, 24), ("bool", mask.shape), arrays=[seen], masked=lowest)


@pytest.mark.parametrize("operand", ["q", "k", "v"])
@pytest.mark.parametrize("special", [np.nan, np.inf, 1e30])
def test_hidden_keys_count_where_a_product_with_nothing_is_no_number(operand, special):
    shapes = {"q": (40, 16), "k": (280, 16), "v": (280, 16)}
    operands = [random_array(tensor("float32", shape), seed) for seed, shape in enumerate(shapes.values())]
    operands["qkv".index(operand)][39, 3] = special
    mask = np.where(np.tri(40, 280, dtype=bool), 0, -np.inf).astype(np.float32)
    attention(*shapes.values(), ("float32", mask.shape), arrays=[*operands, mask])


def test_the_first_keys_may_be_hidden_and_whole_rows():
    for lowest in (-np.inf, np.finfo(np.float32).min):
        mask = np.where(np.tri(50, 300, 20, dtype=bool), 0, lowest).astype(np.float32)
        mask[:, :30] = lowest
        mask[7] = mask[45] = lowest
        attention((50, 16), (300, 16), (300, 16), ("float32", mask.shape), arrays=[mask])


def biased(shapes, mask, bias, arrays, sizes=None, parts=1, target=TARGET, **attributes):
    """Checks one attention with a mask of truth values and a bias of these shapes; the last operands are given."""
    types = [tensor("float32", shape) for shape in shapes] + [tensor("bool", mask), tensor("float32", bias)]
    operands = [random_array(type_, seed, sizes) for seed, type_ in enumerate(types)]
    operands[len(operands) - len(arrays) :] = arrays
    check(definition_of("attention", types, **attributes), operands, sizes, parts, 1e-5, 1e-5, target)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("masked", [-1e4, -3.4028234663852886e38, -np.inf])
def test_a_bias_before_a_mask_and_behind_it(last, masked):
    for queries, keys in ((1, 40), (2, 300), (40, 40), (70, 600)):
        seen = np.tri(queries, keys, keys - queries, dtype=bool)
        padding = np.where(np.arange(keys) < 7, -20.0, 0).astype(
            np.float32
        )  # as of a batch that is filled up at the left
        shapes = (2, queries, 20), (2, keys, 20), (2, keys, 24)
        biased(shapes, seen.shape, (keys,), [seen, padding], masked=masked, bias_last=last)
        biased(shapes, (2, 1, keys), (queries, 1), [], parts=3, masked=masked, bias_last=last)


def test_a_bias_of_symbolic_sizes_and_narrow_vectors():
    sizes, shape = {"b": 2, "l": 21, "m": 37}, ("b", 3, "l", 16)
    cached = ("b", 3, "m", 16)
    for target in (TARGET, *NARROW):
        biased((shape, cached, cached), ("l", "m"), ("b", 1, 1, "m"), [], sizes, 2, target, bias_last=True, masked=-1e4)


def test_a_bias_goes_with_truth_values():
    types = [tensor("float32", (9, 16))] * 3 + [tensor("float32", (9, 9))] * 2
    with pytest.raises(InferenceError):
        definition_of("attention", types)


@pytest.mark.parametrize("queries", [2, 50])
def test_queries_that_see_no_key_may_get_zeros(queries):
    for keys in (30, 300):
        mask = np.zeros((queries, keys), np.float32)
        mask[1] = -np.inf
        mask[0, 3] = np.nan
        attention((queries, 16), (keys, 16), (keys, 16), ("float32", mask.shape), arrays=[mask], nan_to_zero=True)


# ---- rotary places ----


@pytest.mark.parametrize("depth", [2, 6, 32, 64, 70])
@pytest.mark.parametrize("angles", [("l",), (1, 1, "l"), ("b", 1, "l"), ("b", "h", 1), ()])
def test_rotary_of_any_depth(depth, angles):
    types = [tensor("float32", (*shape, depth)) for shape in (("b", "h", "l"), angles, ("l",))]
    for sizes, parts in (({"b": 2, "h": 3, "l": 5}, 3), ({"b": 1, "h": 1, "l": 1}, 1), ({"b": 0, "h": 2, "l": 4}, 2)):
        check_random(definition_of("rotary", types), sizes, parts)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_rotary_of_other_types(dtype):
    check_random(definition_of("rotary", [tensor(dtype, shape) for shape in ((2, 3, 5, 18), (5, 18), (5, 18))]))


def test_rotary_with_narrow_vectors():
    types = [tensor("float32", shape) for shape in ((7, 24), (7, 24), (24,))]
    for target in NARROW:
        check(definition_of("rotary", types), [random_array(type_) for type_ in types], target=target)


@pytest.mark.parametrize("kept", ["whole", "tokens first", "with room"])
@pytest.mark.parametrize("queries", [1, 20])
def test_keys_of_two_tensors_are_read_where_they_lie(queries: int, kept: str):
    """The same bits as of joined ones, wherever the first tensor ends: at a block of keys, within one, or at once."""
    shapes = {
        "whole": ("b", 2, "first", 24),
        "tokens first": ("first", "b", 2, 24),
        "with room": ("b", 2, "first + 9", 24),
    }
    query, masked = tensor("float32", ("b", 4, "l", 24)), tensor("bool", ("l", "first + new"))
    pair = [tensor("float32", shapes[kept]), tensor("float32", ("b", 2, "new", 24))]
    build = Builder(query, *pair, *pair, masked)

    def joined(number: int) -> int:
        front = number
        if kept == "tokens first":
            front = build("permute_dims", number, axes=(1, 2, 0, 3))
        elif kept == "with room":
            front = build("slice", number, starts=(0,), ends=("first",), axes=(2,))
        return build("concat", front, number + 1, axis=2)

    apart = build.definition(build("attention", 0, joined(1), joined(3), 5, repeat=2))
    known = tensor("float32", ("b", 2, "n", 24))
    together = definition_of("attention", [query, known, known, tensor("bool", ("l", "n"))], repeat=2)
    for first, new in ((300, queries), (256, 33), (5, 3), (0, 40), (40, 0)):
        sizes = {"b": 2, "l": queries, "first": first, "new": new, "n": first + new}
        q, *rows = (random_array(type_, seed, sizes) for seed, type_ in enumerate(apart.params[:5]))
        mask = np.arange(first + new) <= np.arange(queries)[:, None] + first
        code, got = run_kernel(apart, [q, *rows, mask], sizes, 3)
        caches = [np.moveaxis(each, 0, 2) if kept == "tokens first" else each[:, :, :first] for each in rows[::2]]
        whole = [np.concatenate(each, axis=2) for each in zip(caches, rows[1::2], strict=True)]
        other, wanted = run_kernel(together, [q, *whole, mask], sizes, 3)
        assert code == other == 0
        np.testing.assert_array_equal(got[0], wanted[0])


# ---- of bfloat16 ----


@pytest.mark.parametrize("target", [TARGET, *NARROW], ids=lambda target: f"{target.vector_bytes} bytes")
@pytest.mark.parametrize(("queries", "keys", "depth", "width"), [(19, 21, 24, 40), (33, 77, 5, 64), (150, 300, 32, 32)])
def test_narrow_attention_rounds_what_it_multiplies(queries, keys, depth, width, target):
    types = [tensor("float32", shape) for shape in ((2, queries, depth), (2, keys, depth), (2, keys, width))]
    definition = definition_of("attention", types, scale=0.3, narrow=True)
    check(definition, [random_array(type_, seed) for seed, type_ in enumerate(types)], None, 3, 4e-3, 4e-3, target)


def test_narrow_attention_takes_symbolic_sizes_masks_and_joined_keys():
    sizes = {"b": 2, "l": 35, "m": 140}
    types = [
        tensor("float32", shape) for shape in (("b", 6, "l", 16), ("b", 3, "m", 16), ("b", 3, "m", 16), ("l", "m"))
    ]
    arrays = [random_array(type_, seed, sizes) for seed, type_ in enumerate(types)]
    arrays[3] = np.where(np.tri(35, 140, 3), 0, -np.inf).astype("f")
    for count, bound in ((35, 4e-3), (2, 2e-2)):  # few queries are multiplied in float32
        arrays[0], arrays[3], sizes["l"] = arrays[0][:, :, :count], arrays[3][:count], count
        check(definition_of("attention", types, repeat=2, narrow=True), arrays, sizes, 3, bound, bound)
    build = Builder(*(tensor("float32", (2, 3, rows, 16)) for rows in (20, 9, 15, 9, 15)))
    joined = build("attention", 0, build("concat", 1, 2, axis=2), build("concat", 3, 4, axis=2), narrow=True)
    definition = build.definition(joined)
    check(definition, [random_array(type_, seed) for seed, type_ in enumerate(definition.params)], None, 2, 4e-3, 4e-3)


def test_narrow_attention_has_the_same_bits_without_the_instructions():
    """Of products and of rounding: queries, keys and values with numbers that are no normal ones."""
    types = [tensor("float32", shape) for shape in ((2, 19, 24), (2, 37, 24), (2, 37, 40))]
    arrays = [random_array(type_, seed) for seed, type_ in enumerate(types)]
    for array in arrays:
        array[0, ::3, ::5] = 1e-39
    definition = definition_of("attention", types, narrow=True)
    (code, (with_them,)), (other_code, (with_others,)) = (
        run_kernel(definition, arrays, None, 3, each) for each in (TARGET, without(TARGET, "avx512bf16"))
    )
    assert code == other_code == 0
    np.testing.assert_array_equal(with_them, with_others)


def test_infinite_and_hidden_scores_of_narrow_attention():
    """A row of no key at all is NaN; what a mask hides has the weight 0."""
    types = [tensor("float32", shape) for shape in ((4, 16), (40, 16), (40, 16), (4, 40))]
    arrays = [random_array(type_, seed) for seed, type_ in enumerate(types)]
    arrays[3][:] = 0
    arrays[3][0], arrays[3][1, 3:], arrays[3][2] = -np.inf, -np.inf, np.finfo("f").min
    check(definition_of("attention", types, narrow=True), arrays, None, 1, 4e-3, 4e-3)
