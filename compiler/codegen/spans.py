"""Sets of numbers as spans: few runs of numbers, however long.

A set is a tuple of its borders, (start, end, start, end, …), each larger than the one before; ends are not in the set.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

Spans = tuple[int, ...]


def runs(spans: Spans) -> Iterator[tuple[int, int]]:
    """(start, end) of each run."""
    return zip(spans[::2], spans[1::2], strict=True)


def contains(spans: Spans, number: int) -> bool:
    return bisect_right(spans, number) % 2 == 1


def union(left: Spans, right: Spans) -> Spans:
    if not left or not right:
        return left or right
    if left[0] > right[0]:
        left, right = right, left
    if left[-1] < right[0]:
        return left + right
    borders: list[int] = []
    for start, end in sorted((*runs(left), *runs(right))):
        if borders and start <= borders[-1]:
            borders[-1] = max(borders[-1], end)
        else:
            borders += start, end
    return tuple(borders)


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
