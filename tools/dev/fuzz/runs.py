"""Runs of fuzzers: trials are numbered, child processes try them, and a file keeps how far a run has come.

A `Fuzzer` says what tries one number; `main` is the rest of its command. A child says a line for each trial: its number and
outcome. One that dies or hangs is a finding of the trial at hand, and another child goes on behind it. With `--off`, children
compile for several CPUs, since a process compiles for one alone.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import queue
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ....native import processes

TARGETS = (None, "haswell", "x86-64")  # vectors of 16 lanes of float32, or as many as this CPU has, of 8 and of 4
BATCH = 100  # trials that a child is given at once
BAD = ("crash", "hang", "bug", "wrong", "finding")  # how the outcomes start that must not happen
_START_SECONDS = 300.0  # for a child to import everything, the engine's first build included
_IDLE = 5  # times longer than it may work that a child may do nothing at all
_ADDRESSES = 16 << 30  # bytes of a child's address space: an allocation without bounds fails, and slows nobody down
_KEPT = 1000  # characters of what is said of a finding


@dataclass(frozen=True)
class Fuzzer:
    module: str
    what: str  # one trial's subject
    doc: str
    trial: Callable[[Namespace], Callable[[int], str]]  # what tries a number by these options: "kind", "kind: outcome"
    show: Callable[[Namespace, int], object] = lambda options, number: None  # says what will be tried
    add_options: Callable[[ArgumentParser], object] = lambda parser: None
    count: int = 1000
    jobs: int = 1  # children; 0: trials in this process
    seconds: float = 240.0  # of a child's own time, without a word, after which it hangs: others may hold the processor
    patience: float = 240.0  # likewise, behind `announce`


# ---- outcomes ----


@dataclass
class State:
    """Trials before `next` are done; `tally` counts their outcomes by kind."""

    seed: int = 0
    next: int = 0
    seconds: float = 0.0
    tally: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def read(path: Path, seed: int) -> State:
        """What a file says; of none, a run that begins. Raises SystemExit for a file of a run with another seed."""
        saved: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"seed": seed}
        if saved["seed"] != seed:
            raise SystemExit(f"{path} is of a run with seed {saved['seed']}; give that seed, or another file")
        return State(**saved | {"tally": Counter(saved.get("tally", {}))})

    def write(self, path: Path) -> None:
        """Replaces the file as a whole."""
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(vars(self) | {"tally": dict(sorted(self.tally.items()))}, indent=1) + "\n")
        temporary.replace(path)

    def add(self, number: int, outcome: str) -> None:
        self.tally["finding" if is_bad(outcome) else outcome] += 1
        if is_bad(outcome):
            self.findings.append({"number": number, "outcome": outcome[:_KEPT]})


def is_bad(outcome: str) -> bool:
    """Whether an outcome, "…" or "kind: …", must not happen."""
    return outcome.partition(": ")[2].startswith(BAD) or outcome.startswith(BAD)


# ---- children ----

_answers: TextIO | None = None  # of this process, if it is a child


def announce() -> None:
    """Says that the trial at hand may take longer now."""
    if _answers is not None:
        print("null", file=_answers, flush=True)


def _serve(fuzzer: Fuzzer, options: Namespace) -> None:
    """The life of a child: stretches of numbers come on standard input, a line each."""
    global _answers
    _answers, sys.stdout = sys.stdout, sys.stderr
    faulthandler.enable()
    np.seterr(all="ignore")
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try_one = fuzzer.trial(options)
    print('"ready"', file=_answers, flush=True)
    for line in sys.stdin:
        for number in range(*json.loads(line)):
            print(json.dumps([number, try_one(number)[:_KEPT]]), file=_answers, flush=True)


class Child:
    """A child process, restarted when it is needed again. `code` runs it."""

    def __init__(self, fuzzer: Fuzzer, code: str, arguments: Sequence[str] = (), target: str | None = None) -> None:
        self._fuzzer, self._code, self._arguments = fuzzer, code, arguments
        self._environment = os.environ | ({"TREADLE_TARGET": target} if target else {})
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed by `stop`)
        self._process: processes.Process[str] | None = None
        self._lines: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self, start: int, stop: int) -> Iterator[tuple[int, str]]:
        """The outcomes of trials start … stop - 1. One that hangs is tried again: a busy machine may have been the reason."""
        is_second = False
        while start < stop:
            if self._process is None:
                self._process = self._started()
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(f"[{start}, {stop}]\n")
            while start < stop and self._process is not None:
                outcome = self._outcome()
                is_second = outcome == "hang" and not is_second
                if not is_second:
                    yield start, outcome
                    start += 1

    def _started(self) -> processes.Process[str]:
        pipes = {"stdin": processes.PIPE, "stdout": processes.PIPE, "stderr": self._log}
        process = processes.start(self._code, *self._arguments, text=True, bufsize=1, env=self._environment, **pipes)
        lines = self._lines = queue.SimpleQueue()
        threading.Thread(target=_collect, args=(process, lines), daemon=True).start()
        with contextlib.suppress(queue.Empty):
            if self._lines.get(timeout=_START_SECONDS) == "ready":
                return process
        process.kill()
        raise SystemExit(f"a child does not start: {self._last_words()}")

    def _outcome(self) -> str:
        assert self._process is not None
        try:
            found = self._answer(self._fuzzer.seconds)
            while found is None:
                found = self._answer(self._fuzzer.patience)
        except queue.Empty:
            self._end()
            return "hang"
        if found == "":
            status = self._process.wait()
            self._process = None
            return f"crash {status}: {self._last_words()}"
        return found[1]

    def _answer(self, seconds: float) -> Any:
        """What it says next, for which it may work `seconds`; "" after its end. Raises queue.Empty for nothing in time."""
        assert self._process is not None
        begin, waited = _worked(self._process.pid), 0.0
        while True:
            try:
                return self._lines.get(timeout=seconds)
            except queue.Empty:
                waited += seconds
                now = _worked(self._process.pid)
                if begin is None or now is None or now - begin >= seconds or waited >= _IDLE * seconds:
                    raise

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read()[-300:]

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        self._end()
        self._log.close()


def _worked(pid: int) -> float | None:
    """The processor's time that a process has had; None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime: proc(5)
    except (OSError, ValueError, IndexError):
        return None


