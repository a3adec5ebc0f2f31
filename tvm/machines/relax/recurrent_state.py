"""`vm.builtin.rnn_state_*`: faces of `RecurrentState`. What they have in common with paged caches is `kv_state_*`."""

from __future__ import annotations

from typing import Any

from ....decode.recurrent_state import RecurrentState
from ....formats.messages.errors import CheckError
from ....vm.tensor import Tensor
from ...modules.containers import Object
from ...modules.registry import register_crossing
from .registering import builtin
from .values import parts, required, tensor


@register_crossing
class RNNState(RecurrentState, Object):
    """A recurrent state as a value of TVM's."""


def _state(value: Any, doing: str) -> RecurrentState:
    return required(value, RecurrentState, "a recurrent state", doing)


@builtin
def rnn_state_create(
    layers: int, sequences: int, history: int, getters: Any, setters: Any, initial: Any
) -> RecurrentState:
    """States of layers and sequences. TVM's functions that read and write them may be None; they are not called."""
    doing = "rnn_state_create"
    values = [tensor(each, doing) for each in parts(initial, doing)]
    for name, given in (("getters", getters), ("setters", setters)):
        if given is not None and len(parts(given, doing)) != len(values):
            raise CheckError(
                f"The number of state {name} should be the same as the number of states per layer, but got {len(given)} and "
                f"{len(values)} respectively."
            )
    return RNNState(layers, sequences, history, values)


@builtin
def rnn_state_get(state: Any, layer: int, number: int, out: Tensor) -> None:
    """The newest states of this forward's sequences, into `out`."""
    _state(state, "rnn_state_get").get(layer, number, tensor(out, "rnn_state_get"))


@builtin
def rnn_state_set(state: Any, layer: int, number: int, data: Tensor) -> RecurrentState:
    """What those states are after this forward."""
    found = _state(state, "rnn_state_set")
    found.set(layer, number, tensor(data, "rnn_state_set"))
    return found


@builtin
def rnn_state_debug_get(state: Any, layer: int, number: int, sequence: int) -> Tensor:
    """A copy of one sequence's newest state."""
    return Tensor(_state(state, "rnn_state_debug_get").newest(layer, number, sequence))
