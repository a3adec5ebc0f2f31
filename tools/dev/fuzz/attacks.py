"""Random variants of classes of attacks, and whether what SECURITY.md promises holds.

    python -m treadle.tools.dev.fuzz.attacks --count 100 --seed 1

The classes are in `hostile/attacks.py`. Variant `number` of a class is a function of the seed and the number: `--attack CLASS
--only NUMBER` tries one again. What must not happen: a crash, an error that is not Treadle's, more time or memory than the
variant may take, another thread that waits for long, text of others that is printed as it is, and what the variant tells.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

from ....formats.messages.errors import TreadleError
from ....formats.messages.terminal import shown
from ....formats.starting import Thread
from .hostile.attacks import ATTACKS
from .hostile.variants import Broken, Variant
from .models import in_processes, peak, reset_peak
from .targets import is_fault

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
    before, begin = reset_peak(), time.process_time()
    said: object = None
    try:
        with watcher.watching():
            said = variant.act()
        outcome = "held"
    except Broken as broken:
        return f"finding: {broken}"
    except TreadleError as error:
        if is_fault(error):
            return f"finding: {error}"
        said, outcome = [str(error), repr(error)], f"refused {type(error).__name__}"
    except Exception as error:
        return f"finding: {type(error).__name__}: {error}"
    seconds, taken = time.process_time() - begin, peak() - before
    if any(text != shown(text) for text in (said if isinstance(said, list) else [said]) if isinstance(text, str)):
        return f"finding: printed as it is: {said!r}"
    if seconds > variant.seconds:
        return f"finding: took {seconds:.1f} s of {variant.seconds}, {outcome}"
    if watcher.longest > variant.pause:
        return f"finding: took the turn of another thread for {watcher.longest:.2f} s, {outcome}"
    if taken > variant.memory:
        return f"finding: took {taken >> 20} MiB of {variant.memory >> 20}, {outcome}"
    return outcome


def work(name: str, seed: int, first: int, last: int) -> None:
    """Tries variants one after the other, and prints what comes of each."""
    for number in range(first, last):
        print(json.dumps([number, try_attack(name, seed, number)[:600]]), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints what came of all variants. 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="of each class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--attack", choices=list(ATTACKS), action="append", help="one class, and others; by default all"
    )
    parser.add_argument("--only", type=int, help="the number of one variant")
    options = parser.parse_args(argv)
    chosen = options.attack or list(ATTACKS)
    if options.only is not None:
        for name in chosen:
            print(f"{name}: {try_attack(name, options.seed, options.only)}")
        return 0
    whole = Counter[str]()
    for name in chosen:
        code = f"from {__package__}.attacks import work; work({name!r}, {options.seed}, {{first}}, {{last}})"
        told = functools.partial(print, name, flush=True)
        tally, findings = in_processes(code, 0, options.count, told)
        print(f"{name}: {', '.join(f'{count} {outcome}' for outcome, count in tally.most_common())}", flush=True)
        whole["finding"] += len(findings)
    return int(whole["finding"] > 0)


if __name__ == "__main__":
    sys.exit(main())
