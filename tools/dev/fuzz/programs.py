"""Compiles random programs, and compares what the machine makes of them with the reference evaluator.

    python -m treadle.tools.dev.fuzz.programs --count 100000 --state programs.json

Program `number` is a function of the seed and its number, so that a run can be stopped and resumed, and a finding repeated:
`--only NUMBER`. Each is typed, compiled, verified, and called for several sizes: twice in a row, the caller's arrays overwritten
after the first call. Most are compiled at level 2 and run by the reference implementations of the primitives, which is fast
and enough for the planner and the verifier; some run on native kernels, of which level 0 needs few.

With `--off`, each program is compiled without one of the optional passes, and what runs on native kernels does so for vectors of
one width, on one number of threads.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from ....compiler.driver import compile_module
from ....compiler.ir.evaluate import evaluate
from ....compiler.ir.infer import infer_types
from ....compiler.ir.text import print_module
from ....compiler.passes import optional_passes
from ....compiler.passes.placed import after
from ....compiler.targets.emulated.backend import emulated
from ....formats.executable import Executable, load
from ....formats.messages.errors import CompileError, InferenceError, TreadleError
from ....vm.machine import VirtualMachine
from ....vm.threads import get_num_threads, set_num_threads
from . import runs
from .random_programs.modules import Sample, random_module
from .random_programs.scatter import Scatter

CALLS = 2  # sizes that a program is called with
NATIVE = 25  # one program of this number runs on native kernels, compiled at level 0
FUSED = 500  # one of this number runs on native kernels, compiled at level 2
SCATTERED = 10  # and one of this number lies on several devices
THREADS = (1, 2, 3, 4)
TOLERANCE, COARSE = 2e-4, 4e-2  # relative to the greatest magnitude; with float16
BUDGETS: dict[str, Any] = {"max_seconds": 20.0, "max_steps": 2_000_000}


def sample_of(seed: int, number: int) -> Sample:
    """Program `number` of a run."""
    return random_module(Random(f"{seed} {number}"))


@dataclass(frozen=True)
class Setting:
    """How a program is compiled and run."""

    level: int = 2
    native: bool = False
    without: tuple[str, ...] = ()  # passes
    threads: int | None = None
    scattered: str = ""  # the seed by which values lie on devices


def setting_of(seed: int, number: int, off: bool) -> Setting:
    """How program `number` of a run is tried."""
    random = Random(f"{seed} {number} setting")
    if not off:
        if number % FUSED == 1:
            return Setting(native=True)
        native = number % NATIVE == 0
        level = 0 if native else random.choice((0, 1, 2, 2, 2, 2))
        return Setting(level, native, scattered="" if number % SCATTERED else f"{seed} {number} scatter")
    without = (random.choice(optional_passes()),)
    if number % NATIVE:
        return Setting(without=without)
    return Setting(2, True, without, random.choice(THREADS))


def try_program(seed: int, number: int, off: bool = False) -> str:
    """What comes of a program: a kind, or "finding: …"."""
    setting = setting_of(seed, number, off)
    return tried(setting, lambda: try_sample(sample_of(seed, number), setting, Random(f"{seed} {number} run")))


def tried(setting: Setting, act: Callable[[], str]) -> str:
    """What comes of a trial, of the kind of its setting; whatever it raises is a finding."""
    try:
        with using(setting.threads):
            return f"{'native' if setting.native else 'planned'}: {act()}"
    except Finding as finding:
        return f"finding: {setting}: {finding}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"finding: {setting}: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}"


@contextlib.contextmanager
def using(threads: int | None) -> Iterator[None]:
    """Within this, calls use that number of threads."""
    if threads is None:
        yield
        return
    before = get_num_threads()
    set_num_threads(threads)
    try:
        yield
    finally:
        set_num_threads(before)


class Finding(Exception):
    """Something that must not happen."""


def try_sample(sample: Sample, setting: Setting, random: Random) -> str:
    """What comes of a program. Raises Finding for what must not happen."""
    try:
        typed = infer_types(sample.module)
    except InferenceError as error:
        return f"not typed: {_kind(error)}"
    try:
        scatter = (
            [after("infer_types", Scatter(("near", "far", "host"), setting.scattered))] if setting.scattered else []
        )
        devices = {"near": None, "far": emulated()} if scatter else None
        program = compile_module(
            sample.module, opt_level=setting.level, without=setting.without, passes=scatter, devices=devices
        ).program
    except CompileError as error:
        if any(text in error.message for text in REFUSED):
            return "refused: a size that nothing says"
        raise Finding(f"compile: {error}") from None
    executable = load(Executable(program).as_bytes())
    machine = VirtualMachine(executable, kernels="build" if setting.native else "cached", **BUDGETS)
    told = [_call(typed, machine, sample, sizes) for sizes, _ in zip(sample.sizes(random), range(CALLS), strict=False)]
    return "equal" if "equal" in told else told[0]


def _kind(error: Exception) -> str:
    """A message without its numbers, to count by."""
    return " ".join(word for word in str(error).split() if word.isalpha())[:60]


def _call(typed: Any, machine: Any, sample: Sample, sizes: dict[str, int]) -> str:
    rng = np.random.default_rng(sum(sizes.values()))
    arguments = sample.arguments(sizes, rng)
    expected: Any
    with np.errstate(all="ignore"):
        try:
            expected = evaluate(typed, "main", *(a.copy() for a in arguments))
        except TreadleError as error:
            expected = error
        given = [a.copy() for a in arguments]
        where = f"sizes {sizes}"
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
        tolerance = COARSE if sample.coarse else TOLERANCE
        for got, what in ((first, "first call"), (second, "second call")):
            try:
                _compare(got, expected, exact, tolerance)
            except AssertionError as error:
                if jumps(typed, arguments, expected, exact, tolerance):
                    return "the evaluator jumps"
                raise Finding(f"{where}: {what}: {error}") from None
    return "equal"


def jumps(
    typed: Any, arguments: Sequence[np.ndarray], expected: Any, exact: tuple[bool, ...], tolerance: float
) -> bool:
    """Whether the evaluator itself gives something else for arguments that differ by rounding: the floor of a sum that is 1, or
    nearly. Then nobody can say which result is right."""
    rng = np.random.default_rng(0)
    for _ in range(_NUDGES):
        nudged = [_nudged(array, rng) if array.dtype.kind == "f" else array.copy() for array in arguments]
        try:
            _compare(evaluate(typed, "main", *nudged), expected, exact, tolerance)
        except (AssertionError, TreadleError):
            return True
    return False


def _nudged(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Elements that are larger or smaller by a unit or two in the last place."""
    return (array * (1 + np.finfo(array.dtype).eps * rng.uniform(-2, 2, array.shape))).astype(array.dtype)


_NUDGES = 8
REFUSED = "nothing that is known when it is needed says", "nothing says what the dimension"


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


def _show(options: Namespace, number: int) -> None:
    sample = sample_of(options.seed, number)
    print(print_module(sample.module))
    print(f"witness {sample.witness}")


def _trial(options: Namespace) -> Callable[[int], str]:
    return lambda number: try_program(options.seed, number, options.off)


def main(arguments: list[str] | None = None) -> int:
    fuzzer = runs.Fuzzer(__spec__.name, "program", __doc__ or "", _trial, _show, runs.add_off, jobs=0)
    return runs.main(fuzzer, arguments)


if __name__ == "__main__":
    sys.exit(main())
