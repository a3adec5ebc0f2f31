"""Feeds the machine executables that nobody should ever have made, and counts how it takes them.

    python -m treadle.tools.dev.fuzz.executables --count 1000000 --state fuzz.json

Valid executables are changed (fuzz/changes.py): (a) any bytes, (b) the bytes of a section or the decoded program, with checksums
that fit, (c) the definitions of primitives (fuzz/changed_definitions.py), alone and within their programs. Each mutant is
loaded, verified and run under budgets in a child process, which handles many and is restarted when it dies or hangs; kernels of
changed definitions run between forbidden pages, some of them: to compile one takes as long as ten thousand other mutants. A
mutant is a function of the seed and its number, so that a run can be stopped and resumed, and a finding repeated:
`--only NUMBER`.

What must not happen: a crash, a hang, an error that is not Treadle's, a kernel that gives another result than the reference
evaluator, and a result that differs from the original's although only bytes were changed, which checksums must notice.
"""

from __future__ import annotations

import argparse
import functools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from ....formats.executable import Executable, load
from ....formats.messages.errors import BudgetExceededError, TreadleError
from ....formats.primitive import Primitive, PrimitiveDefinition
from ....formats.program import Function, Program
from ....formats.text.assembly import parse_assembly
from ....formats.text.tables_text import print_primitive
from ....formats.types import TensorType, TupleType, Type
from ....native import processes
from .changed_definitions import mutate_definition
from .changes import mutate_bytes, mutate_program, mutate_section
from .definitions import try_definition
from .stand_ins import stand_ins
from .state import State
from .targets import is_fault, known_definitions

CORPUS = Path(__file__).parents[3] / "tests" / "vm"
BATCH = 500  # mutants that a child is given at once
HANG_SECONDS = 2.0  # of the child's own time, where the system tells it: other programs may hold the processor
IDLE = 5  # so many times longer a child may do nothing at all
BUILD_SECONDS = 60.0  # for a kernel to be compiled
BUILT = 0.02  # of the definitions whose kernel could be: compiling one takes as long as ten thousand checks
BUILDING = "building"  # what a child says before it compiles, and before it runs what it compiled
START_SECONDS = 300.0  # for a child to import everything and run the originals, the engine's first build included
MEMORY = 256 << 20
BUDGETS: dict[str, Any] = {"max_steps": 20_000, "max_seconds": 0.5, "max_memory": MEMORY, "max_depth": 200}


# ---- the originals ----


class Call(NamedTuple):
    """A call of an original, and what came of it."""

    function: str
    arguments: tuple
    outcome: str


@dataclass(frozen=True)
class Original:
    """A valid executable."""

    name: str
    program: Program
    data: bytes
    calls: tuple[Call, ...]


def read_corpus(folder: Path) -> list[Original]:
    """The programs in a folder, .tasm or .trdl, each with calls of the functions that take tensors."""
    originals = []
    for path in sorted([*folder.rglob("*.tasm"), *folder.rglob("*.trdl")]):
        program = load(path).program if path.suffix == ".trdl" else parse_assembly(path.read_text(), folder=path.parent)
        data = Executable(program).as_bytes()
        calls = [(f.name, _arguments(f, Random(f"{path.name} {f.name}"))) for f in program.functions if not f.captured]
        known = [(name, arguments) for name, arguments in calls if arguments is not None]
        machine = _machine(load(data), kernels="build")
        outcomes = tuple(Call(name, arguments, _call(machine, name, arguments)) for name, arguments in known)
        originals.append(Original(path.stem, program, data, outcomes))
    if not originals:
        raise SystemExit(f"there are no programs in {folder}")
    return originals


def _arguments(function: Function, random: Random) -> tuple | None:
    """Values for a function's parameters, or None if it takes others than tensors and tuples of them."""
    sizes: dict[str, int] = {}
    values = [_value(type_, random, sizes) for type_ in function.type.params]
    return None if any(value is None for value in values) else tuple(values)


