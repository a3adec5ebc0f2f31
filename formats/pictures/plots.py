"""Plots as SVG: histograms, bars, memory over time, timelines, flame graphs, rooflines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .svg import (
    ACCENT,
    COLOURS,
    GREY,
    WARNING,
    block,
    brief_origin,
    decades,
    fitting,
    line,
    mark,
    note,
    picture,
    seconds,
    size,
    tag,
    ticks,
    width_of,
    words,
)

WIDTH = 1120.0
_BINS = 40
_SAMPLE = 2**18  # elements that a histogram is made of
_ROW = 20.0  # of bars and spans


# ---- values ----


def sample(array: np.ndarray, most: int = _SAMPLE) -> np.ndarray:
    """Elements as float64, evenly spaced ones of more than `most`. Raises TypeError, ValueError for other elements."""
    flat = array.reshape(-1)
    return flat[:: max(1, flat.size // most)].astype(np.float64)


def histogram(array: np.ndarray, width: float = 260, height: float = 48) -> str:
    """How often values between the least and the greatest are taken; "" of what has no finite numbers."""
    try:
        values = sample(array)
    except (TypeError, ValueError):
        return ""
    values = values[np.isfinite(values)]
    if not values.size or not math.isfinite(float(np.ptp(values))):
        return ""
    low, high = float(values.min()), float(values.max())
    counts, _ = np.histogram(values, bins=_BINS, range=(low, high) if high > low else (low - 0.5, high + 0.5))
    step, most = width / _BINS, int(counts.max())
    bars_ = "".join(
        f"M{k * step:.1f} {height:.0f}v{-max(1.0, (height - 2) * count / most):.1f}h{step - 0.6:.1f}V{height:.0f}Z"
        for k, count in enumerate(counts.tolist())
        if count
    )
    label = f"values from {low:.4g} to {high:.4g}"
    drawn = [line(f"M0 {height:.0f}H{width:.0f}"), tag("path", tag("title", text=label), d=bars_, fill=ACCENT)]
    if low < 0 < high:
        drawn.append(line(f"M{-low / (high - low) * width:.1f} 0V{height:.0f}", WARNING, 0.8))
    drawn += [note(0, height + 12, f"{low:.3g}"), note(width, height + 12, f"{high:.3g}", "end")]
    return picture(width, height + 15, *drawn, label=label, class_="histogram")


class Bar(NamedTuple):
    """A value with its name."""

    name: str
    value: float
    text: str  # the value as it is shown
    key: str | None = None
    colour: str = ACCENT


def bars(shown: Sequence[Bar], width: float = WIDTH, name_width: float = 350) -> str:
    """Horizontal bars, one a line."""
    most = max((each.value for each in shown), default=0.0) or 1.0
    lines = []
    for k, each in enumerate(shown):
        length = max(1.0, (width - name_width - 110) * each.value / most)
        drawn = (
            tag("rect", x=name_width, y=k * _ROW + 3, width=length, height=_ROW - 6, rx=3, fill=each.colour),
            words(name_width - 8, k * _ROW + 14, brief_origin(each.name, name_width - 12), text_anchor="end"),
            words(name_width + length + 6, k * _ROW + 14, each.text, fill_opacity=0.75),
        )
        lines.append(mark(f"{each.name}: {each.text}", *drawn, key=each.key))
    return picture(width, len(shown) * _ROW, *lines, label=f"{len(shown)} bars", class_="bars")


# ---- memory ----


class Held(NamedTuple):
    """Memory in use from one step to another."""

    name: str
    first: float
    last: float
    low: float
    high: float
    key: str | None = None
    is_hot: bool = False  # in use at the peak


def memory(held: Sequence[Held], curve: Sequence[float], width: float = WIDTH) -> str:
    """Blocks of memory over kernels, and the curve of what is in use, a value a kernel, with its peak."""
    left, right, height, top = 64.0, width - 14, 280.0, 16.0
    high, span = max([each.high for each in held] + [*curve, 1.0]), max(len(curve), 1)
    bottom = top + height

    def x(step: float) -> float:
        return left + (right - left) * step / span

    def y(value: float) -> float:
        return bottom - height * value / high

    drawn = [_rules(ticks(0, high), y, left, right, size), note(right, bottom + 29, "kernels", "end")]
    drawn += [note(x(at), bottom + 15, f"{at:.0f}", "middle") for at in ticks(0, span, 10) if at == int(at)]
    for each in held:
        sizes = max(0.8, x(each.last) - x(each.first)), max(0.5, y(each.low) - y(each.high))
        colour, opacity = (COLOURS[1], 0.75) if each.is_hot else (ACCENT, 0.38)
        title = f"{each.name}\n{size(each.high - each.low)}, kernels {each.first:.0f}…{each.last - 1:.0f}"
        drawn.append(
            mark(title, block(x(each.first), y(each.high), *sizes, colour, opacity, stroke_width=0.5), key=each.key)
        )
    if curve:
        peak = max(curve)
        at = list(curve).index(peak)
        place, is_right = x(at + 0.5), at > 0.7 * span
        steps = "".join(f"{'L' if k else 'M'}{x(k):.1f} {y(value):.1f}H{x(k + 1):.1f}" for k, value in enumerate(curve))
        said = {"fill": WARNING, "font_weight": 600, "text_anchor": "end" if is_right else None}
        drawn += [
            line(steps, ACCENT, 1.5),
            line(f"M{place:.1f} {y(peak):.1f}V{bottom:.1f}", WARNING, stroke_dasharray="3 3"),
            tag("circle", cx=place, cy=y(peak), r=3.5, fill=WARNING),
            words(place + (-8 if is_right else 8), y(peak) - 5, f"peak {size(peak)}, kernel {at}", **said),
        ]
    return picture(width, bottom + 34, *drawn, label="memory over kernels", class_="memory")


def _rules(
    values: Iterable[float], y: Callable[[float], float], left: float, right: float, shown: Callable[[float], str]
) -> str:
    return "".join(
        line(f"M{left:.0f} {y(value):.1f}H{right:.0f}") + note(left - 6, y(value) + 3.5, shown(value), "end")
        for value in values
    )


# ---- time ----


class Span(NamedTuple):
    """Something that took time, in a row of a track."""

    name: str
    begin: float
    end: float
    row: int
    title: str
    key: str | None = None
    colour: str = ACCENT


def timeline(tracks: Sequence[tuple[str, Sequence[Span]]], end: float, width: float = WIDTH) -> str:
    """A track for each thread, spans in rows below those that they lie within."""
    left, top = 110.0, 24.0
    rows = [max((span.row for span in spans), default=0) + 1 for _, spans in tracks]
    height = top + sum(rows) * _ROW + 14 * len(tracks)

    def x(at: float) -> float:
        return left + (width - left - 8) * at / (end or 1e-9)

    drawn = [
        line(f"M{x(at):.1f} {top - 6:.0f}V{height:.0f}") + note(min(x(at), width - 24), 12, seconds(at), "middle")
        for at in ticks(0, end, 10)
    ]
    y = top
    for (name, spans), count in zip(tracks, rows, strict=True):
        drawn.append(words(4, y + 14, fitting(name, left - 8), font_weight=600))
        drawn += [
            _span(each, x(each.begin), max(0.4, x(each.end) - x(each.begin)), y + each.row * _ROW) for each in spans
        ]
        y += count * _ROW + 14
    return picture(width, height, *drawn, label="timeline", class_="timeline", data_seconds=repr(end))


def _span(span: Span, x: float, width: float, y: float) -> str:
    round_ = 2 if width > 6 else None
    drawn = tag("rect", x=x, y=y, width=width, height=_ROW - 2, rx=round_, fill=span.colour, fill_opacity=0.8)
    text = fitting(span.name, width - 6, 10.5)
    said = words(x + 4, y + 13, text, font_size=10.5, fill="#fff") if text else ""
    return mark(span.title, drawn, said, key=span.key, data_name=span.name)


@dataclass
class Flame:
    """A part of the time, with the parts that it is made of."""

    name: str
    seconds: float = 0.0
    parts: dict[str, Flame] = field(default_factory=dict)
    key: str | None = None

    def add(self, path: Sequence[str], taken: float, key: str | None = None) -> None:
        """Time of what this path of names leads to."""
        self.seconds += taken
        if path:
            part = self.parts.setdefault(path[0], Flame(path[0], key=key if len(path) == 1 else None))
            part.add(path[1:], taken, key)


def flame(root: Flame, width: float = WIDTH) -> str:
    """What calls stands above what is called, as wide as the time that it takes."""
    whole, depth = root.seconds or 1e-9, 0
    drawn: list[str] = []
    waiting = [(root, 1.0, 0)]
    while waiting:
        part, x, row = waiting.pop()
        part_width = (width - 2) * part.seconds / whole
        if part_width < 0.35:
            continue
        depth = max(depth, row)
        colour = COLOURS[sum(map(ord, part.name)) % 7] if row else GREY
        title = f"{part.name}: {seconds(part.seconds)}, {100 * part.seconds / whole:.1f} %"
        span = Span(part.name, 0, 0, 0, title, part.key, colour)
        drawn.append(_span(span, x, max(0.35, part_width - 0.6), row * _ROW))
        for each in sorted(part.parts.values(), key=lambda each: -each.seconds):
            waiting.append((each, x, row + 1))
            x += (width - 2) * each.seconds / whole
    return picture(width, (depth + 1) * _ROW, *drawn, label=f"flame graph of {seconds(whole)}", class_="flame")


# ---- roofline ----


class Kernel(NamedTuple):
    """A kernel of the roofline: operations a byte, operations a second, and how long it took."""

    name: str
    intensity: float
    rate: float
    seconds: float
    title: str
    key: str | None = None
    colour: str = ACCENT


_LINES, _LABELS = 6, 6  # decades of a roofline, kernels that are named


def roofline(
    kernels: Sequence[Kernel], peaks: Mapping[str, float], levels: Mapping[str, float], width: float = WIDTH
) -> str:
    """Operations a second over operations a byte, on logarithmic axes; roofs are `peaks` (operations a second) and the bandwidths
    of `levels` (bytes a second)."""
    left, right, top, bottom = 64.0, width - 20, 14.0, 434.0
    best = max(peaks.values())
    columns = list(
        decades(min([0.1, *(each.intensity for each in kernels)]), max([1e3, *(each.intensity for each in kernels)]))
    )
    lines = list(decades(min([best / 100, *(each.rate for each in kernels)]), best))[-_LINES:]

    def x(value: float) -> float:
        return left + (right - left) * math.log(value / columns[0]) / math.log(columns[-1] / columns[0])

    def y(value: float) -> float:
        return bottom - (bottom - top) * max(0.0, math.log(value / lines[0]) / math.log(lines[-1] / lines[0]))

    drawn = [_rules(lines, y, left, right, lambda value: f"{value / 1e9:g}"), note(left + 4, top + 10, "GFLOP/s")]
    drawn += [
        line(f"M{x(at):.1f} {top:.0f}V{bottom:.0f}") + note(x(at), bottom + 14, f"{at:g}", "middle") for at in columns
    ]
    drawn.append(note(right, bottom + 30, "operations a byte", "end"))
    for name, peak in peaks.items():
        begin, said = max(columns[0], peak / max(levels.values())), f"{name} {peak / 1e9:.0f} GFLOP/s"
        drawn.append(line(f"M{x(begin):.1f} {y(peak):.1f}H{right:.0f}", COLOURS[1], 1.6))
        drawn.append(words(right - 4, y(peak) - 5, said, text_anchor="end", fill=COLOURS[1], font_weight=600))
    for name, rate in levels.items():
        begin, end = max(columns[0], lines[0] / rate), best / rate
        drawn.append(line(f"M{x(begin):.1f} {y(begin * rate):.1f}L{x(end):.1f} {y(best):.1f}", COLOURS[3], 1.4))
        at = begin * (end / begin) ** 0.35
        slope = math.degrees(math.atan2(y(best) - y(begin * rate), x(end) - x(begin)))
        turned = f"translate({x(at):.1f} {y(at * rate):.1f}) rotate({slope:.1f})"
        drawn.append(words(0, -5, f"{name} {rate / 1e9:.0f} GB/s", fill=COLOURS[3], font_weight=600, transform=turned))
    return picture(width, bottom + 36, *drawn, *_kernels(kernels, x, y, right), label="roofline", class_="roofline")


def _kernels(
    kernels: Sequence[Kernel], x: Callable[[float], float], y: Callable[[float], float], right: float
) -> Iterable[str]:
    """Circles as large as times, the longest below; some are named where there is room."""
    ordered = sorted(kernels, key=lambda each: -each.seconds)
    taken: list[tuple[float, float]] = []
    for k, each in enumerate(ordered):
        across, up, radius = x(each.intensity), y(each.rate), 3 + 11 * math.sqrt(each.seconds / ordered[0].seconds)
        drawn = {"fill": each.colour, "fill_opacity": 0.55, "stroke": each.colour}
        yield mark(each.title, tag("circle", cx=across, cy=up, r=radius, **drawn), key=each.key)
        if k < _LABELS and all(abs(across - a) > 150 or abs(up - b) > 13 for a, b in taken):
            taken.append((across, up))
            is_left = across + radius + width_of(each.name) > right
            place = across - radius - 4 if is_left else across + radius + 4
            yield words(place, up + 4, each.name, font_size=10.5, text_anchor="end" if is_left else None)
