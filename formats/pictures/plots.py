"""Plots as SVG: histograms, bars, memory over time, timelines, flame graphs, rooflines.

Marks say in a title what they are; `key` of a mark is put into `data-node`, by which the page of `treadle inspect` knows the node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .svg import (
    ACCENT,
    COLOURS,
    WARNING,
    brief_origin,
    decades,
    fitting,
    picture,
    seconds,
    size,
    tag,
    ticks,
    titled,
    width_of,
    words,
)

GRID = "#88888844"
_BINS = 40
_SAMPLE = 2**18  # elements that a histogram is made of
_ROW = 20.0  # of slices


class Mark(NamedTuple):
    """A value with its name."""

    name: str
    value: float
    text: str  # the value as it is shown
    key: str | None = None
    colour: str = ACCENT


# ---- values ----


def sample(array: np.ndarray) -> np.ndarray:
    """Finite elements of an array, as float64: all, or evenly spaced ones of many."""
    flat = array.reshape(-1)
    flat = flat[:: max(1, flat.size // _SAMPLE)].astype(np.float64)
    return flat[np.isfinite(flat)]


def histogram(array: np.ndarray, width: float = 260, height: float = 48) -> str:
    """How often values between the least and the greatest are taken; "" of what has no numbers."""
    try:
        values = sample(array)
    except (TypeError, ValueError):
        return ""
    if not values.size:
        return ""
    low, high = float(values.min()), float(values.max())
    if not math.isfinite(high - low):
        return ""
    counts, _ = np.histogram(values, bins=_BINS, range=(low, high) if high > low else (low - 0.5, high + 0.5))
    step, most = width / _BINS, int(counts.max())
    path = "".join(
        f"M{k * step:.1f} {height:.0f}v{-max(1.0, (height - 2) * count / most):.1f}h{step - 0.6:.1f}V{height:.0f}Z"
        for k, count in enumerate(counts.tolist())
        if count
    )
    label = f"values from {low:.4g} to {high:.4g}"
    zero = -low / (high - low) * width if low < 0 < high else None
    line = (
        ""
        if zero is None
        else tag("path", d=f"M{zero:.1f} 0V{height:.0f}", stroke=WARNING, stroke_width=0.8, stroke_opacity=0.7)
    )
    drawn = tag("path", tag("title", text=label), d=path, fill=ACCENT, class_="bar")
    base = tag("path", d=f"M0 {height:.0f}H{width:.0f}", stroke=GRID)
    ends = words(0, height + 12, f"{low:.3g}", font_size=9.5, fill_opacity=0.7)
    ends += words(width, height + 12, f"{high:.3g}", font_size=9.5, fill_opacity=0.7, text_anchor="end")
    return picture(width, height + 15, base, line, drawn, ends, label=label, class_="histogram")  # fmt: skip


def bars(marks: Sequence[Mark], width: float = 1040, name_width: float = 330) -> str:
    """Horizontal bars, one a line."""
    most = max((mark.value for mark in marks), default=0.0) or 1.0
    room = width - name_width - 110
    lines = []
    for k, mark in enumerate(marks):
        y = k * _ROW
        length = max(1.0, room * mark.value / most)
        drawn = tag("rect", x=name_width, y=y + 3, width=length, height=_ROW - 6, rx=3, fill=mark.colour, class_="bar")
        drawn += words(name_width - 8, y + 14, brief_origin(mark.name, name_width - 12), text_anchor="end")
        drawn += words(name_width + length + 6, y + 14, mark.text, fill_opacity=0.75)
        group = titled("g", f"{mark.name}: {mark.text}", class_="mark", data_node=mark.key)
        lines.append(group.removesuffix("</g>") + drawn + "</g>")
    return picture(width, len(marks) * _ROW, *lines, label=f"{len(marks)} bars", class_="bars")


# ---- memory ----


class Block(NamedTuple):
    """Memory in use from one step to another, of a place or, in a stack, of any."""

    name: str
    first: float
    last: float
    low: float
    high: float
    key: str | None = None
    colour: str = ACCENT
    is_hot: bool = False  # in use at the peak


def memory(
    blocks: Sequence[Block], steps: int, curve: Sequence[float] = (), x_name: str = "kernels", width: float = 1120
) -> str:
    """Blocks of memory over steps, and the curve of what is in use with its peak."""
    left, right, height, top = 64.0, 14.0, 280.0, 16.0
    high = max([block.high for block in blocks] + [*curve, 1.0])
    span = max(steps, 1)

    def x(step: float) -> float:
        return left + (width - left - right) * step / span

    def y(value: float) -> float:
        return top + height * (1 - value / high)

    drawn = [_rules(ticks(0, high), y, left, width - right, size)]
    drawn += [
        words(x(at), top + height + 15, f"{at:.0f}", text_anchor="middle", fill_opacity=0.7, font_size=10)
        for at in ticks(0, span, 10)
        if at == int(at)
    ]
    drawn.append(words(width - right, top + height + 29, x_name, text_anchor="end", fill_opacity=0.7, font_size=10))
    for block in blocks:
        drawn.append(
            titled(
                "rect",
                f"{block.name}\n{size(block.high - block.low)}, {x_name} {block.first:.0f}…{block.last - 1:.0f}",
                x=x(block.first),
                y=y(block.high),
                width=max(0.8, x(block.last) - x(block.first)),
                height=max(0.5, y(block.low) - y(block.high)),
                fill=block.colour,
                fill_opacity=0.75 if block.is_hot else 0.38,
                stroke=block.colour,
                stroke_width=0.5,
                class_="mark",
                data_node=block.key,
            )
        )
    if curve:
        peak = max(curve)
        at = list(curve).index(peak)
        line = "".join(f"{'L' if k else 'M'}{x(k):.1f} {y(value):.1f}H{x(k + 1):.1f}" for k, value in enumerate(curve))
        if not blocks:
            drawn.append(tag("path", d=f"{line}V{y(0):.1f}H{x(0):.1f}Z", fill=ACCENT, fill_opacity=0.18))
        drawn.append(tag("path", d=line, fill="none", stroke=ACCENT, stroke_width=1.5))
        place, side = x(at + 0.5), "end" if at > steps * 0.7 else "start"
        drawn.append(tag("path", d=f"M{place:.1f} {y(peak):.1f}V{y(0):.1f}", stroke=WARNING, stroke_dasharray="3 3"))
        drawn.append(tag("circle", cx=place, cy=y(peak), r=3.5, fill=WARNING))
        aside = -8 if side == "end" else 8
        drawn.append(
            words(
                place + aside,
                y(peak) - 5,
                f"peak {size(peak)}, kernel {at}",
                text_anchor=side,
                fill=WARNING,
                font_weight=600,
            )
        )
    return picture(width, top + height + 34, *drawn, label=f"memory over {x_name}", class_="memory")  # fmt: skip


def _rules(values: Iterable[float], y, left: float, right: float, shown) -> str:  # type: ignore[no-untyped-def]
    return "".join(
        tag("path", d=f"M{left:.0f} {y(value):.1f}H{right:.0f}", stroke=GRID)
        + words(left - 6, y(value) + 3.5, shown(value), text_anchor="end", fill_opacity=0.7, font_size=10)
        for value in values
    )


# ---- time ----


class Span(NamedTuple):
    """Something that took time, in a row of a track."""

    name: str
    begin: float
    end: float
    row: int
    title: str = ""
    key: str | None = None
    colour: str = ACCENT


def timeline(tracks: Sequence[tuple[str, Sequence[Span]]], end: float, width: float = 1120) -> str:
    """A track for each thread, spans in rows below those that they lie within."""
    left, top = 110.0, 24.0
    end = end or 1e-9

    def x(at: float) -> float:
        return left + (width - left - 8) * at / end

    rows = [max((span.row for span in spans), default=0) + 1 for _, spans in tracks]
    height = top + sum(rows) * _ROW + 14 * len(tracks)
    drawn = [
        tag("path", d=f"M{x(at):.1f} {top - 6:.0f}V{height:.0f}", stroke=GRID)
        + words(min(x(at), width - 24), 12, seconds(at), text_anchor="middle", fill_opacity=0.7, font_size=10)
        for at in ticks(0, end, 10)
    ]
    y = top
    for (name, spans), count in zip(tracks, rows, strict=True):
        drawn.append(words(4, y + 14, fitting(name, left - 8), font_weight=600))
        drawn += [
            _span(span, x(span.begin), max(0.4, x(span.end) - x(span.begin)), y + span.row * _ROW) for span in spans
        ]
        y += count * _ROW + 14
    return picture(width, height, *drawn, label="timeline", class_="timeline")


def _span(span: Span, x: float, width: float, y: float) -> str:
    drawn = tag(
        "rect", x=x, y=y, width=width, height=_ROW - 2, rx=2 if width > 6 else None, fill=span.colour, fill_opacity=0.8
    )
    text = fitting(span.name, width - 6, 10.5)
    if text:
        drawn += words(x + 4, y + 13, text, font_size=10.5, fill="#fff", class_="within")
    group = titled(
        "g", span.title or f"{span.name}: {seconds(span.end - span.begin)}", class_="mark", data_node=span.key
    )
    return group.removesuffix("</g>") + drawn + "</g>"  # fmt: skip


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


def flame(root: Flame, width: float = 1120) -> str:
    """What calls stands above what is called, as wide as the time that it takes."""
    whole = root.seconds or 1e-9
    drawn: list[str] = []
    depth = 0
    waiting = [(root, 0.0, 0)]
    while waiting:
        part, x, row = waiting.pop()
        part_width = (width - 2) * part.seconds / whole
        if part_width < 0.35:
            continue
        depth = max(depth, row)
        colour = COLOURS[sum(map(ord, part.name)) % 7] if row else "#8a8f98"
        title = f"{part.name}: {seconds(part.seconds)}, {100 * part.seconds / whole:.1f} %"
        drawn.append(
            _span(Span(part.name, 0, 0, 0, title, part.key, colour), 1 + x, max(0.35, part_width - 0.6), row * _ROW)
        )
        at = x
        for each in sorted(part.parts.values(), key=lambda each: -each.seconds):
            waiting.append((each, at, row + 1))
            at += (width - 2) * each.seconds / whole
    return picture(width, (depth + 1) * _ROW, *drawn, label=f"flame graph of {seconds(whole)}", class_="flame")


# ---- roofline ----


class Kernel(NamedTuple):
    """A kernel of the roofline: operations, bytes, and how long they took."""

    name: str
    operations: float
    bytes: float
    seconds: float
    title: str
    key: str | None = None
    colour: str = ACCENT


def roofline(
    kernels: Sequence[Kernel], peaks: Mapping[str, float], levels: Mapping[str, float], width: float = 1120
) -> str:
    """Operations a second over operations a byte, on logarithmic axes; roofs are `peaks` (operations a second) and the bandwidths
    of `levels` (bytes a second)."""
    shown = [each for each in kernels if each.operations > 0 and each.bytes > 0 and each.seconds > 0]
    left, right, top, height = 64.0, 20.0, 14.0, 420.0
    best = max(peaks.values())
    xs = [each.operations / each.bytes for each in shown] or [1.0]
    ys = [each.operations / each.seconds for each in shown] or [best / 100]
    columns = list(decades(max(1e-4, min(0.1, *xs)), max(1e3, *xs)))
    lines = list(decades(max(1e3, min(best / 100, *ys)), best))
    lines = lines[-6:]
    x0, x1, y0, y1 = columns[0], columns[-1], lines[0], lines[-1]

    def x(value: float) -> float:
        return left + (width - left - right) * math.log10(value / x0) / math.log10(x1 / x0)

    def y(value: float) -> float:
        return top + height * (1 - math.log10(min(max(value, y0), y1) / y0) / math.log10(y1 / y0))

    drawn = [_rules(lines, y, left, width - right, lambda value: f"{value / 1e9:g}")]
    for at in columns:
        drawn.append(tag("path", d=f"M{x(at):.1f} {top:.0f}V{top + height:.0f}", stroke=GRID))
        drawn.append(words(x(at), top + height + 14, f"{at:g}", text_anchor="middle", fill_opacity=0.7, font_size=10))
    drawn.append(words(width - right, top + height + 30, "operations a byte", text_anchor="end", fill_opacity=0.7))
    drawn.append(words(left + 4, top + 10, "GFLOP/s", fill_opacity=0.7))
    for name, peak in peaks.items():
        corner = max(x0, peak / max(levels.values()))
        drawn.append(
            tag(
                "path",
                d=f"M{x(corner):.1f} {y(peak):.1f}H{width - right:.0f}",
                stroke=COLOURS[1],
                stroke_width=1.6,
                fill="none",
            )
        )
        drawn.append(
            words(
                width - right - 4,
                y(peak) - 5,
                f"{name} {peak / 1e9:.0f} GFLOP/s",
                text_anchor="end",
                fill=COLOURS[1],
                font_weight=600,
            )
        )
    for name, rate in levels.items():
        begin, end = max(x0, y0 / rate), best / rate
        drawn.append(
            tag(
                "path",
                d=f"M{x(begin):.1f} {y(begin * rate):.1f}L{x(end):.1f} {y(best):.1f}",
                stroke=COLOURS[3],
                stroke_width=1.4,
                fill="none",
            )
        )
        at = begin * (end / begin) ** 0.35
        slope = -math.degrees(math.atan2(y(begin * rate) - y(best), x(end) - x(begin)))
        drawn.append(
            words(
                0,
                -5,
                f"{name} {rate / 1e9:.0f} GB/s",
                fill=COLOURS[3],
                font_weight=600,
                transform=f"translate({x(at):.1f} {y(at * rate):.1f}) rotate({slope:.1f})",
            )
        )
    longest = max((each.seconds for each in shown), default=1.0)
    ordered = sorted(shown, key=lambda each: -each.seconds)
    taken: list[tuple[float, float]] = []
    for k, each in enumerate(ordered):
        across, up, radius = (
            x(each.operations / each.bytes),
            y(each.operations / each.seconds),
            3 + 11 * math.sqrt(each.seconds / longest),
        )
        drawn.append(
            titled(
                "circle",
                each.title,
                cx=across,
                cy=up,
                r=radius,
                fill=each.colour,
                fill_opacity=0.55,
                stroke=each.colour,
                class_="mark",
                data_node=each.key,
            )
        )
        if k < 6 and all(abs(across - a) > 150 or abs(up - b) > 13 for a, b in taken):
            taken.append((across, up))
            is_left = across + radius + width_of(each.name) > width - right
            aside = -radius - 4 if is_left else radius + 4
            drawn.append(
                words(
                    across + aside,
                    up + 4,
                    each.name,
                    font_size=10.5,
                    text_anchor="end" if is_left else None,
                    class_="label",
                )
            )
    return picture(width, top + height + 36, *drawn, label=f"roofline of {len(shown)} kernels", class_="roofline")
