"""How many rows one call should have: as many as make a row cheaper, and no more.

What a call costs besides its rows is shared by those that are merged. Where that is little, merging gains nothing: a row of a
convolutional network even costs more among many, whose images leave the caches, and who comes first waits for the last. So what
calls take is noted, by powers of two of their rows, and the size that was found best is kept to; now and then, one twice or half
as large is tried again. Whatever is chosen, answers are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Hashable

from .endpoint import SHORT_SECONDS

_AS_GOOD = 1.03  # times the least cost of a row, up to which the smaller call is taken: its rows are answered sooner
# Of a call that took less, or more, than known: the system holds calls up, and hurries none.
_LESS_WEIGHT, _MORE_WEIGHT = 0.5, 0.1
_OLD = 256  # calls after which a neighbour's cost is out of date
_KNOWN_KINDS = 256


class BatchSizes:
    """Of one model; used with the scheduler's lock. Kinds of calls are told apart by function and shapes of a row."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kinds: dict[Hashable, _Costs] = {}

    def wanted(self, kind: Hashable, waiting: int) -> int:
        """The number of rows for the next call when `waiting` wait: the maximum while nothing is known."""
        costs = self._kinds.get(kind)
        return self._most if costs is None else costs.wanted(min(waiting, self._most), self._most)

    def took(self, kind: Hashable, rows: int, seconds: float) -> None:
        """A call of `rows` rows used all processors for `seconds`, or some of them for proportionally longer."""
        if kind not in self._kinds:
            if len(self._kinds) >= _KNOWN_KINDS:
                self._kinds.clear()
            self._kinds[kind] = _Costs()
        self._kinds[kind].took(rows, seconds)


class _Costs:
    def __init__(self) -> None:
        self._of: dict[int, tuple[float, int]] = {}  # power of two → seconds a row, and which call told it last
        self._calls = 0

    def took(self, rows: int, seconds: float) -> None:
        size, found = _power(rows), (SHORT_SECONDS + seconds) / max(1, rows)
        self._calls += 1
        if size in self._of:
            known = self._of[size][0]
            found = known + (_LESS_WEIGHT if found < known else _MORE_WEIGHT) * (found - known)
        self._of[size] = found, self._calls

    def wanted(self, waiting: int, most: int) -> int:
        least = min(cost for cost, _ in self._of.values())
        best = min(size for size, (cost, _) in self._of.items() if cost <= _AS_GOOD * least)
        for near in (2 * best, best // 2):
            if 1 <= near <= waiting and self._is_unknown(near):
                return near
        return most if 2 * best > most else best

    def _is_unknown(self, size: int) -> bool:
        return size not in self._of or self._calls - self._of[size][1] > _OLD


def _power(rows: int) -> int:
    """The largest power of two that is not above."""
    return 1 << (max(1, rows).bit_length() - 1)
