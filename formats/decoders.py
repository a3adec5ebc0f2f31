"""What the inputs and outputs of a decoder are, by the names that exporters give them, and the names that its step has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .messages.errors import ArgumentError
from .ports import Port
from .types import ShapeDim, TensorType

_PAST = re.compile(r"(past_key_values?|past|cache|mem)[._]?(?=.*\d|$)")
_PRESENT = re.compile(r"(present_key_values?|present|new_cache|cache_out|out_mem)[._]?(?=.*\d|$)")
_STATE = re.compile(r"conv|recurrent|ssm|state")  # caches of one size, which are not longer after more tokens
IDS = ("input_ids", "ids", "tokens", "token_ids", "decoder_input_ids", "input")
MASKS = ("attention_mask", "mask")
POSITIONS = ("position_ids", "positions")
_COUNTER = "cache_position"  # the places of the new tokens in the cache
_KEPT = "num_logits_to_keep"  # of how many of the last tokens there are to be logits
_ZEROS = ("token_type_ids",)
OF_ENCODERS = "encoder_"  # what inputs that an encoder makes are called begins so
OF_ADAPTERS = "adapter."
# Inputs for low-rank adapters (`compiler/onnx/adapters.py`): of each token bool[batch, length, rank], of each module float32
ADAPTER_MASK, ADAPTER_RANK = "adapter.mask", "adapter_rank"
ADAPTER_IN, ADAPTER_OUT = "adapter.{}.A", "adapter.{}.B"  # [inputs, rank], [rank, outputs]
_OF_ENCODER = re.compile("cross|encoder")  # so are caches of its keys and values, which no call goes on with
ENCODER = "encoder"  # the function of an executable that makes them
# What an encoder, or a decoder without a head, gives
_HIDDEN = ("encoder_hidden_states", "last_hidden_state", "hidden_states")
_SWITCH = "use_cache_branch"  # of decoders that have been merged from one with a cache and one without
# The roles that a decoder may have besides, and the names of the inputs; all of them are made here.
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "mask": MASKS,
    "positions": POSITIONS,
    "counter": (_COUNTER,),
    "kept": (_KEPT,),
    "zeros": _ZEROS,
    "switch": (_SWITCH,),
}
MADE = tuple(name for names in _OPTIONAL.values() for name in names)
_LOGITS = ("logits", "lm_logits", "output", "scores")
STEP = ".step"  # behind a decoder's name: the function that the compiler makes of it for texts
BATCH = ".batch"  # the same: the function of many texts of their own lengths
# Its first inputs: of all texts one after another the new tokens and their positions; the numbers of those of which logits are
# wanted; of each text its first new token, their number, the tokens before them, and where its pages begin in `tables`.
BATCH_INPUTS = ("input_ids", "positions", "wanted", "texts", "tables")
PAGE = 32  # tokens of a page of keys and values
NEW_ROWS = "new."  # before a cache's name: what a step puts behind it
HELD = "held"  # a step's input [tokens, 0]: how many tokens there are in caches that have room for more


@dataclass(frozen=True)
class Roles:
    """The roles of a decoder's inputs and outputs, by their names; empty where there is none."""

    ids: str
    logits: int  # number of the output
    mask: str = ""
    positions: str = ""
    counter: str = ""
    kept: str = ""
    zeros: str = ""
    switch: str = ""
    cache: tuple[tuple[str, int], ...] = ()  # an input, and the number of the output that it is in the next call
    ports: dict[str, Port] = field(default_factory=dict)
    sizes: dict[ShapeDim, int] = field(default_factory=dict)  # of symbols of caches, those that the outputs tell

    @staticmethod
    def of(inputs: Sequence[Port], outputs: Sequence[Port], function: str, fed: Collection[str] = ()) -> Roles:
        """`fed` are inputs that the caller gives. Raises ArgumentError, which names what is not understood."""
        names = {port.name: port for port in inputs}
        made = (*MADE, *fed)
        rest = {name: port for name, port in names.items() if name not in made}
        present = {
            _PRESENT.sub("", port.name): number for number, port in enumerate(outputs) if _PRESENT.match(port.name)
        }
        cache, unpaired = [], []
        for name in [name for name in rest if _PAST.match(name)]:
            number = present.get(_PAST.sub("", name))
            (unpaired.append(name) if number is None else cache.append((name, number)))
        others = [name for name in rest if not _PAST.match(name)]
        ids = next((name for name in IDS if name in others), others[0] if len(others) == 1 else "")
        if not ids or unpaired or len(others) > 1:
            strange = unpaired or [name for name in others if name != ids] or list(names)
            raise ArgumentError(
                f"generate: {function}: cannot tell what {', '.join(map(repr, strange))} is; expected token ids "
                f"({', '.join(IDS[:3])} …), attention_mask, position_ids, and past… with a present… for each among the outputs: "
                f"{', '.join(port.name for port in outputs)}; what is the same in every call, such as an encoder's results, is "
                f"given by name: feeds={{{strange[0]!r}: …}}"
            )
        if (dtype := names[ids].dtype) is None or np.dtype(dtype).kind not in "iu":
            raise ArgumentError(
                f"generate: {function}({ids}): a decoder takes token ids, integers; {names[ids].type} is declared"
            )
        free = {port.name: number for number, port in enumerate(outputs) if not _PRESENT.match(port.name)}
        logits = next((name for name in (*_LOGITS, *free) if name in free and name not in _HIDDEN), None)
        if logits is None:
            raise ArgumentError(
                f"generate: {function} gives no logits; expected an output named {', '.join(_LOGITS)}, or one of another name, "
                f"got {', '.join(free) or 'caches alone'}; export the model with its head"
            )
        first = {role: next((name for name in known if name in names), "") for role, known in _OPTIONAL.items()}
        pairs = [(names[name].type, outputs[number].type) for name, number in cache]
        sizes: dict[ShapeDim, int] = {
            have: made
            for before, after in pairs
            if isinstance(before, TensorType) and isinstance(after, TensorType) and before.rank == after.rank
            for have, made in zip(before.shape, after.shape, strict=True)
            if isinstance(made, int) and not isinstance(have, int)
        }
        return Roles(ids, free[logits], cache=tuple(cache), ports=names, sizes=sizes, **first)

    def empty(self, name: str, batch: Any) -> list[Any] | None:
        """The shape of a cache of no tokens: of its symbolic sizes, that of the ids' first axis (else its own first one) is the
        batch, others are known by the outputs, and the rest is the length, 0. A state has none, and is 0 before the first
        token. None for anything but a tensor with a length, or a state."""
        ids, type_ = self.ports[self.ids].type, self.ports[name].type
        if not isinstance(type_, TensorType) or not isinstance(ids, TensorType):
            return None
        symbols = [dim for dim in type_.shape if not isinstance(dim, int)]
        rows = next((dim for dim in (*ids.shape[:1], *type_.shape[:1]) if dim in symbols), None)
        shape = [
            dim if isinstance(dim, int) else batch if dim == rows else self.sizes.get(dim, 0) for dim in type_.shape
        ]
        return shape if 0 in shape or _STATE.search(name) else None


