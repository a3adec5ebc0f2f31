"""The states of a decoder's texts, for an executable's function of many texts: a call takes those of each text, and gives the
next ones. The results of a call are the inputs of the next call of the same texts, not copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..formats.ports import Port


class TextStates:
    """`ports`: the inputs [texts, …]. A text's states are zeros before its first token."""

    def __init__(self, ports: Iterable[Port]) -> None:
        self.empty: dict[str, np.ndarray] = {}
        for port in ports:
            assert port.shape is not None
            assert port.dtype is not None
            self.empty[port.name] = np.zeros([1, *(size for size in port.shape if isinstance(size, int))], port.dtype)
        self._known: dict[int, Mapping[str, np.ndarray]] = {}  # of each context [1, …]: views of the results of calls
        self._last: list[int] = []  # the contexts of the last call, and its results
        self._made: dict[str, np.ndarray] = {}

    def __bool__(self) -> bool:
        return bool(self.empty)

    @property
    def bytes(self) -> int:
        """Of one text."""
        return sum(each.nbytes for each in self.empty.values())

    def of(self, context: int) -> Mapping[str, np.ndarray]:
        return self._known[context]

    def set(self, context: int, states: Mapping[str, np.ndarray] | None = None) -> None:
        """Sets the states of a context, by default those before the first token."""
        self._known[context] = self.empty if states is None else states
        if context in self._last:
            self._made = {}

    def remove(self, context: int) -> None:
        del self._known[context]

    def inputs(self, contexts: list[int]) -> dict[str, np.ndarray]:
        if contexts == self._last and self._made:
            return self._made
        return {name: joined([self._known[each][name] for each in contexts]) for name in self.empty}

    def put(self, contexts: list[int], made: Mapping[str, np.ndarray]) -> None:
        """Takes the results of a call of these contexts."""
        for each in self._known.keys() & {*self._last} - {*contexts}:  # a view keeps the memory of the whole batch
            self._known[each] = {name: state.copy() for name, state in self._known[each].items()}
        for row, each in enumerate(contexts):
            self._known[each] = {name: states[row : row + 1] for name, states in made.items()}
        self._last, self._made = contexts, dict(made)


def joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