def _value(type_: Type, random: Random, sizes: dict[str, int]) -> Any:
    if isinstance(type_, TupleType):
        fields = tuple(_value(field, random, sizes) for field in type_.fields)
        return None if any(field is None for field in fields) else fields
    if not isinstance(type_, TensorType):
        return None
    shape = [dim if isinstance(dim, int) else sizes.setdefault(str(dim), random.randrange(1, 5)) for dim in type_.shape]
    count = int(np.prod(shape))
    most = 6 if type_.dtype.is_float else 3  # integers may be indices
    return np.array([random.randrange(most) for _ in range(count)]).astype(type_.dtype.numpy).reshape(shape)


def _machine(executable: Executable, kernels: str) -> Any:
    from ....vm.machine import VirtualMachine

    return VirtualMachine(executable, imports=stand_ins(executable.program), kernels=kernels, **BUDGETS)


def _call(machine: Any, function: str, arguments: tuple) -> str:
    """A text that is the same for the same result; for an error, its kind. Errors that are not Treadle's pass through."""
    try:
        return describe(machine[function](*arguments))
    except BudgetExceededError:
        return "budget"
    except TreadleError as error:
        return f"failed {type(error).__name__}"


def describe(value: Any, depth: int = 0) -> str:
    """Every bit of a result as text. Data values are followed as deep as the budgets let them become."""
    if isinstance(value, tuple):
        return f"({', '.join(describe(field, depth + 1) for field in value)})"
    if hasattr(value, "fields"):
        inner = ", ".join(describe(field, depth + 1) for field in value.fields) if depth < 100 else "…"
        return f"{value.tag}({inner})"
    if hasattr(value, "numpy"):
        array = value.numpy()
        return f"{array.dtype}{array.shape}:{array.tobytes().hex()}"
    return type(value).__name__


# ---- mutants ----


def definitions(original: Original) -> list[PrimitiveDefinition]:
    """Those of the program, and one of each kernel template."""
    return [*(primitive.definition for primitive in original.program.primitives), *_of_templates()]


@functools.cache
def _of_templates() -> tuple[PrimitiveDefinition, ...]:
    return tuple(known_definitions())


def _with_primitive(random: Random, original: Original) -> Program:
    """The program with a change in one of its primitives."""
    primitives = list(original.program.primitives)
    if primitives:
        at = random.randrange(len(primitives))
        primitives[at] = replace(primitives[at], definition=mutate_definition(random, primitives[at].definition))
    return replace(original.program, primitives=tuple(primitives))


def make_mutant(
    originals: list[Original], seed: int, number: int
) -> tuple[Original, str, bytes | Program | PrimitiveDefinition]:
    """Mutant `number`: what it is made from, the kind of change, and itself: a file's bytes, where no file can hold it a
    program, or a definition."""
    random = Random(f"{seed} {number}")
    original = random.choice(originals)
    kind = random.choice(
        ("bytes", "section", "program", "program", "primitive", "definition", "definition", "definition")
    )
    if kind == "definition":
        return original, kind, mutate_definition(random, random.choice(definitions(original)))
    if kind == "bytes":
        data = mutate_bytes(random, original.data)
        return original, kind, data
    if kind == "section":
        return original, kind, mutate_section(random, original.data)
    program = _with_primitive(random, original) if kind == "primitive" else mutate_program(random, original.program)
    try:
        return original, kind, Executable(program).as_bytes()
    except TreadleError:
        return original, kind, program


