"""onnxruntime's own operators of attention, against onnxruntime and the reference evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import treadle
from onnx import helper
from treadle.formats.messages.errors import ModelError, UnsupportedOperatorError

from .runtime_models import RUNTIME, Arrays, by_onnxruntime, by_reference, check, compiled, floats, model_of

HEADS, DEPTH = 4, 16
WIDTH = HEADS * DEPTH


def integers(low: int, high: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(np.int32)


def primitives(operator: str, inputs: Arrays, outputs: list[str], names: list[str], **attributes: object) -> list[str]:
    """What a model of one node of symbolic sizes is compiled to."""
    node = helper.make_node(operator, names, outputs, "the node", domain=RUNTIME, **attributes)
    return treadle.compile(model_of([node], inputs, [*filter(None, outputs)]), progress=False).primitive_ops


# ---- rotary places ----


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [DEPTH, 8])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("first", [False, True])
def test_rotary_embedding(interleaved: int, part: int, rank: int, first: bool) -> None:
    x = floats(2, 5, WIDTH) if rank == 3 else floats(2, HEADS, 5, DEPTH)
    places = np.int64([4]) if first else integers(0, 20, 2, 5).astype(np.int64)
    tables = {"cos": floats(20, part // 2), "sin": floats(20, part // 2, seed=1)}
    extent = {"num_heads": HEADS, "rotary_embedding_dim": part} if part < DEPTH else {}
    check("RotaryEmbedding", {"x": x, "places": places}, constants=tables, interleaved=interleaved, **extent)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_embedding_of_three_places(layout: int, rank: int) -> None:
    x = floats(2, 5, WIDTH) if rank == 3 else floats(2, HEADS, 5, DEPTH)
    places = integers(0, 20, 3, 2, 5).astype(np.int64)
    tables = {"cos": floats(20, 8), "sin": floats(20, 8, seed=1)}
    attributes = {"mrope_section": [3, 3, 2], "mrope_layout": layout, "num_heads": HEADS, "rotary_embedding_dim": 16}
    check("MRotaryEmbedding", {"x": x, "places": places}, constants=tables, **attributes)


@pytest.mark.parametrize(("axes", "layout"), [(2, 0), (3, 2)])
def test_other_places_and_layouts_are_refused(axes: int, layout: int) -> None:
    inputs = {"x": floats(2, 5, WIDTH), "places": integers(0, 20, axes, 2, 5).astype(np.int64)}
    tables = {"cos": floats(20, 8), "sin": floats(20, 8, seed=1)}
    attributes = {"mrope_section": [3, 3, 2], "mrope_layout": layout, "num_heads": HEADS}
    node = helper.make_node("MRotaryEmbedding", ["x", "places", "cos", "sin"], ["y"], domain=RUNTIME, **attributes)
    with pytest.raises(ModelError, match=f"mrope_layout 0 or 1, got int64.*and {layout}"):
        compiled(model_of([node], {**inputs, **tables}, ["y"], known=True))


# ---- attention ----


def triple(length: int = 5, keys: int = 5, values: int = WIDTH) -> Arrays:
    return {"q": floats(2, length, WIDTH), "k": floats(2, keys, WIDTH, seed=1), "v": floats(2, keys, values, seed=2)}


@pytest.mark.parametrize(("length", "keys", "values"), [(5, 5, WIDTH), (5, 7, 48), (1, 70, WIDTH)])
@pytest.mark.parametrize("attributes", [{}, {"scale": 0.3}])
def test_multi_head_attention(length: int, keys: int, values: int, attributes: dict) -> None:
    check("MultiHeadAttention", triple(length, keys, values), num_heads=HEADS, **attributes)


def test_multi_head_attention_with_a_bias() -> None:
    check("MultiHeadAttention", triple(5, 7, 48), constants={"b": floats(2 * WIDTH + 48)}, num_heads=HEADS)


def test_keys_and_values_of_another_sequence() -> None:
    inputs = {"q": floats(2, 5, WIDTH), "k": floats(2, HEADS, 7, DEPTH), "v": floats(2, HEADS, 7, DEPTH, seed=1)}
    check("MultiHeadAttention", inputs, num_heads=HEADS)
    check("MultiHeadAttention", inputs, constants={"b": floats(3 * WIDTH)}, num_heads=HEADS)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, HEADS), (2, HEADS)])
def test_biases_of_scores(shape: tuple[int, int]) -> None:
    inputs = triple(5, 7) | {"bias": floats(*shape, 5, 7)}
    check("MultiHeadAttention", inputs, names=["q", "k", "v", "", "", "bias"], num_heads=HEADS)


MASKS = {
    "ends": np.int32([3, 5]),
    "ends and more": np.int32([3, 5, 0, 5, 10, 0, 5, 10]),
    "keys": np.int32([[1, 1, 1, 0, 0], [1, 0, 1, 0, 1]]),
    "scores": np.concatenate([np.ones((2, 5, 1), np.int32), integers(0, 2, 2, 5, 4)], axis=2),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_masks(mask: str, unidirectional: int) -> None:
    masks = {"q": floats(2, 5, WIDTH), "k": floats(2, 5, WIDTH), "v": floats(2, 5, WIDTH), "mask": MASKS[mask]}
    names = ["q", "k", "v", "", "mask"]
    attributes = {"num_heads": HEADS, "unidirectional": unidirectional}
    check("MultiHeadAttention", masks, names=names, symbolic=mask != "ends and more", **attributes)


def test_masks_that_only_weigh() -> None:
    inputs = triple() | {"mask": MASKS["keys"], "bias": floats(1, HEADS, 5, 5)}
    names = ["q", "k", "v", "", "mask", "bias"]
    check("MultiHeadAttention", inputs, names=names, num_heads=HEADS, mask_filter_value=-2.0)


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
def test_earlier_keys_and_values(length: int, unidirectional: int, masked: bool) -> None:
    past = {"past_k": floats(2, HEADS, 3, DEPTH), "past_v": floats(2, HEADS, 3, DEPTH, seed=1)}
    mask = (
        {"mask": np.concatenate([np.ones((2, 1), np.int32), integers(0, 2, 2, length + 2)], axis=1)} if masked else {}
    )
    inputs = triple(length, length) | past | mask
    names = ["q", "k", "v", "", *(mask or [""]), "", *past]
    attributes = {"num_heads": HEADS, "unidirectional": unidirectional}
    check("MultiHeadAttention", inputs, ("y", "present_k", "present_v"), names=names, **attributes)


PACKED = {
    "plain": {},
    "causal": {"unidirectional": 1},
    "scaled": {"scale": 0.3},
    "narrow values": {"qkv_hidden_sizes": [WIDTH, WIDTH, 48]},
}


@pytest.mark.parametrize("form", PACKED)
@pytest.mark.parametrize("mask", [None, *MASKS, "begins"])
def test_attention_of_one_product(form: str, mask: str | None) -> None:
    attributes = {"num_heads": HEADS, **PACKED[form]}
    columns = sum(attributes.get("qkv_hidden_sizes", [3 * WIDTH]))
    masks = {} if mask is None else {"mask": (MASKS | {"begins": np.int32([4, 5, 0, 2])})[mask]}
    if mask == "begins" and form == "causal":
        masks = {"mask": np.int32([4, 5, 0, 0])}  # rows whose keys are all hidden lose digits to -10000
    if mask == "ends and more":
        masks = {"mask": MASKS["ends"]}
    constants = {"w": floats(24, columns) / 5, "b": floats(columns)}
    names = ["x", *constants, *masks]
    model = {"names": names, "constants": constants, "tolerance": 1e-4, "symbolic": mask != "begins"}
    check("Attention", {"x": floats(2, 5, 24)} | masks, **model, **attributes)


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_one_product_and_earlier_keys_and_values(length: int, unidirectional: int) -> None:
    inputs = {"x": floats(2, length, 24), "past": floats(2, 2, HEADS, 3, DEPTH)}
    constants = {"w": floats(24, 3 * WIDTH) / 5, "b": floats(3 * WIDTH)}
    attributes = {"num_heads": HEADS, "unidirectional": unidirectional}
    names = ["x", "w", "b", "", "past"]
    outputs = ("y", "present")
    check("Attention", inputs, outputs, names=names, constants=constants, tolerance=1e-4, **attributes)


# ---- groups of heads that share keys and values, and a cache of these ----

GROUPS = 2
CACHE_OUTPUTS = ("y", "present_k", "present_v")
GROUPED = ["q", "k", "v", "past_k", "past_v", "seqlens", "total", "cos", "sin", "places", "bias", "sink"]


def grouped(batch: int, length: int, past: int, room: int = 0, lengths: list[int] | None = None) -> Arrays:
    """Inputs of GroupQueryAttention; the cache has `room` for that many tokens if that is more than it holds."""
    total = past + length
    cache = (batch, GROUPS, max(past, room), DEPTH)
    return {
        "q": floats(batch, length, WIDTH),
        "k": floats(batch, length, GROUPS * DEPTH, seed=1),
        "v": floats(batch, length, GROUPS * DEPTH, seed=2),
        "past_k": floats(*cache, seed=3),
        "past_v": floats(*cache, seed=4),
        "seqlens": np.int32([total - 1] * batch if lengths is None else lengths),
        "total": np.array(total, np.int32),
    }


ANGLES = {"cos": floats(64, DEPTH // 2), "sin": floats(64, DEPTH // 2, seed=1)}
WAYS: dict[str, tuple[Arrays, dict]] = {
    "plain": ({}, {}),
    "scaled": ({}, {"scale": 0.3}),
    "not causal": ({}, {"causal": 0}),
    "window": ({}, {"local_window_size": 3}),
    "capped": ({}, {"softcap": 2.0}),
    "smooth": ({}, {"smooth_softmax": 1}),
    "sink": ({"sink": floats(HEADS)}, {}),
    "rotary": (ANGLES, {"do_rotary": 1}),
    "rotary of neighbours": (ANGLES, {"do_rotary": 1, "rotary_interleaved": 1}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("batch", "length", "past"), [(1, 5, 0), (2, 5, 0), (1, 1, 6), (2, 1, 6), (1, 3, 6)])
def test_group_query_attention(way: str, batch: int, length: int, past: int) -> None:
    constants, attributes = WAYS[way]
    inputs = grouped(batch, length, past)
    names = [name if name in inputs or name in constants else "" for name in GROUPED]
    heads = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    check("GroupQueryAttention", inputs, CACHE_OUTPUTS, names=names, constants=constants, **heads, **attributes)


HEAD_COUNTS = {"num_heads": HEADS, "kv_num_heads": GROUPS}


def names_of(*present: Arrays) -> list[str]:
    """The inputs' names, "" for those that are left out."""
    given = {name for arrays in present for name in arrays}
    return [name if name in given else "" for name in GROUPED]


