"""docs/scaling.md: derived from `costs.json` by arithmetic and by simulations of stated seeds, so that anybody can redo it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import queueing
from .compare import predicted
from .costs import Costs
from .simulation import Fleet, Model, Outcome, Simulation

PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"

HOSTS = (1, 10, 100, 1000)
SEED = 20
LOAD = 0.7  # of the processors: what is left is for failures, updates and peaks
_REQUESTS = 15_000  # of a simulation
_HEAVY = 0.010  # seconds of a request, where failures and updates are simulated
_BETWEEN_FAILURES = 90 * 86400.0  # seconds that a host lives: assumed, four failures a year
_REPAIR = 600.0  # seconds until another host stands in: assumed
_HEALTH = 1.0  # seconds between looks at a host's readiness: assumed

_TOP = """\
<!-- Derived by tools/dev/hosts/page.py from tools/dev/hosts/costs.json; run `python -m treadle.tools.dev.hosts --write`. -->
# What many hosts serve

One host was measured; the rest is arithmetic and simulation, by `tools/dev/hosts/`:

    python -m treadle.tools.dev.hosts                 # this page, from the costs that the repository has
    python -m treadle.tools.dev.hosts --measure       # measures this machine: a minute, Linux, treadle[serve]
    python -m treadle.tools.dev.hosts --compare       # simulates what this machine does, and measures that: a minute
    python -m treadle.tools.dev.hosts --write         # writes docs/scaling.md
"""


def page(costs: Costs, compared: dict[str, float]) -> str:
    """The whole page, in Markdown: of costs, and of the rates that `--compare` measured."""
    parts = [_TOP, *_measured(costs), *_arithmetic(costs), *_queues(costs), *_overload(costs), *_failures(costs)]
    return "\n".join([*parts, *_updates(costs), *_compared(costs, compared), *_checked(), _NOT_THERE])


def table(titles: str, rows: list[tuple]) -> str:
    """A table of Markdown; the first column is text."""
    names = titles.split("|")
    lines = [names, ["--", *["--:"] * (len(names) - 1)], *[[str(cell) for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def number(value: float) -> str:
    """Three digits at most."""
    return f"{float(f'{value:.3g}'):,.10g}"


def seconds(value: float) -> str:
    """In the unit that fits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{number(value / scale)} {unit}"
    return f"{number(value / 1e-9)} ns"


def share(value: float) -> str:
    return f"{number(100 * value)} %"


# ---- arithmetic ----


def capacity(costs: Costs, transport: str = "http") -> float:
    """Requests of one row that a host answers a second, at most, alone with its network."""
    return 1 / costs.between(transport)


def batch_capacity(costs: Costs, rows: int) -> float:
    """Rows a second that `map_batches` computes on a host, in batches of so many."""
    return costs.processors * rows / (costs.call + rows * costs.row + costs.batch)


def _measured(costs: Costs) -> Iterator[str]:
    yield f"""
## Measured

{costs.machine}; {costs.processors} virtual processors. Work is processors' time, of all threads; medians of short rounds. The
server ran with one thread a call.
"""
    yield table(
        "what|cost",
        [
            ("the model (a perceptron, 2.1 MFLOP a row): a call", seconds(costs.call)),
            ("each row of a call", seconds(costs.row)),
            ("a request over HTTP, binary, 1 KB in and out, beside the model", seconds(costs.http)),
            ("a request over gRPC, likewise", seconds(costs.grpc)),
            ("each byte of a request or answer", seconds(costs.byte)),
            ("a batch of `map_batches`, 64 KB in and out, beside the model", seconds(costs.batch)),
            (
                "a start of the server, kernels cached (that pass)",
                f"{seconds(costs.start)} ({seconds(costs.start_passed)})",
            ),
            ("a swap of the model for another version", seconds(costs.swap)),
        ],
    )


def _arithmetic(costs: Costs) -> Iterator[str]:
    yield f"""## What hosts serve

A host's processors divided by the work of a request; no more than one server's transport does alone, since it is Python, of
which one thread runs at a time, beside the model's kernels. Several servers on a host of many processors would pass that. At
a load of {LOAD:g} lines stay short (below);
rows of batches need no such reserve. The network carries {costs.bytes_of_row:,} bytes of tensors a request."""
    rows = []
    for hosts in HOSTS:
        http, grpc = (hosts * LOAD * capacity(costs, transport) for transport in ("http", "grpc"))
        bits = 8 * http * costs.bytes_of_row
        rows.append(
            (hosts, *map(number, (http, grpc, hosts * batch_capacity(costs, 64))), f"{number(bits / 1e6)} Mbit/s")
        )
    yield "\n" + table("hosts|HTTP requests/s|gRPC requests/s|rows/s in batches of 64|network, HTTP", rows)