def try_mutant(
    originals: list[Original], seed: int, number: int, announce: Callable[[], None] = lambda: None, built: float = BUILT
) -> str:
    """What comes of a mutant: "kind: outcome". `announce` is called before a kernel is built, `built` of them are."""
    original, kind, mutant = make_mutant(originals, seed, number)
    try:
        if isinstance(mutant, PrimitiveDefinition):
            outcome = try_definition(mutant, Random(f"{seed} {number} run"), announce, built)
        else:
            outcome = _verify_only(mutant) if isinstance(mutant, Program) else _run(original, mutant)
    except TreadleError as error:
        outcome = "bug, which the error says is Treadle's" if is_fault(error) else f"refused {type(error).__name__}"
    except Exception as error:
        outcome = f"bug {type(error).__name__}"
    if kind == "bytes" and outcome == "ran, another result" and mutant != original.data:
        outcome = "wrong result"
    if kind == "bytes" and mutant == original.data:
        outcome = "nothing changed"
    return f"{kind}: {outcome}"


def _verify_only(program: Program) -> str:
    from ....vm.verify.verifier import verify

    verify(program)
    return "verified, but no file can hold it"


def _run(original: Original, data: bytes) -> str:
    machine = _machine(load(data), kernels="cached")
    same = True
    for call in original.calls:
        outcome = _call(machine, call.function, call.arguments)
        if outcome == "budget":
            return "budget exceeded"
        same = same and outcome == call.outcome
    return "ran, same result" if same else "ran, another result"


# ---- the child ----


def serve(corpus: Path, seed: int, built: float) -> None:
    """Reads "start stop" lines; answers with a line for each mutant: its number and outcome."""
    import faulthandler

    faulthandler.enable()
    _limit_memory()
    np.seterr(all="ignore")
    originals = read_corpus(corpus)

    def announce() -> None:
        print(BUILDING, flush=True)

    print("ready", flush=True)
    for line in sys.stdin:
        start, stop = map(int, line.split())
        for number in range(start, stop):
            print(number, try_mutant(originals, seed, number, announce, built), flush=True)


