"""Compiles random programs, and compares what the machine makes of them with the reference evaluator.

    python -m treadle.tools.fuzz_programs --count 100000 --state programs.json

Program `number` is a function of the seed and its number, so that a run can be stopped and resumed, and a finding repeated:
`--only NUMBER`. Each is typed, compiled, verified, and called for several sizes: twice in a row, the caller's arrays overwritten
after the first call. Most are compiled at level 2 and run by the reference implementations of the primitives, which is fast
and enough for the planner and the verifier; some run on native kernels, of which level 0 needs few.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from ..formats.errors import CompileError, InferenceError, TreadleError
from .random_module import Sample, random_module

CALLS = 3  # sizes that a program is called with
NATIVE = 10  # one program of so many runs on native kernels, compiled at level 0
FUSED = 400  # one of so many runs on native kernels, compiled at level 2
TOLERANCE, COARSE = 2e-4, 4e-2  # relative to the greatest magnitude; with float16
BUDGETS: dict[str, Any] = {"max_seconds": 20.0, "max_steps": 2_000_000}
BAD = ("finding",)


def sample_of(seed: int, number: int) -> Sample:
    """Program `number` of a run."""
    return random_module(Random(f"{seed} {number}"))


def try_program(seed: int, number: int) -> str:
    """What comes of a program: a kind, or "finding: …"."""
    random = Random(f"{seed} {number} run")
    mode = "native" if number % NATIVE == 0 else "fused" if number % FUSED == 1 else "planned"
    try:
        sample = sample_of(seed, number)
        return f"{mode}: {_try(sample, random, mode)}"
    except Finding as finding:
        return f"finding: {finding}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"finding: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}"


class Finding(Exception):
    """Something that must not happen."""


def _try(sample: Sample, random: Random, mode: str) -> str:
    from ..compiler.driver import compile_module
    from ..compiler.infer import infer_types
    from ..formats.executable import Executable, load
    from ..vm.machine import VirtualMachine

    try:
        typed = infer_types(sample.module)
    except InferenceError as error:
        return f"not typed: {_kind(error)}"
    level = 0 if mode == "native" else random.choice((0, 1, 2, 2, 2, 2))
    try:
        program = compile_module(sample.module, opt_level=level).program
    except CompileError as error:
        if "nothing that is known when it is needed says" in error.message:
            return "refused: a size that nothing says"
        raise Finding(f"compile level {level}: {error}") from None
    executable = load(Executable(program).as_bytes())
    machine = VirtualMachine(executable, kernels="cached" if mode == "planned" else "build", **BUDGETS)
    told = [
        _call(typed, machine, sample, sizes, level)
        for sizes, _ in zip(sample.sizes(random), range(CALLS), strict=False)
    ]
    return "equal" if "equal" in told else told[0]


def _kind(error: Exception) -> str:
    """A message without its numbers, to count by."""
    return " ".join(word for word in str(error).split() if word.isalpha())[:60]


def _call(typed: Any, machine: Any, sample: Sample, sizes: dict[str, int], level: int) -> str:
    from ..compiler.evaluate import evaluate

    rng = np.random.default_rng(sum(sizes.values()))
    arguments = sample.arguments(sizes, rng)
    expected: Any
    with np.errstate(all="ignore"):
        try:
            expected = evaluate(typed, "main", *(a.copy() for a in arguments))
        except TreadleError as error:
            expected = error
        given = [a.copy() for a in arguments]
        where = f"level {level}, sizes {sizes}"
        try:
            first = machine["main"](*given)
        except TreadleError as error:
            if isinstance(expected, TreadleError):
                return "both fail"
            raise Finding(f"{where}: the machine fails: {error}") from None
        if isinstance(expected, TreadleError):
            return "the evaluator alone fails"  # on what is not needed
        for array in given:
            array[...] = 1
        second = machine["main"](*(a.copy() for a in arguments))
        exact = sample.exact if isinstance(expected, tuple) else sample.exact[:1]
        for got, what in ((first, "first call"), (second, "second call")):
            try:
                _compare(got, expected, exact, COARSE if sample.coarse else TOLERANCE)
            except AssertionError as error:
                raise Finding(f"{where}: {what}: {error}") from None
    return "equal"


def _compare(got: Any, expected: Any, exact: tuple[bool, ...], tolerance: float) -> None:
    if isinstance(expected, tuple):
        assert len(got) == len(expected), f"{len(got)} results, {len(expected)} are due"
        for index, (part, wanted) in enumerate(zip(got, expected, strict=True)):
            _compare(part, wanted, exact[index : index + 1], tolerance)
        return
    if not isinstance(expected, np.ndarray):
        assert got.tag == expected.tag, f"tag {got.tag}, {expected.tag} is due"
        _compare(tuple(got.fields), tuple(expected.fields), (), tolerance)
        return
    array = np.asarray(got)
    came, due = (array.dtype, array.shape), (expected.dtype, expected.shape)
    assert came == due, f"{came} came, {due} is due"
    if exact == (True,) or not expected.size or expected.dtype.kind not in "fV":
        assert np.array_equal(array, expected, equal_nan=array.dtype.kind == "f"), (
            f"not the same: {array} for {expected}"
        )
        return
    scale = 1 + np.max(np.abs(expected[np.isfinite(expected)]), initial=0)
    close = np.isclose(array, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    assert close.all(), f"not close: {array} for {expected}"


# ---- many of them ----


@dataclass
class State:
    """How far a run has come; kept in a file."""

    seed: int = 0
    next: int = 0
    seconds: float = 0.0
    tally: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def read(path: Path, seed: int) -> State:
        if not path.exists():
            return State(seed)
        saved = json.loads(path.read_text())
        if saved["seed"] != seed:
            raise SystemExit(f"{path} is of a run with seed {saved['seed']}; give that seed, or another file")
        return State(seed, saved["next"], saved["seconds"], Counter(saved["tally"]), saved["findings"])

    def write(self, path: Path) -> None:
        saved = {"seed": self.seed, "next": self.next, "seconds": round(self.seconds, 1)}
        temporary = path.with_suffix(".tmp")
        tally = dict(sorted(self.tally.items()))
        temporary.write_text(json.dumps({**saved, "tally": tally, "findings": self.findings}, indent=1) + "\n")
        temporary.replace(path)

    def add(self, number: int, outcome: str) -> None:
        self.tally["finding" if outcome.startswith(BAD) else outcome] += 1
        if outcome.startswith(BAD):
            self.findings.append({"number": number, "outcome": outcome[:1000]})


def _batch(work: tuple[int, int, int]) -> list[tuple[int, str]]:
    seed, start, stop = work
    return [(number, try_program(seed, number)) for number in range(start, stop)]


def _outcomes(state: State, count: int, jobs: int, batch: int = 100) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """The outcomes of programs up to `count`, in order, in batches: each with the number that follows it."""
    starts = range(state.next, count, batch)
    work = [(state.seed, start, min(count, start + batch)) for start in starts]
    if jobs == 1:
        yield from ((item[2], _batch(item)) for item in work)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=20) as pool:
        for item, outcomes in zip(work, pool.imap(_batch, work), strict=True):
            yield item[2], outcomes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="treadle fuzz_programs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="programs in all, those of earlier runs included")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="child processes")
    parser.add_argument("--state", type=Path, help="a file that keeps how far the run has come")
    parser.add_argument("--only", type=int, help="show and try this one program")
    options = parser.parse_args(arguments)
    if options.only is not None:
        return _show(options.seed, options.only)
    state = State.read(options.state, options.seed) if options.state else State(options.seed)
    start = time.monotonic()
    for following, outcomes in _outcomes(state, options.count, options.jobs):
        for number, outcome in outcomes:
            state.add(number, outcome)
            if outcome.startswith(BAD):
                print(f"program {number}: {outcome[:300]}", flush=True)
        state.next = following
        state.seconds, start = state.seconds + time.monotonic() - start, time.monotonic()
        if options.state:
            state.write(options.state)
    for outcome, count in sorted(state.tally.items()):
        print(f"{count:9}  {outcome}")
    print(f"{state.next} programs, seed {state.seed}, {len(state.findings)} findings, {state.seconds:.0f} s")
    return 1 if state.findings else 0


def _show(seed: int, number: int) -> int:
    from ..compiler.text import print_module

    sample = sample_of(seed, number)
    print(print_module(sample.module))
    print(f"witness {sample.witness}")
    outcome = try_program(seed, number)
    print(f"program {number}: {outcome}")
    return 1 if outcome.startswith(BAD) else 0


if __name__ == "__main__":
    sys.exit(main())
