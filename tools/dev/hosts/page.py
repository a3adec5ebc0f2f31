"""The tables of docs/scaling.md but the first: `python -m treadle.tools.dev.hosts.page` computes them anew, of `costs.json`. What
requests and batches cost is measured by `treadle bench serve` and `tools/dev/bench/batches.py`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

from .simulation import Fleet, Model, Outcome, Simulation

PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"
COSTS = SimpleNamespace(**json.loads(Path(__file__).with_name("costs.json").read_text()))  # seconds of work
MODEL = COSTS.call + COSTS.row  # a request of one row, beside its transport
HOSTS, SEED = (1, 10, 100, 1000), 20
LOAD = 0.7  # of the processors: what is left is for failures, updates and peaks
_REQUESTS, _HEAVY = 15_000, 0.010  # of a simulation; seconds of a request, where failures and updates are simulated
_LIFE, _REPAIR = 90 * 86400.0, 600.0  # seconds until a host fails, and until another stands in: assumed

Rows = Iterator[tuple[Any, ...]]


def between(transport: float, work: float = MODEL) -> float:
    """The least seconds between a host's answers: its transport is Python, one thread at a time, beside the model's kernels."""
    return max(transport, (transport + work) / COSTS.processors)


HTTP, GRPC = between(COSTS.http), between(COSTS.grpc)


def number(value: float) -> str:
    """Three digits at most."""
    return f"{float(f'{value:.3g}'):,.10g}"


def seconds(value: float) -> str:
    """In the unit that fits."""
    scale, unit = next(each for each in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if value >= each[0])
    return f"{number(value / scale)} {unit}"


def _row(what: str, outcome: Outcome) -> tuple[str, ...]:
    p50, p99 = (seconds(outcome.percentile(each)) for each in (0.5, 0.99))
    return what, p50, p99, f"{number(100 * outcome.refused / outcome.asked)} %"


def _simulated(hosts: int, *models: Model) -> list[Outcome]:
    length = _REQUESTS / sum(model.rate for model in models)
    return Simulation(Fleet(hosts, 1), models, SEED).run(1.1 * length, 0.1 * length)


def _capacity() -> Rows:
    rows = COSTS.processors * 64 / (COSTS.call + 64 * COSTS.row + COSTS.batch)
    for hosts in HOSTS:
        rates = hosts * LOAD / HTTP, hosts * LOAD / GRPC, hosts * rows
        yield hosts, *map(number, rates), f"{number(8 * rates[0] * COSTS.bytes_of_row / 1e6)} Mbit/s"


def _lines() -> Rows:
    for load in (0.5, 0.7, 0.9):
        for hosts in HOSTS:
            yield _row(f"{hosts}, load {load:g}", _simulated(hosts, Model(load * hosts / HTTP, HTTP))[0])


def _overload() -> Rows:
    yield _row("load 0.95", _simulated(1, Model(0.95 / HTTP, HTTP))[0])
    yield _row("load 1.5", _simulated(1, Model(1.5 / HTTP, HTTP))[0])
    for what, batch in (("load 1.5, calls dear, rows cheap", 1), ("the same in batches of up to 32", 32)):
        yield _row(what, _simulated(1, Model(1.5 / HTTP, 0.9 * HTTP, 0.1 * HTTP, batch))[0])
    names = "load 3 of one model …", "… beside load 0.1 of another"
    yield from map(_row, names, _simulated(1, Model(3 / HTTP, HTTP), Model(0.1 / HTTP, HTTP)))


def most_at_once(mean: float, share: float = 1e-4) -> int:
    """The least number that a Poisson variable of this mean passes in fewer than this share of moments."""
    count, term = 0, math.exp(-mean)
    total = term
    while 1 - total >= share:
        count += 1
        term *= mean / count
        total += term
    return count


def _down() -> Rows:
    for hosts in HOSTS:
        down = hosts * (_REPAIR + COSTS.start_passed) / _LIFE
        yield hosts, number(hosts * 86400 / _LIFE), number(down), most_at_once(down)


def heavy(hosts: int, load: float = LOAD) -> Simulation:
    """Of a model whose requests take long: as much goes wrong in a second, and a minute can be simulated."""
    model = Model(load * hosts * COSTS.processors / _HEAVY, call=_HEAVY)
    return Simulation(Fleet(hosts, COSTS.processors), [model], SEED)


def _failures() -> Rows:
    for hosts, load in ((hosts, load) for hosts in (2, 10, 30) for load in (0.4, LOAD)):
        simulation = heavy(hosts, load)
        simulation.at(3.0, simulation.fail, 0, 60.0)
        (outcome,) = simulation.run(10.0)
        *row, refused = _row(f"{hosts}, load {load:g}", outcome)
        yield *row, f"{number(100 * outcome.repeated / outcome.asked)} %", refused, outcome.lost


def rolled(simulation: Simulation, what: str) -> list[float]:
    """Plans an update of all hosts, one after the other from second 1 on; the list gets how long it took when it has ended."""
    ended: list[float] = []

    def following(host: int) -> None:
        if host == simulation.fleet.hosts:
            ended.append(simulation.now - 1.0)
        elif what == "swap":
            simulation.occupy(host, COSTS.swap, lambda: following(host + 1))
        else:
            simulation.drain(host, COSTS.start_passed, lambda: following(host + 1))

    simulation.at(1.0, following, 0)
    return ended


def _updates() -> Rows:
    for what in ("nothing", "swap", "drain and start"):
        simulation = heavy(10)
        ended = [] if what == "nothing" else rolled(simulation, what)
        (outcome,) = simulation.run(20.0, warm=1.0)
        yield *_row(what, outcome), outcome.lost, seconds(ended[0]) if ended else "-"


def answered(clients: int, alone: float, busy: float, servers: int) -> float:
    """Simulated answers a second: `alone` is the latency of one that asks alone, of which a server is busy for `busy` seconds."""
    model = Model(0.0, call=busy, clients=clients, think=max(0.0, alone - busy))
    (outcome,) = Simulation(Fleet(1, servers, choices=1), [model], seed=0).run(2000 * alone)
    return len(outcome.latencies) / (2000 * alone)


def _compared() -> Rows:
    """Half of a batch's cost is the caller's, which where there are fewer workers than processors runs beside the workers."""
    for what, measured in COSTS.measured.items():
        count = int(re.findall(r"\d+", what)[0])
        if what.startswith("map_batches"):
            busy = COSTS.call + 64 * COSTS.row + COSTS.batch / (2 if count < COSTS.processors else 1)
            rate = answered(count, busy, busy, min(count, COSTS.processors))
        else:
            rate = answered(count, COSTS.http_latency, between(COSTS.http, MODEL + COSTS.client), 1)
        yield what, number(rate), number(measured), f"{measured / rate:.2f}"


def mmc_wait(servers: int, load: float) -> float:
    """Mean wait of M/M/c at a load below 1, in units of the service time (Kleinrock, Queueing Systems, volume 1, 1975)."""
    blocked = 1.0  # Erlang's B, by its recursion over servers
    for count in range(1, servers + 1):
        blocked = load * servers * blocked / (count + load * servers * blocked)
    return blocked / (1 - load * (1 - blocked)) / (servers * (1 - load))


def md1_wait(load: float) -> float:
    """The same of M/D/1: Pollaczek and Khinchine's formula for times that do not vary."""
    return load / (2 * (1 - load))


