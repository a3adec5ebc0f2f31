"""The pictures of a call: its timeline, flame graph, memory and roofline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat

from ...debug.flow import nodes_of
from ...debug.trace import Slice
from ...formats.pictures import plots
from ...formats.pictures.graph import KIND_COLOURS, operator_kind
from ...formats.pictures.svg import GREY, brief_origin, seconds, size
from .gather import Place, Run

_MOST = 4000  # marks of a picture, the longest ones
_NAMES = 24  # bars
_BETWEEN = "between kernels"
_NOWHERE = ("", 0)
Keys = Mapping[Place, str]


def _colour(operators: Iterable[str]) -> str:
    return KIND_COLOURS[operator_kind(list(operators))]


def hottest(run: Run, keys: Keys) -> str:
    """Bars of the places that take the most time."""
    whole = sum(row.seconds for row in run.rows.values()) or 1e-12
    marks = [
        plots.Bar(
            row.node if row.node and "/" in row.node else ", ".join(filter(None, (row.primitive, row.node))),
            row.seconds,
            f"{seconds(row.seconds)}, {100 * row.seconds / whole:.1f} %",
            keys.get(place),
            _colour([row.template]),
        )
        for place, row in list(run.rows.items())[:_NAMES]
    ]
    return plots.bars(marks)


def by_kind(run: Run) -> str:
    """Bars of the time by what kernels do."""
    spent: dict[str, float] = {}
    for row in run.rows.values():
        kind = operator_kind([row.template])
        spent[kind] = spent.get(kind, 0.0) + row.seconds
    whole = sum(spent.values()) or 1e-12
    ordered = sorted(spent.items(), key=lambda pair: -pair[1])
    return plots.bars(
        [
            plots.Bar(kind, taken, f"{seconds(taken)}, {100 * taken / whole:.0f} %", None, KIND_COLOURS[kind])
            for kind, taken in ordered
        ],
        width=520,
        name_width=170,
    )


def roofline(run: Run, keys: Keys) -> str:
    bounds, kernels = run.bounds, []
    for place, row in run.rows.items():
        if not (row.operations and row.bytes and row.seconds):
            continue
        each, name = row.as_json(), row.node or row.primitive
        title = (
            f"{name}\n{row.primitive}\n{each['gflops']:.1f} GFLOP/s, {each['gbytes_per_second']:.1f} GB/s, "
            f"{seconds(row.seconds)}\n{100 * row.roofline:.0f} % of the roofline, bound by {row.bound}"
        )
        rates = row.operations / row.bytes, row.operations / row.seconds
        brief = brief_origin(name, 260)
        kernels.append(plots.Kernel(brief, *rates, row.seconds, title, keys.get(place), _colour([row.template])))
    peaks = {"float32": bounds.float32}
    if any(row.compute_seconds * bounds.float32 * 1.1 < row.operations for row in run.rows.values()):
        peaks["int8"] = bounds.int8
    return plots.roofline(kernels, peaks, {level.name: level.bandwidth for level in bounds.levels})


# ---- time ----


def timeline(run: Run, keys: Keys) -> str:
    """A track for each thread; of very many spans the longest ones."""
    whole = run.timeline.slices[0].end
    tracks, places = [], _places(run)
    for track in run.timeline.threads:
        spans = []
        for each, row in _rows(track.slices):
            operators = each.details.get("operators", "")
            colour = _colour(operators.split(", ")) if operators else GREY
            lines = [
                f"{each.name}: {seconds(each.end - each.begin)}",
                *(f"{name} {text}" for name, text in each.details.items() if text),
            ]
            key = keys.get(places.get(id(each), _NOWHERE))
            spans.append(plots.Span(each.name, each.begin, each.end, row, "\n".join(lines), key, colour))
        spans = sorted(sorted(spans, key=lambda span: span.begin - span.end)[:_MOST], key=lambda span: span.begin)
        tracks.append((track.name, spans))
    return plots.timeline(tracks, whole)


def _places(run: Run) -> dict[int, Place]:
    """The places of kernels by the identities of their slices, of the thread that called; `_NOWHERE` beyond the steps known."""
    kernels = (each for each in run.timeline.slices if "operators" in each.details and "part" not in each.details)
    known = map(run.place, range(len(run.steps)))
    return dict(zip(map(id, kernels), chain(known, repeat(_NOWHERE)), strict=False))


def _rows(slices: Sequence[Slice]) -> Iterable[tuple[Slice, int]]:
    """Slices of a track with how many others each lies within."""
    open_: list[float] = []
    for each in slices:
        while open_ and open_[-1] <= each.begin + 1e-9:
            open_.pop()
        yield each, len(open_)
        open_.append(each.end)


def flame(run: Run, keys: Keys) -> str:
    """Functions, then the scopes of the model's names, then kernels: how the time of a call that nobody watches is made up."""
    slices = run.timeline.slices
    root = plots.Flame(slices[0].name)
    frames: list[tuple[str, float]] = []
    places = _places(run)
    for each in slices:
        while frames and frames[-1][1] <= each.begin + 1e-9:
            frames.pop()
        if id(each) in places:
            place = places[id(each)]
            row = run.rows.get(place)
            path = [*(name for name, _ in frames[1:]), *_scopes(each.details["node"]), each.name]
            root.add(path, row.seconds / max(1, row.calls) if row else each.end - each.begin, keys.get(place))
        elif "operators" not in each.details:
            frames.append((each.name, each.end))
    root.add([_BETWEEN], max(run.seconds - root.seconds, 0.0))
    return plots.flame(root)


