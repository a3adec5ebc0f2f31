"""How far the results of a narrow program may be off: what a tolerance of `treadle.compile(precision="auto")` is measured by.

| measure | error of a result | for |
|---|---|---|
| largest | the largest difference, as a share of the result's largest element | all |
| cosine | the largest of 1 - cos of the angle between rows | embeddings |
| ranks:K | share of rows whose K largest elements are others, or in another order | scores |
| nearest:K | share of rows whose K nearest rows, by cosine, are others, or in another order | embeddings |

A measure also says what samples that nobody has seen may reach, by those that it has: more than these, the fewer they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist

import numpy as np

from ..formats.messages.errors import ArgumentError
from .tensors import deviations, is_float

# A sample: results that were found, and those that were wanted
Sample = tuple[Sequence[np.ndarray], Sequence[np.ndarray]]
# The error of samples, and a bound for others
Measure = Callable[[Sequence[Sample]], tuple[float, float]]

LARGEST = "largest"
_RARE = 1e-3  # chance of a sample beyond its bound, if noise is normally distributed
# A bound grows by this share for one sample, by less for more: so far do errors of two samples differ. Measured on the zoo's 27
# models in bfloat16: 2 of 1,000 unseen samples are beyond it after two seen ones, 45 without it; half of it leaves 12
_SAMPLE_SPREAD = 0.5
_HEAVIEST = 0.3  # of the shapes of tails
_ROW_SPREAD = 2.0  # likewise of one row, whose error is a single number
_AT_ONCE = 256  # rows whose neighbours are looked for together
_CONFIDENT = NormalDist().inv_cdf(0.95)


def measure_of(name: str | None) -> Measure:
    """Raises ArgumentError for a name that no measure has."""
    kind, _, count = (
        (LARGEST if name is None else name).partition(":") if isinstance(name, str | None) else ("", "", "")
    )
    if kind in _COUNTED and count.isdecimal() and int(count) > 0:
        return lambda samples: _share(samples, lambda rows: _COUNTED[kind](rows, int(count)))
    if kind in _PLAIN and not count:
        return _PLAIN[kind]
    raise ArgumentError(f"measure={name!r}: expected largest, cosine, ranks:K or nearest:K, such as 'ranks:10'")


def noise(samples: Sequence[Sample]) -> float:
    """The root mean square of differences, as a share of a result's largest element, of the result that has most of it."""
    found = [_rms(deviations(*pair)) for sample in samples for pair in zip(*sample, strict=True)]
    return max(found, default=0.0)


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


def _largest(samples: Sequence[Sample]) -> tuple[float, float]:
    """Of n values with noise of the root mean square r, the largest is seldom beyond r times Student's t of 1 - p / 2n. Where
    tails are heavier than exponential, as those of probabilities that are mostly certain, it is beyond the largest seen."""
    error = bound = 0.0
    for of_one in zip(*(zip(*sample, strict=True) for sample in samples), strict=True):  # result by result
        each = [np.abs(deviations(*pair)) for pair in of_one]
        size, all_of_it = max(values.size for values in each), np.concatenate(each)
        if size == 0:
            continue
        largest = float(all_of_it.max())
        z = NormalDist().inv_cdf(1 - _RARE / (2 * size))
        t = z + (z**3 + z) / (4 * size * len(each))
        grown = largest * _growth(largest / max(_rms(all_of_it), 1e-30), all_of_it.size, size / _RARE)
        error, bound = max(error, largest), max(bound, grown, t * max(map(_rms, each)))
    return error, bound * (1 + _SAMPLE_SPREAD / math.sqrt(max(len(samples), 1)))


def _growth(ratio: float, seen: int, others: float) -> float:
    """How far the largest of `others` values is beyond that of those seen, which is `ratio` times their root mean square: by
    Weibull's distribution of that ratio, whose tail is exp(-x^k), if k is below 1."""
    if seen < 2 or not math.isfinite(ratio):
        return 1.0
    low, high = _HEAVIEST, 1.0
    for _ in range(20):
        k = (low + high) / 2
        low, high = (k, high) if math.log(seen) ** (1 / k) / math.sqrt(math.gamma(1 + 2 / k)) > ratio else (low, k)
    return max(1.0, math.log(others) / math.log(seen)) ** (1 / low) if high < 1 else 1.0


def _cosine(samples: Sequence[Sample]) -> tuple[float, float]:
    errors = [1 - np.einsum("ij,ij->i", *map(_unit, rows)) for rows in _rows(samples)]
    count = sum(each.size for each in errors)
    error = max((float(each.max(initial=0.0)) for each in errors), default=0.0)
    return error, error * (1 + _ROW_SPREAD / math.sqrt(max(count, 1)))


def _share(
    samples: Sequence[Sample], changed: Callable[[tuple[np.ndarray, np.ndarray]], np.ndarray]
) -> tuple[float, float]:
    """Wilson's bound for a share of rows, of which some were drawn."""
    rows = np.concatenate([np.zeros(0, bool), *map(changed, _rows(samples))])
    if not rows.size:
        return 0.0, 0.0
    share, spread = float(rows.mean()), _CONFIDENT**2 / rows.size
    middle, half = share + spread / 2, math.sqrt(spread * (share * (1 - share) + spread / 4))
    return share, (middle + half) / (1 + spread)


def _ranks(rows: tuple[np.ndarray, np.ndarray], count: int) -> np.ndarray:
    """Whether the first `count` of each row are others, or something that is found is NaN."""
    mine, right = (np.argsort(-each, axis=1, kind="stable")[:, :count] for each in rows)
    return (mine != right).any(axis=1) | np.isnan(rows[0]).any(axis=1)


def _nearest(rows: tuple[np.ndarray, np.ndarray], count: int) -> np.ndarray:
    """The same of cosines to all other rows."""
    mine, right = map(_unit, rows)
    changed = [np.zeros(0, bool)]
    for start in range(0, len(mine), _AT_ONCE):
        cosines = mine[start : start + _AT_ONCE] @ mine.T, right[start : start + _AT_ONCE] @ right.T
        for each in cosines:
            np.fill_diagonal(each[:, start:], -np.inf)
        changed.append(_ranks(cosines, count))
    return np.concatenate(changed)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def _rows(samples: Sequence[Sample]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows of each result of floats, found and wanted, those of all samples together where they are equally long. Raises
    ArgumentError where there are none."""
    has_rows = False
    for of_one in zip(*(zip(*sample, strict=True) for sample in samples), strict=True):
        by_length: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        for found, wanted in of_one:
            if wanted.ndim and is_float(wanted.dtype):
                got = found if found.shape == wanted.shape else np.full(wanted.shape, np.nan)
                by_length.setdefault(wanted.shape[-1], []).append((got, wanted))
        for length, same in by_length.items():
            has_rows = True
            mine, right = (
                np.concatenate([each.astype(np.float64).reshape(-1, length) for each in side])
                for side in zip(*same, strict=True)
            )
            yield mine, right
    if samples and not has_rows:
        raise ArgumentError("measure: no result has rows of floats; the measure of all results is 'largest'")


_PLAIN: dict[str, Measure] = {LARGEST: _largest, "cosine": _cosine}
_COUNTED = {"ranks": _ranks, "nearest": _nearest}