def _checked() -> Rows:
    for name, servers, load in (("M/M/1", 1, 0.7), ("M/M/2", 2, 0.7), ("M/M/8", 8, 0.8), ("M/D/1", 1, 0.7)):
        model = Model(load * servers, 1.0, max_queue=10**9, varies=name != "M/D/1")
        (outcome,) = Simulation(Fleet(1, servers, choices=1), [model], SEED).run(50_000 / model.rate)
        exact, found = mmc_wait(servers, load) if model.varies else md1_wait(load), fmean(outcome.waits)
        yield f"{name}, load {load:g}", f"{exact:.3f}", f"{found:.3f}", f"{100 * (found / exact - 1):+.1f} %"


TABLES = (_capacity, _lines, _overload, _down, _failures, _updates, _compared, _checked)


def page() -> str:
    """docs/scaling.md with its tables computed anew."""
    first, *rest = re.split(r"(?<=:|-) \|\n((?:\|.*\n)+)", PAGE.read_text())
    texts = ["".join(f"| {' | '.join(map(str, row))} |\n" for row in table()) for table in TABLES]
    bodies = [rest[0], *texts]
    return first + "".join(f" |\n{body}{after}" for body, after in zip(bodies, rest[1::2], strict=True))


if __name__ == "__main__":
    PAGE.write_text(page())
