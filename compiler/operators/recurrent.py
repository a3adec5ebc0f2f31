"""Recurrent networks: the rest of an LSTM, GRU or simple layer after its input was multiplied by the input weights.

    projected   [steps, batch, directions, gates, hidden]   x · W plus all biases, one matrix product for all steps
    recurrent   [directions, ⌈hidden / 16⌉, hidden, gates, 16]   the weights of the hidden state: for 16 units at a time, and
                each element of the state, its weights for all gates of these units; zeros after the last unit. Or of bfloat16,
                [directions, ⌈hidden / 16⌉, ⌈hidden / 2⌉, gates, 16, 2], those of two elements together: then the state, too, is
                rounded to bfloat16 where it is multiplied. Or of int8, [directions, ⌈hidden / 16⌉, ⌈hidden / 4⌉ + 2, gates, 16,
                4], those of four elements together, then a column's scale in float32 and the sum of its bytes in int32:
                then the state is rounded to 255 steps of its own range
    hidden      [directions, batch, hidden]   the first hidden state
    lengths     [batch]   steps of each sequence: after its end the outputs are 0

Gates are in ONNX's order: LSTM i o f c, GRU z r h. The results are all hidden states [steps, directions, batch, hidden], the
last hidden state, and of an LSTM the last cell state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.types import ShapeDim, TensorType
from . import elementwise  # noqa: F401  (registers the activations)
from .quantized import FACTS, codes_of, facts_of, range_of
from .shapes import FLOAT, INDEX, Shape, ceildiv, lift, match_dim, mismatch, require, same_dtype, text
from .table import Attribute, Fusion, Kind, lookup, register
from .work import of_recurrence

BLOCK = 16  # units whose weights lie together
_NARROW_RANK = 6  # of weights in pairs, or in words of four bytes
_TOGETHER = {DType.bfloat16: 2, DType.int8: 4}  # elements of the state

# Elementwise operators without attributes
ACTIVATIONS = {name: lookup(name).reference for name in ("sigmoid", "tanh", "relu", "softsign", "softplus")}

_DIRECTIONS = ("forward", "reverse", "bidirectional")
_COMMON = {
    "direction": Attribute(Kind.STRING, "in which the steps are taken", "forward", _DIRECTIONS),
    "clip": Attribute(Kind.FLOAT, "bound of what activations are given; None: no bound", None),
}


def _activations(default: str) -> dict[str, Attribute]:
    return {"activations": Attribute(Kind.STRING, "their names, separated by spaces", default)}


# ---- inference ----


def _infer(
    inputs: Sequence[TensorType], gates: int, functions: int, direction: str, activations: str, clip: float | None
) -> TensorType:
    """Common checks of all kinds of layers; returns the type of their hidden states."""
    projected, recurrent, hidden = inputs[:3]
    is_narrow = recurrent.rank == _NARROW_RANK and recurrent.dtype in _TOGETHER
    dtype = same_dtype([each for each in inputs[: 3 + (gates > 1)] if each is not recurrent or not is_narrow], FLOAT)
    names = activations.split(" ")
    if len(names) != functions or any(name not in ACTIVATIONS for name in names):
        raise mismatch(f"{functions} activations among {', '.join(ACTIVATIONS)}", activations)
    if clip is not None and not clip > 0:
        raise mismatch("a bound above 0", clip)
    if projected.rank != 5:
        raise mismatch("a projected input [steps, batch, directions, gates, hidden]", projected)
    directions, units = 2 if direction == "bidirectional" else 1, projected.shape[4]
    _match(projected, (*projected.shape[:2], directions, gates, units))
    blocks = ceildiv(units, BLOCK)
    _match(recurrent, (directions, blocks, *_depth(units, recurrent.dtype, gates, is_narrow)))
    _match(hidden, (directions, projected.shape[1], units))
    return TensorType(dtype, (projected.shape[0], directions, projected.shape[1], units))


def _depth(units: ShapeDim, dtype: DType, gates: int, is_narrow: bool) -> Shape:
    """The shape of the weights of a block of units."""
    if not is_narrow:
        return units, gates, BLOCK
    each, facts = _TOGETHER[dtype], FACTS if dtype is DType.int8 else 0
    words = lift(lambda count: dims.add(count, facts), ceildiv(units, each))
    return words, gates, BLOCK, each


def _match(type_: TensorType, shape: Shape) -> None:
    """Checks that a tensor has that shape, as far as is known."""
    try:
        if type_.rank != len(shape):
            raise TypeError
        for dim, wanted in zip(type_.shape, shape, strict=True):
            match_dim(dim, wanted)
    except TypeError:
        raise mismatch(f"a tensor of shape {text(shape)}", type_) from None


def _match_lengths(inputs: Sequence[TensorType], batch: ShapeDim) -> None:
    for lengths in inputs:
        require(lengths, INDEX)
        _match(lengths, (batch,))


def _infer_rnn(inputs: Sequence[TensorType], **attributes: Any) -> tuple[TensorType, ...]:
    states = _infer(inputs, 1, 1, **attributes)
    _match_lengths(inputs[3:], states.shape[2])
    return states, TensorType(states.dtype, states.shape[1:])


def _infer_gru(inputs: Sequence[TensorType], reset_after: bool, **attributes: Any) -> tuple[TensorType, ...]:
    states = _infer(inputs, 3, 2, **attributes)
    _match(inputs[3], (states.shape[1], states.shape[3]))
    _match_lengths(inputs[4:], states.shape[2])
    return states, TensorType(states.dtype, states.shape[1:])


def _infer_lstm(inputs: Sequence[TensorType], int8_rows: bool, **attributes: Any) -> tuple[TensorType, ...]:
    states = _infer(inputs, 4, 3, **attributes)
    last = TensorType(states.dtype, states.shape[1:])
    _match(inputs[3], last.shape)
    if len(inputs) > 4:
        same_dtype([inputs[0], inputs[4]])
        _match(inputs[4], (states.shape[1], 3, states.shape[3]))
    _match_lengths(inputs[5:], states.shape[2])
    return states, last, last


# ---- references ----

State = tuple[np.ndarray, ...]


def unpacked(recurrent: np.ndarray, hidden: int) -> np.ndarray:
    """The weights [directions, gates, hidden state, hidden units] in double precision."""
    if recurrent.ndim == _NARROW_RANK and recurrent.dtype == np.int8:
        scale = np.ascontiguousarray(recurrent[:, :, -FACTS, :]).view(np.float32)  # [directions, blocks, gates, 16, 1]
        return _unpacked(recurrent[:, :, :-FACTS], hidden) * _unpacked(np.moveaxis(scale, -1, 2), hidden)
    return _unpacked(recurrent, hidden)


def _unpacked(recurrent: np.ndarray, hidden: int) -> np.ndarray:
    if recurrent.ndim == _NARROW_RANK:
        directions, blocks, _, gates, _, _ = recurrent.shape
        apart = recurrent.transpose(0, 1, 2, 5, 3, 4).reshape(directions, blocks, -1, gates, BLOCK)
        recurrent = apart[:, :, :hidden]
    directions, _, depth, gates, _ = recurrent.shape
    return recurrent.transpose(0, 3, 2, 1, 4).reshape(directions, gates, depth, -1)[..., :hidden].astype(np.float64)


def recurrent_words(codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Recurrent weights of int8, laid out as those of float32 are, in words; their scales differ but along the state."""
    directions, blocks, depth, gates, _ = codes.shape
    each = _TOGETHER[DType.int8]
    padded = np.pad(codes, ((0, 0), (0, 0), (0, -depth % each), (0, 0), (0, 0)))
    apart = padded.reshape(directions, blocks, -1, each, gates, BLOCK).transpose(0, 1, 2, 4, 5, 3)
    facts = scale.astype(np.float32), codes.sum(axis=2, dtype=np.int32, keepdims=True)
    behind = (
        np.ascontiguousarray(fact).view(np.int8).reshape(directions, blocks, 1, gates, BLOCK, each) for fact in facts
    )
    return np.concatenate([apart, *behind], axis=2)


