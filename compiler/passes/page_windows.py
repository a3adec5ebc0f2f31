"""Convolutions over each text's own tokens, in a decoder's function of many texts (`page_attention.py`).

A text's last inputs are its state, [texts, channels, before]. The states of all texts and the new inputs are rows of one matrix;
a token's window is the numbers of rows in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from .. import ir
from ..named_weights import computed
from ..operators.table import lookup
from .rewriting import tensor_type

Emit = Callable[..., ir.Var]


@dataclasses.dataclass(frozen=True)
class Windows:
    """The rows of each token's window, int64[tokens, before + 1], and of each text's state after its last token,
    int64[texts, before]."""

    of_tokens: ir.Var
    of_texts: ir.Var
    before: int

    @staticmethod
    def of(emit: Emit, texts: ir.Atom, tokens: Any, before: int) -> Windows:
        count: Any = tensor_type(texts).shape[0]
        held = dims.multiply(count, before)  # the first rows
        first, number = (emit("take", texts, constant(column), axis=1) for column in (0, 1))
        token = emit("arange", stop=tokens, dtype=DType.int64)
        has_begun = emit("less_equal", first, emit("expand_dims", token, axes=(1,)))
        text = emit("sum", emit("cast", has_begun, dtype=DType.int64), axes=(1,), keepdims=False)
        text = emit("subtract", text, constant(1))
        start = emit("cast", emit("reshape", emit("shape_tensor", dims=(held,)), shape=()), dtype=DType.int64)

        def rows(last: ir.Atom, begin: ir.Atom, owner: ir.Atom, length: int) -> ir.Var:
            """Of the inputs up to each of `last`, those before `begin` are the state of the `owner`."""
            last, begin, owner = (emit("expand_dims", each, axes=(1,)) for each in (last, begin, owner))
            place = emit("add", last, constant(np.arange(1 - length, 1)))
            behind = emit("subtract", place, begin)
            old = emit("add", emit("multiply", owner, constant(before)), emit("add", behind, constant(before)))
            return emit("where", emit("less", behind, constant(0)), old, emit("add", place, start))

        ends = emit("subtract", emit("add", first, number), constant(1))
        owners = emit("arange", stop=count, dtype=DType.int64)
        return Windows(
            rows(token, emit("take", first, text, axis=0), text, before + 1), rows(ends, first, owners, before), before
        )

    def _rows(self, emit: Emit, state: ir.Atom, new: ir.Atom) -> ir.Var:
        shape: Any = tensor_type(state).shape
        texts, channels, before = shape
        held = emit(
            "reshape", emit("permute_dims", state, axes=(0, 2, 1)), shape=(dims.multiply(texts, before), channels)
        )
        tokens = tensor_type(new).shape[2]
        rows = emit("reshape", emit("permute_dims", new, axes=(0, 2, 1)), shape=(tokens, channels))
        return emit("concat", held, rows, axis=0)

    def convolved(self, emit: Emit, state: ir.Atom, new: ir.Atom, weight: Any, bias: Any = None) -> ir.Var:
        """[1, channels, tokens]."""
        windows = emit("take", self._rows(emit, state, new), self.of_tokens, axis=0)
        if tensor_type(windows).dtype is not tensor_type(weight).dtype:
            windows = emit("cast", windows, dtype=tensor_type(weight).dtype)
        turned = computed("permute_dims", computed("squeeze", weight, axes=(1,)), axes=(1, 0))
        sums = emit("sum", emit("multiply", windows, turned), axes=(1,), keepdims=False)
        sums = sums if bias is None else emit("add", sums, bias)
        return emit("expand_dims", emit("permute_dims", sums, axes=(1, 0)), axes=(0,))

    def last(self, emit: Emit, state: ir.Atom, new: ir.Atom) -> ir.Var:
        """The new states, as the old ones."""
        return emit("permute_dims", emit("take", self._rows(emit, state, new), self.of_texts, axis=0), axes=(0, 2, 1))


def constant(value: Any) -> ir.Constant:
    return ir.Constant(ir.frozen(np.asarray(value, np.int64)))


def is_plain_convolution(call: ir.OperatorCall, weight: tuple[int, int, int]) -> bool:
    """Whether each channel is convolved by itself, with weights of that shape, at each place."""
    options = lookup("conv").bind(call.attributes)
    are_ones = all(each == 1 for name in ("strides", "dilations") for each in options[name] or ())
    return (
        tensor_type(call.args[1]).shape == weight
        and options["groups"] == weight[0]
        and are_ones
        and not any(options["pads"] or ())
    )
