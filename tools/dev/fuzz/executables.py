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

import functools
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
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
from . import runs
from .changed_definitions import mutate_definition
from .changes import mutate_bytes, mutate_program, mutate_section
from .definitions import try_definition
from .runs import Fuzzer
from .stand_ins import stand_ins
from .targets import is_fault, known_definitions

CORPUS = Path(__file__).parents[3] / "tests" / "vm"
HANG_SECONDS = 2.0  # of the child's own time
BUILD_SECONDS = 60.0  # for a kernel to be compiled
BUILT = 0.02  # of the definitions whose kernel could be: compiling one takes as long as ten thousand checks
MEMORY = 256 << 20
BUDGETS: dict[str, Any] = {"max_steps": 20_000, "max_seconds": 0.5, "max_memory": MEMORY, "max_depth": 200}


# ---- the originals ----


class Call(NamedTuple):
    """A call of an original, and its outcome."""

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


def try_mutant(originals: list[Original], seed: int, number: int, built: float = BUILT) -> str:
    """What comes of a mutant: "kind: outcome". `built` of the kernels are built."""
    original, kind, mutant = make_mutant(originals, seed, number)
    try:
        if isinstance(mutant, PrimitiveDefinition):
            outcome = try_definition(mutant, Random(f"{seed} {number} run"), runs.announce, built)
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


# ---- the command ----


def _add_options(parser: ArgumentParser) -> None:
    built = "how many of the changed definitions' kernels are built"
    parser.add_argument("--built", type=float, default=BUILT, help=built)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="a folder of .tasm and .trdl files")


def _trial(options: Namespace) -> Callable[[int], str]:
    originals = read_corpus(options.corpus)
    built = options.built if options.only is None else 1.0
    return lambda number: try_mutant(originals, options.seed, number, built)


def _show(options: Namespace, number: int) -> None:
    """Writes one mutant to a file."""
    original, kind, mutant = make_mutant(read_corpus(options.corpus), options.seed, number)
    if isinstance(mutant, bytes):
        Path(f"mutant-{number}.trdl").write_bytes(mutant)
    print(f"mutant {number}: {kind} of {original.name}", flush=True)
    if isinstance(mutant, PrimitiveDefinition):
        print(print_primitive(Primitive("mutant", mutant)), flush=True)


def main(arguments: list[str] | None = None) -> int:
    own = _trial, _show, _add_options
    times = HANG_SECONDS, BUILD_SECONDS
    return runs.main(Fuzzer(__spec__.name, "mutant", __doc__, *own, 10_000, 1, *times), arguments)


if __name__ == "__main__":
    sys.exit(main())
