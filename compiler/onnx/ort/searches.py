"""onnxruntime's searches as the standard's operators: a Loop around the decoder that the node holds.

A decoder alone takes input_ids, position_ids, attention_mask and past_0 … [2, batch, heads, tokens, size], int32 and float, and
gives logits [batch, length, words] and present_0 …, as onnxruntime's tools write GPT-2. A decoder with an encoder (BeamSearch of
T5, WhisperBeamSearch) takes input_ids, in part encoder_attention_mask and encoder_hidden_states, then past_key_self_0 … and
past_key_cross_0 … [batch, heads, tokens, size]. Its encoder gives the latter; older ones the first logits and own keys, too.
A round of the loop is the decoder and a `_Step`, which makes the next tokens of the last logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ....formats.messages.errors import ModelError
from ..values import UnsupportedError

if TYPE_CHECKING:
    import onnx

_OF_ONE = ("max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
_OF_BEAMS = ("max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty", *_OF_ONE[2:])
SEARCHES = {  # the inputs of each
    "GreedySearch": ("input_ids", *_OF_ONE),
    "Sampling": ("input_ids", *_OF_ONE, "presence_mask", "seed"),
    "BeamSearch": ("input_ids", *_OF_BEAMS, "decoder_input_ids", "logits_processor"),
    "WhisperBeamSearch": (
        *("input_ids", *_OF_BEAMS, "decoder_input_ids", "logits_processor"),
        *("cross_qk_layer_head", "extra_decoding_ids", "temperature"),
    ),
}
_REFUSED_INPUTS = ("presence_mask", "logits_processor", "cross_qk_layer_head", "extra_decoding_ids")
_REQUIRED_ATTRIBUTES = ("decoder", "eos_token_id", "pad_token_id")
_REFUSED_ATTRIBUTES = ("init_decoder", "no_repeat_ngram_size", "decoder_output_cross_qk")
_OUTPUTS = {"BeamSearch": 2, "WhisperBeamSearch": 2}  # of sequences, sequences_scores, scores; else sequences alone

_MASK = "encoder_attention_mask"
_OWN = "search/"  # before the names that are made here
_NUMBER, _TEXT, _OVER = f"{_OWN}number", f"{_OWN}text", f"{_OWN}over"  # in a round
_SAID, _SUMS, _BEST, _TEXTS = f"{_OWN}said", f"{_OWN}sums", f"{_OWN}best", f"{_OWN}texts"
_LOWEST = float(np.finfo(np.float32).min)
_SEEDS = (1.0, 2.0)  # of the numbers that a draw is made of


class _Nodes:
    """A list of nodes in the making. A round reads values from outside: it has another `prefix`."""

    def __init__(self, prefix: str = _OWN) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.prefix = prefix

    def op(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        return self.ops(operator, *inputs, names=(name or f"{self.prefix}{operator}_{len(self.nodes)}",), **attributes)[
            0
        ]

    def ops(self, operator: str, *inputs: str, names: Sequence[str], **attributes: Any) -> Sequence[str]:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names

    def number(self, value: Any, dtype: Any = np.int32) -> str:
        from onnx import numpy_helper

        return self.op("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def cast(self, value: str, dtype: Any) -> str:
        from onnx import helper

        return self.op("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def size(self, value: str, axis: int) -> str:
        """[1] of int64."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def sizes(self, *sizes: str | int) -> str:
        parts = [self.number([each], np.int64) if isinstance(each, int) else each for each in sizes]
        return self.op("Concat", *parts, axis=0)

    def count(self, value: str) -> str:
        """Of the numbers of an input of one element: [1] of int64."""
        return self.op("Reshape", self.cast(value, np.int64), self.number([1], np.int64))

    def up_to(self, size: str) -> str:
        """0, 1, …, size - 1, of int64."""
        stop = self.op("Reshape", size, self.number([], np.int64))
        return self.op("Range", self.number(0, np.int64), stop, self.number(1, np.int64))

    def top(self, values: str, count: str, **attributes: Any) -> Sequence[str]:
        """Of each row the first `count` and where they stand; of equal ones the first."""
        names = [f"{self.prefix}TopK_{len(self.nodes)}_{part}" for part in ("values", "places")]
        return self.ops("TopK", values, count, names=names, axis=1, **attributes)

    def filled(self, text: str, pad: str, length: str) -> str:
        """A text [rows, tokens] of `length` tokens."""
        left = self.op("Sub", length, self.size(text, 1))
        return self.op("Concat", text, self.op("Expand", pad, self.sizes(self.size(text, 0), left)), axis=1)