# ---- simulation ----


def simulated(fleet: Fleet, *models: Model, warm: float = 0.1, seed: int = SEED) -> list[Outcome]:
    """Outcomes of models at their rates, some `_REQUESTS` requests in all."""
    length = _REQUESTS / sum(model.rate for model in models)
    return Simulation(fleet, models, seed).run(length * (1 + warm), warm * length)


def _row(what: object, outcome: Outcome) -> tuple:
    refused = share(outcome.refused / outcome.asked)
    return what, *(seconds(outcome.percentile(each)) for each in (0.5, 0.99)), refused


def _queues(costs: Costs) -> Iterator[str]:
    yield f"""## Lines

Simulated ({_REQUESTS:,} requests a line of the tables, seed {SEED}): requests arrive at random,
each goes to the host with the shorter line of two drawn ones, a line holds 128. A host answers a request
of the model above in {seconds(costs.between())}, one after the other. Latencies are of the server, without the network."""
    rows = []
    for load in (0.5, 0.7, 0.9):
        for hosts in HOSTS:
            model = Model(load * hosts * capacity(costs), call=costs.between())
            rows.append(_row(f"{hosts}, load {load:g}", simulated(Fleet(hosts, 1), model)[0]))
    yield "\n" + table("hosts|p50|p99|refused", rows)


def _overload(costs: Costs) -> Iterator[str]:
    yield """## More than there is room for

One host. A full line refuses at once (429), so those who are answered wait no longer than a full line takes. A model's overload
is its own: the other, at a tenth of the host's load, is served as before. Batches pay the cost of a call once for all their
rows: here of a model whose call, with what comes before it, is nine tenths of a request, as it is not for the small model
above, whose transport is."""
    host, top = Fleet(1, 1), capacity(costs)
    single: dict[str, Any] = {"call": costs.between()}
    cheap: dict[str, Any] = {"call": 0.9 * costs.between(), "row": 0.1 * costs.between()}
    rows = [
        _row("load 0.95", simulated(host, Model(0.95 * top, **single))[0]),
        _row("load 1.5", simulated(host, Model(1.5 * top, **single))[0]),
        _row("load 1.5, calls dear, rows cheap", simulated(host, Model(1.5 * top, **cheap))[0]),
        _row("the same in batches of up to 32", simulated(host, Model(1.5 * top, max_batch=32, **cheap))[0]),
    ]
    greedy, modest = simulated(host, Model(3 * top, **single), Model(0.1 * top, **single))
    rows += [_row("load 3 of one model …", greedy), _row("… beside load 0.1 of another", modest)]
    yield "\n" + table("one host|p50|p99|refused", rows)


def heavy(fleet: Fleet, load: float = LOAD) -> Model:
    """A model whose request takes `_HEAVY` seconds: as much goes wrong in a second, and a minute can be simulated."""
    return Model(load * fleet.hosts * fleet.processors / _HEAVY, call=_HEAVY)


def _failures(costs: Costs) -> Iterator[str]:
    days = _BETWEEN_FAILURES / 86400
    yield f"""## Hosts that fail

Assumed: a host fails once in {days:g} days, is missed after {_HEALTH:g} s, and {_REPAIR / 60:g} minutes later another stands in,
which takes {seconds(costs.start_passed)} to start. So many are down at once, on average and, in all but one of 10,000
moments (Poisson), at most; at a load of {LOAD:g} the others have room for {share(1 - LOAD)} of all."""
    rows = []
    for hosts in HOSTS:
        down = hosts * (_REPAIR + costs.start_passed) / _BETWEEN_FAILURES
        rows.append((hosts, number(hosts * 86400 / _BETWEEN_FAILURES), number(down), most_at_once(down)))
    yield "\n" + table("hosts|failures a day|down, mean|down, at most", rows)
    yield f"""Ten seconds around a failure, simulated with a model of {seconds(_HEAVY)}: what the host had, and what is
sent to it until it is missed, is asked once more by its clients. Seed {SEED}.
"""
    found = []
    for hosts in (2, 10, 30):
        fleet = Fleet(hosts, costs.processors, notices=_HEALTH)
        for load in (0.4, LOAD):
            simulation = Simulation(fleet, [heavy(fleet, load)], SEED)
            simulation.at(3.0, simulation.fail, 0, 60.0)
            (outcome,) = simulation.run(10.0)
            *row, refused = _row(f"{hosts}, load {load:g}", outcome)
            found.append((*row, share(outcome.repeated / outcome.asked), refused, outcome.lost))
    yield table("hosts|p50|p99|asked twice|refused|without an answer", found)
    yield "Two hosts at a load above a half have no room for the loss of one: plan by what is left.\n"