def _limit_memory() -> None:
    """Where the system can: an allocation without bounds becomes a MemoryError instead of a slow machine."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))


class Child:
    """A child process, restarted when it is needed again."""

    def __init__(self, corpus: Path, seed: int, log: Path, built: float = BUILT) -> None:
        self._code = processes.module(__spec__.name)
        self._options = ["--serve", "--corpus", str(corpus.resolve()), "--seed", str(seed), "--built", str(built)]
        self._log = log
        self._process: processes.Process[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def _start(self) -> processes.Process[str]:
        with open(self._log, "w") as log:
            process = processes.start(
                self._code,
                *self._options,
                stdin=processes.PIPE,
                stdout=processes.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )
        lines = self._lines = queue.Queue()
        threading.Thread(target=_collect, args=(process, lines), daemon=True).start()
        try:
            first = self._next_line(START_SECONDS)
        except queue.Empty:
            first = f"nothing for {START_SECONDS} s"
        if first != "ready":
            process.kill()
            raise SystemExit(f"a child does not start; it says {first}:\n{self._log.read_text()}")
        return process

    def _next_line(self, seconds: float) -> str | None:
        """The child's next line, None when it has ended. Raises queue.Empty when there is none in time."""
        return self._lines.get(timeout=seconds)

    def _patient_line(self, seconds: float) -> str | None:
        """The next line, for which the child may take so much of its own time."""
        assert self._process is not None
        begin, waited = _own_seconds(self._process.pid), 0.0
        while True:
            try:
                return self._next_line(seconds)
            except queue.Empty:
                waited += seconds
                now = _own_seconds(self._process.pid)
                if begin is None or now is None or now - begin >= seconds or waited >= IDLE * seconds:
                    raise

    def run(self, start: int, stop: int) -> Iterator[tuple[int, str]]:
        """The outcomes of mutants start … stop - 1. One that hangs is tried again: a busy machine may have been the reason."""
        is_second = False
        while start < stop:
            if self._process is None:
                self._process = self._start()
            assert self._process.stdin is not None
            self._process.stdin.write(f"{start} {stop}\n")
            while start < stop and self._process is not None:
                outcome = self._outcome()
                is_second = outcome == "hang" and not is_second
                if not is_second:
                    yield start, outcome
                    start += 1

    def _outcome(self) -> str:
        assert self._process is not None
        try:
            line = self._patient_line(HANG_SECONDS)
            while line == BUILDING:
                line = self._patient_line(BUILD_SECONDS)
        except queue.Empty:
            self.stop()
            return "hang"
        if line is None:
            code = self._process.wait()
            self._process = None
            return f"crash {code}"
        return line.partition(" ")[2]

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _own_seconds(pid: int) -> float | None:
    """The processor's time that a process has had; None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime: proc(5)
    except (OSError, ValueError, IndexError):
        return None


def _collect(process: processes.Process[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.rstrip("\n"))
    lines.put(None)


# ---- the parent ----


def fuzz(
    corpus: Path,
    state: State,
    count: int,
    jobs: int,
    path: Path | None,
    seconds: float = float("inf"),
    built: float = BUILT,
) -> None:
    """Continues a run until `count` mutants are done, or so much time has passed; `state` is written to `path` after each round
    of batches."""
    from tqdm import tqdm

    log = Path(path or "fuzz.json")
    children = [Child(corpus, state.seed, log.with_suffix(f".{job}.log"), built) for job in range(jobs)]
    progress = tqdm(total=count, initial=state.next, unit=" mutants", disable=None)
    try:
        with ThreadPoolExecutor(jobs) as pool:
            begin = time.monotonic()
            while state.next < count and time.monotonic() - begin < seconds:
                starts = range(state.next, min(count, state.next + jobs * BATCH), BATCH)
                batches = [(start, min(count, start + BATCH)) for start in starts]
                work = zip(children, batches, strict=False)
                for outcomes in pool.map(lambda item: list(item[0].run(*item[1])), list(work)):
                    for number, outcome in outcomes:
                        state.add(number, outcome)
                    progress.update(len(outcomes))
                state.next = batches[-1][1]
                if path is not None:
                    state.write(path)
    finally:
        progress.close()
        for child in children:
            child.stop()


def report(state: State) -> str:
    lines = [f"{count:9}  {outcome}" for outcome, count in sorted(state.tally.items())]
    lines += [f"finding: mutant {finding['number']}: {finding['outcome']}" for finding in state.findings[:50]]
    return "\n".join([*lines, f"{state.next} mutants, seed {state.seed}, {len(state.findings)} findings"])


def _show(corpus: Path, seed: int, number: int) -> None:
    """Writes one mutant to a file, and tries it in this process."""
    originals = read_corpus(corpus)
    original, kind, mutant = make_mutant(originals, seed, number)
    if isinstance(mutant, bytes):
        Path(f"mutant-{number}.trdl").write_bytes(mutant)
    print(f"mutant {number}: {kind} of {original.name}", flush=True)
    if isinstance(mutant, PrimitiveDefinition):
        print(print_primitive(Primitive("mutant", mutant)), flush=True)
    print(try_mutant(originals, seed, number, built=1.0))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="treadle fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000, help="mutants in all, those of earlier runs included")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for this run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--built", type=float, default=BUILT, help="how many of the changed definitions' kernels are built"
    )
    parser.add_argument("--jobs", type=int, default=1, help="child processes")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="a folder of .tasm and .trdl files")
    parser.add_argument("--state", type=Path, help="a file that keeps the tally, to resume from")
    parser.add_argument("--only", type=int, help="try this mutant alone, in this process, and save it")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.corpus, options.seed, options.built)
        return 0
    if options.only is not None:
        _show(options.corpus, options.seed, options.only)
        return 0
    state = State.read(options.state, options.seed) if options.state else State(options.seed)
    fuzz(options.corpus, state, options.count, options.jobs, options.state, options.seconds, options.built)
    print(report(state))
    return 1 if state.findings else 0


if __name__ == "__main__":
    sys.exit(main())