# A round's step, of the last logits [rows, words]: whether to go on, tokens [rows, 1], its next own states, and which rows go on
_Step = Callable[[_Nodes, str], tuple[str, str, list[str], "str | None"]]


def nodes_of(node: onnx.NodeProto, attributes: dict[str, Any]) -> list[onnx.NodeProto]:
    """Nodes that compute a search. Raises UnsupportedError, ModelError."""
    given = dict(zip(SEARCHES[node.op_type], node.input, strict=False))
    listens, has_beams = node.op_type == "WhisperBeamSearch", node.op_type in _OUTPUTS
    has_encoder = listens or (has_beams and attributes.get("model_type") == 1)
    refused_inputs = _REFUSED_INPUTS if listens else (*_REFUSED_INPUTS, "decoder_input_ids")
    refused = _REFUSED_ATTRIBUTES if has_encoder else (*_REFUSED_ATTRIBUTES, "encoder", "model_type")
    for name in refused_inputs:
        if given.get(name):
            raise UnsupportedError(f"input {name!r} is not supported: export the model without it")
    for name in refused:
        if attributes.get(name):
            raise UnsupportedError(f"attribute {name!r} is not supported: export the model without it")
    if any(node.output[_OUTPUTS.get(node.op_type, 1) :]):
        made = "scores" if has_beams else "filtered_logits"
        raise UnsupportedError(f"output {made!r} is not supported: export the model without it")
    for name in (*_REQUIRED_ATTRIBUTES, *(["encoder"] if has_encoder else [])):
        if name not in attributes:
            raise ModelError(f"{node.op_type}: expected an attribute {name!r}, got none")
    search = (_Encoded if has_encoder else _Search)(node, given, attributes)
    return search.beams() if has_beams else search.one()


