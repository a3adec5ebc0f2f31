"""docs/scaling.md: derived, fresh, and its arithmetic."""

from __future__ import annotations

import dataclasses

import pytest
from treadle.tools.dev.hosts import compare, page
from treadle.tools.dev.hosts.costs import Costs
from treadle.tools.dev.hosts.simulation import Fleet, Simulation


def test_the_page_is_fresh() -> None:
    assert page.PAGE.read_text() == page.page(Costs.read(), compare.saved()), (
        "run python -m treadle.tools.dev.hosts --write"
    )


def test_costs_are_read_as_they_were_written(tmp_path) -> None:
    costs = Costs.read()
    costs.saved(tmp_path / "costs.json")
    assert Costs.read(tmp_path / "costs.json") == costs
    assert costs.request("http") == pytest.approx(costs.http + costs.call + costs.row)


def test_clients_get_what_the_scarcer_of_their_number_and_the_processors_allows() -> None:
    assert compare.answered(1, alone=0.01, busy=0.004, servers=2) == pytest.approx(100, rel=0.01)
    assert compare.answered(8, alone=0.01, busy=0.004, servers=2) == pytest.approx(500, rel=0.01)


def test_a_server_answers_no_faster_than_its_transport() -> None:
    costs = dataclasses.replace(Costs.read(), http=0.003, call=0.001, row=0.0005, processors=2)
    assert costs.between() == 0.003
    assert dataclasses.replace(costs, processors=1).between() == pytest.approx(0.0045)


def test_what_is_predicted_is_what_is_measured() -> None:
    assert compare.predicted(Costs.read()).keys() == compare.saved().keys()


def test_hosts_down_at_once_are_those_of_poisson() -> None:
    assert page.most_at_once(0.0) == 0
    assert page.most_at_once(1.0, 0.05) == 3  # P(N <= 3) = 0.981, P(N <= 2) = 0.920


@pytest.mark.parametrize("what", ["swap", "drain and start"])
def test_a_rolling_update_ends_and_loses_nothing(what: str) -> None:
    fleet = Fleet(4, 2)
    simulation = Simulation(fleet, [page.heavy(fleet)], seed=2)
    ended = page.rolled(simulation, what, Costs.read())
    (outcome,) = simulation.run(10.0)
    assert len(ended) == 1
    assert (outcome.lost, outcome.refused, outcome.repeated) == (0, 0, 0)
