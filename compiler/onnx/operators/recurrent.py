"""Importers of recurrent layers: LSTM, GRU, RNN. All steps' inputs are multiplied at once; the operator does the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....formats.dims import Dim
from ....formats.messages.errors import ModelError
from ...operators.recurrent import ACTIVATIONS, BLOCK
from ..table import importer
from ..values import GraphBuilder, UnsupportedError, Value
from .networks import along

_ONNX_ACTIVATIONS = {name.capitalize(): name for name in ACTIVATIONS}


@dataclass(frozen=True)
class _Layer:
    """A node: its inputs, x by steps first, and what it says of sizes."""

    g: GraphBuilder
    gates: int
    x: Value
    weight: Value
    recurrent: Value
    bias: Value | None
    lengths: Value | None
    hidden_state: Value | None
    cell_state: Value | None
    peephole: Value | None
    direction: str
    is_batch_first: bool
    is_reset_after: bool
    int8_rows: bool

    @property
    def hidden(self) -> int:
        size = self.recurrent.shape[2]
        if not isinstance(size, int):
            raise UnsupportedError("the number of its units depends on the sizes of the inputs")
        return size

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def activations(self, names: tuple[str, ...]) -> str:
        """The names as the operators take them."""
        each = len(names) // self.directions
        if names != names[:each] * self.directions:
            raise UnsupportedError("different activations of the two directions")
        for name in names:
            if name.capitalize() not in _ONNX_ACTIVATIONS:
                raise UnsupportedError(f"activation {name!r}")
        return " ".join(_ONNX_ACTIVATIONS[name.capitalize()] for name in names[:each])

    def projected(self, bias: Value | None) -> Value:
        """x · W plus a bias [directions, gates, hidden]."""
        g, columns = self.g, self.directions * self.gates * self.hidden
        turned = g.op("permute_dims", self.weight, axes=(2, 0, 1))
        matrix = g.op("reshape", turned, shape=(self.weight.shape[2], columns))
        product = g.op("matmul", self.x, matrix, int8_rows=self.int8_rows)
        sizes = self.x.shape[:2]
        if bias is not None:
            product = g.op("add", product, g.op("reshape", bias, shape=(columns,)))
        return g.op("reshape", product, shape=(*sizes, self.directions, self.gates, self.hidden))

    def biases(self) -> tuple[Value, ...]:
        """Those of the input and of the state, [directions, gates, hidden] each; none if there are none."""
        if self.bias is None:
            return ()
        g, each = self.g, (self.directions, self.gates, self.hidden)
        both = g.op("reshape", self.bias, shape=(self.directions, 2, self.gates, self.hidden))
        parts = (g.op("slice", both, starts=(i,), ends=(i + 1,), axes=(1,)) for i in (0, 1))
        return tuple(g.op("reshape", part, shape=each) for part in parts)

    def packed(self) -> Value:
        """The recurrent weights as the operators take them."""
        g, blocks = self.g, -(-self.hidden // BLOCK)
        parted = g.op("reshape", self.recurrent, shape=(self.directions, self.gates, self.hidden, self.hidden))
        rest = blocks * BLOCK - self.hidden
        if rest:
            parted = g.op("pad", parted, pads=(0, 0, 0, 0, 0, 0, rest, 0))
        parted = g.op("reshape", parted, shape=(self.directions, self.gates, blocks, BLOCK, self.hidden))
        return g.op("permute_dims", parted, axes=(0, 2, 4, 1, 3))

    def state(self, first: Value | None) -> Value:
        """The first hidden or cell state: zeros if it is left out."""
        if first is None:
            return self.zeros(self.directions, self.x.shape[1], self.hidden)
        return self.g.op("permute_dims", first, axes=(1, 0, 2)) if self.is_batch_first else first

    def zeros(self, *shape: Dim) -> Value:
        return self.g.op("full", shape=shape, value=0.0, dtype=self.x.dtype)


def _present(*values: Value | None) -> list[Value]:
    return [value for value in values if value is not None]


def _summed(g: GraphBuilder, biases: tuple[Value, ...]) -> Value | None:
    return g.op("add", *biases) if biases else None


# ---- what each operator takes after the first two inputs ----


def _rnn(layer: _Layer) -> tuple[Value | None, list[Value], dict[str, Any]]:
    """The bias of all steps' inputs, the operator's further inputs, and its own attributes."""
    return _summed(layer.g, layer.biases()), [layer.state(layer.hidden_state), *_present(layer.lengths)], {}


def _lstm(layer: _Layer) -> tuple[Value | None, list[Value], dict[str, Any]]:
    seen, shape = layer.peephole, (layer.directions, 3, layer.hidden)
    if seen is not None:
        seen = layer.g.op("reshape", seen, shape=shape)
    elif layer.lengths is not None:
        seen = layer.zeros(*shape)
    states = layer.state(layer.hidden_state), layer.state(layer.cell_state)
    own = {"int8_rows": layer.int8_rows}
    return _summed(layer.g, layer.biases()), [*states, *_present(seen, layer.lengths)], own


def _gru(layer: _Layer) -> tuple[Value | None, list[Value], dict[str, Any]]:
    """The bias of the state's part of the last gate stays apart: the reset gate may scale it."""
    g, biases = layer.g, layer.biases()
    last = layer.zeros(layer.directions, layer.hidden)
    if biases:
        others = g.op("slice", biases[1], starts=(0,), ends=(2,), axes=(1,))
        own = g.op("slice", biases[1], starts=(2,), ends=(3,), axes=(1,))
        last = g.op("reshape", own, shape=(layer.directions, layer.hidden))
        biases = (biases[0], g.op("concat", others, layer.zeros(layer.directions, 1, layer.hidden), axis=1))
    inputs = [layer.state(layer.hidden_state), last, *_present(layer.lengths)]
    return _summed(g, biases), inputs, {"reset_after": layer.is_reset_after}


