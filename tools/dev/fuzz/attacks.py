"""Random variants of classes of attacks, and whether what SECURITY.md promises holds.

    python -m treadle.tools.dev.fuzz.attacks --count 1000 --seed 1

The classes are in `hostile/attacks.py`. Variant `number` of a class is a function of the seed and the number: `--attack CLASS
--only NUMBER` tries one again. What must not happen: a crash, an error that is not Treadle's, more time or memory than the
variant may take, another thread that waits for long, text of others that is printed as it is, and what the variant tells.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from random import Random

from ....formats.messages.errors import TreadleError
from ....formats.messages.terminal import shown
from ....formats.starting import Thread
from . import runs
from .hostile.attacks import ATTACKS
from .hostile.variants import Broken, Variant
from .targets import judged

TRIES = 3  # of a variant that took too long: others may have held the processor


class _Watcher:
    """Another thread of the process, and how long it had to wait for its turn while the process worked."""

    def __init__(self) -> None:
        self.longest = 0.0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.is_set():
                wall, own = time.perf_counter(), time.process_time()
                time.sleep(0.001)
                waited = min(time.perf_counter() - wall, time.process_time() - own)
                self.longest = max(self.longest, waited)

        thread = Thread(target=watch, name="treadle-watcher", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def try_attack(name: str, seed: int, number: int) -> str:
    """What comes of a variant; a text that begins with "finding" is one."""
    outcome = ""
    for _ in range(TRIES):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                variant = ATTACKS[name](Random(f"{name} {seed} {number}"))
            except TreadleError as error:
                return f"not made: {type(error).__name__}"
            outcome = _judged(variant)
        if not outcome.startswith("finding: took"):
            break
    return outcome


def _judged(variant: Variant) -> str:
    watcher = _Watcher()
    gc.collect()

    def act() -> str:
        try:
            with watcher.watching():
                said = variant.act()
            _check_printed(said)
        except TreadleError as error:
            _check_printed([str(error), repr(error)])
            raise
        return "held"

    outcome = judged(act, variant.seconds, variant.memory)
    if not runs.is_bad(outcome) and watcher.longest > variant.pause:
        return f"finding: took the turn of another thread for {watcher.longest:.2f} s, {outcome}"
    return outcome


def _check_printed(said: object) -> None:
    """Raises Broken for text of others that a terminal would obey."""
    if any(text != shown(text) for text in (said if isinstance(said, list) else [said]) if isinstance(text, str)):
        raise Broken(f"printed as it is: {said!r}")


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--attack", choices=list(ATTACKS), action="append", help="one class, and others; by default all"
    )


def _trial(options: Namespace) -> Callable[[int], str]:
    """Trials are of one class after the other."""
    names = options.attack or list(ATTACKS)

    def try_one(number: int) -> str:
        variant, name = divmod(number, len(names))
        return f"{names[name]}: {try_attack(names[name], options.seed, variant)[:600]}"

    return try_one


if __name__ == "__main__":
    fuzzer = runs.Fuzzer(__spec__.name, "attack", __doc__, _trial, add_options=_add_options, count=100 * len(ATTACKS))
    sys.exit(runs.main(fuzzer))