@pytest.mark.parametrize("do_rotary", [0, 1])
def test_queries_keys_and_values_in_one_tensor(do_rotary: int) -> None:
    inputs = grouped(2, 1, 6)
    parts = [inputs.pop(name) for name in "qkv"]
    inputs["q"] = np.concatenate(parts, axis=-1)
    names = names_of(inputs, ANGLES)
    outputs = CACHE_OUTPUTS
    check("GroupQueryAttention", inputs, outputs, names=names, constants=ANGLES, do_rotary=do_rotary, **HEAD_COUNTS)


@pytest.mark.parametrize("outputs", [CACHE_OUTPUTS, ("y",)])
def test_no_cache_yet(outputs: tuple[str, ...]) -> None:
    inputs = grouped(2, 5, 0)
    del inputs["past_k"], inputs["past_v"]
    check("GroupQueryAttention", inputs, outputs, names=names_of(inputs), **HEAD_COUNTS)


@pytest.mark.parametrize(("batch", "length", "past", "first"), [(1, 4, 0, 2), (2, 1, 6, 3), (1, 3, 6, 5)])
def test_places_that_are_told(batch: int, length: int, past: int, first: int) -> None:
    places = {"places": np.tile(first + np.arange(length), (batch, 1))}
    inputs = grouped(batch, length, past) | places
    names = names_of(inputs, ANGLES)
    check("GroupQueryAttention", inputs, CACHE_OUTPUTS, names=names, constants=ANGLES, do_rotary=1, **HEAD_COUNTS)


