"""Coverage-guided fuzzing of whatever reads things from outside, by atheris (pip install 'treadle[fuzz]').

    python -m treadle.tools.dev.fuzz.coverage assembly --seconds 600 --state .fuzz

Inputs that reach new code are kept in the state's folder, from which a run goes on; the first ones are those of `tests/corpus`.
Errors that are not Treadle's, and inputs that take longer than two seconds of the processor, are findings: each place in the
code is reported once, with its input, and the run goes on. A crash ends it; libFuzzer leaves the input behind then.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from ....formats.messages.errors import ArgumentError, TreadleError

SLOW_SECONDS = 2.0  # of the process's own time: other programs may hold the processor
_SAVE_EVERY = 5.0  # seconds between two writings of the state
_NO_METER = int, int  # of memory: to ask the system takes longer than an input does
Mutate = Callable[[bytes, int], bytes]  # libFuzzer's own: of an input, and the most bytes that become of it
Mutator = Callable[[bytes, int, int], bytes]  # the same with a seed

# What reads, by module. Numba compiles nothing of these here: kernels are lowered, no more.
INSTRUMENTED = (
    "treadle.formats",
    "treadle.vm.verify.verifier",
    "treadle.compiler.check",
    "treadle.compiler.targets.cpu.kernels",
    "treadle.compiler.ir.infer",
    "treadle.compiler.ir.parser",
    "treadle.compiler.onnx",
    "treadle.compiler.operators",
    "treadle.compiler.ir.unify",
    "treadle.tools.arguments",
    "treadle.tvm.files",
)


class Run:
    """Counts the executions of one target, and keeps what was found."""

    def __init__(self, name: str, folder: Path, seconds: float) -> None:
        from . import targets

        self.target, self.judged = targets.TARGETS[name], targets.judged
        self.folder, self.seconds = folder, seconds
        self.path = folder / f"{name}.json"
        saved = json.loads(self.path.read_text()) if self.path.exists() else {"tally": {}, "findings": {}}
        self.tally, self.findings = Counter(saved["tally"]), saved["findings"]
        self.start = self.saved = time.monotonic()

    def one(self, data: bytes) -> None:
        kind, _, found = self.judged(lambda: self.target(data), SLOW_SECONDS, 0, _NO_METER).partition(": ")
        self.tally[kind] += 1
        if found:
            self.found(found.partition(": ")[0], data)
        now = time.monotonic()
        if now - self.saved > _SAVE_EVERY:
            self.saved = now
            self.save()
        if now - self.start > self.seconds:
            self.save()
            os._exit(0)

    def found(self, what: str, data: bytes) -> None:
        if what not in self.findings:
            name = f"finding-{self.path.stem}-{hashlib.sha256(data).hexdigest()[:12]}"
            (self.folder / name).write_bytes(data)
            self.findings[what] = name
            print(f"finding: {what}: {self.folder / name}", flush=True)

    def save(self) -> None:
        temporary = self.path.with_suffix(".tmp")
        saved = {"tally": dict(sorted(self.tally.items())), "findings": self.findings}
        temporary.write_text(json.dumps(saved, indent=1) + "\n")
        temporary.replace(self.path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="coverage_fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("target", help="a reader: a function of fuzz/targets.py")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument(
        "--state", type=Path, default=Path(".executables"), help="a folder that keeps the tally and the inputs"
    )
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    options = parser.parse_args(arguments)

    try:
        import atheris
    except ImportError:
        raise ArgumentError("coverage-guided fuzzing needs atheris: pip install 'treadle[fuzz]'") from None
    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        from . import targets

        if options.target not in targets.TARGETS:
            raise ArgumentError(f"there is no target {options.target!r}; there is {', '.join(targets.TARGETS)}")
        with contextlib.suppress(Exception):
            targets.TARGETS[options.target](b"")  # imports what it needs

    faulthandler.enable()
    inputs = options.state / options.target
    inputs.mkdir(parents=True, exist_ok=True)
    run = Run(options.target, options.state, options.seconds)
    for number, data in enumerate(targets.read_corpus(options.target)):
        (inputs / f"given-{number}").write_bytes(data)
    command = [
        sys.argv[0],
        str(inputs),
        "-max_len=16384",
        "-timeout=60",
        "-rss_limit_mb=8192",
        f"-artifact_prefix={options.state}/",
        f"-seed={options.seed}",
        "-verbosity=0",
    ]
    mutators = {"file": _in_sections, "definition": _of_definitions}
    if options.target in mutators:
        mutator = mutators[options.target](lambda data, most: atheris.Mutate(data, most))
        atheris.Setup(command, run.one, custom_mutator=mutator)
    else:
        atheris.Setup(command, run.one)
    atheris.Fuzz()
    return 0


def _of_definitions(mutate: Mutate) -> Mutator:
    """A mutator of definitions that makes others of them, nine times in ten."""
    from ....formats.sections import decode_definition, encode_definition
    from .changed_definitions import mutate_definition

    def change(data: bytes, most: int, seed: int) -> bytes:
        if seed % 10:
            with contextlib.suppress(TreadleError):
                return encode_definition(mutate_definition(Random(seed), decode_definition(data)))[:most]
        return mutate(data, most)

    return change


def _in_sections(mutate: Mutate) -> Mutator:
    """A mutator of executables that changes one section, nine times in ten, and mends the checksums."""
    from .targets import with_changed_section

    def change(data: bytes, most: int, seed: int) -> bytes:
        if seed % 10 == 0:
            return mutate(data, most)
        changed = with_changed_section(data, seed // 10, lambda section: mutate(section, len(section) + 64))
        return changed if len(changed) <= most else data

    return change


if __name__ == "__main__":
    sys.exit(main())
