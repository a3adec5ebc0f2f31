"""Runs of fuzzers in batches: trials are numbered, several child processes try them, and a file keeps how far a run has come.

A fuzzer has a function that tries one number, and one that shows it; `main` is the rest of it. With `--off`, children compile for
several CPUs, since a process compiles for one alone. A child that dies has its batch tried again, one trial at a time: those on
which it dies again are crashes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ....native import processes
from .state import State, is_bad

TARGETS = (None, "haswell", "x86-64")  # vectors of 16 lanes of float32, or as many as this CPU has, of 8 and of 4
BATCH = 100  # trials that a process is given at once

Try = Callable[[int, int, bool], str]  # the outcome of a seed, a number, and whether passes are left out
Work = tuple[int, int, int, bool]
Outcomes = list[tuple[int, str]]


def target_of(number: int) -> str | None:
    """The CPU that trial `number` is compiled for with `--off`. A process compiles for one alone."""
    return TARGETS[number // BATCH % len(TARGETS)]


class _Pool:
    """Child processes that try batches for one target, each fed by a thread of this process."""

    def __init__(self, module: str, count: int, target: str | None) -> None:
        self._threads = ThreadPoolExecutor(count)
        self._environment = os.environ | ({"TREADLE_TARGET": target} if target else {})
        self._code = processes.module(module)
        self._children: list[processes.Process[str]] = []
        self._idle: queue.SimpleQueue[processes.Process[str]] = queue.SimpleQueue()
        for _ in range(count):
            self._idle.put(self._child())

    def _child(self) -> processes.Process[str]:
        child = processes.start(
            self._code,
            "--serve",
            stdin=processes.PIPE,
            stdout=processes.PIPE,
            text=True,
            env=self._environment,
            bufsize=1,
        )
        self._children.append(child)
        return child

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.kill()
            child.wait()
        self._threads.shutdown(cancel_futures=True)

    def submit(self, item: Work) -> Future[Outcomes]:
        return self._threads.submit(self._try, item)

    def _try(self, item: Work) -> Outcomes:
        seed, start, stop, off = item
        child = self._idle.get()
        try:
            child.stdin.write(json.dumps(item) + "\n")  # type: ignore[union-attr]
            answer = child.stdout.readline()  # type: ignore[union-attr]
        except BrokenPipeError:
            answer = ""
        if answer:
            self._idle.put(child)
            return [(number, outcome) for number, outcome in json.loads(answer)]
        status = child.wait()
        self._idle.put(self._child())
        if stop - start == 1:
            return [(start, f"crash: the process ended with status {status}")]
        return [outcome for number in range(start, stop) for outcome in self._try((seed, number, number + 1, off))]


def _batch(try_one: Try, work: Work) -> Outcomes:
    seed, start, stop, off = work
    return [(number, try_one(seed, number, off)) for number in range(start, stop)]


def _serve(try_one: Try) -> int:
    """The life of a child: batches come on standard input, a line each, and what came of them goes to standard output."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(_batch(try_one, tuple(json.loads(line)))), file=answers, flush=True)
    return 0


def _outcomes(
    module: str, try_one: Try, state: State, count: int, jobs: int, off: bool
) -> Iterator[tuple[int, Outcomes]]:
    """The outcomes of trials up to `count`, in order, in batches: each with the number that follows it."""
    starts = range(state.next - state.next % BATCH, count, BATCH)
    work = [(state.seed, max(start, state.next), min(count, start + BATCH), off) for start in starts]
    if jobs == 1 and not off:
        yield from ((item[2], _batch(try_one, item)) for item in work)
        return
    with contextlib.ExitStack() as stack:
        targets = TARGETS if off else (None,)
        pools = [stack.enter_context(_Pool(module, -(-jobs // len(targets)), target)) for target in targets]
        for group in range(0, len(work), 3 * jobs):  # few at a time, so that little is lost when the run is stopped
            items = work[group : group + 3 * jobs]
            running = [pools[item[1] // BATCH % len(pools)].submit(item) for item in items]
            for item, future in zip(items, running, strict=True):
                yield item[2], future.result()


def main(
    module: str,
    what: str,
    doc: str,
    try_one: Try,
    show: Callable[[int, int, bool], int],
    arguments: list[str] | None = None,
) -> int:
    """The command line of the fuzzer `module`, which tries `what`s."""
    name = module.rpartition(".")[2]
    parser = argparse.ArgumentParser(prog=f"treadle {name}", description=doc.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help=f"{what}s in all, those of earlier runs included")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="child processes")
    parser.add_argument("--state", type=Path, help="a file that keeps how far the run has come")
    parser.add_argument("--off", action="store_true", help="leave out passes, vary widths, threads and kernels")
    parser.add_argument("--only", type=int, help=f"show and try this one {what}")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        return _serve(try_one)
    if options.only is not None:
        if options.off and (target := target_of(options.only)):
            os.environ["TREADLE_TARGET"] = target
        return show(options.seed, options.only, options.off)
    state = State.read(options.state, options.seed) if options.state else State(options.seed)
    start = time.monotonic()
    for following, outcomes in _outcomes(module, try_one, state, options.count, options.jobs, options.off):
        for number, outcome in outcomes:
            state.add(number, outcome, "finding" if is_bad(outcome) else None)
            if is_bad(outcome):
                print(f"{what} {number}: {outcome[:300]}", flush=True)
        state.next = following
        state.seconds, start = state.seconds + time.monotonic() - start, time.monotonic()
        if options.state:
            state.write(options.state)
    for outcome, count in sorted(state.tally.items()):
        print(f"{count:9}  {outcome}")
    print(f"{state.next} {what}s, seed {state.seed}, {len(state.findings)} findings, {state.seconds:.0f} s")
    return 1 if state.findings else 0