class _Search:
    """A search's nodes in the making, and what all of them take of the node."""

    def __init__(self, node: onnx.NodeProto, given: dict[str, str], attributes: dict[str, Any]) -> None:
        self.node, self.given, self.attributes = node, given, attributes
        self.decoder: onnx.GraphProto = attributes["decoder"]
        self.end, self.pad_token = attributes["eos_token_id"], attributes["pad_token_id"]
        self.n = n = _Nodes()
        self.pad, self.most = n.number([[self.pad_token]]), n.count(given["max_length"])
        self.ids = self._first_ids()
        self.batch, self.length = n.size(self.ids, 0), n.size(self.ids, 1)
        self.rounds = n.op("Sub", self.most, self.length)

    # ---- one text of each prompt ----

    def one(self) -> list[onnx.NodeProto]:
        n = self.n
        over = n.op("Expand", n.number([[False]], bool), n.sizes(self.batch, 1))
        draws = self._draws() if self.node.op_type == "Sampling" else ""

        def step(r: _Nodes, scores: str) -> tuple[str, str, list[str], str | None]:
            scores = self._limited(r, scores)
            found = self._drawn(r, scores, draws) if draws else r.op("ArgMax", scores, axis=1, keepdims=1)
            token = r.cast(found, np.int32)
            ended = r.op("Or", _OVER, r.op("Equal", token, r.number(self.end)))
            token = r.op("Where", ended, r.number(self.pad_token), token)  # the one that ends it, too
            text = r.op("Concat", _TEXT, token, axis=1)
            return _is_any_left(r, ended), token, [text, ended, *self._said(r, token)], None

        text, *_ = self._loop({_TEXT: self.ids, _OVER: over} | self._prompts_said(self.ids), step, rows=None)
        n.op("Identity", n.filled(text, self.pad, self.most), name=self.node.output[0])
        return n.nodes

    def _draws(self) -> str:
        """Numbers of float64 from 0 to 1, without 1, for each round and row. With a seed: the fractions of a + seed·b, a and b
        random numbers that are the same in each call, so that those of any two seeds are independent."""
        n = self.n
        like = n.op("Expand", n.number([[0.0]], np.float64), n.sizes(self.rounds, self.batch))
        if not self.given.get("seed"):
            return n.op("RandomUniformLike", like)
        first, factor = (n.op("RandomUniformLike", like, seed=seed) for seed in _SEEDS)
        draws = n.op("Add", first, n.op("Mul", n.cast(n.count(self.given["seed"]), np.float64), factor))
        return n.op("Sub", draws, n.op("Floor", draws))

    def _drawn(self, r: _Nodes, scores: str, draws: str) -> str:
        """A token of each row, by their probabilities, of those that top_p leaves, and at least one: the likeliest that are
        that likely together, or, if `custom`, those before which are that likely at most."""
        if (temperature := self.attributes.get("temperature", 1.0)) > 0:
            scores = r.op("Div", scores, r.number(temperature, np.float32))
        share, words = np.float32(self.attributes.get("top_p", 0.0)), r.size(scores, 1)
        if self.attributes.get("custom"):
            scores, tokens = r.top(scores, words, largest=1)
            before = r.op("CumSum", r.op("Softmax", scores, axis=1), r.number(1), exclusive=1)
            left_out = r.op("Greater", before, r.number(share, np.float32))
        else:
            scores, tokens = r.top(scores, words, largest=0)
            up_to = r.op("CumSum", r.op("Softmax", scores, axis=1), r.number(1))
            kept = r.op("Sub", words, r.number([max(1, self.attributes.get("min_tokens_to_keep", 0))], np.int64))
            is_far = r.op("LessOrEqual", up_to, r.number(np.float32(1) - share, np.float32))
            left_out = r.op("And", is_far, r.op("Less", r.up_to(words), kept))
        value = r.number(self.attributes.get("filter_value", -1e20), np.float32)
        scores = r.cast(r.op("Where", left_out, value, scores), np.float64)
        ends = r.op("CumSum", r.op("Softmax", scores, axis=1), r.number(1))
        whole = r.op("Gather", ends, r.number([-1], np.int64), axis=1)
        draw = r.op("Reshape", r.op("Gather", draws, _NUMBER, axis=0), r.number([-1, 1], np.int64))
        # the first whose end is after the draw: there is one, as the draw is less than 1
        is_after = r.op("Greater", ends, r.op("Mul", draw, whole))
        place = r.op("ArgMax", r.cast(is_after, np.int32), axis=1, keepdims=1)
        return r.op("GatherElements", tokens, place, axis=1)

    # ---- several of each ----

    def beams(self) -> list[onnx.NodeProto]:
        """Beams are rows [batch · beams], their sums of logarithms [batch, beams]. The best texts that have ended are `_TEXTS`
        [batch, beams, max_length], by their scores `_BEST`, -inf where there is none yet."""
        n = self.n
        beams, wanted = n.count(self.given["num_beams"]), n.count(self.given["num_return_sequences"])
        penalty = self.given.get("length_penalty")
        power = n.cast(penalty, np.float32) if penalty else n.number([1], np.float32)
        pairs, twice = n.sizes(self.batch, beams), n.op("Add", beams, beams)
        triples = n.sizes(self.batch, beams, self.most)
        rows = n.op("Div", n.up_to(n.op("Mul", self.batch, beams)), beams)
        firsts = n.op("Reshape", n.op("Mul", n.up_to(self.batch), beams), n.number([-1, 1], np.int64))
        is_first = n.op("Equal", n.up_to(beams), n.number(0, np.int64))
        apart = n.op("Where", is_first, n.number(0, np.float32), n.number(-1e9, np.float32))  # beams begin alike
        none = n.number([[-np.inf]], np.float32)

        def merged(r: _Nodes, best: str, texts: str, new: str, new_texts: str) -> tuple[str, str]:
            best, places = r.top(r.op("Concat", best, new, axis=1), beams)
            places = r.op("Expand", r.op("Reshape", places, r.sizes(self.batch, beams, 1)), triples)
            return best, r.op("GatherElements", r.op("Concat", texts, new_texts, axis=1), places, axis=1)

        def averaged(r: _Nodes, sums: str, text: str) -> str:
            return r.op("Div", sums, r.op("Pow", r.cast(r.size(text, 1), np.float32), power))

        def step(r: _Nodes, logits: str) -> tuple[str, str, list[str], str | None]:
            words, scores = r.size(logits, 1), self._limited(r, r.op("LogSoftmax", logits, axis=1), rows)
            sums = r.op("Add", scores, r.op("Reshape", _SUMS, r.number([-1, 1], np.int64)))
            sums = r.op("Reshape", sums, r.sizes(self.batch, -1))
            sums, places = r.top(sums, twice)
            token = r.cast(r.op("Mod", places, words), np.int32)
            beam = r.op("Add", r.op("Div", places, words), firsts)
            ends, order = r.op("Equal", token, r.number(self.end)), r.up_to(twice)
            # those that end, of the first `beams`
            ended = r.op("And", r.op("And", ends, r.op("Less", order, beams)), r.op("Not", _OVER))
            new = r.op("Where", ended, averaged(r, sums, _TEXT), none)
            texts = r.op("Gather", r.filled(_TEXT, self.pad, self.most), beam, axis=0)
            best, texts = merged(r, _BEST, _TEXTS, new, texts)
            last = r.op("Gather", best, r.op("Sub", beams, r.number([1], np.int64)), axis=1)
            is_done = r.op("Greater", last, none)
            if not self.attributes.get("early_stopping"):
                # onnxruntime looks for the largest sum from `batch · beams` on, not from `2 · batch · beams`
                near = r.op("Gather", r.op("Reshape", sums, r.number([-1], np.int64)), r.op("Add", firsts, order))
                largest, _ = r.top(near, r.number([1], np.int64))
                is_done = r.op("And", is_done, r.op("GreaterOrEqual", last, averaged(r, largest, _TEXT)))
            # the first `beams` of the others; of prompts that are done, onnxruntime goes on with the first row of all
            _, kept = r.top(r.op("Add", order, r.op("Mul", r.cast(ends, np.int64), twice)), beams, largest=0)
            sums, token, beam = (r.op("GatherElements", each, kept, axis=1) for each in (sums, token, beam))
            sums = r.op("Where", _OVER, r.number(0, np.float32), sums)
            token = r.op("Where", _OVER, r.number(self.pad_token), token)
            beam = r.op("Reshape", r.op("Where", _OVER, r.number(0, np.int64), beam), r.number([-1], np.int64))
            token = r.op("Reshape", token, r.number([-1, 1], np.int64))
            over = r.op("Or", _OVER, is_done)
            text = r.op("Concat", r.op("Gather", _TEXT, beam, axis=0), token, axis=1)
            states = [text, over, sums, best, texts, *self._said(r, token, beam)]
            return _is_any_left(r, over), token, states, beam

        prompts = n.op("Gather", self.ids, rows, axis=0)
        own = {
            _TEXT: prompts,
            _OVER: n.op("Expand", n.number([[False]], bool), n.sizes(self.batch, 1)),
            _SUMS: n.op("Expand", apart, pairs),
            _BEST: n.op("Expand", none, pairs),
            _TEXTS: n.op("Expand", self.pad, triples),
            **self._prompts_said(prompts),
        }
        text, over, sums, best, texts, *_ = self._loop(own, step, rows)
        new = n.op("Where", over, none, averaged(n, sums, text))
        best, texts = merged(n, best, texts, new, n.op("Reshape", n.filled(text, self.pad, self.most), triples))
        for value, name in zip((texts, best), self.node.output, strict=False):
            if name:
                n.op("Gather", value, n.up_to(wanted), axis=1, name=name)
        return n.nodes

    # ---- of both ----

    def _limited(self, r: _Nodes, scores: str, rows: str | None = None) -> str:
        """Scores [rows, words], less of words that the text has, and the lowest of those that cannot follow. `rows`: of which
        prompt each is, if not of its own."""
        given = self.given
        if given.get("repetition_penalty"):
            penalty = r.cast(given["repetition_penalty"], np.float32)
            less = r.op("Mul", scores, penalty), r.op("Div", scores, penalty)
            lower = r.op("Where", r.op("Less", scores, r.number(0, np.float32)), *less)
            scores = r.op("Where", _SAID, lower, scores)
        never = []
        if given.get("vocab_mask"):
            never.append(r.op("Equal", given["vocab_mask"], r.number(0)))
        if given.get("prefix_vocab_mask"):
            masks = given["prefix_vocab_mask"]
            masks = masks if rows is None else r.op("Gather", masks, rows, axis=0)
            at_first = r.op("Equal", r.size(_TEXT, 1), self.length)
            never.append(r.op("And", r.op("Equal", masks, r.number(0)), at_first))
        if given.get("min_length"):
            ends = r.op("Equal", r.up_to(r.size(scores, 1)), r.number(self.end, np.int64))
            is_early = r.op("Less", r.size(_TEXT, 1), r.count(given["min_length"]))
            never.append(r.op("And", ends, is_early))
        for each in never:
            scores = r.op("Where", each, r.number(_LOWEST, np.float32), scores)
        if given.get("temperature"):
            scores = r.op("Div", scores, r.cast(given["temperature"], np.float32))
        return scores

    def _prompts_said(self, prompts: str) -> dict[str, str]:
        """Which words each has [rows, words], if a penalty asks for it: a state of a step."""
        if not self.given.get("repetition_penalty"):
            return {}
        n, shape = self.n, self.decoder.output[0].type.tensor_type.shape.dim
        if not shape or not shape[-1].HasField("dim_value"):
            raise ModelError(f"{self.node.op_type}: expected a decoder whose logits say how many words there are")
        nowhere = n.op("Expand", n.number([[False]], bool), n.sizes(n.size(prompts, 0), shape[-1].dim_value))
        there = n.op("Expand", n.number([[True]], bool), n.op("Shape", prompts))
        return {_SAID: n.op("ScatterElements", nowhere, n.cast(prompts, np.int64), there, axis=1)}

    def _said(self, r: _Nodes, token: str, order: str | None = None) -> list[str]:
        """Which words each text, of the rows that go on, has with a token [rows, 1] more, if a penalty asks for it."""
        if not self.given.get("repetition_penalty"):
            return []
        before = _SAID if order is None else r.op("Gather", _SAID, order, axis=0)
        words = r.up_to(r.size(before, 1))
        return [r.op("Or", before, r.op("Equal", r.cast(token, np.int64), words))]

    # ---- of a decoder alone ----

    cache_rows: ClassVar[int] = 1  # the axis of a cache's rows

    def _first_ids(self) -> str:
        """The tokens that texts begin with [batch, tokens]."""
        if len(self.decoder.input) < 3 or len(self.decoder.input) - 3 != len(self.decoder.output) - 1:
            expected = "expected a decoder of input_ids, position_ids, attention_mask, past_0 …"
            raise ModelError(f"{self.node.op_type}: {expected}")
        return self.given["input_ids"]

    def _carried(self, rows: str | None) -> dict[str, str]:
        """What the decoder takes that each round changes: its first values. Of its caches the last ones."""
        n, ids = self.n, self.ids
        mask = self.given.get("attention_mask") or n.cast(n.op("Not", n.op("Equal", ids, self.pad)), np.int32)
        places = n.op("Sub", n.op("CumSum", mask, n.number(1)), n.number(1))
        prompt = [ids, n.op("Max", places, n.number(0)), mask]
        if rows is not None:
            prompt = [n.op("Gather", each, rows, axis=0) for each in prompt]
        names = [each.name for each in self.decoder.input]
        return dict(zip(names, [*prompt, *map(self._empty, self.decoder.input[3:], repeat(rows))], strict=True))

    def _following(self, r: _Nodes, token: str, text: str) -> list[str]:
        """Of the `_carried` without the caches, what the next round takes."""
        _, places, mask = (each.name for each in self.decoder.input[:3])
        place = r.op("Add", r.op("Gather", places, r.number([-1], np.int64), axis=1), r.number(1))
        seen = r.op("Concat", mask, r.op("Add", r.op("Mul", token, r.number(0)), r.number(1)), axis=1)
        return [token, place, seen]

    # ---- the loop ----

    def _started(
        self, own: dict[str, str], step: _Step, rows: str | None
    ) -> tuple[dict[str, str], dict[str, str], str]:
        """What the first round of the loop takes: `_carried`, a step's own states, and whether to begin ("": yes)."""
        return self._carried(rows), own, ""

    def _kept(self, r: _Nodes) -> None:
        """Names what the decoder takes that no round changes."""

    def _loop(self, own: dict[str, str], step: _Step, rows: str | None) -> list[str]:
        """The last of a step's own states, whose first values are given by their names in a round."""
        from onnx import TensorProto, helper

        n, decoder = self.n, self.decoder
        carried, own, goes_on = self._started(own, step, rows)
        logits, *presents = [each.name for each in decoder.output]
        r = _Nodes(f"{_OWN}round/")
        self._kept(r)
        r.nodes += decoder.node
        scores = r.cast(r.op("Gather", logits, r.number(-1, np.int64), axis=1), np.float32)
        again, token, states, order = step(r, scores)
        following = self._following(r, token, states[0])
        if order is not None:
            presents = [r.op("Gather", each, order, axis=self.cache_rows) for each in presents]
        scalars = [
            helper.make_tensor_value_info(_NUMBER, TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{_OWN}wanted", TensorProto.BOOL, []),
        ]
        inputs = [helper.make_empty_tensor_value_info(name) for name in (*carried, *own)]
        results = (again, *following, *presents, *states)
        outputs = [helper.make_empty_tensor_value_info(name) for name in results]
        body = helper.make_graph(
            r.nodes, "round", [*scalars, *inputs], outputs, decoder.initializer, value_info=decoder.value_info
        )
        count = n.op("Reshape", self.rounds, n.number([], np.int64))
        first = [*carried.values(), *own.values()]
        names = [f"{_OWN}last_{number}" for number in range(len(first))]
        n.ops("Loop", count, goes_on, *first, names=names, body=body)
        return names[len(carried) :]

    def _empty(self, past: onnx.ValueInfoProto, rows: str | None) -> str:
        """A cache [(2,) rows, heads, 0, size]."""
        n, axis = self.n, self.cache_rows
        dims = past.type.tensor_type.shape.dim[axis:]
        if len(dims) != 4 or not (dims[1].HasField("dim_value") and dims[3].HasField("dim_value")):
            expected = f"expected [{'2, ' * axis}batch, heads, tokens, size] of known heads and size"
            raise ModelError(f"{self.node.op_type}: {past.name}: {expected}")
        count = self.batch if rows is None else n.size(rows, 0)
        shape = n.sizes(*[2] * axis, count, dims[1].dim_value, 0, dims[3].dim_value)
        return n.op("Expand", n.op("Cast", n.number([0]), to=past.type.tensor_type.elem_type), shape)


class _Encoded(_Search):
    """The search of a decoder behind an encoder: texts begin with a token of their own, or with what the node is given."""

    cache_rows = 0

    def _first_ids(self) -> str:
        n, given, decoder = self.n, self.given, self.decoder
        encoder: onnx.GraphProto = self.attributes["encoder"]
        self.caches = len(decoder.output) - 1  # of its own, as many as of the encoder
        before, made = len(decoder.input) - 2 * self.caches, len(encoder.output)
        self.is_first = made == 2 + 2 * self.caches  # whether the encoder gives the first logits, too
        if not 1 <= before <= 3 or not self.caches or not (self.is_first or made == self.caches):
            expected = "expected an encoder that gives present_key_cross_0 …, a decoder of input_ids, past_key_self_0 …"
            raise ModelError(f"{self.node.op_type}: {expected}, past_key_cross_0 …")
        source = given["input_ids"]
        start = self.attributes.get("decoder_start_token_id", -1)
        if start < 0 and not given.get("decoder_input_ids"):
            expected = "expected decoder_start_token_id, the token that texts begin with"
            raise ModelError(f"{self.node.op_type}: {expected}, got {start}")
        ids = given.get("decoder_input_ids") or n.op("Expand", n.number([[start]]), n.sizes(n.size(source, 0), 1))
        feeds = {"encoder_input_ids": source, "decoder_input_ids": ids}
        names = {each.name for each in (*encoder.input, *decoder.input)}
        if _MASK in names:
            feeds[_MASK] = given.get("attention_mask") or self._begun(source)
        self.made = self._encode(encoder, feeds)
        self.feeds = feeds
        return ids

    def _begun(self, source: str) -> str:
        """The mask of texts, each from its first token that is not padding on: the padding token may also end a text."""
        n = self.n
        words = n.op("CumSum", n.cast(n.op("Not", n.op("Equal", source, self.pad)), np.int32), n.number(1))
        return n.op("Min", words, n.number(1))

    def _encode(self, encoder: onnx.GraphProto, feeds: dict[str, str]) -> list[str]:
        """The encoder's results, as a branch that is always taken: its names are its own."""
        from onnx import helper

        n, r = self.n, _Nodes(f"{_OWN}encoder/")
        for each in encoder.input:
            if each.name not in feeds:
                raise ModelError(f"{self.node.op_type}: the encoder takes {each.name!r}; expected {', '.join(feeds)}")
            r.op("Identity", n.op("Identity", feeds[each.name]), name=each.name)
        branch = helper.make_graph(
            *([*r.nodes, *encoder.node], "encoder", [], encoder.output, encoder.initializer),
            value_info=encoder.value_info,
        )
        names = [f"{_OWN}encoded_{number}" for number in range(len(encoder.output))]
        n.ops("If", n.number(True, bool), names=names, then_branch=branch, else_branch=branch)
        return names

    def _kept(self, r: _Nodes) -> None:
        for name, value in self.kept.items():
            r.op("Identity", value, name=name)

    def _carried(self, rows: str | None) -> dict[str, str]:
        n, names = self.n, [each.name for each in self.decoder.input]
        assert rows is not None

        def each_row(value: str) -> str:
            return n.op("Gather", value, rows, axis=0)

        own, cross = names[-2 * self.caches : -self.caches], names[-self.caches :]
        self.kept = {name: each_row(value) for name, value in zip(cross, self.made[-self.caches :], strict=True)}
        for name in names[1 : -2 * self.caches]:
            value = self.feeds[_MASK] if name == _MASK else self.made[1] if self.is_first else None
            if value is None:
                raise ModelError(f"{self.node.op_type}: the decoder takes {name!r}, which the encoder does not give")
            self.kept[name] = each_row(value)
        if self.is_first:
            caches = [each_row(each) for each in self.made[2 : 2 + self.caches]]
        else:
            caches = [self._empty(each, rows) for each in self.decoder.input if each.name in own]
        return dict(zip([names[0], *own], [each_row(self.ids), *caches], strict=True))

    def _following(self, r: _Nodes, token: str, text: str) -> list[str]:
        """onnxruntime hands over the whole text, unless the decoder says that it takes one token."""
        length = self.decoder.input[0].type.tensor_type.shape.dim[1:]
        return [token if length and length[0].dim_value == 1 else text]

    def _started(
        self, own: dict[str, str], step: _Step, rows: str | None
    ) -> tuple[dict[str, str], dict[str, str], str]:
        """With the encoder's logits, a step before the loop."""
        carried = self._carried(rows)
        if not self.is_first:
            return carried, own, ""
        n, r = self.n, _Nodes(f"{_OWN}first/")
        assert rows is not None
        for name, value in own.items():
            r.op("Identity", value, name=name)
        logits = r.op("Gather", self.made[0], r.number(-1, np.int64), axis=1)
        logits = r.op("Gather", r.cast(logits, np.float32), rows, axis=0)
        again, token, states, order = step(r, logits)
        assert order is not None
        ids, *caches = carried
        values = [
            *self._following(r, token, states[0]),
            *(r.op("Gather", carried[each], order, axis=0) for each in caches),
        ]
        self.rounds = r.op("Sub", self.rounds, r.number([1], np.int64))
        n.nodes += r.nodes
        return dict(zip((ids, *caches), values, strict=True)), dict(zip(own, states, strict=True)), again


def _is_any_left(r: _Nodes, over: str) -> str:
    all_over = r.op("ReduceMin", r.cast(over, np.int32), keepdims=0)
    return r.op("Equal", all_over, r.number(0))
