"""docs/scaling.md: its tables are fresh, and their arithmetic."""

from __future__ import annotations

import pytest
from treadle.tools.dev.hosts import page


def test_the_page_is_fresh() -> None:
    assert page.PAGE.read_text() == page.page(), "run python -m treadle.tools.dev.hosts.page"


def test_clients_get_what_the_scarcer_of_their_number_and_the_processors_allows() -> None:
    assert page.answered(1, alone=0.01, busy=0.004, servers=2) == pytest.approx(100, rel=0.01)
    assert page.answered(8, alone=0.01, busy=0.004, servers=2) == pytest.approx(500, rel=0.01)


def test_a_server_answers_no_faster_than_its_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, seconds in ((2, 0.003), (1, 0.0045)):
        monkeypatch.setattr(page.COSTS, "processors", processors)
        assert page.between(0.003, 0.0015) == pytest.approx(seconds)


def test_hosts_down_at_once_are_those_of_poisson() -> None:
    assert page.most_at_once(0.0) == 0
    assert page.most_at_once(1.0, 0.05) == 3  # P(N <= 3) = 0.981, P(N <= 2) = 0.920


@pytest.mark.parametrize("what", ["swap", "drain and start"])
def test_a_rolling_update_ends_and_loses_nothing(what: str) -> None:
    simulation = page.heavy(4)
    ended = page.rolled(simulation, what)
    (outcome,) = simulation.run(10.0)
    assert len(ended) == 1
    assert (outcome.lost, outcome.refused, outcome.repeated) == (0, 0, 0)