@pytest.mark.parametrize("attributes", [{}, {"softcap": 2.0}])
def test_biases_of_grouped_scores(attributes: dict) -> None:
    inputs = grouped(1, 3, 6) | {"bias": floats(1, 1, 3, 9)}
    check("GroupQueryAttention", inputs, CACHE_OUTPUTS, names=names_of(inputs), **HEAD_COUNTS, **attributes)


def total_from_a_mask(inputs: Arrays, constants: Arrays, known: bool, **attributes: object) -> onnx.ModelProto:
    """A model as onnxruntime's model builder writes it: lengths are sums of a mask, the total is its size."""
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["lengths"], keepdims=1),
        helper.make_node("Sub", ["lengths", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["seqlens"], to=6),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "axis"], ["size"]),
        helper.make_node("Cast", ["size"], ["total"], to=6),
        helper.make_node(
            "GroupQueryAttention",
            [*names_of(inputs, constants | {"seqlens": 0, "total": 0})],
            CACHE_OUTPUTS,
            "the node",
            domain=RUNTIME,
            **attributes,
        ),
    ]
    others = {"one": np.int64([1]), "axis": np.array(1)}
    return model_of(nodes, inputs, list(CACHE_OUTPUTS), constants | others, known=known)


SEQUENCES = {  # tokens that are new, those in the given cache, its room, and the lengths that sequences have then
    "prompt": (5, 0, 0, [5, 5]),
    "prompts of several lengths": (5, 0, 0, [5, 3]),
    "prompts, and room for more": (5, 0, 9, [5, 3]),
    "one token more": (1, 6, 0, [7, 7]),
    "one more behind several lengths": (1, 6, 0, [7, 4]),
    "one more, and room for others": (1, 6, 9, [7, 7]),
    "one more behind several, and room": (1, 6, 9, [7, 4]),
    "the last that fits": (1, 6, 7, [7, 7]),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("case", SEQUENCES)
def test_sequences_of_several_lengths_and_caches_with_room(case: str, known: bool) -> None:
    length, past, room, lengths = SEQUENCES[case]
    inputs = grouped(2, length, past, room)
    del inputs["seqlens"], inputs["total"]
    inputs["mask"] = np.int64(np.arange(past + length) < np.array(lengths)[:, None])
    wanted = by_onnxruntime(total_from_a_mask(inputs, ANGLES, True, do_rotary=1, **HEAD_COUNTS), inputs)
    model = total_from_a_mask(inputs, ANGLES, known, do_rotary=1, **HEAD_COUNTS)
    for got in (by_reference(model, inputs), compiled(model)(inputs)):
        for mine, theirs, rows in zip(got, wanted, (0, 1, 1), strict=True):
            assert mine.shape == theirs.shape
            for batch, count in enumerate(lengths):
                used = slice(count) if rows or past == 0 else slice(None)
                one, other = (each[batch][:, used] if rows else each[batch][used] for each in (mine, theirs))
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_numbers_of_16_bits() -> None:
    inputs = {
        name: array.astype(np.float16 if array.dtype == np.float32 else array.dtype)
        for name, array in grouped(1, 3, 6).items()
    }
    tables = {name: table.astype(np.float16) for name, table in ANGLES.items()}
    names = names_of(inputs, tables)
    attributes = {"do_rotary": 1, **HEAD_COUNTS}
    check("GroupQueryAttention", inputs, CACHE_OUTPUTS, names=names, constants=tables, tolerance=4e-3, **attributes)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("length", "past"), [(5, 0), (1, 6), (3, 6)])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_caches_of_8_bits(kind: str, length: int, past: int, dtype: str) -> None:
    inputs = grouped(1, length, past)
    for name in "qkv":
        inputs[name] = inputs[name].astype(dtype)
    tables = ANGLES if dtype == "float32" else {}  # rotated in float16, a code may be its neighbour
    for name in ("past_k", "past_v"):
        inputs[name] = integers(-128, 128, *inputs[name].shape).astype(np.int8)
    size = 1 if kind == "PER_TENSOR" else GROUPS * DEPTH
    scales = {f"{name}_scale": 0.01 + 0.01 * np.abs(floats(size, seed=seed)) for seed, name in enumerate("kv")}
    names = [*names_of(inputs, tables), *scales]
    kinds = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": 8}
    attributes = {"do_rotary": len(tables) // 2, "tolerance": 4e-3 if dtype == "float16" else 2e-5, **kinds}
    constants = tables | scales
    check("GroupQueryAttention", inputs, CACHE_OUTPUTS, names=names, constants=constants, **HEAD_COUNTS, **attributes)


# ---- what it becomes ----


def test_attention_of_one_kernel() -> None:
    """Heads that share keys read them from one place, whatever the lengths are."""
    for length, past in ((5, 0), (1, 6)):
        inputs = grouped(2, length, past) | ANGLES
        found = primitives(
            "GroupQueryAttention", inputs, list(CACHE_OUTPUTS), names_of(inputs), do_rotary=1, **HEAD_COUNTS
        )
        assert sum("attention" in name for name in found) == 1
        assert not any(name in text for text in found for name in ("softmax", "matmul"))
        assert sum("broadcast_to" in name for name in found) == 1  # of rows of the cache, where lengths differ
    inputs = triple() | {"mask": MASKS["keys"]}
    found = primitives("MultiHeadAttention", inputs, ["y"], ["q", "k", "v", "", "mask"], num_heads=HEADS)
    assert sum("attention" in name for name in found) == 1
    assert not any(name in text for text in found for name in ("softmax", "matmul", "permute_dims"))


# ---- what is refused ----


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"qk_output": 1}, "qk_output must be 0, got 1: export the model without it"),
        ({"k_quant_type": "PER_TENSOR", "kv_cache_bit_width": 4}, "kv_cache_bit_width must be 8, got 4"),
        (
            {"k_quant_type": "PER_ROW", "kv_cache_bit_width": 8},
            "k_quant_type must be one of PER_TENSOR, PER_CHANNEL, got 'PER_ROW'",
        ),
    ],
)
def test_what_is_not_supported_is_named(attributes: dict, text: str) -> None:
    inputs = grouped(1, 3, 6)
    with pytest.raises(UnsupportedOperatorError, match=f"the node.*{text}"):
        primitives("GroupQueryAttention", inputs, list(CACHE_OUTPUTS), names_of(inputs), **HEAD_COUNTS, **attributes)


