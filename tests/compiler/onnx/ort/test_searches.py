"""onnxruntime's searches, whose decoder is a graph inside the node, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper
from treadle.compiler.onnx.ort.searches import SEARCHES
from treadle.formats.messages.errors import ModelError, UnsupportedOperatorError

from .runtime_models import RUNTIME, Arrays, by_onnxruntime, compiled, model_of

WORDS, WIDTH, HEADS = 20, 16, 2
PAD, END = 0, 7
NO_LIMITS = {
    "repetition_penalty": np.ones(1, np.float32),
    "vocab_mask": np.ones(WORDS, np.int32),
    "prefix_vocab_mask": np.ones((3, WORDS), np.int32),
}


def decoder() -> onnx.GraphProto:
    """One layer of attention, as onnxruntime's tools write GPT-2."""
    rng = np.random.default_rng(2)
    sizes = {
        "words": (WORDS, WIDTH),
        "places": (32, WIDTH),
        "qkv": (WIDTH, 3 * WIDTH),
        "bias": (3 * WIDTH,),
        "head": (WIDTH, WORDS),
    }
    weights = [numpy_helper.from_array(rng.normal(size=size).astype(np.float32), name) for name, size in sizes.items()]
    attributes = {"num_heads": HEADS, "unidirectional": 1, "domain": RUNTIME}
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["word"]),
        helper.make_node("Gather", ["places", "position_ids"], ["place"]),
        helper.make_node("Add", ["word", "place"], ["x"]),
        helper.make_node(
            "Attention", ["x", "qkv", "bias", "attention_mask", "past_0"], ["y", "present_0"], **attributes
        ),
        helper.make_node("Add", ["x", "y"], ["z"]),
        helper.make_node("MatMul", ["z", "head"], ["logits"]),
    ]
    cache = [2, "batch", HEADS, "past", WIDTH // HEADS]
    ids = [("input_ids", "length"), ("position_ids", "length"), ("attention_mask", "total")]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", size]) for name, size in ids]
    inputs.append(helper.make_tensor_value_info("past_0", TensorProto.FLOAT, cache))
    outputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", WORDS]),
        helper.make_tensor_value_info("present_0", TensorProto.FLOAT, [*cache[:3], "total", cache[4]]),
    ]
    return helper.make_graph(nodes, "decoder", inputs, outputs, weights)


def search(
    operator: str, given: Arrays, outputs: tuple[str, ...] = ("sequences",), **attributes: Any
) -> onnx.ModelProto:
    """A model of one search, whose inputs are like those `given`."""
    attributes = {"decoder": decoder(), "eos_token_id": END, "pad_token_id": PAD, **attributes}
    names = [name if name in given else "" for name in SEARCHES[operator]]
    node = helper.make_node(operator, names, outputs, "search", domain=RUNTIME, **attributes)
    return model_of([node], given, [name for name in outputs if name])