def _scopes(node: str) -> list[str]:
    """The parts of a model's name: "/layer1/conv2/Conv" is within layer1 and conv2."""
    first = nodes_of(node, {})[0] if node else ""
    return [part for part in re.split(r"[/\\]", first) if part][:-1]


# ---- memory ----


def memory(run: Run, keys: Keys) -> str:
    """Where tensors lie while they are in use; gaps that nothing uses are left out."""
    at_peak = run.stats.peak_step
    lows = _packed([(each.address, each.held.bytes) for each in run.tensors])
    held = []
    for each, low in zip(run.tensors, lows, strict=True):
        (name, type_), (first, last) = (each.held.node, each.held.type), (each.held.first, each.held.last)
        high, is_hot = low + each.held.bytes, first <= at_peak <= last
        held.append(plots.Held(f"{name}\n{type_}", first, last + 1, low, high, keys.get(each.place), is_hot))
    held = sorted(held, key=lambda each: (each.low - each.high) * (each.last - each.first))[:_MOST]
    return plots.memory(held, run.stats.alive())


def _packed(blocks: Sequence[tuple[int, int]]) -> list[int]:
    """Addresses with all memory that no block covers taken out."""
    lows, end, shift = {}, 0, 0
    for address, count in sorted(set(blocks)):
        if address > end:
            shift += address - end
        lows[address] = address - shift
        end = max(end, address + count)
    return [lows[address] for address, _ in blocks]


def explained(run: Run) -> tuple[str, list[tuple[str, str, str, str, str]]]:
    """The peak in words, and what is in use then."""
    stats = run.stats
    step = run.steps[stats.peak_step] if run.steps else None
    at = f" while kernel {stats.peak_step} of {stats.steps} runs: {brief_origin(step.node, 600)}" if step else ""
    rows = [
        (
            size(each.bytes),
            f"{100 * each.bytes / max(1, stats.peak_bytes):.0f} %",
            each.type,
            f"{each.first}…{each.last}",
            brief_origin(each.node, 600, 13),
        )
        for each in stats.at_peak
    ]
    return f"{size(stats.peak_bytes)} of tensors are in use at most{at}", rows


def sections(found: Mapping[str, int]) -> str:
    """Bars of a file's sections by size."""
    ordered = sorted(found.items(), key=lambda pair: -pair[1])
    return plots.bars([plots.Bar(name, count, size(count)) for name, count in ordered], width=520, name_width=120)