def _importer(
    name: str,
    gates: int,
    finish: Callable[[_Layer], tuple[Value | None, list[Value], dict[str, Any]]],
    int8_rows: bool = False,
) -> Callable[..., tuple[Value, ...]]:
    def imported(
        g: GraphBuilder,
        x: Value,
        weight: Value,
        recurrent: Value,
        bias: Value | None = None,
        lengths: Value | None = None,
        hidden: Value | None = None,
        cell: Value | None = None,
        peephole: Value | None = None,
        *,
        activation_alpha: tuple[float, ...] | None = None,
        activation_beta: tuple[float, ...] | None = None,
        activations: tuple[str, ...] | None = None,
        clip: float | None = None,
        direction: str = "forward",
        hidden_size: int | None = None,
        input_forget: int = 0,
        layout: int = 0,
        linear_before_reset: int = 0,
        output_sequence: int = 0,
    ) -> tuple[Value, ...]:
        if activation_alpha or activation_beta:
            raise UnsupportedError("activations with parameters")
        if input_forget:
            raise UnsupportedError("coupled input and forget gates")
        if x.rank != 3 or weight.rank != 3 or recurrent.rank != 3 or hidden_size not in (None, recurrent.shape[2]):
            raise ModelError(
                f"{name}: {x.type}, {weight.type} and {recurrent.type} do not suit hidden_size {hidden_size}"
            )
        if layout:
            x = g.op("permute_dims", x, axes=(1, 0, 2))
        x, lengths, hidden, cell = _fitted(g, x, weight, lengths, hidden, cell, bool(layout))
        states = hidden, cell, peephole
        after = bool(linear_before_reset)
        layer = _Layer(
            g, gates, x, weight, recurrent, bias, lengths, *states, direction, bool(layout), after, int8_rows
        )
        common: dict[str, Any] = {"direction": direction, "clip": clip}
        if activations:
            common["activations"] = layer.activations(activations)
        summed, inputs, own = finish(layer)
        results = g.ops(name.lower(), layer.projected(summed), layer.packed(), *inputs, **common, **own)
        return _results(layer, results)

    return imported


def _fitted(
    g: GraphBuilder,
    x: Value,
    weight: Value,
    lengths: Value | None,
    hidden: Value | None,
    cell: Value | None,
    is_batch_first: bool,
) -> tuple[Value, Value | None, Value | None, Value | None]:
    """The inputs as tensors of one batch, x with as many features as there are weights; a run checks what is not known."""
    batch_axis = 0 if is_batch_first else 1  # of states
    batches = [x.shape[1], *(value.shape[0] for value in _present(lengths) if value.rank == 1)]
    batches += [state.shape[batch_axis] for state in _present(hidden, cell) if state.rank == 3]
    batch = next((size for size in batches if isinstance(size, int)), batches[0])
    x = g.checked(x, (x.shape[0], batch, weight.shape[2]))

    def of_batch(state: Value | None) -> Value | None:
        return state if state is None or state.rank != 3 else along(g, state, batch_axis, batch)

    if lengths is not None and lengths.rank == 1:
        lengths = along(g, lengths, 0, batch)
    return x, lengths, of_batch(hidden), of_batch(cell)


def _results(layer: _Layer, results: tuple[Value, ...]) -> tuple[Value, ...]:
    """All hidden states, then the last ones, as the node's layout has them."""
    g, (states, *last) = layer.g, results
    if layer.is_batch_first:
        states = g.op("permute_dims", states, axes=(2, 0, 1, 3))
        last = [g.op("permute_dims", state, axes=(1, 0, 2)) for state in last]
    return (states, *last)[: g.output_count]


importer("RNN")(_importer("RNN", 1, _rnn))
importer("GRU")(_importer("GRU", 3, _gru))
lstm = importer("LSTM")(_importer("LSTM", 4, _lstm))
lstm_of_int8 = _importer("LSTM", 4, _lstm, int8_rows=True)
