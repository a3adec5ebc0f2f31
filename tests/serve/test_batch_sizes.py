"""How many rows a call has is learned from what calls take."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from treadle.serve.batch_sizes import BatchSizes


def served(seconds: Callable[[int], float], calls: int, waiting: Callable[[int], int] = lambda _: 64) -> list[int]:
    """The rows of each call; one of n rows takes `seconds(n)`."""
    sizes, rows = BatchSizes(32), []
    for number in range(calls):
        there = waiting(number)
        rows.append(min(there, sizes.wanted("kind", there)))
        sizes.took("kind", rows[-1], seconds(rows[-1]))
    return rows


def test_the_most_that_may_be_is_wanted_while_nothing_is_known():
    assert BatchSizes(24).wanted("kind", 100) == 24


@pytest.mark.parametrize("first", [1, 64])
def test_calls_grow_or_stay_large_where_rows_get_cheaper(first: int):
    rows = served(lambda n: 1e-3 + 1e-4 * n, 100, lambda number: 64 if number else first)
    assert set(rows[20:]) <= {32, 16}
    assert Counter(rows[20:])[32] >= 75


def test_rows_that_cost_more_among_others_are_called_alone():
    rows = served(lambda n: 0.03 * n * (1 + 0.02 * n), 1000, lambda number: 64 if number else 1)
    assert Counter(rows)[1] >= 990
    assert max(rows) == 2  # tried now and then


def test_what_is_hardly_cheaper_is_not_waited_for():
    rows = served(lambda n: 0.014 * n, 1000, lambda number: 64 if number else 1)
    assert Counter(rows)[1] >= 990


def test_a_call_that_the_system_held_up_decides_nothing_for_long():
    rng = random.Random(0)
    rows = served(lambda n: (1e-3 + 1e-4 * n) * (10 if rng.random() < 0.1 else 1), 2000)
    assert Counter(rows[200:])[32] >= 1600


def test_who_waits_alone_is_not_kept_waiting_for_sizes_that_nobody_tried():
    sizes = BatchSizes(32)
    sizes.took("kind", 1, 0.01)
    assert sizes.wanted("kind", 1) == 1
    assert sizes.wanted("other", 1) == 32


def test_a_largest_batch_that_is_no_power_of_two_is_reached():
    sizes = BatchSizes(24)
    for _ in range(20):
        rows = sizes.wanted("kind", 100)
        sizes.took("kind", rows, 1e-3 + 1e-5 * rows)
    assert rows == 24