def _multiplied(state: np.ndarray, recurrent: np.ndarray) -> np.ndarray:
    """The state as it meets the weights."""
    if recurrent.ndim != _NARROW_RANK:
        return state
    if recurrent.dtype == np.int8:
        x = state.astype(np.float32)
        scale, zero = facts_of(*range_of(x, (-1,)))
        return scale.astype(np.float64) * (codes_of(x, scale, zero) - zero)
    return state.astype(np.float32).astype(DType.bfloat16.numpy).astype(np.float64)


def _run(
    projected: np.ndarray,
    states: State,
    lengths: np.ndarray | None,
    direction: str,
    step: Callable[[int, np.ndarray, State], State],
) -> tuple[np.ndarray, ...]:
    """All hidden states and the last states. `step(direction, gates [gates, batch, hidden], states)` gives the next states."""
    steps, batch, directions, _, hidden = projected.shape
    ends = np.full(batch, steps) if lengths is None else lengths
    outputs = np.zeros((steps, directions, batch, hidden))
    last = [state.astype(np.float64) for state in states]
    for d in range(directions):
        now = tuple(state[d] for state in last)
        backwards = d == 1 or direction == "reverse"
        for t in range(steps)[:: -1 if backwards else 1]:
            alive = (t < ends)[:, None]
            gates = projected[t, :, d].astype(np.float64).swapaxes(0, 1)
            after = step(d, gates, now)
            now = tuple(np.where(alive, new, old) for new, old in zip(after, now, strict=True))
            outputs[t, d] = np.where(alive, now[0], 0)
        for state, end in zip(last, now, strict=True):
            state[d] = end
    return tuple(array.astype(projected.dtype) for array in (outputs, *last))