def test_other_forms_are_named() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"queries, keys and values in one tensor"):
        primitives("MultiHeadAttention", {"q": floats(2, 5, HEADS, 3, DEPTH)}, ["y"], ["q"], num_heads=HEADS)
    inputs = triple() | {"past": floats(2, HEADS, 9, DEPTH), "count": np.int32([3])}
    names = ["q", "k", "v", "", "", "", "past", "past", "count"]
    with pytest.raises(UnsupportedOperatorError, match=r"past_sequence_length must be left out.*got a tensor"):
        primitives("MultiHeadAttention", inputs, ["y"], names, num_heads=HEADS)
    inputs = {"x": floats(2, 5, 24), "w": floats(24, 3 * WIDTH), "mask": np.ones((2, 1, 9, 9), np.int32)}
    with pytest.raises(UnsupportedOperatorError, match=r"a mask of 4 axes"):
        primitives("Attention", inputs, ["y"], ["x", "w", "", "mask"], num_heads=HEADS)


EARLIER = {"past_k": floats(2, 3, WIDTH), "past_v": floats(2, 3, WIDTH)}


@pytest.mark.parametrize(
    ("operator", "inputs", "text"),
    [
        ("GroupQueryAttention", grouped(1, 3, 6) | {"q": floats(3, WIDTH)}, "query must have 3 axes"),
        ("GroupQueryAttention", grouped(1, 3, 6) | {"past_k": floats(6, DEPTH)}, "past_key must have 4 axes"),
        ("RotaryEmbedding", {"x": floats(8), "places": np.int64([1]), **ANGLES}, "input must have 3 or 4 axes"),
        ("Attention", {"x": floats(5, 24), "w": floats(24, 3 * WIDTH)}, "input must have 3 axes"),
        ("MultiHeadAttention", triple() | {"bias": floats(1, 3 * WIDTH)}, "bias must have 1 axes"),
        ("MultiHeadAttention", triple() | EARLIER, "past_key must have 4 axes"),
    ],
)
def test_what_is_malformed_is_named(operator: str, inputs: Arrays, text: str) -> None:
    counts = {"GroupQueryAttention": HEAD_COUNTS, "RotaryEmbedding": {}}.get(operator, {"num_heads": HEADS})
    names = [*"qkv", "", "", "", *EARLIER] if inputs.keys() == {*"qkv", *EARLIER} else list(inputs)
    with pytest.raises(ModelError, match=f"{text}.*the node"):
        primitives(operator, inputs, ["y"], names, **counts)


def test_heads_that_cannot_be_shared() -> None:
    inputs = grouped(1, 3, 6)
    with pytest.raises(ModelError, match="4 heads of queries cannot share 3 heads of keys"):
        primitives("GroupQueryAttention", inputs, ["y"], list(inputs), num_heads=4, kv_num_heads=3)