def _collect(process: processes.Process[str], lines: queue.SimpleQueue[Any]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(json.loads(line))
    lines.put("")


# ---- the parent ----


def _target(number: int) -> int:
    """Which CPU trial `number` is compiled for with `--off`."""
    return number // BATCH % len(TARGETS)


@contextlib.contextmanager
def _children(fuzzer: Fuzzer, options: Namespace, arguments: Sequence[str]) -> Iterator[Callable[..., list]]:
    """What gives the outcomes of a stretch of numbers, by a child that is idle."""
    if not options.jobs:
        try_one = fuzzer.trial(options)
        yield lambda start, stop: [(number, try_one(number)) for number in range(start, stop)]
        return
    targets = TARGETS if options.off else (None,)
    idle: list[queue.SimpleQueue[Child]] = [queue.SimpleQueue() for _ in targets]
    with contextlib.ExitStack() as stack:
        for target, children in zip(targets, idle, strict=True):
            for _ in range(-(-options.jobs // len(targets))):
                child = Child(fuzzer, processes.module(fuzzer.module), (*arguments, "--serve"), target)
                stack.callback(child.stop)
                children.put(child)

        def outcomes(start: int, stop: int) -> list[tuple[int, str]]:
            children = idle[_target(start) % len(idle)]
            child = children.get()
            try:
                return list(child.run(start, stop))
            finally:
                children.put(child)

        yield outcomes


def run(fuzzer: Fuzzer, arguments: Sequence[str], told: Callable[[str], object] = print) -> State:
    """Goes on with a run, or begins one, by these arguments of its command."""
    options = _options(fuzzer, arguments)
    state = State.read(options.state, options.seed) if options.state else State(options.seed)
    with _children(fuzzer, options, arguments) as outcomes, ThreadPoolExecutor(max(1, options.jobs)) as pool:
        while state.next < options.count:
            start = time.monotonic()
            first = state.next - state.next % BATCH
            starts = [max(at, state.next) for at in range(first, options.count, BATCH)][: 3 * max(1, options.jobs)]
            stops = [min(options.count, at - at % BATCH + BATCH) for at in starts]
            for number, outcome in (each for found in pool.map(outcomes, starts, stops) for each in found):
                state.add(number, outcome)
                if is_bad(outcome):
                    told(f"{fuzzer.what} {number}: {outcome[:300]}")
            state.next, state.seconds = stops[-1], round(state.seconds + time.monotonic() - start, 1)
            if options.state:
                state.write(options.state)
    return state


def _options(fuzzer: Fuzzer, arguments: Sequence[str]) -> Namespace:
    parser = ArgumentParser(prog=fuzzer.module, description=fuzzer.doc.partition("\n")[0])
    count = f"{fuzzer.what}s in all, those of earlier runs included (default: {fuzzer.count})"
    parser.add_argument("--count", type=int, default=fuzzer.count, help=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=fuzzer.jobs, help="child processes; 0: in this process")
    parser.add_argument("--state", type=Path, help="a file that keeps how far the run has come")
    parser.add_argument("--only", type=int, help=f"show and try this one {fuzzer.what}")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(off=False)
    fuzzer.add_options(parser)
    options = parser.parse_args(arguments)
    if options.off:
        options.jobs = max(1, options.jobs)
    return options


def add_off(parser: ArgumentParser) -> None:
    parser.add_argument("--off", action="store_true", help="leave out passes, vary widths and threads")


def main(fuzzer: Fuzzer, arguments: Sequence[str] | None = None) -> int:
    """The command line of a fuzzer; 1 where there is a finding."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _options(fuzzer, arguments)
    if options.serve:
        _serve(fuzzer, options)
        return 0
    if options.only is not None:
        if options.off and (target := TARGETS[_target(options.only)]):
            os.environ["TREADLE_TARGET"] = target
        fuzzer.show(options, options.only)
        outcome = fuzzer.trial(options)(options.only)
        print(f"{fuzzer.what} {options.only}: {outcome}")
        return int(is_bad(outcome))
    state = run(fuzzer, arguments)
    for kind, count in sorted(state.tally.items()):
        print(f"{count:9}  {kind}")
    print(f"{state.next} {fuzzer.what}s, seed {state.seed}, {len(state.findings)} findings, {state.seconds:.0f} s")
    return int(bool(state.findings))
