"""`make golden`: hashes of what the compiler makes, by which a refactoring shows that it changes nothing.

    python -m tests.compiler.golden                  writes golden.txt, which accepts what has changed
    python -m tests.compiler.golden --diff [NAME …]  shows what has changed since golden.txt was last committed, as texts

A row of golden.txt is an example of a template, or a model of the zoo; NAME is the beginning of some. Its columns are the texts
of the kernels for four CPUs and, of a model, the program. All are made without LLVM, for CPUs and caches that are fixed here.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import treadle
from treadle.compiler.targets.cpu.kernels.kernel import Kernel
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.cpu.target import Target, of
from treadle.formats import sections
from treadle.formats.executable import Executable
from treadle.formats.primitive import PrimitiveDefinition
from treadle.tools.dev.zoo.catalogue import CATALOGUE

from .targets.cpu import instruction_sets
from .targets.cpu.examples import OPERANDS, examples
from .targets.cpu.kernels.test_fused_wirings import fused

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("golden.txt")
MODELS = "zoo/"

Texts = dict[str, str]  # by column
Rows = dict[str, Texts]

_HEAD = "# Derived by tests/compiler/golden.py: `make golden`"
_CPUS = {"avx512": "icelake-server", "avx2": "haswell", "sse": "nehalem", "neon": "cortex-a72"}
_EACH = 4  # examples of an operator alone, and as many of it among others
_DIGITS = 12  # of a hash; shorter texts stand for themselves


def _target(cpu: str) -> Target:
    return replace(of(instruction_sets.target(cpu)), l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=4 << 20)


TARGETS = {column: _target(cpu) for column, cpu in _CPUS.items()}


def of_templates() -> Iterator[tuple[str, Texts]]:
    """The kernels of examples, row by row."""
    for operator in sorted(OPERANDS):
        for example in (*examples(operator, 0, _EACH), *map(fused, examples(operator, 50, _EACH))):
            yield example.name, {name: _kernel(example.definition, target) for name, target in TARGETS.items()}


def of_model(name: str) -> Texts:
    """A model's program, and the kernels of its primitives."""
    model = CATALOGUE[name].build()
    executable = treadle.compile(model, target=TARGETS["avx512"], embed_native=False, progress=False)
    primitives = executable.program.primitives
    texts = {
        column: "\n".join(f"# {each.name}\n{_kernel(each.definition, target)}" for each in primitives)
        for column, target in TARGETS.items()
    }
    return {"primitives": str(len(primitives)), **texts, "program": _program(executable)}


def _kernel(definition: PrimitiveDefinition, target: Target) -> str:
    """All that native code is made of; not what a kernel is estimated to take."""
    kernel = lower(definition, target)
    return "none" if kernel is None else _text(kernel)


def _text(kernel: Kernel) -> str:
    return (
        f"# {kernel.lanes} lanes, {kernel.scratch_bytes} bytes of scratch memory, words {kernel.words}\n{kernel.source}"
    )


def _program(executable: Executable) -> str:
    """The assembly, and what each section holds; not which version made it."""
    metadata = {name: value for name, value in executable.program.metadata.items() if name != "producer"}
    constants = tuple(map(_rounded, executable.program.constants))
    program = replace(executable.program, metadata=metadata, constants=constants)
    contents = sections.encode(program)
    held = {name: b"".join(map(bytes, pieces)) for name, pieces in contents.items() if name != "constants"}
    held |= {f"constant {number}": array.tobytes() for number, array in enumerate(constants)}
    lines = (f"# {name}: {_hash(content)}" for name, content in held.items())
    return "\n".join([Executable(program).as_text(elide=True), *lines])