def most_at_once(mean: float, share_of_moments: float = 1e-4) -> int:
    """The least number that a Poisson variable of this mean passes in fewer than this share of moments."""
    term = total = math.exp(-mean)
    count = 0
    while 1 - total >= share_of_moments:
        count += 1
        term *= mean / count
        total += term
    return count


def _updates(costs: Costs) -> Iterator[str]:
    yield f"""## Rolling updates

A new version of a model is swapped in: the server loads it beside the old ({seconds(costs.swap)} of one processor) and calls
that run end on what they began with. A new version of the server is a start ({seconds(costs.start_passed)} in which the
host is gone), after it is drained. One after the other, at a load of {LOAD:g}, simulated with a model of
{seconds(_HEAVY)}, 10 hosts, seed {SEED}:
"""
    fleet = Fleet(10, costs.processors)
    rows = []
    for what in ("nothing", "swap", "drain and start"):
        simulation = Simulation(fleet, [heavy(fleet)], SEED)
        ended = rolled(simulation, what, costs) if what != "nothing" else [0.0]
        (outcome,) = simulation.run(max(20.0, 1.2 * 10 * costs.start_passed), warm=1.0)
        rows.append((*_row(what, outcome), outcome.lost, seconds(ended[0]) if ended[0] else "-"))
    yield table("update|p50|p99|refused|without an answer|until all are new", rows)
    yield f"""A tenth at once leaves nine tenths at a load of {LOAD / 0.9:.2g}: ten turns, so 10, 100 or 1,000 hosts take
{seconds(10 * costs.start_passed)}, and the time to drain. One after the other, 100 hosts take
{seconds(100 * costs.start_passed)}.
"""


def rolled(simulation: Simulation, what: str, costs: Costs) -> list[float]:
    """Plans an update of all hosts, one after the other from second 1 on; the list gets how long it took when it has ended."""
    ended: list[float] = []
    hosts = simulation.fleet.hosts

    def following(number: int) -> None:
        if number == hosts:
            ended.append(simulation.now - 1.0)
        elif what == "swap":
            simulation.occupy(number, costs.swap, lambda: following(number + 1))
        else:
            simulation.drain(number, costs.start_passed, lambda: following(number + 1))

    simulation.at(1.0, following, 0)
    return ended


# ---- how far to trust it ----


def _compared(costs: Costs, rates: dict[str, float]) -> Iterator[str]:
    yield """## How far to trust it

The simulation, told nothing but the costs above, against what workers and servers reached on the machine that was measured,
whose processors clients and server share: batches of 64 rows, or requests of one row, a second.
"""
    rows = []
    for what, expected in predicted(costs).items():
        rows.append((what, number(expected), number(rates[what]), f"{rates[what] / expected:.2f}"))
    yield table("what|simulated|measured|measured / simulated", rows)


def _checked() -> Iterator[str]:
    yield f"""The simulation against queueing theory's exact results: mean waits in units of the service time, 50,000 requests,
seed {SEED}. A test holds it to 5 % with 200,000 requests of another seed.
"""
    rows = []
    for name, servers, load in (("M/M/1", 1, 0.7), ("M/M/2", 2, 0.7), ("M/M/8", 8, 0.8), ("M/D/1", 1, 0.7)):
        model = Model(load * servers, 1.0, max_queue=10**9, varies=name != "M/D/1")
        (outcome,) = Simulation(Fleet(1, servers, choices=1), [model], SEED).run(50_000 / model.rate)
        exact = queueing.mmc_wait(servers, model.rate, 1.0) if model.varies else queueing.md1_wait(load, 1.0)
        found = outcome.mean_wait
        rows.append((f"{name}, load {load:g}", f"{exact:.3f}", f"{found:.3f}", f"{100 * (found / exact - 1):+.1f} %"))
    yield table("line|theory|simulation|difference", rows)


_NOT_THERE = """\
Not in the model: the network's own latency and losses, what balances the load (its work, its failures), processors that
slow down where all of them work, arrivals that come in bursts (peaks need their own load), and hosts that fail together,
with a switch or a power line."""
