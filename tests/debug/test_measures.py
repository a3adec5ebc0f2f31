"""What a tolerance is measured by, and what samples say of others."""

from __future__ import annotations

import numpy as np
import pytest
from treadle.debug.measures import Sample, measure_of, noise
from treadle.formats.messages.errors import ArgumentError

RNG = np.random.default_rng(0)


def noisy(shape: tuple[int, ...], spread: float, level: float = 1e-3) -> Sample:
    """A sample whose noise is normally distributed, and differs from sample to sample by some share."""
    wanted = RNG.standard_normal(shape)
    return [wanted + level * np.exp(spread * RNG.standard_normal()) * RNG.standard_normal(shape)], [wanted]


@pytest.mark.parametrize("size", [10, 1000])
def test_others_are_seldom_beyond_the_bound_of_a_few_samples(size: int):
    largest = measure_of("largest")
    beyond, above, count = 0, 0, 40
    for _ in range(50):
        error, bound = largest([noisy((size,), 0.1) for _ in range(3)])
        others = [largest([noisy((size,), 0.1)])[0] for _ in range(count)]
        beyond += sum(each > bound for each in others)
        above += sum(each > error / 0.8 for each in others)  # a fixed share of the tolerance is no rule for few outputs
    assert beyond <= 0.005 * 50 * count
    assert size > 10 or above > 0.02 * 50 * count


def test_heavy_tails_are_bounded_too():
    """Noise of probabilities: next to none where they are certain, and now and then much."""
    largest = measure_of("largest")

    def sample() -> Sample:
        noise = 1e-3 * RNG.standard_normal(500) * RNG.exponential(1, 500) ** 3
        wanted = RNG.uniform(0.5, 1, 500)
        return [wanted + noise], [wanted]

    beyond = [
        largest([sample()])[0] > bound
        for bound in (largest([sample() for _ in range(6)])[1] for _ in range(40))
        for _ in range(20)
    ]
    assert np.mean(beyond) < 0.005


def test_a_bound_is_near_for_many_samples():
    error, bound = measure_of("largest")([noisy((1000,), 0.0) for _ in range(64)])
    assert error < bound < 1.5 * error


def test_ranks_are_those_of_rows():
    wanted = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    found = np.array([[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]])
    assert measure_of("ranks:1")([([found], [wanted])])[0] == 0
    share, bound = measure_of("ranks:2")([([found], [wanted])])
    assert share == 0.5 < bound < 1


def test_neighbours_are_rows_of_all_samples():
    rows = RNG.standard_normal((600, 8))
    halves = [([part], [part]) for part in np.split(rows, 2)]
    share, bound = measure_of("nearest:10")(halves)
    assert share == 0 < bound < 0.005
    turned = rows.copy()
    turned[3] *= -1
    share, _ = measure_of("nearest:10")([([turned], [rows])])
    assert 0.005 < share < 0.1


def test_a_cosine_knows_no_length():
    rows = RNG.standard_normal((5, 8))
    assert measure_of("cosine")([([2 * rows], [rows])])[0] == pytest.approx(0, abs=1e-12)
    assert measure_of("cosine")([([-rows], [rows])])[0] == pytest.approx(2)


@pytest.mark.parametrize("name", ["largest", "cosine", "ranks:1", "nearest:1"])
def test_results_of_another_shape_or_without_numbers_are_never_within(name: str):
    wanted = np.ones((2, 3), "f")
    for found in (np.ones((3, 2), "f"), np.full((2, 3), np.nan, "f")):
        error, _ = measure_of(name)([([found], [wanted])])
        assert not error < 1


def test_measures_of_rows_need_rows():
    ids = np.arange(3)
    for name in ("cosine", "ranks:1"):
        with pytest.raises(ArgumentError, match="no result has rows of floats"):
            measure_of(name)([([ids], [ids])])
    assert measure_of("largest")([([ids], [ids])]) == (0, 0)


def test_noise_is_that_of_the_worst_result():
    wanted = np.ones(4)
    assert noise([([wanted, wanted + 0.1], [wanted, wanted])]) == pytest.approx(0.1)
