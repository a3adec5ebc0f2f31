"""Measures `map_batches`: what a batch costs beside the model's own time, and what share of two processes that share nothing it
reaches.

    python -m treadle.tools.dev.bench.batches [--rounds 5] [--workers 2] [--json]

The rivals are processes that load the executable, make batches themselves and call the function in a loop: no order, no
transport, no retries. Rounds of both are interleaved, so that what else the host does meets both; medians are told, of time
that passed and of time that processors worked: on a host that has other things to do, only the second says much. There, what
this process does is counted too, which on two cores takes from what two workers have.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ....cluster.batches import map_batches
from ....compiler import ir
from ....compiler.builder.programs import Module, function, op, var
from ....compiler.driver import compile
from ....native import processes
from ....vm.machine import VirtualMachine

WIDTH = 256

# A rival: says that it is ready, waits for a line, computes its batches, says so.
_ALONE = """
import sys
import numpy as np, treadle
treadle.set_num_threads(1)
main = treadle.VirtualMachine(treadle.load(sys.argv[1]))["main"]
rows = np.load(sys.argv[2])
size, count = int(sys.argv[3]), int(sys.argv[4])
result = main(rows[:size]).numpy()
for line in sys.stdin:
    for number in range(count):
        start = number * size % (len(rows) - size)
        result = np.array(main(rows[start:start + size]).numpy())
    print("done", flush=True)
"""


class Alone:
    """Processes that share nothing, kept from round to round."""

    def __init__(self, path: Path, rows: Path, size: int, count: int, workers: int) -> None:
        share = count // workers
        pipes = {"stdin": processes.PIPE, "stdout": processes.PIPE, "text": True, "bufsize": 1}
        self._all = [processes.start(_ALONE, path, rows, size, share, **pipes) for _ in range(workers)]
        self.seconds()

    def seconds(self) -> tuple[float, float]:
        """How long the processes take for their batches, all at once; and how long they work."""
        start, before = time.perf_counter(), sum(worked(process.pid) for process in self._all)
        for process in self._all:
            process.stdin.write("go\n")  # type: ignore[union-attr]
        for process in self._all:
            process.stdout.readline()  # type: ignore[union-attr]
        return time.perf_counter() - start, sum(worked(process.pid) for process in self._all) - before

    def close(self) -> None:
        for process in self._all:
            process.communicate()


def worked(pid: int) -> float:
    """Seconds of processors' time that a process has used, of Linux's scheduler (proc(5), /proc/pid/schedstat)."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def network(layers: int) -> ir.Module:
    """A perceptron of `layers` layers of 256 x 256."""
    x = value = var("x", ("n", WIDTH))
    draw = np.random.default_rng(0)
    for _ in range(layers):
        value = op.relu(op.matmul(value, draw.normal(0, 0.05, (WIDTH, WIDTH)).astype(np.float32)))
    return Module(main=function([x], value))


def batches(rows: np.ndarray, size: int, count: int) -> Iterator[np.ndarray]:
    """The batches that a rival makes."""
    for number in range(count):
        start = number * size % (len(rows) - size)
        yield rows[start : start + size]


def together(path: Path, rows: np.ndarray, size: int, count: int, workers: int) -> tuple[float, float]:
    """Seconds that `map_batches` takes, from when all workers are ready on, and seconds of work."""
    warm, tail = 40 * workers, 8 * workers  # at the end, fewer are under way
    source = batches(rows, size, warm + count + tail)
    with map_batches(path, source, batch_size=size, workers=workers, threads=1) as results:
        for _ in range(warm):
            next(results)
        pids = [os.getpid(), *children()]
        assert len(pids) == workers + 1
        start, before = time.perf_counter(), sum(map(worked, pids))
        for _ in range(count):
            next(results)
        return time.perf_counter() - start, sum(map(worked, pids)) - before


def children() -> list[int]:
    """The worker processes of this one."""
    text = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text()
    return [pid for pid in map(int, text.split()) if b"cluster.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def measure(layers: int, size: int, count: int, workers: int, rounds: int, folder: Path) -> dict[str, float]:
    """Medians of interleaved rounds, in microseconds a batch."""
    path, data = folder / f"{layers}.trdl", folder / "rows.npy"
    exe = compile(network(layers), progress=False)
    exe.export_library(path)
    rows = np.random.default_rng(1).normal(size=(8 * size + 1, WIDTH)).astype(np.float32)
    np.save(data, rows)
    machine = VirtualMachine(exe)
    for got, batch in zip(
        map_batches(path, batches(rows, size, 8), batch_size=size, workers=workers, threads=1),
        batches(rows, size, 8),
        strict=True,
    ):
        assert np.allclose(got, machine["main"](batch).numpy(), rtol=1e-4, atol=1e-4)
    one, many = Alone(path, data, size, count // workers, 1), Alone(path, data, size, count, workers)
    ours: list[tuple[float, float]] = []
    apart: list[tuple[float, float]] = []
    single: list[tuple[float, float]] = []
    for _ in range(rounds):
        apart.append(many.seconds())
        ours.append(together(path, rows, size, count, workers))
        single.append(one.seconds())
    one.close()
    many.close()

    def median(kind: int, rounds: list[tuple[float, float]], share: int = 1) -> float:
        return 1e6 * statistics.median(each[kind] for each in rounds) * share / count

    return {
        "layers": layers,
        "bytes in and out": 2 * size * WIDTH * 4,
        "passed: apart us": median(0, apart),
        "map_batches us": median(0, ours),
        "share": statistics.median(theirs[0] / mine[0] for theirs, mine in zip(apart, ours, strict=True)),
        "times one process": statistics.median(
            workers * alone[0] / mine[0] for alone, mine in zip(single, ours, strict=True)
        ),
        "worked: one us": median(1, single, workers),
        "apart us (work)": median(1, apart),
        "map_batches us (work)": median(1, ours),
        "overhead us": median(1, ours) - median(1, apart),
        "share (work)": statistics.median(theirs[1] / mine[1] for theirs, mine in zip(apart, ours, strict=True)),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--layers", type=int, nargs="*", default=[1, 16, 128])
    parser.add_argument("--rows", type=int, default=64, help="of a batch")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round, about")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    told = []
    with tempfile.TemporaryDirectory() as folder:
        for layers in given.layers:
            flops = 2 * layers * given.rows * WIDTH * WIDTH
            count = int(min(20_000, max(100, given.seconds * given.workers * 5e10 / flops)))
            count -= count % (2 * given.workers)
            told.append(measure(layers, given.rows, count, given.workers, given.rounds, Path(folder)))
            if not given.json:
                print("  ".join(f"{name} {value:.4g}" for name, value in told[-1].items()), flush=True)
    if given.json:
        json.dump(told, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
