"""Sets of numbers as spans: few runs of numbers, however long.

A set is a tuple of its borders, (start, end, start, end, …), each larger than the one before; ends are not in the set.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Spans = tuple[int, ...]


def runs(spans: Spans) -> Iterator[tuple[int, int]]:
    """(start, end) of each run."""
    return zip(spans[::2], spans[1::2], strict=True)


def contains(spans: Spans, number: int) -> bool:
    return bisect_right(spans, number) % 2 == 1


def union(*sets: Spans) -> Spans:
    """Of one set of many runs and others of few, it takes as long as these, and a copy."""
    found = [each for each in sets if each]
    if len(found) < 2:
        return found[0] if found else ()
    if len(found) == 2:
        left, right = found if found[0][0] <= found[1][0] else reversed(found)
        if left[-1] < right[0]:
            return left + right
    largest = max(found, key=len)
    others = [run for each in found if each is not largest for run in runs(each)]
    if _FEW * len(others) < len(largest):
        for start, end in others:
            largest = _with(largest, start, end)
        return largest
    borders: list[int] = []
    for start, end in sorted((*runs(largest), *others)):
        if borders and start <= borders[-1]:
            borders[-1] = max(borders[-1], end)
        else:
            borders += start, end
    return tuple(borders)


_FEW = 8  # borders, at least, of a set that another one's runs are added to one by one, for each of them


def _with(spans: Spans, start: int, end: int) -> Spans:
    """With one more run, which takes in what it meets or touches."""
    first, last = bisect_left(spans, start), bisect_right(spans, end)
    return (*spans[:first], *(() if first % 2 else (start,)), *(() if last % 2 else (end,)), *spans[last:])


def intersection(left: Spans, right: Spans) -> Spans:
    """Takes time linear in the set with fewer runs, times the logarithm of the other."""
    if not left or not right or left[-1] <= right[0] or right[-1] <= left[0]:
        return ()
    if len(left) > len(right):
        left, right = right, left
    borders: list[int] = []
    for start, end in runs(left):
        first, last = bisect_right(right, start), bisect_right(right, end - 1)
        borders += [start] * (first % 2) + list(right[first:last]) + [end] * (last % 2)
    return tuple(borders)


def meet(left: Spans, right: Spans) -> bool:
    """Whether the sets have a number in common."""
    return bool(intersection(left, right))
