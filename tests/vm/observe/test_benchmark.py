"""The time evaluator: how often it calls, and what it says."""

import re
from itertools import count

import pytest
from treadle.formats.messages.errors import ArgumentError
from treadle.vm.observe.benchmark import BenchmarkResult, Repeats, measure


class Clock:
    """Calls take a fixed time by this clock."""

    def __init__(self, seconds: float) -> None:
        self.calls, self._seconds = 0, seconds

    def call(self) -> None:
        self.calls += 1

    def __call__(self) -> float:
        return self.calls * self._seconds


def test_one_call_is_made_for_nothing() -> None:
    clock = Clock(0.1)
    assert measure(clock.call, Repeats(1), clock=clock).results == pytest.approx([0.1])
    assert clock.calls == 2


def test_short_repeats_are_made_again_with_more_calls() -> None:
    clock = Clock(0.1)
    result = measure(clock.call, Repeats(1, min_repeat_ms=1000), clock=clock)
    assert result.results == pytest.approx([0.1])
    assert clock.calls == 1 + 1 + 11  # warm-up, too few, 1000 / 100 + 1


def test_the_number_stays_for_the_next_repeats() -> None:
    clock = Clock(0.1)
    measure(clock.call, Repeats(1, 3, 1000), clock=clock)
    assert clock.calls == 1 + 1 + 11 + 11 + 11


def test_calls_that_take_no_time_end() -> None:
    clock = Clock(0)
    assert measure(clock.call, Repeats(1, 1, 1, 5), clock=clock).results == (0,)
    assert clock.calls == 1 + 1 + 2 + 3 + 4 + 6
    once = Clock(0)
    measure(once.call, Repeats(3, 1, 1, 0), clock=once)
    assert once.calls == 4


def test_whole_numbers_may_be_floats_and_infinity_is_none() -> None:
    assert len(measure(lambda: None, Repeats(2.0, 3.0)).results) == 3  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="whole"):
        Repeats(float("inf"))  # type: ignore[arg-type]


def test_each_repeat_is_prepared_and_cooled_down(monkeypatch: pytest.MonkeyPatch) -> None:
    slept, prepared = [], count()
    monkeypatch.setattr("treadle.vm.observe.benchmark.time.sleep", slept.append)
    repeats = Repeats(repeat=3, cooldown_interval_ms=500, repeats_to_cooldown=2)
    measure(lambda: None, repeats, prepare=lambda: next(prepared))
    assert slept == [0.5, 0.5]
    assert next(prepared) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"number": 0},
        {"repeat": 0},
        {"number": 1.5},
        {"min_repeat_ms": -1},
        {"limit_zero_time_iterations": -1},
        {"cooldown_interval_ms": -1},
        {"repeats_to_cooldown": 0},
        {"number": "3"},
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict) -> None:
    with pytest.raises(ArgumentError, match=next(iter(options))):
        Repeats(**options)


def test_a_result_says_what_it_measured() -> None:
    result = BenchmarkResult([1, 2, 2, 5])
    assert (result.mean, result.median, result.min, result.max, result.std) == (2.5, 2, 1, 5, 1.5)
    assert repr(result).startswith("BenchmarkResult(min=1.0, mean=2.5, median=2.0, max=5.0, std=1.5, results=(1.0,")
    lines = str(result).split("\n")
    assert lines[0] == "Execution time summary:"
    assert lines[1] == " mean (ms)   median (ms)    max (ms)     min (ms)     std (ms)  "
    assert re.split(r" +", lines[2].strip()) == ["2500.0000", "2000.0000", "5000.0000", "1000.0000", "1500.0000"]
    assert lines[3] == " " * 15
    with pytest.raises(ArgumentError, match="one result at least"):
        BenchmarkResult([])
