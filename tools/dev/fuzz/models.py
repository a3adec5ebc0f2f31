"""Hostile ONNX models, compiled: damaged bytes, absurd sizes, cycles, strange paths, deep nesting, constants without end.

    python -m treadle.tools.dev.fuzz.models --count 100000 --state models.json

What is changed, and how, is in `hostile/`. Model `number` is a function of the seed and its number: `--only NUMBER` writes one
to a file, and tries it again. What must not happen: a crash, an error that is not Treadle's, more processor time than `SECONDS`,
more memory than `MEMORY` and `BYTES_A_BYTE`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import tempfile
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from .... import compile
from .changes import mutate_bytes
from .hostile.changes import CHANGES
from .hostile.sound import EXTERNAL, sound_model
from .runs import Fuzzer, main
from .targets import judged, read_corpus

SECONDS = 15.0  # of processor time for a model: `compiler/effort.py` allows some 6 s, by estimates
MEMORY = 2 << 30  # bytes above what there was: twice what folding may make (`limits.FOLDED_BYTES_IN_ALL`)
BYTES_A_BYTE = 8  # and these for each of the model's: protobuf holds in these a number that takes one byte of a file
BOUND_SECONDS, BOUND_MEMORY = 2.0, 256 << 20  # that some models are compiled within; steps are not interrupted:
SLACK_SECONDS, SLACK_MEMORY = 5.0, 256 << 20


@dataclass(frozen=True)
class Way:
    """How a model is given to the compiler, and what the caller bounds."""

    is_file: bool = False  # in a folder with other files and links, where external data may lie
    max_seconds: float | None = None
    max_memory: int | None = None


def make_model(seed: int, number: int, with_cases: bool = True) -> bytes:
    """A changed model. ONNX's own cases take some seconds to make, once: `with_cases` may leave them out."""
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


def try_model(data: bytes, way: Way = Way()) -> str:
    """What comes of a model; a text that begins with "finding" is one."""
    source: Any = data
    if way.is_file:
        source = _folder() / "model.onnx"
        source.write_bytes(data)

    def act() -> str:
        bounds: Any = {"max_seconds": way.max_seconds, "max_memory": way.max_memory}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, embed_native=False, progress=False, **bounds)
        return "compiled"

    seconds = SECONDS if way.max_seconds is None else way.max_seconds + SLACK_SECONDS
    memory = MEMORY if way.max_memory is None else way.max_memory + SLACK_MEMORY
    return judged(act, seconds, memory + BYTES_A_BYTE * len(data))


# ---- the command ----


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--without-cases", action="store_true", help="make no models of ONNX's own cases")


def _model(options: Namespace, number: int) -> bytes:
    return make_model(options.seed, number, not options.without_cases)


def _trial(options: Namespace) -> Callable[[int], str]:
    return lambda number: try_model(_model(options, number), way_of(options.seed, number))[:400]


def _show(options: Namespace, number: int) -> None:
    Path(f"model-{number}.onnx").write_bytes(_model(options, number))


FUZZER = Fuzzer(__spec__.name, "model", __doc__, _trial, _show, _add_options, count=100_000)


if __name__ == "__main__":
    sys.exit(main(FUZZER))