def _rounded(constant: np.ndarray) -> np.ndarray:
    """A constant; of floats, the 12 leading bits: the last ones depend on the CPU where NumPy's products made them."""
    if constant.dtype.kind != "f":
        return constant
    largest = np.max(np.abs(constant), where=np.isfinite(constant), initial=0.0)
    places = 11 - math.frexp(largest)[1]  # for powers of two, so that the largest may differ as well
    with np.errstate(over="ignore"):  # the largest float of all is rounded to infinity
        return np.ldexp(np.rint(np.ldexp(constant, places)) + 0.0, -places)  # 0.0: no zero is negative


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def hashes(texts: Mapping[str, str]) -> Texts:
    """A hash of each column, or a short text itself."""
    return {name: text if len(text) < _DIGITS else _hash(text.encode()) for name, text in texts.items()}


def accepted() -> Rows:
    """The rows of golden.txt."""
    lines = (line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    rows = (line.rpartition(": ") for line in lines)
    return {row: dict(column.split("=") for column in columns.split()) for row, _, columns in rows}


def changes(found: Mapping[str, Texts], known: Mapping[str, Texts]) -> str:
    """Which rows and columns differ, and what to do; "" if none do."""
    lines = []
    for row in sorted(found.keys() | known.keys()):
        if row not in known or row not in found:
            lines.append(f"{row}: {'is not in golden.txt' if row not in known else 'is in golden.txt alone'}")
        elif found[row] != known[row]:
            columns = {**known[row], **found[row]}
            differing = (name for name in columns if found[row].get(name) != known[row].get(name))
            lines.append(f"{row}: {', '.join(differing)}")
    if not lines:
        return ""
    shown = [*lines[:30], *[f"… and {len(lines) - 30} more"][: len(lines) > 30]]
    (name, *_) = lines[0].rpartition(": ")
    advice = f"`python -m tests.compiler.golden --diff '{name}'` shows the texts, `make golden` accepts them"
    return "\n".join(["what the compiler makes has changed:", *shown, advice])


def rows(names: tuple[str, ...] = ("",)) -> Iterator[tuple[str, Texts]]:
    """All whose names begin so."""
    for model in CATALOGUE:
        if (MODELS + model).startswith(names):
            yield MODELS + model, of_model(model)
    yield from ((row, texts) for row, texts in of_templates() if row.startswith(names))


def write() -> None:
    """Accepts what the compiler makes."""
    lines = (
        f"{row}: {' '.join(f'{name}={hash_}' for name, hash_ in hashes(texts).items())}"
        for row, texts in sorted(rows())
    )
    FILE.write_text("\n".join([_HEAD, *lines]) + "\n", encoding="utf-8")


def write_texts(folder: Path, names: tuple[str, ...]) -> None:
    """A file for each row and column."""
    for row, texts in rows(names):
        (folder / row).mkdir(parents=True)
        for name, text in texts.items():
            (folder / row / name).write_text(text, encoding="utf-8")


def show_difference(names: tuple[str, ...]) -> None:
    """Makes the texts of both versions, and lets git compare them."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "log", "-1", "--format=%H", FILE], check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "treadle").mkdir()
        archive = subprocess.run([*git, "archive", found.stdout.strip()], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", folder / "treadle"], check=True, input=archive.stdout)
        command = [sys.executable, "-m", __spec__.name, "--texts", folder / "before", *names]
        subprocess.run(command, cwd=folder / "treadle", env={**os.environ, "PYTHONPATH": name}, check=True)
        write_texts(folder / "now", names)
        for version in ("before", "now"):
            (folder / version).mkdir(exist_ok=True)
        subprocess.run(["git", "diff", "--no-index", "before", "now"], cwd=folder)


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.compiler.golden", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--diff", action="store_true", help="show what has changed, and accept nothing")
    parser.add_argument("--texts", type=Path, metavar="FOLDER", help="write the texts there, and accept nothing")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the rows whose names begin so; all, by default")
    options = parser.parse_args()
    names = tuple(options.names) or ("",)
    if options.texts:
        write_texts(options.texts, names)
    elif options.diff:
        show_difference(names)
    elif options.names:
        parser.error("names are for --diff and --texts; all rows are accepted at once")
    else:
        write()


if __name__ == "__main__":
    main()
