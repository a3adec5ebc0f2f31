"""onnxruntime's GreedySearch as the standard's operators: a Loop around the decoder that the node holds.

The decoder takes input_ids, position_ids, attention_mask and past_0 … [2, batch, heads, tokens, size], int32 and float, and gives
logits [batch, length, words] and present_0 …, as onnxruntime's tools write GPT-2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....formats.messages.errors import ModelError
from ..values import UnsupportedError

if TYPE_CHECKING:
    import onnx

GREEDY_SEARCH = "GreedySearch"
_INPUTS = (
    "input_ids",
    "max_length",
    "min_length",
    "repetition_penalty",
    "vocab_mask",
    "prefix_vocab_mask",
    "attention_mask",
)
_OWN = "search/"  # before the names that are made here


class _Nodes:
    """A list of nodes in the making."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []

    def op(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = name or f"{_OWN}{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def number(self, value: Any, dtype: Any = np.int32) -> str:
        from onnx import numpy_helper

        return self.op("Constant", value=numpy_helper.from_array(np.array(value, dtype)))


def nodes_of(node: onnx.NodeProto, attributes: dict[str, Any]) -> list[onnx.NodeProto]:
    """Nodes that compute a GreedySearch. Raises UnsupportedError, ModelError."""
    from onnx import TensorProto, helper

    given = dict(zip(_INPUTS, node.input, strict=False))
    for name in ("vocab_mask", "prefix_vocab_mask", "repetition_penalty"):
        if given.get(name):
            raise UnsupportedError(f"input {name!r} is not supported: export the model without it")
    for name in ("init_decoder", "encoder", "model_type", "no_repeat_ngram_size"):
        if attributes.get(name):
            raise UnsupportedError(f"attribute {name!r} is not supported: export the model without it")
    decoder = attributes["decoder"]
    first, pasts = [each.name for each in decoder.input[:3]], [each.name for each in decoder.input[3:]]
    logits, *presents = [each.name for each in decoder.output]
    if len(first) != 3 or len(pasts) != len(presents):
        raise ModelError("GreedySearch: expected a decoder of input_ids, position_ids, attention_mask, past_0 …")
    n = _Nodes()
    ids, pad = given["input_ids"], n.number([[attributes["pad_token_id"]]])
    most = n.op("Reshape", n.op("Cast", given["max_length"], to=TensorProto.INT64), n.number([1], np.int64))
    batch, length = (n.op("Shape", ids, start=axis, end=axis + 1) for axis in (0, 1))
    mask = given.get("attention_mask") or n.op("Cast", n.op("Not", n.op("Equal", ids, pad)), to=TensorProto.INT32)
    places = n.op("Sub", n.op("CumSum", mask, n.number(1)), n.number(1))
    places = n.op("Max", places, n.number(0))
    column = n.op("Concat", batch, n.number([1], np.int64), axis=0)
    over = n.op("Expand", n.number([[False]], bool), column)
    empty = [
        n.op("Expand", n.op("Cast", n.number([0]), to=_dtype(each)), _empty_shape(n, each, batch))
        for each in decoder.input[3:]
    ]
    states = [ids, places, mask, ids, over, *empty]
    count = n.op("Sub", most, length)
    body = _round(
        decoder, [*first, f"{_OWN}text", f"{_OWN}over", *pasts], (logits, presents), attributes, given.get("min_length")
    )
    made = [f"{_OWN}last_{number}" for number in range(len(states))]
    n.nodes.append(
        helper.make_node("Loop", [n.op("Reshape", count, n.number([], np.int64)), "", *states], made, body=body)
    )
    left = n.op("Sub", most, n.op("Shape", made[3], start=1, end=2))
    filled = n.op("Expand", pad, n.op("Concat", batch, left, axis=0))
    n.op("Concat", made[3], filled, axis=1, name=node.output[0])
    return n.nodes


def _dtype(info: onnx.ValueInfoProto) -> int:
    return info.type.tensor_type.elem_type


def _empty_shape(n: _Nodes, past: onnx.ValueInfoProto, batch: str) -> str:
    """Of a cache [2, batch, heads, 0, size]."""
    dims = past.type.tensor_type.shape.dim
    if len(dims) != 5 or not (dims[2].HasField("dim_value") and dims[4].HasField("dim_value")):
        raise ModelError(f"GreedySearch: {past.name}: expected [2, batch, heads, tokens, size] of known heads and size")
    rest = n.number([dims[2].dim_value, 0, dims[4].dim_value], np.int64)
    return n.op("Concat", n.number([2], np.int64), batch, rest, axis=0)


def _round(
    decoder: onnx.GraphProto,
    states: list[str],
    results: tuple[str, list[str]],
    attributes: dict[str, Any],
    least: str | None,
) -> onnx.GraphProto:
    """A round: the decoder's nodes, and what makes the next token of its logits."""
    from onnx import TensorProto, helper

    n = _Nodes()
    n.nodes += decoder.node
    (_, places, mask, text, over, *_), (logits, presents) = states, results
    scores = n.op("Gather", logits, n.number(-1, np.int64), axis=1)
    if least:
        words = n.op("Shape", scores, start=1, end=2)
        ends = n.op(
            "Range", n.number(0, np.int64), n.op("Reshape", words, n.number([], np.int64)), n.number(1, np.int64)
        )
        ends = n.op("Equal", ends, n.number(attributes["eos_token_id"], np.int64))
        wanted = n.op("Cast", least, to=TensorProto.INT64)
        early = n.op("And", ends, n.op("Less", n.op("Shape", text, start=1, end=2), wanted))
        scores = n.op("Where", early, n.op("CastLike", n.number(-np.inf, np.float32), scores), scores)
    token = n.op("Cast", n.op("ArgMax", scores, axis=1, keepdims=1), to=TensorProto.INT32)
    ended = n.op("Or", over, n.op("Equal", token, n.number(attributes["eos_token_id"])))
    token = n.op("Where", ended, n.number(attributes["pad_token_id"]), token)  # the one that ends it, too
    all_ended = n.op("ReduceMin", n.op("Cast", ended, to=TensorProto.INT32), keepdims=0)
    place = n.op("Add", n.op("Gather", places, n.number([-1], np.int64), axis=1), n.number(1))
    seen = n.op("Concat", mask, n.op("Add", n.op("Mul", token, n.number(0)), n.number(1)), axis=1)
    following = [token, place, seen, n.op("Concat", text, token, axis=1), ended, *presents]
    goes_on = n.op("Equal", all_ended, n.number(0))
    number, wanted_ = f"{_OWN}number", f"{_OWN}wanted"
    scalars = [
        helper.make_tensor_value_info(number, TensorProto.INT64, []),
        helper.make_tensor_value_info(wanted_, TensorProto.BOOL, []),
    ]
    inputs = [helper.make_empty_tensor_value_info(name) for name in states]
    outputs = [helper.make_empty_tensor_value_info(name) for name in (goes_on, *following)]
    return helper.make_graph(
        n.nodes, "round", [*scalars, *inputs], outputs, decoder.initializer, value_info=decoder.value_info
    )
