"""The simulation against queueing theory, and against what its rules say."""

from __future__ import annotations

from statistics import fmean

import pytest
from treadle.tools.dev.hosts.page import md1_wait, mmc_wait
from treadle.tools.dev.hosts.simulation import Fleet, Model, Outcome, Simulation

# Of the mean wait: what 200,000 requests of one seed come within at a load of 0.7, where neighbours' waits are alike.
ERROR = 0.05


def mm1k_refused(room: int, load: float) -> float:
    """The share of requests that M/M/1/K refuses: one server, `room` requests that are there, the one served included."""
    return 1 / (room + 1) if load == 1 else (1 - load) * load**room / (1 - load ** (room + 1))


def closed_rate(clients: int, servers: int, think: float) -> float:
    """Answers in a service time, of clients that each think, wait for a server and are served (the machine repairman)."""
    weight, busy, total = 1.0, 0.0, 1.0  # of the state that no client is at a server; states follow by balance
    for here in range(1, clients + 1):
        weight *= (clients - here + 1) / (think * min(here, servers))
        total += weight
        busy += weight * min(here, servers)
    return busy / total


def outcome(model: Model, processors: int = 1, requests: int = 200_000, hosts: int = 1) -> Outcome:
    (found,) = Simulation(Fleet(hosts, processors, choices=min(hosts, 2)), [model], seed=7).run(requests / model.rate)
    return found


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.7), (2, 0.7), (8, 0.8)])
def test_waits_are_those_of_mmc(servers: int, load: float) -> None:
    model = Model(rate=load * servers, call=1.0, max_queue=10**9, varies=True)
    assert fmean(outcome(model, servers).waits) == pytest.approx(mmc_wait(servers, load), rel=ERROR)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_waits_are_those_of_md1(load: float) -> None:
    assert fmean(outcome(Model(load, 1.0, max_queue=10**9)).waits) == pytest.approx(md1_wait(load), rel=ERROR)


@pytest.mark.parametrize("load", [0.8, 1.0, 1.5])
def test_refusals_are_those_of_mm1k(load: float) -> None:
    found = outcome(Model(load, 1.0, max_queue=7, varies=True))
    assert found.refused / found.asked == pytest.approx(mm1k_refused(8, load), rel=ERROR)


@pytest.mark.parametrize(("clients", "servers"), [(1, 1), (3, 1), (8, 2), (30, 4)])
def test_answers_to_clients_that_wait_are_those_of_the_machine_repairman(clients: int, servers: int) -> None:
    model = Model(0.0, 1.0, varies=True, clients=clients, think=3.0)
    (found,) = Simulation(Fleet(1, servers, choices=1), [model], seed=7).run(20_000.0)
    rate = closed_rate(clients, servers, 3.0)
    assert len(found.latencies) / 20_000 == pytest.approx(rate, rel=ERROR)


def test_formulas_have_the_values_of_the_books() -> None:
    assert mmc_wait(1, 0.5) == pytest.approx(1.0)
    assert mmc_wait(2, 0.5) == pytest.approx(1 / 3)
    assert md1_wait(0.5) == pytest.approx(0.5)  # half of M/M/1's
    assert mm1k_refused(1, 1.0) == pytest.approx(0.5)
    assert closed_rate(1, 1, 3.0) == pytest.approx(1 / 4)
    assert closed_rate(2, 1, 1.0) == pytest.approx(4 / 5)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (outcome(Model(5.0, 0.3, varies=True), 2, 2000) for _ in range(2))
    assert first == second


def test_batches_carry_a_load_that_single_calls_cannot() -> None:
    alone = outcome(Model(150.0, call=0.008, row=0.002, max_queue=64), requests=20_000)
    together = outcome(Model(150.0, call=0.008, row=0.002, max_batch=16, max_queue=64), requests=20_000)
    assert alone.refused / alone.asked > 0.3
    assert together.refused == 0
    assert together.calls < 0.6 * 20_000


def test_a_models_overload_does_not_starve_another() -> None:
    greedy, modest = Model(400.0, 0.01), Model(20.0, 0.01)
    many, few = Simulation(Fleet(1, 2), [greedy, modest], seed=3).run(60.0)
    assert many.refused / many.asked > 0.4
    assert few.refused == 0
    assert few.percentile(0.99) < 0.04  # at most what runs, and its own


def test_a_host_that_fails_costs_its_clients_a_second_try() -> None:
    simulation = Simulation(Fleet(10, 2), [Model(1000.0, 0.01)], seed=5)
    simulation.at(5.0, simulation.fail, 3, 2.0)
    (found,) = simulation.run(10.0)
    assert found.lost == found.refused == 0
    assert 0 < found.repeated < 0.05 * found.asked
    assert found.percentile(1.0) >= 1.0  # the time in which it is noticed


def test_a_drained_host_loses_nothing() -> None:
    simulation = Simulation(Fleet(10, 2), [Model(1000.0, 0.01)], seed=5)
    for number in range(10):
        simulation.at(1.0 + number, simulation.drain, number, 0.5)
    (found,) = simulation.run(12.0)
    assert (found.lost, found.refused, found.repeated) == (0, 0, 0)
    assert found.percentile(0.99) < 0.1


def test_no_host_refuses() -> None:
    simulation = Simulation(Fleet(1, 1), [Model(10.0, 0.01)], seed=1)
    simulation.at(0.0, simulation.drain, 0, 5.0)
    (found,) = simulation.run(4.0)
    assert found.asked == found.refused > 0
