"""Predictions against this machine: `python -m treadle.tools.dev.hosts --compare`.

Workers of `map_batches`, and threads that ask a server, are clients that each wait for an answer before they ask again; the
simulation has such clients, and the measured costs are all that it is told. Measured are rounds, of which the median counts.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .costs import LAYERS, Costs
from .simulation import Fleet, Model, Simulation

FILE = Path(__file__).with_name("compared.json")

_SECONDS = 1.0  # of a round
_ROUNDS = 3
_ROWS = 64  # of a batch
_WORKERS = (1, 2)
_CLIENTS = (1, 2, 8)


def answered(clients: int, alone: float, busy: float, servers: int) -> float:
    """Simulated answers a second: `alone` is the latency of one that asks alone, of which a server is busy for `busy` seconds."""
    model = Model(0.0, call=busy, clients=clients, think=max(0.0, alone - busy))
    length = 2000 * alone
    (outcome,) = Simulation(Fleet(1, servers, choices=1), [model], seed=0).run(length)
    return len(outcome.latencies) / length


def predicted(costs: Costs) -> dict[str, float]:
    """Batches of 64 rows, or requests of one row, a second. Half of a batch's cost is the caller's, which where there are
    fewer workers than processors runs beside the workers; else all of it takes from them."""
    found = {}
    for workers in _WORKERS:
        share = costs.batch / 2 if workers < costs.processors else costs.batch
        busy = costs.call + _ROWS * costs.row + share
        found[_of_workers(workers)] = answered(workers, busy, busy, min(workers, costs.processors))
    for clients in _CLIENTS:
        between = max(costs.between(), (costs.request() + costs.client) / costs.processors)
        found[_of_clients(clients)] = answered(clients, costs.http_latency, between, 1)
    return found


def measured() -> Iterator[tuple[str, float]]:
    """The same of this machine, each when it is known."""
    from ..bench import batches

    with tempfile.TemporaryDirectory() as folder:
        for workers in _WORKERS:
            found = batches.measure(LAYERS, _ROWS, 400, workers, _ROUNDS, Path(folder))
            yield _of_workers(workers), float(f"{1e6 / found['map_batches us']:.3g}")
    yield from _requests()


def save(rates: dict[str, float], path: Path = FILE) -> None:
    """Keeps what was measured, for the page."""
    path.write_text(json.dumps(rates, indent=1) + "\n")


def saved(path: Path = FILE) -> dict[str, float]:
    return json.loads(path.read_text())


def _of_workers(count: int) -> str:
    return f"map_batches, {count} worker{'s' if count > 1 else ''}"


def _of_clients(count: int) -> str:
    return f"treadle serve, HTTP, {count} client{'s' if count > 1 else ''}"


def _requests() -> Iterator[tuple[str, float]]:
    import numpy as np

    from .... import compile
    from ..bench import batches
    from ..bench.serving import http_client, served

    row = np.zeros((1, batches.WIDTH), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        compile(batches.network(LAYERS), progress=False).export_library(Path(folder) / "model.trdl")
        with served(folder, threads=1) as ports:
            for clients in _CLIENTS:
                with contextlib.ExitStack() as stack:
                    calls = [stack.enter_context(http_client(ports["HTTP"], row)) for _ in range(clients)]
                    _rate(calls)
                    rates = [_rate(calls) for _ in range(_ROUNDS)]
                yield _of_clients(clients), float(f"{statistics.median(rates):.3g}")


def _rate(calls: list[Callable[[], Any]]) -> float:
    """Answers a second, of a thread for each call."""
    counts, end = [0] * len(calls), time.perf_counter() + _SECONDS

    def ask(index: int) -> None:
        while time.perf_counter() < end:
            calls[index]()
            counts[index] += 1

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / _SECONDS
