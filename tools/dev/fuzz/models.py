"""Hostile ONNX models, compiled: damaged bytes, absurd sizes, cycles, strange paths, deep nesting, constants without end.

    python -m treadle.tools.dev.fuzz.models --count 100000 --log models.log

What is changed, and how, is in `hostile/`. Model `number` is a function of the seed and its number: `--only NUMBER` tries one
again. Each is compiled in a process that
may be lost. What must not happen: a crash, an error that is not Treadle's, more processor time than `SECONDS`, more memory than
`MEMORY` and `BYTES_A_BYTE`.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import json
import os
import queue
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO, Any

from ....formats.messages.errors import MiscompilationError, TreadleError
from ....native import processes
from .changes import mutate_bytes
from .hostile.changes import CHANGES
from .hostile.sound import EXTERNAL, sound_model
from .targets import is_fault, read_corpus

SECONDS = 15.0  # of processor time for a model: `compiler/effort.py` allows some 6 s, by estimates
MEMORY = 2 << 30  # bytes above what there was: twice what folding may make (`limits.FOLDED_BYTES_IN_ALL`)
BYTES_A_BYTE = 8  # and these for each of the model's: protobuf holds a number, of one byte in a file, in so many
_ADDRESSES = 16 << 30  # bytes of address space: what would take the machine's memory fails instead
BOUND_SECONDS, BOUND_MEMORY = 2.0, 256 << 20  # that some models are compiled within; steps are not interrupted:
SLACK_SECONDS, SLACK_MEMORY = 5.0, 256 << 20
_WAIT = 240.0  # seconds without a word from a process, on a busy machine, after which it hangs


@dataclass(frozen=True)
class Way:
    """How a model is given to the compiler, and what the caller bounds."""

    is_file: bool = False  # in a folder with other files and links, where external data may lie
    max_seconds: float | None = None
    max_memory: int | None = None


def make_model(seed: int, number: int, with_cases: bool = True) -> bytes:
    """A changed model. ONNX's own cases take some seconds to make, once: `with_cases` may leave them out."""
    import onnx
    from google.protobuf.message import DecodeError

    random = Random(f"{seed} {number} models")
    data = sound_model(random, with_cases) if random.random() < 0.9 else random.choice(read_corpus("onnx"))
    if random.random() < 0.15:
        return mutate_bytes(random, data)
    model = onnx.ModelProto()
    with contextlib.suppress(DecodeError):  # the corpus has damaged ones
        model.ParseFromString(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        with contextlib.suppress(ValueError, TypeError, DecodeError):  # protobuf refuses the change
            random.choice(CHANGES)(random, model)
    data = model.SerializeToString()
    return mutate_bytes(random, data) if random.random() < 0.1 else data


def way_of(seed: int, number: int) -> Way:
    """How that model is tried."""
    random = Random(f"{seed} {number} way")
    is_file = random.random() < 0.2
    return Way(is_file, BOUND_SECONDS, BOUND_MEMORY) if random.random() < 0.15 else Way(is_file)


@functools.cache
def _folder() -> Path:
    """A folder in which models lie, with what external data may and may not be."""
    whole = tempfile.TemporaryDirectory(prefix="treadle-models-")
    atexit.register(whole.cleanup)
    around = Path(whole.name)
    folder = around / "models"
    folder.mkdir()
    for path in (folder / EXTERNAL, around / "outside.bin"):
        path.write_bytes(bytes(4096))
    (folder / "empty").touch()
    for name, target in (("link", "."), ("outside", "../outside.bin"), ("loop", "loop")):
        (folder / name).symlink_to(target)
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe")
    return folder


# ---- one model ----


def try_model(data: bytes, way: Way = Way()) -> str:
    """What comes of a model; a text that begins with "finding" is one."""
    from .... import compile

    source: Any = data
    if way.is_file:
        source = _folder() / "model.onnx"
        source.write_bytes(data)
    before, begin = reset_peak(), time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bounds: Any = {"max_seconds": way.max_seconds, "max_memory": way.max_memory}
            compile(source, embed_native=False, progress=False, **bounds)
        outcome = "compiled"
    except TreadleError as error:
        is_ours = is_fault(error) or isinstance(error, MiscompilationError)
        outcome = f"finding: {error}" if is_ours else f"refused {type(error).__name__}"
    except Exception as error:
        return f"finding: {type(error).__name__}: {error}"
    seconds, taken = time.process_time() - begin, peak() - before
    if seconds > (SECONDS if way.max_seconds is None else way.max_seconds + SLACK_SECONDS):
        return f"finding: {seconds:.1f} s of {way}, {outcome}"
    most = MEMORY if way.max_memory is None else way.max_memory + SLACK_MEMORY
    if taken > most + BYTES_A_BYTE * len(data):
        return f"finding: {taken >> 20} MiB of {way}, {outcome}"
    return outcome


def reset_peak() -> int:
    """Begins to count the most memory in use anew, where the system can; bytes in use."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return 0


def _work(seed: int, first: int, last: int, with_cases: bool) -> None:
    """Tries models one after the other, and prints what comes of each."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    for number in range(first, last):
        print(
            json.dumps([number, try_model(make_model(seed, number, with_cases), way_of(seed, number))[:400]]),
            flush=True,
        )


# ---- many of them ----


def run(
    seed: int, first: int, count: int, told: Callable[[str], object] = print, with_cases: bool = True
) -> tuple[Counter[str], list[str]]:
    """What came of so many models, and the findings."""
    code = f"from {__package__}.models import _work; _work({seed}, {{first}}, {{last}}, {with_cases})"
    return in_processes(code, first, count, told)


def in_processes(
    code: str, first: int, count: int, told: Callable[[str], object] = print
) -> tuple[Counter[str], list[str]]:
    """What came of so many trials, and the findings. `code` tries those from {first} to {last}, and prints the number and outcome
    of each. A process that dies or hangs is a finding of the trial at hand; the next one goes on behind it."""
    tally, findings, number, last = Counter[str](), [], first, first + count
    while number < last:
        process = processes.start(
            code.format(first=number, last=last), stdout=processes.PIPE, stderr=processes.PIPE, text=True
        )
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert process.stdout is not None
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
        hangs = False
        try:
            while number < last:
                line = lines.get(timeout=_WAIT)
                if not line:
                    break
                number, outcome = json.loads(line)
                if outcome.startswith("finding"):
                    findings.append(f"{number}: {outcome}")
                    told(findings[-1])
                    outcome = "finding"
                tally[outcome] += 1
                number += 1
                if number % 1000 == 0:
                    told(f"{number}: {dict(tally)}")
        except queue.Empty:
            hangs = True
        finally:
            process.kill()
            error = process.communicate()[1][-300:] if not hangs else ""
        if number < last:
            why = f"no word for {_WAIT:.0f} s" if hangs else f"exit status {process.returncode}: {error}"
            findings.append(f"{number}: finding: {why}")
            told(findings[-1])
            tally["finding"] += 1
            number += 1
    return tally, findings


def _read(pipe: IO[str], lines: queue.SimpleQueue[str]) -> None:
    with contextlib.suppress(ValueError):  # closed meanwhile
        for line in pipe:
            lines.put(line)
    lines.put("")


def main(argv: Sequence[str] | None = None) -> int:
    """Prints what came of all models. 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one model")
    parser.add_argument("--save", type=Path, help="with --only, write the model to this file")
    parser.add_argument("--log", type=Path, help="write what is told to this file, too")
    options = parser.parse_args(argv)
    if options.only is not None:
        data = make_model(options.seed, options.only)
        if options.save:
            options.save.write_bytes(data)
        print(try_model(data, way_of(options.seed, options.only)))
        return 0

    def told(text: str) -> None:
        print(text, flush=True)
        if options.log:
            with open(options.log, "a", encoding="utf-8") as log:
                log.write(f"{text}\n")

    tally, findings = run(options.seed, options.first, options.count, told)
    told(", ".join(f"{count} {outcome}" for outcome, count in tally.most_common()))
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
