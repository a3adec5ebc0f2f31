"""Tier 1, what `make test` runs: of tests that take long, a few cases, and of properties a few examples.

`tier1.txt` beside this file says of how many cases, for each function whose cases together take longer than a share, or which
one, where most would take too long. It is derived of what the tests took on one machine, with a cold cache:

    rm -rf build/costs* build/cache; TREADLE_CACHE=build/cache pytest -n 2 --all --costs build/costs
    python tests/tiers.py build/costs.*

Which cases these are follows from their names, so that a new one changes nothing for the others. A function that is not in the
list runs whole.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("tier1.txt")

SHARE = 0.1  # seconds of CPU that a function's cases may take together in tier 1
LONGEST = 0.5  # seconds of CPU of the one case that is run of a function, at most; longer ones are left to tier 2
_FEWER = 5  # properties draw one example of this many in tier 1 …
_FEWEST = 8  # … and at least these


def parted(items: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The tests of tier 1, and the others. Properties among the former draw fewer examples from now on."""
    counts, named = _table()
    groups: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        groups[_function(item.nodeid)].append(item)
    kept: list[Any] = []
    for name, cases in groups.items():
        count = counts.get(name, len(cases))
        kept += sorted(cases, key=lambda item: zlib.crc32(item.nodeid.encode()))[:count]
    kept += [item for item in items if item.nodeid in named]
    kept = [item for item in kept if item.get_closest_marker("thorough") is None]
    chosen = set(kept)
    for function in {getattr(item, "function", None) for item in kept}:
        _draw_fewer(function)
    return [item for item in items if item in chosen], [item for item in items if item not in chosen]


def _function(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def _table() -> tuple[dict[str, int], set[str]]:
    """How many cases of a function, and which ones by their names."""
    lines = [line.partition(" ") for line in TABLE.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    counts = {name: int(count) for count, _, name in lines if count != "="}
    return counts, {name for count, _, name in lines if count == "="}


def _draw_fewer(function: Any) -> None:
    """Of a property of Hypothesis, which keeps its settings with the function."""
    settings = getattr(function, "_hypothesis_internal_use_settings", None)
    if settings is not None:
        count = min(settings.max_examples, max(_FEWEST, settings.max_examples // _FEWER))
        function._hypothesis_internal_use_settings = type(settings)(settings, max_examples=count)


# ---- deriving the table ----


@contextlib.contextmanager
def measured(item: Any, path: str | None) -> Iterator[None]:
    """Notes what a test would take in tier 1, of this process and its children, if wanted."""
    if path is None:
        yield
        return
    begin = _cpu()
    yield
    seconds = _cpu() - begin
    if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
        seconds /= _FEWER
    worker = getattr(item.config, "workerinput", {}).get("workerid", "main")
    with open(f"{path}.{worker}", "a", encoding="utf-8") as file:
        file.write(json.dumps([item.nodeid, round(seconds, 4)]) + "\n")


def _cpu() -> float:
    import psutil

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            running += times.user + times.system
    return time.process_time() + children.ru_utime + children.ru_stime + running


def derived(costs: Sequence[tuple[str, float]]) -> str:
    """The table: as many cases of a function as fit into `SHARE`, two quick ones at least, or one within `LONGEST`."""
    groups: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for nodeid, seconds in costs:
        groups[_function(nodeid)].append((seconds, nodeid))
    lines = [
        f"# Cases of each function in tier 1. Derived by tests/tiers.py: {SHARE} s each, of one case {LONGEST} s at most"
    ]
    for name, cases in sorted(groups.items()):
        total = sum(seconds for seconds, _ in cases)
        mean, (least, quickest) = total / len(cases), min(cases)
        count = max(0 if mean > LONGEST else 2 if mean < SHARE else 1, int(SHARE / mean) if mean else len(cases))
        if total > SHARE and count < len(cases):
            lines.append(f"{count} {name}")
            if count == 0 and least <= LONGEST:
                lines.append(f"= {quickest}")
    return "\n".join(lines) + "\n"


def main(paths: Sequence[str]) -> None:
    costs = [json.loads(line) for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    TABLE.write_text(derived(costs), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
