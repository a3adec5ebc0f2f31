"""onnxruntime's searches, whose decoder is a graph inside the node, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper
from treadle.formats.messages.errors import UnsupportedOperatorError

from .runtime_models import RUNTIME, by_onnxruntime

WORDS, WIDTH, HEADS = 20, 16, 2
PAD, END = 0, 7


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


def search(operator: str = "GreedySearch", *more: str, **attributes: int) -> onnx.ModelProto:
    attributes |= {"eos_token_id": END, "pad_token_id": PAD}
    names = ["input_ids", "max_length", "min_length", *more]
    node = helper.make_node(operator, names, ["sequences"], "search", domain=RUNTIME, decoder=decoder(), **attributes)
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["batch", "length"])]
    inputs += [helper.make_tensor_value_info(name, TensorProto.INT32, [1]) for name in names[1:3]]
    output = helper.make_tensor_value_info("sequences", TensorProto.INT32, ["batch", "most"])
    ones = [numpy_helper.from_array(np.float32([2]), name) for name in more if name]
    graph = helper.make_graph([node], "search", inputs, [output], ones)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(RUNTIME, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_greedy_search_gives_the_tokens_of_onnxruntime() -> None:
    """Texts that end are filled up, prompts are padded before; no text ends before its least length."""
    machine = treadle.VirtualMachine(treadle.compile(search(), progress=False))
    rng = np.random.default_rng(3)
    ended = False
    for least in (0, 9):
        ids = rng.integers(2, WORDS, (6, 4)).astype(np.int32)
        ids[0, :2] = PAD
        inputs = {"input_ids": ids, "max_length": np.int32([12]), "min_length": np.int32([least])}
        (wanted,) = by_onnxruntime(search(), inputs)
        got = machine["main"](**inputs).numpy()
        np.testing.assert_array_equal(got, wanted)
        ended |= bool((wanted[:, -4:] == PAD).all(axis=1).any())
    assert ended


def test_what_a_search_does_not_take_is_named() -> None:
    with pytest.raises(UnsupportedOperatorError, match="input 'repetition_penalty' is not supported"):
        treadle.compile(search("GreedySearch", "penalty"), progress=False)
