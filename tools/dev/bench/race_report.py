"""The output of `treadle bench models`: a line for each race, the summary, and docs/benchmarks.md."""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .race import OURS, WRONG, Measurement, Race

_PAGE = """\
# Treadle and the runtimes that people use today

Written by `make bench`. Latency of one call in ms, NumPy arrays in and out: the median, and the 10th and 90th percentile.
Engines take turns in one process, in float32. *Ratio* is the best rival's time divided by Treadle's: above 1, Treadle leads.
*Error* is the largest difference between an element of Treadle's outputs and the first rival's, as a share of the largest
element. The models are built from a seed by `tools/dev/zoo`.

"""


def line(race: Race) -> str:
    """A race for the terminal."""
    parts = [f"{race.model:20} {race.threads} threads" if race.threads > 1 else f"{race.model:20} 1 thread "]
    for name, result in race.engines.items():
        parts.append(f"{name} {'–' if result.failure else f'{result.median:.4g}':>8}")
    parts.append("" if race.ratio is None else f"ratio {race.ratio:.2f}")
    parts += [_remark(name, result) for name, result in race.engines.items() if _remark(name, result)]
    return "  ".join(parts)


def _remark(name: str, result: Measurement) -> str:
    if result.failure:
        return f"! {name}: {result.failure}"
    if result.error is not None and not result.error <= WRONG:
        return f"! {name} differs by {result.error:.1g}"
    return ""


def summary(races: Sequence[Race]) -> Iterator[str]:
    """The geometric mean of the ratios, for each number of threads."""
    for threads in sorted({race.threads for race in races}):
        here = [race for race in races if race.threads == threads]
        ratios = [race.ratio for race in here if race.ratio is not None]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            yield (
                f"{threads} thread{'s' * (threads > 1)}: geometric mean {mean:.2f} over {len(ratios)} models, "
                f"ahead on {sum(ratio > 1 for ratio in ratios)}, not measured {len(here) - len(ratios)}"
            )


def write(path: str, races: Sequence[Race]) -> None:
    """The page, with a table for each number of threads; what other benchmarks have written into it stays."""
    written_here = re.compile(r"|\d+ threads?")
    others = [text for heading, text in _sections(path).items() if not written_here.fullmatch(heading)]
    parts = [_PAGE, *(f"- {text}\n" for text in machine(list(races[0].engines) if races else []))]
    for threads in sorted({race.threads for race in races}):
        here = [race for race in races if race.threads == threads]
        parts.append(f"\n## {threads} thread{'s' * (threads > 1)}\n\n")
        parts += [f"{text}\n" for text in _table(here)]
        parts += [f"\n{text}\n" for text in summary(here)]
    Path(path).write_text("".join((*parts, *others)), encoding="utf-8")


def write_section(path: str, heading: str, lines: Iterable[str]) -> None:
    """One section of the page, which says what machine it is from; the others stay."""
    text = "\n".join((f"\n## {heading}\n", *lines, "", *(f"- {each}" for each in machine([])), ""))
    sections = {**_sections(path), heading: text}
    Path(path).write_text("".join(sections.values()), encoding="utf-8")


def _sections(path: str) -> dict[str, str]:
    """The parts of a page by their headings; what stands above them has the heading ""."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    above, *parts = re.split(r"(?=^\n## )", text, flags=re.MULTILINE)
    return {"": above} | {part.splitlines()[1].removeprefix("## "): part for part in parts}


def _table(races: Sequence[Race]) -> Iterator[str]:
    names = list(races[0].engines)
    yield "| model | " + " | ".join(names) + " | ratio | error |"
    yield "|---|" + "---|" * (len(names) + 2)
    for race in races:
        ratio = "" if race.ratio is None else f"{race.ratio:.2f}"
        error = race.engines[OURS].error
        cells = [race.model, *map(_cell, race.engines.values()), ratio, "" if error is None else f"{error:.0e}"]
        yield "| " + " | ".join(cells) + " |"


def _cell(result: Measurement) -> str:
    if result.failure:
        return result.failure.replace("|", "/")
    times = result.milliseconds
    return f"**{times['median']:.4g}** ({times['p10']:.4g}–{times['p90']:.4g})"


def machine(engines: Sequence[str]) -> Iterator[str]:
    """Facts that the figures depend on; nothing that identifies the machine."""
    from ....compiler.targets.cpu.target import host

    target = host()
    today = datetime.date.today()
    yield f"date: {today.day} {today:%B %Y}"
    yield f"processor: {_processor()}, {os.cpu_count()} hardware threads"
    yield f"vectors: {8 * target.vector_bytes} bits, {target.lanes()} floats"
    yield f"system: {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    packages = [*(name for name in engines if name != OURS), "numpy", "numba", "llvmlite"]
    yield "versions: " + ", ".join(f"{name} {_version(name)}" for name in packages)


def _processor() -> str:
    """As Linux names it; elsewhere what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    found = dict(line.split("\t: ", 1) for line in lines if "\t: " in line)
    described = {key.strip(): value for key, value in found.items()}
    family, model = described.get("cpu family"), described.get("model")
    name = described.get("model name", platform.machine())
    return f"{name} (family {family}, model {model})" if family else name


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