def of_encoders(inputs: Iterable[str], outputs: Iterable[str]) -> list[str]:
    """The inputs of a decoder that an encoder makes."""
    present = {_PRESENT.sub("", name) for name in outputs if _PRESENT.match(name)}
    return [
        name
        for name in inputs
        if name.startswith(OF_ENCODERS)
        or (_PAST.match(name) and _OF_ENCODER.search(name) and _PAST.sub("", name) not in present)
    ]


def encoded(wanted: Iterable[str], results: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a decoder that an encoder makes, of its results and of what it was given, by the names of all."""
    known = {_PRESENT.sub("", name): each for name, each in results.items()}
    hidden = next((results[name] for name in _HIDDEN if name in results), None)
    made: dict[str, Any] = {}
    for name in wanted:
        if name.startswith(OF_ENCODERS):
            own = given.get(name.removeprefix(OF_ENCODERS), hidden if name in _HIDDEN else None)
            made[name] = results.get(name, own)
        else:
            made[name] = known.get(_PAST.sub("", name))
    return {name: each for name, each in made.items() if each is not None}


def is_cache(name: str) -> bool:
    """Whether an input of this name is a part of a cache."""
    return _PAST.match(name) is not None


def is_like_a_decoder(inputs: Iterable[str], outputs: Iterable[str]) -> bool:
    """Whether there are names of caches on both sides."""
    return any(map(_PAST.match, inputs)) and any(map(_PRESENT.match, outputs))
