"""Changed files and texts for the readers of TVM's formats (parameters, graph JSON, executables), of modules, executables,
recordings and sessions, of tokenizers and templates of chats.

    python -m treadle.tools.dev.fuzz.readers graph params --count 100000

Inputs are those of `tests/corpus`, of those that are taken, changed at random: bytes anywhere, and of a JSON text its values.
An input is a function of the seed and its number: `--only NUMBER` tries one again. What must not happen: a crash, an error that
is not Treadle's, more than two seconds, more memory than a multiple of the input's size.
"""

from __future__ import annotations

import sys
import tracemalloc
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from random import Random

from . import runs
from .changes import mutate_bytes, mutate_json
from .targets import TARGETS, judged, read_corpus

DEFAULT = (
    *("params", "graph", "relay", "relax", "modules", "file", "recording"),
    *("session", "tokenizer", "template"),
)
SLOW_SECONDS = 2.0
# Bytes of Python's and NumPy's memory: for a byte of the input, and besides, which the longest errors and imports take
MEMORY_PER_BYTE, MEMORY = 256, 4 << 20


def make_input(originals: Sequence[bytes], seed: int, number: int) -> bytes:
    """A changed original."""
    random = Random(f"{seed} {number}")
    data = random.choice(originals)
    if data[:1] == b"{" and random.random() < 0.7:
        try:
            return mutate_json(random, data.decode()).encode(errors="replace")
        except (ValueError, AttributeError):  # the corpus has texts that are no JSON
            pass
    return mutate_bytes(random, data)


def _reset() -> int:
    tracemalloc.reset_peak()
    return tracemalloc.get_traced_memory()[0]


def try_input(name: str, data: bytes) -> str:
    """What comes of an input; a text that begins with "finding" is one."""
    meter = _reset, lambda: tracemalloc.get_traced_memory()[1]
    return judged(lambda: TARGETS[name](data), SLOW_SECONDS, MEMORY + MEMORY_PER_BYTE * len(data), meter)


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("targets", nargs="*", default=list(DEFAULT), help=f"of {', '.join(TARGETS)}")


def _trial(options: Namespace) -> Callable[[int], str]:
    """Inputs are of one target after the other."""
    if unknown := set(options.targets) - set(TARGETS):
        raise SystemExit(f"there is no target {min(unknown)!r}; there are {', '.join(TARGETS)}")
    tracemalloc.start()
    # what is imported once takes memory once, before it is counted
    taken = {name: [data for data in read_corpus(name) if try_input(name, data) == "taken"] for name in options.targets}

    def try_one(number: int) -> str:
        one, at = divmod(number, len(taken))
        name = options.targets[at]
        return f"{name}: {try_input(name, make_input(taken[name], options.seed, one))}"

    return try_one


if __name__ == "__main__":
    fuzzer = runs.Fuzzer(
        __spec__.name, "input", __doc__, _trial, add_options=_add_options, count=100_000 * len(DEFAULT)
    )
    sys.exit(runs.main(fuzzer))