def with_encoder(*, hears: bool, gives_logits: bool, length: int | str = 1) -> dict[str, onnx.GraphProto]:
    """An encoder of words, or of sounds [batch, WIDTH, frames], and a decoder of one layer, as onnxruntime's tools write T5 and
    Whisper. The decoder takes `length` tokens; the encoder may give its first logits."""
    rng, parts = np.random.default_rng(3), ("key", "value")
    sizes = dict.fromkeys(("query", "key", "value", "crossing", "cross_key", "cross_value"), (WIDTH, WIDTH))
    sizes |= {"words": (WORDS, WIDTH), "head": (WIDTH, WORDS)}
    weights = {
        name: numpy_helper.from_array(rng.normal(size=size).astype(np.float32) / 2, name)
        for name, size in sizes.items()
    }
    weights["split"] = numpy_helper.from_array(np.array([0, 0, HEADS, WIDTH // HEADS]), "split")

    def layer(ids: str, pasts: list[str], crosses: list[str]) -> list[onnx.NodeProto]:
        attributes = {"num_heads": HEADS, "domain": RUNTIME}
        names = ("query", "key", "value")
        own, mask = [f"own_{part}" for part in names], "" if hears else "encoder_attention_mask"
        return [
            helper.make_node("Gather", ["words", ids], ["x"]),
            *(helper.make_node("MatMul", ["x", part], [name]) for part, name in zip(names, own, strict=True)),
            helper.make_node(
                "MultiHeadAttention",
                [*own, "", "", "", *pasts],
                ["y", *(f"present_{part}_self_0" for part in parts)],
                unidirectional=1,
                **attributes,
            ),
            helper.make_node("Add", ["x", "y"], ["z"]),
            helper.make_node("MatMul", ["z", "crossing"], ["asked"]),
            helper.make_node("MultiHeadAttention", ["asked", *crosses, "", mask], ["heard"], **attributes),
            helper.make_node("Add", ["z", "heard"], ["w"]),
            helper.make_node("MatMul", ["w", "head"], ["logits"]),
        ]

    def ports(*named: tuple[str, int, list]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in named]

    cache = ["batch", HEADS, "past", WIDTH // HEADS]
    logits = ("logits", TensorProto.FLOAT, ["batch", "length", WORDS])
    hidden = ("encoder_hidden_states", TensorProto.FLOAT, ["batch", "frames", WIDTH])
    names = {
        f"{tense}_{of}": [(f"{tense}_{part}_{of}_0", TensorProto.FLOAT, cache) for part in parts]
        for tense in ("past", "present")
        for of in ("self", "cross")
    }
    mask = [] if hears else [("encoder_attention_mask", TensorProto.INT32, ["batch", "frames"])]
    source = ("encoder_input_ids", TensorProto.INT32, ["batch", "frames"])
    ids = ("decoder_input_ids", TensorProto.INT32, ["batch", "length"])
    crosses = [name for name, *_ in names["present_cross"]]
    nodes = [helper.make_node("Gather", ["words", source[0]], [hidden[0]])]
    if hears:
        source = (source[0], TensorProto.FLOAT, ["batch", WIDTH, "frames"])
        nodes = [helper.make_node("Transpose", [source[0]], [hidden[0]], perm=[0, 2, 1])]
    for part, name in zip(parts, crosses, strict=True):
        nodes += [
            helper.make_node("MatMul", [hidden[0], f"cross_{part}"], [f"flat_{part}"]),
            helper.make_node("Reshape", [f"flat_{part}", "split"], [f"split_{part}"]),
            helper.make_node("Transpose", [f"split_{part}"], [name], perm=[0, 2, 1, 3]),
        ]
    taken, made = [source, *mask], names["present_cross"]
    if gives_logits:
        nodes += layer(ids[0], [], crosses)
        taken, made = [*taken, ids], [logits, hidden, *names["present_self"], *made]
    encoder = helper.make_graph(nodes, "encoder", ports(*taken), ports(*made), list(weights.values()))
    pasts, crosses = ([name for name, *_ in names[of]] for of in ("past_self", "past_cross"))
    ids = ("input_ids", TensorProto.INT32, ["batch", length])
    taken = [ids, *mask, *([hidden] if gives_logits else []), *names["past_self"], *names["past_cross"]]
    made = [logits, *names["present_self"]]
    after = helper.make_graph(
        layer("input_ids", pasts, crosses), "decoder", ports(*taken), ports(*made), list(weights.values())
    )
    return {"encoder": encoder, "decoder": after}


def prompts(rng: np.random.Generator, count: int, most: int) -> Arrays:
    """Some are padded before."""
    ids = rng.integers(2, WORDS, (count, 4)).astype(np.int32)
    ids[0, :2] = PAD
    return {"input_ids": ids, "max_length": np.int32([most])}


def limits(rng: np.random.Generator, count: int) -> Arrays:
    """A penalty, and words that cannot follow ever, and at first."""
    words, first = ((rng.random(size) < 0.8).astype(np.int32) for size in (WORDS, (count, WORDS)))
    words[END] = 1
    penalty = np.float32([rng.choice([0.8, 1.3])])
    return {"repetition_penalty": penalty, "vocab_mask": words, "prefix_vocab_mask": first}


def least(length: int) -> Arrays:
    return {"min_length": np.int32([length])}


def test_greedy_search_gives_the_tokens_of_onnxruntime() -> None:
    """Texts that end are filled up, prompts are padded before; no text ends before its least length."""
    rng = np.random.default_rng(3)
    run = compiled(search("GreedySearch", prompts(rng, 6, 12) | least(0)))
    ended = False
    for length in (0, 9):
        given = prompts(rng, 6, 12) | least(length)
        (wanted,), (got,) = by_onnxruntime(search("GreedySearch", given), given), run(given)
        np.testing.assert_array_equal(got, wanted)
        ended |= bool((wanted[:, -4:] == PAD).all(axis=1).any())
    assert ended


def test_penalties_and_masks_of_words_are_those_of_onnxruntime() -> None:
    rng = np.random.default_rng(4)
    run = compiled(search("GreedySearch", prompts(rng, 6, 12) | least(0) | limits(rng, 6)))
    for _ in range(6):
        given = prompts(rng, 6, 12) | least(6) | limits(rng, 6)
        (wanted,), (got,) = by_onnxruntime(search("GreedySearch", given), given), run(given)
        last = np.flatnonzero((got != PAD).any(axis=0))[-1]  # onnxruntime leaves what is after the end of all as it is
        np.testing.assert_array_equal(got[:, : last + 1], wanted[:, : last + 1])


@pytest.mark.parametrize("early", [0, 1])
def test_beam_search_gives_the_texts_and_scores_of_onnxruntime(early: int) -> None:
    """One executable, of any number of beams."""
    rng, run, ended = np.random.default_rng(5), None, 0
    for beams, wanted, length, power in ((3, 2, 0, 1.0), (4, 4, 0, 0.5), (2, 1, 8, 2.0), (3, 3, 6, -1.0)):
        for some in ({}, limits(rng, 3)):
            given = prompts(rng, 3, 12) | least(length) | (some or NO_LIMITS)
            given |= {"num_beams": np.int32([beams]), "num_return_sequences": np.int32([wanted])}
            given |= {"length_penalty": np.float32([power])}
            model = search("BeamSearch", given, ("sequences", "sequences_scores"), early_stopping=early)
            run = run or compiled(model)
            texts, scores = by_onnxruntime(model, given)
            got, got_scores = run(given)
            np.testing.assert_array_equal(got, texts)
            np.testing.assert_allclose(got_scores, scores, rtol=1e-5, atol=1e-5)
            ended += int((texts[:, :, -1] == PAD).sum())
    assert ended


def test_beam_search_of_what_it_needs_alone() -> None:
    """No limits, the numbers of beams constants; one beam is a search, too."""
    rng = np.random.default_rng(6)
    given = prompts(rng, 1, 9) | least(0) | {"length_penalty": np.ones(1, np.float32)}  # which onnxruntime requires
    for beams in (1, 3):
        numbers = {"num_beams": np.int32([beams]), "num_return_sequences": np.int32([1])}
        model = search("BeamSearch", given | numbers)
        names = [each.name for each in model.graph.input]
        for name, value in numbers.items():
            del model.graph.input[names.index(name)]
            names.remove(name)
            model.graph.initializer.append(numpy_helper.from_array(value, name))
        (wanted,), (got,) = by_onnxruntime(model, given), compiled(model)(given)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("gives_logits", [False, True])
def test_beams_behind_an_encoder_are_those_of_onnxruntime(gives_logits: bool) -> None:
    """T5: texts begin with a token of their own; what pads the source before is masked, and only that."""
    rng, run = np.random.default_rng(10), None
    graphs = with_encoder(hears=False, gives_logits=gives_logits)
    for beams, wanted, length, power in ((3, 2, 0, 1.0), (1, 1, 5, 0.5), (4, 4, 3, -1.0)):
        given = prompts(rng, 3, 10)
        given["input_ids"][1, 3] = PAD
        given |= least(length) | limits(rng, 3) | {"length_penalty": np.float32([power])}
        given |= {"num_beams": np.int32([beams]), "num_return_sequences": np.int32([wanted])}
        model = search(
            *("BeamSearch", given, ("sequences", "sequences_scores")),
            **{"model_type": 1, "decoder_start_token_id": 1, "early_stopping": 1, **graphs},
        )
        run = run or compiled(model)
        texts, scores = by_onnxruntime(model, given)
        got, got_scores = run(given)
        np.testing.assert_array_equal(got, texts)
        np.testing.assert_allclose(got_scores, scores, rtol=1e-5, atol=1e-5)


def test_beams_of_a_sound_are_those_of_onnxruntime() -> None:
    """Whisper: texts begin with what the node is given."""
    rng, run = np.random.default_rng(11), None
    graphs = with_encoder(hears=True, gives_logits=True)
    for beams, length in ((3, 0), (2, 9)):
        given = {"input_ids": rng.normal(size=(2, WIDTH, 5)).astype(np.float32), "max_length": np.int32([12])}
        given |= least(length) | {"length_penalty": np.ones(1, np.float32), "repetition_penalty": np.float32([1.2])}
        given |= {"num_beams": np.int32([beams]), "num_return_sequences": np.int32([beams])}
        given |= {"decoder_input_ids": np.int32([[1, 3, 5], [1, 4, 6]]), "temperature": np.float32([0.7])}
        model = search(
            "WhisperBeamSearch", given, ("sequences", "sequences_scores"), decoder_start_token_id=1, **graphs
        )
        run = run or compiled(model)
        texts, scores = by_onnxruntime(model, given)
        got, got_scores = run(given)
        np.testing.assert_array_equal(got, texts)
        np.testing.assert_allclose(got_scores, scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        {"top_p": 0.6, "min_tokens_to_keep": 1},
        {"top_p": 0.1, "min_tokens_to_keep": 4},
        {"top_p": 0.7, "min_tokens_to_keep": 1, "custom": 1},
    ],
    ids=["top_p", "min_tokens_to_keep", "custom"],
)
def test_sampling_draws_of_the_tokens_of_onnxruntime(attributes: dict[str, Any]) -> None:
    """By their probabilities, in each round others; equal seeds, equal tokens."""
    ids = np.tile(np.int32([[3, 5, 6, 2]]), (400, 1))
    given = {"input_ids": ids, "max_length": np.int32([6]), "seed": np.int32([11])}
    model = search("Sampling", given, temperature=8.0, **attributes)
    run = compiled(model)
    (wanted,), (got,) = by_onnxruntime(model, given), run(given)
    shares = [np.bincount(each[:, 4], minlength=WORDS) / len(ids) for each in (wanted, got)]
    assert np.count_nonzero(shares[0]) > 2
    np.testing.assert_array_equal(shares[0] > 0, shares[1] > 0)
    np.testing.assert_allclose(*shares, atol=0.12)
    np.testing.assert_array_equal(run(given)[0], got)
    assert (run(given | {"seed": np.int32([12])})[0] != got).any()
    assert (got[:, 5] != got[:, 4]).any()


def test_sampling_of_the_likeliest_token_is_greedy_search() -> None:
    given = prompts(np.random.default_rng(7), 4, 10)
    greedy, sampled = (compiled(search(name, given))(given)[0] for name in ("GreedySearch", "Sampling"))
    np.testing.assert_array_equal(sampled, greedy)  # top_p is 0 where it is not given


def test_sampling_without_a_seed_draws_others_in_each_call() -> None:
    given = prompts(np.random.default_rng(8), 30, 8)
    run = compiled(search("Sampling", given, top_p=1.0, temperature=8.0))
    assert (run(given)[0] != run(given)[0]).any()


@pytest.mark.parametrize(
    ("operator", "outputs", "more", "named"),
    [
        ("BeamSearch", ("sequences", "", "scores"), {}, "output 'scores'"),
        ("GreedySearch", ("sequences",), {"model_type": 1}, "attribute 'model_type'"),
        ("WhisperBeamSearch", ("sequences",), {"logits_processor": np.ones(1, np.int32)}, "input 'logits_processor'"),
        ("GreedySearch", ("sequences",), {"no_repeat_ngram_size": 2}, "attribute 'no_repeat_ngram_size'"),
        ("Sampling", ("sequences", "logits"), {}, "output 'filtered_logits'"),
        ("Sampling", ("sequences",), {"presence_mask": np.ones((1, WORDS), np.int32)}, "input 'presence_mask'"),
    ],
)
def test_what_a_search_does_not_take_is_named(
    operator: str, outputs: tuple[str, ...], more: dict[str, Any], named: str
) -> None:
    given = prompts(np.random.default_rng(9), 1, 8)
    given |= {name: value for name, value in more.items() if name in SEARCHES[operator]}
    given |= {"num_beams": np.int32([2]), "num_return_sequences": np.int32([1])} if "Beam" in operator else {}
    attributes = {name: value for name, value in more.items() if name not in given}
    with pytest.raises(UnsupportedOperatorError, match=f"{named} is not supported"):
        treadle.compile(search(operator, given, outputs, **attributes), progress=False)


@pytest.mark.parametrize("missing", ["decoder", "encoder", "eos_token_id", "pad_token_id"])
def test_an_attribute_that_a_search_needs_is_named(missing: str) -> None:
    given = prompts(np.random.default_rng(9), 1, 8) | {
        name: np.int32([1]) for name in ("num_beams", "num_return_sequences")
    }
    graphs = with_encoder(hears=False, gives_logits=False)
    with pytest.raises(ModelError, match=f"BeamSearch: expected an attribute '{missing}', got none"):
        treadle.compile(search("BeamSearch", given, model_type=1, **{**graphs, missing: None}), progress=False)
