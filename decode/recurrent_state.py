"""States of recurrent layers of many sequences, and the last ones of each, to go back to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..formats.messages.errors import ArgumentError, CheckError, DTypeError, IndexOutOfRangeError, ShapeError, naming
from ..vm.tensor import Tensor, empty


@dataclass(frozen=True)
class _Place:
    """Where a sequence's states are: its slot, and which of the slot's `history` is the newest."""

    slot: int
    length: int = 0
    newest: int = 0
    older: int = 0  # states before it, to which it can go back


class RecurrentState:
    """For each layer and each of its states, `sequences` slots of `history` states: the newest, and those before it."""

    def __init__(self, layers: int, sequences: int, history: int, initial: Sequence[Any]) -> None:
        """`initial`: what each state of a layer is in a new sequence. Raises CheckError, OutOfMemoryError."""
        for name, size in (("layers", layers), ("reserved sequences", sequences), ("history", history)):
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
                raise ArgumentError(f"The number of {name} must be an integer, got {size!r}")
            if size <= 0:
                raise CheckError(f"The number of {name} should be greater than 0, got {size}")
        if not len(initial):
            raise CheckError("The number of states per layer should be greater than 0.")
        self.initial = [np.array(each.array if isinstance(each, Tensor) else each) for each in initial]
        if any(not each.size for each in self.initial):
            raise CheckError("A state has at least one element.")
        self.layers, self.history, self.sequences = layers, history, sequences
        with naming(f"the states of {sequences} sequences"):
            self.states = [empty((layers, sequences, history, *each.shape), each.dtype) for each in self.initial]
        self.clear()

    def clear(self) -> None:
        """Forgets all sequences."""
        self.known: dict[int, _Place] = {}
        self._released: list[int] = []
        self._unused = 0  # the first slot that nobody has ever had
        self._batch: list[int] = []
        self._counts: list[int] = []
        self._were_set: set[tuple[int, int]] = set()  # layers and states, in this forward

    def _at(self, sequence: int) -> _Place:
        found = self.known.get(sequence)
        if found is None:
            raise CheckError(f'The sequence "{sequence}" cannot be found in the space state storage.')
        return found

    # ---- sequences ----

    def add(self, sequence: int) -> None:
        """A new sequence, in the initial state. Raises CheckError."""
        place = self._new(sequence, _Place(0))
        for states, initial in zip(self.states, self.initial, strict=True):
            states[:, place.slot, 0] = initial

    def _new(self, sequence: int, like: _Place) -> _Place:
        if isinstance(sequence, bool) or not isinstance(sequence, (int, np.integer)):
            raise ArgumentError(f"expected an integer as the name of a sequence, got a {type(sequence).__name__}")
        if sequence in self.known:
            raise CheckError(f'The sequence "{sequence}" is already in the space state storage.')
        if not self._released and self._unused == self.sequences:
            raise CheckError(
                f"The Sequence slot is full, cannot accept new sequence: there are {self.sequences}; remove one first"
            )
        if self._released:
            slot = self._released.pop()
        else:
            slot, self._unused = self._unused, self._unused + 1
        self.known[sequence] = place = replace(like, slot=slot)
        return place

    def remove(self, sequence: int) -> None:
        """Forgets a sequence. Raises CheckError."""
        self._released.append(self._at(sequence).slot)
        del self.known[sequence]
        self._batch = []

    def fork(self, parent: int, child: int, position: int = -1) -> None:
        """A new sequence in the state that the parent had after `position` tokens, -1: in its newest one. Raises CheckError where
        that state is not there any more."""
        source = self._at(parent)
        back = 0 if position == -1 else source.length - position
        if not 0 <= back <= source.older and position != 0:
            raise CheckError(
                f'The forked position {position} has no state any more: the sequence "{parent}" has {source.length} tokens and '
                f"the states of the last {source.older} of them besides the newest"
            )
        if position == 0:
            self.add(child)
            return
        place = self._new(child, source)
        for states in self.states:
            states[:, place.slot] = states[:, source.slot]
        self.pop(child, back)

    def pop(self, sequence: int, count: int) -> None:
        """Goes back by some tokens. Raises CheckError where those states are not there any more."""
        place = self._at(sequence)
        if count < 0:
            raise CheckError(f"The length of rolling back {count} cannot be negative.")
        if count > place.older:
            raise CheckError(
                f'The sequence "{sequence}" only has {place.older} available history in the space state storage, while the '
                f"length of rollback is {count} which exceeds the sequence length."
            )
        self.known[sequence] = replace(
            place, length=place.length - count, older=place.older - count, newest=(place.newest - count) % self.history
        )

    # ---- a forward ----

    def begin_forward(
        self, sequences: Sequence[int], counts: Sequence[int], parents: Sequence[int] | None = None
    ) -> None:
        """`get` and `set` are about these sequences until `end_forward`. Raises CheckError."""
        if len(sequences) != len(counts):
            raise CheckError(f"The seq_ids size ({len(sequences)}) and append_lengths size ({len(counts)}) mismatch.")
        if len(set(sequences)) != len(sequences):
            raise CheckError(f"begin_forward: each sequence must appear once, got {list(sequences)[:8]}")
        for name, count in zip(sequences, counts, strict=True):
            self._at(name)
            if count <= 0:
                raise CheckError(
                    f'Append with length {count} is not allowed: the sequence "{name}" is to get some tokens'
                )
        chains = [place - 1 for count in counts for place in range(count)]
        if parents is not None and list(parents) != chains:
            raise CheckError("Unexpected token tree for RNN state. RNN state only supports chains as token trees.")
        self._batch, self._counts, self._were_set = list(sequences), list(counts), set()

    def end_forward(self) -> None:
        """Makes the states that were set the newest; older ones stay. One more token can be undone, several at once cannot."""
        for name, count in zip(self._batch, self._counts, strict=True):
            place = self._at(name)
            older = 0 if count > 1 else min(place.older + 1, self.history - 1)
            newest = (place.newest + 1) % self.history
            for number, states in enumerate(self.states):
                stays = [layer for layer in range(self.layers) if (layer, number) not in self._were_set]
                states[stays, place.slot, newest] = states[stays, place.slot, place.newest]
            self.known[name] = replace(place, length=place.length + count, older=older, newest=newest)
        self._batch, self._counts = [], []

    def get(self, layer: int, state: int, out: Any) -> None:
        """The newest states of the batch, [sequences, …], into `out`. Raises CheckError, IndexOutOfRangeError, ShapeError."""
        places = self._places(layer, state, "get")
        target = self._fitting(out, state, "get")
        target[...] = self.states[state][layer, [p.slot for p in places], [p.newest for p in places]]

    def set(self, layer: int, state: int, data: Any) -> None:
        """Sets the batch's states of a forward, [sequences, …]. Raises CheckError, IndexOutOfRangeError, ShapeError."""
        places = self._places(layer, state, "set")
        given = self._fitting(data, state, "set")
        self.states[state][layer, [p.slot for p in places], [(p.newest + 1) % self.history for p in places]] = given
        self._were_set.add((layer, state))

    def _places(self, layer: int, state: int, doing: str) -> list[_Place]:
        self._check(layer, state, doing)
        if not self._batch:
            raise CheckError(
                f"{doing}: no forward is under way, or its sequences were changed; begin_forward comes first"
            )
        return [self._at(name) for name in self._batch]

    def _check(self, layer: int, state: int, doing: str) -> None:
        if not 0 <= layer < self.layers or not 0 <= state < len(self.states):
            raise IndexOutOfRangeError(
                f"{doing}: there is no state {state} of layer {layer}: {self.layers} layers have {len(self.states)} states each"
            )

    def _fitting(self, value: Any, state: int, doing: str) -> np.ndarray:
        array, initial = value.array if isinstance(value, Tensor) else np.asarray(value), self.initial[state]
        if array.dtype != initial.dtype:
            raise DTypeError(f"{doing}: state {state} must be of {initial.dtype}, got {array.dtype}")
        wanted = (len(self._batch), *initial.shape)
        if array.shape != wanted:
            raise ShapeError(f"{doing}: state {state} of this batch must be {list(wanted)}, got {list(array.shape)}")
        return array

    def newest(self, layer: int, state: int, sequence: int) -> np.ndarray:
        """A copy of one sequence's state. Raises CheckError, IndexOutOfRangeError."""
        self._check(layer, state, "debug_get")
        place = self._at(sequence)
        return self.states[state][layer, place.slot, place.newest].copy()
