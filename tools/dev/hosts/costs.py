"""What one host takes: `python -m treadle.tools.dev.hosts --measure` writes `costs.json`, the source of docs/scaling.md.

Costs are seconds of processors' time (user and system, all threads), which say much the same on a busy machine as on an idle
one, but for caches; where time passes without work (a start waits for files), seconds that passed are told beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("costs.json")

LAYERS = 16  # of the reference model, a perceptron of 256 x 256: 2.1 MFLOP a row, 4 MB of weights
_CALLS = 100  # of a round
_ROUNDS = 7  # of which medians are told
_TURNS = 3  # of what takes seconds: starts, swaps
_LARGE = 256  # rows of the request that tells what a byte costs
_BATCH = 32  # rows, of the call that tells what a row costs


@dataclass(frozen=True)
class Costs:
    """Seconds of work, where nothing else is said."""

    machine: str
    processors: int
    call: float  # of the model, beside its rows
    row: float  # of the model, in a call of several
    http: float  # the server's, of a request of 1 KB in and out, beside the model's own
    grpc: float
    byte: float  # the server's, of each byte that comes or goes
    http_latency: float  # seconds that pass, of one client's request of a row, the model's time included
    client: float  # of the client's process, a request
    batch: float  # of `map_batches`, beside the model's own, in all processes; 64 KB in and out
    start: float  # of a server, until it answers; its kernels are cached
    start_passed: float  # seconds that pass
    swap: float  # of a server that takes another version of the model, until it answers with it
    bytes_of_row: int  # in and out

    def request(self, transport: str = "http") -> float:
        """A request of one row, called alone."""
        return self.transport(transport) + self.call + self.row

    def transport(self, name: str) -> float:
        """A request of one row, beside the model."""
        return self.http if name == "http" else self.grpc

    def between(self, transport: str = "http") -> float:
        """The least seconds between answers of a host that has nothing else to do. Transports are Python, of which one thread
        runs at a time; the model's kernels run beside it, on the other processors."""
        return max(self.transport(transport), self.request(transport) / self.processors)

    def saved(self, path: Path = FILE) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @staticmethod
    def read(path: Path = FILE) -> Costs:
        return Costs(**json.loads(path.read_text()))


def measure() -> Costs:
    """Less than two minutes. Needs Linux, whose scheduler tells what processes have worked, and `treadle[serve]`."""
    import numpy as np

    from .... import VirtualMachine, compile, load
    from ..bench import batches
    from ..bench.serving import grpc_client, http_client, served

    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        path = folder / "model.trdl"
        compile(batches.network(LAYERS), progress=False).export_library(path)
        function = VirtualMachine(load(path))["main"]
        rows = np.random.default_rng(0).standard_normal((_LARGE, batches.WIDTH)).astype(np.float32)
        one, some = (_thread_seconds(lambda count=count: function(rows[:count])) for count in (1, _BATCH))  # type: ignore[misc]
        row = max(some - one, 0.0) / (_BATCH - 1)

        starts = [_start(folder, rows[:1]) for _ in range(_TURNS)]
        ports = stack.enter_context(served(folder, threads=1))
        process = ports["pid"]
        http = stack.enter_context(http_client(ports["HTTP"], rows[:1]))
        passed, work, client = _served(process, http)
        grpc = _served(process, stack.enter_context(grpc_client(ports["gRPC"], rows[:1])))[1]
        large = stack.enter_context(http_client(ports["HTTP"], rows))
        many = _thread_seconds(lambda: function(rows))
        byte = max(0.0, _served(process, large)[1] - many - (work - one)) / (2 * (rows.nbytes - rows[0].nbytes))
        swap = _swap(folder, process, lambda: http_client(ports["HTTP"], rows[:1]), work)
    with tempfile.TemporaryDirectory() as name:
        found = batches.measure(1, 64, 1000, 2, 5, Path(name))
    return Costs(
        machine=_machine(),
        processors=len(os.sched_getaffinity(0)),
        call=_rounded(one - row),
        row=_rounded(row),
        http=_rounded(work - one),
        grpc=_rounded(grpc - one),
        byte=_rounded(byte),
        http_latency=_rounded(passed),
        client=_rounded(client),
        batch=_rounded(found["overhead us"] / 1e6),
        start=_rounded(statistics.median(each[1] for each in starts)),
        start_passed=_rounded(statistics.median(each[0] for each in starts)),
        swap=_rounded(swap),
        bytes_of_row=2 * rows[0].nbytes,
    )


def _rounded(seconds: float) -> float:
    """Two digits: more would not be the same tomorrow."""
    return float(f"{seconds:.2g}")


def _thread_seconds(call: Callable[[], object]) -> float:
    """Work of a call on one thread: the median of turns."""
    from .... import get_num_threads, set_num_threads

    before = get_num_threads()
    set_num_threads(1)
    found = []
    for turn in range(11):
        start = time.thread_time()
        for _ in range(20):
            call()
        found += [(time.thread_time() - start) / 20] if turn else []
    set_num_threads(before)
    return statistics.median(found)


def _served(process: int, call: Callable[[], object]) -> tuple[float, float, float]:
    """Of a request: seconds that pass (the median), that the server works, that this client works."""
    from ..bench.batches import worked

    for _ in range(_CALLS):
        call()
    rounds, times = [], []
    for _ in range(_ROUNDS):
        before, mine = worked(process), time.process_time()
        for _ in range(_CALLS):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        rounds.append(((worked(process) - before) / _CALLS, (time.process_time() - mine) / _CALLS))
    server, client = (statistics.median(each) for each in zip(*rounds, strict=True))
    return statistics.median(times), server, client


def _start(folder: Path, row: Any) -> tuple[float, float]:
    """Of a server, until it has answered: seconds that pass, and that it works."""
    from ..bench.batches import worked
    from ..bench.serving import http_client, served

    began = time.perf_counter()
    with served(folder, threads=1) as ports, http_client(ports["HTTP"], row) as ask:
        ask()
        return time.perf_counter() - began, worked(ports["pid"])


def _swap(folder: Path, process: int, connected: Callable[[], Any], request: float) -> float:
    """Work of a server that finds another file in the model's place, beside that of the requests that notice; the median."""
    from .... import compile
    from ..bench import batches

    found = []
    for turn in range(_TURNS):
        asked, other = 0, folder / "other"
        compile(batches.network(LAYERS - 1 - turn), progress=False).export_library(other)
        with connected() as ask:
            old, before, end = ask(), batches.worked(process), time.monotonic() + 60
            os.replace(other, folder / "model.trdl")
            while ask() == old:
                if time.monotonic() > end:
                    raise TimeoutError("the server has not taken the model's other version in a minute")
                asked += 1
                time.sleep(0.02)
        found.append(batches.worked(process) - before - (asked + 1) * request)
    return max(0.0, statistics.median(found))


def _machine() -> str:
    names = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, Python {platform.python_version()}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
