"""Times are measured until runs agree: under load, what is measured is the work or nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from treadle.tools.steady import seconds_of_a_round

ROUND = 2e-6  # seconds that a round takes here


class Machine:
    """A clock that moves when rounds run; `lost(now)` gives the seconds that others take from a run."""

    def __init__(self, lost: Callable[[float], float]) -> None:
        self.now, self.lost = 0.0, lost

    def clock(self) -> float:
        return self.now

    def run(self, rounds: int) -> float:
        seconds = rounds * ROUND + self.lost(self.now)
        self.now += seconds
        return seconds


def test_an_idle_machine_is_measured_in_a_moment() -> None:
    machine = Machine(lambda _: 0.0)
    found = seconds_of_a_round(machine.run, machine.clock)
    assert found.is_steady
    assert found.seconds == pytest.approx(ROUND)
    assert machine.now < 0.1


@pytest.mark.parametrize("first", [0.002, 0.05, 0.5])
def test_a_slow_first_run_does_not_decide(first: float) -> None:
    """Once it did: a thread that began late made one round look as long as thousands, and the peak 0 GFLOP/s."""
    machine = Machine(lambda now: 0.0 if now else first)
    found = seconds_of_a_round(machine.run, machine.clock)
    assert found.is_steady
    assert found.seconds == pytest.approx(ROUND)


@pytest.mark.parametrize("seed", range(20))
def test_interruptions_are_waited_out(seed: int) -> None:
    chance = random.Random(seed)
    machine = Machine(lambda _: chance.choice([0.0, 0.0, 0.004, 0.012]))
    found = seconds_of_a_round(machine.run, machine.clock)
    assert found.seconds == pytest.approx(ROUND, rel=0.06)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_never_twice_the_same_is_not_steady(seed: int) -> None:
    chance = random.Random(seed)
    machine = Machine(lambda _: 0.001 + chance.random() * 0.4)
    found = seconds_of_a_round(machine.run, machine.clock)
    assert not found.is_steady
    assert machine.now < 2