def _clipped(x: np.ndarray, clip: float | None) -> np.ndarray:
    return x if clip is None else np.clip(x, -clip, clip)


def _rnn(
    projected: np.ndarray,
    recurrent: np.ndarray,
    hidden: np.ndarray,
    lengths: np.ndarray | None = None,
    *,
    direction: str,
    activations: str,
    clip: float | None,
) -> tuple[np.ndarray, ...]:
    weights, f = unpacked(recurrent, hidden.shape[2]), ACTIVATIONS[activations]

    def step(d: int, gates: np.ndarray, states: State) -> State:
        return (f(_clipped(gates[0] + _multiplied(states[0], recurrent) @ weights[d, 0], clip)),)

    return _run(projected, (hidden,), lengths, direction, step)


def _gru(
    projected: np.ndarray,
    recurrent: np.ndarray,
    hidden: np.ndarray,
    bias: np.ndarray,
    lengths: np.ndarray | None = None,
    *,
    direction: str,
    activations: str,
    clip: float | None,
    reset_after: bool,
) -> tuple[np.ndarray, ...]:
    weights = unpacked(recurrent, hidden.shape[2])
    f, g = (ACTIVATIONS[name] for name in activations.split(" "))

    def step(d: int, gates: np.ndarray, states: State) -> State:
        (h,) = states
        met = _multiplied(h, recurrent)
        z, r = (f(_clipped(gates[i] + met @ weights[d, i], clip)) for i in (0, 1))
        reset = r * (met @ weights[d, 2] + bias[d]) if reset_after else None
        from_state = _multiplied(r * h, recurrent) @ weights[d, 2] + bias[d] if reset is None else reset
        return ((1 - z) * g(_clipped(gates[2] + from_state, clip)) + z * h,)

    return _run(projected, (hidden,), lengths, direction, step)


def _lstm(
    projected: np.ndarray,
    recurrent: np.ndarray,
    hidden: np.ndarray,
    cell: np.ndarray,
    peephole: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    *,
    direction: str,
    activations: str,
    clip: float | None,
    int8_rows: bool,
) -> tuple[np.ndarray, ...]:
    weights = unpacked(recurrent, hidden.shape[2])
    f, g, h = (ACTIVATIONS[name] for name in activations.split(" "))
    peeped = np.zeros((len(weights), 3, hidden.shape[2])) if peephole is None else peephole.astype(np.float64)

    def step(d: int, gates: np.ndarray, states: State) -> State:
        before, c = states
        i, o, forget, new = gates + _multiplied(before, recurrent) @ weights[d]
        into, keep = f(_clipped(i + peeped[d, 0] * c, clip)), f(_clipped(forget + peeped[d, 2] * c, clip))
        c = keep * c + into * g(_clipped(new, clip))
        return f(_clipped(o + peeped[d, 1] * c, clip)) * h(c), c

    return _run(projected, (hidden, cell), lengths, direction, step)


# fmt: off
register("rnn", "projected recurrent hidden lengths?", _infer_rnn, _rnn, Fusion.OPAQUE,
         "a simple recurrent layer: h' = f(projected + h · R)", attributes=_COMMON | _activations("tanh"),
         work=of_recurrence)
register("gru", "projected recurrent hidden bias lengths?", _infer_gru, _gru, Fusion.OPAQUE,
         "gated recurrent units; a bias [directions, hidden] is added to what the state gives to the last gate",
         attributes=_COMMON | _activations("sigmoid tanh") | {
             "reset_after": Attribute(Kind.BOOL, "the reset gate scales what the state gives, not the state", False)},
         work=of_recurrence)
register("lstm", "projected recurrent hidden cell peephole? lengths?", _infer_lstm, _lstm, Fusion.OPAQUE,
         "long short-term memory, with weights [directions, 3, hidden] by which gates i o f see the cell",
         attributes=_COMMON | _activations("sigmoid tanh tanh") | {
             "int8_rows": Attribute(Kind.BOOL, "whether states may be rounded to int8 where they meet integers", False)},
         work=of_recurrence)
# fmt: on
