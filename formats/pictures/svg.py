"""SVG by hand: elements, scales of axes, colours. Names come from models, and are only ever text: everything is escaped here.

Colours are of middle lightness, and text is of the reader's own colour: pictures are read on light pages and dark ones. The page
of `treadle inspect` styles the classes; a notebook has the attributes alone.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator

# Told apart by those who do not see red and green alike, and on white and black grounds
COLOURS = ("#3987e5", "#e07b39", "#2fa37c", "#b65fcf", "#d6a419", "#d5537d", "#5f8f2f", "#8a8f98")
ACCENT, WARNING, GRID, GREY = COLOURS[0], "#e5484d", "#88888844", COLOURS[7]
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_CHARACTER = 0.56  # of its size, the mean width of a letter


def tag(name: str, /, *children: str, **attributes: object) -> str:
    """An element. Children are markup, `text` among the attributes is text; `stroke_width` is the attribute stroke-width,
    `class_` class. What is None is left out."""
    text = attributes.pop("text", None)
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(children) + ("" if text is None else _escaped(text))
    return f"<{name}{shown}>{inside}</{name}>" if inside else f"<{name}{shown}/>"


def _escaped(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return html.escape(_FORBIDDEN.sub("\ufffd", str(value)))


def picture(width: float, height: float, *children: str, label: str, class_: str = "", **attributes: object) -> str:
    """The whole, as wide as its place allows. `label` says what it shows to those who do not see it."""
    return tag(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_escaped(float(width))} {_escaped(float(height))}",
        width=float(width),
        height=float(height),
        class_=f"picture {class_}".rstrip(),
        role="img",
        aria_label=label,
        font_family="system-ui, sans-serif",
        font_size="11",
        **attributes,
    )


def words(x: float, y: float, text: object, **attributes: object) -> str:
    """Text, whose baseline begins (or by `text_anchor` ends) here, of the reader's colour."""
    return tag("text", x=x, y=y, text=text, **{"fill": "currentColor", **attributes})


def note(x: float, y: float, text: object, anchor: str | None = None) -> str:
    """Small and quiet text, of axes."""
    return words(x, y, text, text_anchor=anchor, font_size=10, fill_opacity=0.7)


def line(d: str, colour: str = GRID, width: float = 1, **attributes: object) -> str:
    """A path that is not filled."""
    return tag("path", d=d, fill="none", stroke=colour, stroke_width=width, **attributes)


def block(x: float, y: float, width: float, height: float, colour: str, opacity: float, **attributes: object) -> str:
    """A rectangle with a border of its colour."""
    drawn = {"x": x, "y": y, "width": width, "height": height, "fill": colour, "fill_opacity": opacity}
    return tag("rect", **{**drawn, "stroke": colour, **attributes})


def mark(title: str, *children: str, key: str | None = None, class_: str = "mark", **attributes: object) -> str:
    """What shows `title` where the mouse rests; `key` is put into `data-node`, by which a page knows the node."""
    return tag("g", tag("title", text=title), *children, class_=class_, data_node=key, **attributes)


def fitting(text: str, width: float, size: float = 11) -> str:
    """As much of the text as has room: its beginning."""
    room = int(width / (_CHARACTER * size))
    return text if len(text) <= room else f"{text[: room - 1]}…" if room > 2 else ""


def brief_origin(origin: str, width: float, size: float = 11) -> str:
    """Model nodes in a line: the first one's name, cut at its beginning, and what others it was fused with."""
    first, *rest = origin.split(" + ")
    added = [each.rsplit("/", 1)[-1] for each in rest]
    text = " + ".join([first.lstrip("/"), *(added if len(added) < 3 else [f"{len(added)} more"])])
    room = int(width / (_CHARACTER * size))
    return text if len(text) <= room else f"…{text[len(text) - room + 1 :]}"


def width_of(text: str, size: float = 11) -> float:
    return len(text) * _CHARACTER * size


# ---- scales ----


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two, some `about` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [step * k for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> Iterator[float]:
    """Powers of ten from the one at or below `low` to the one at or above `high`."""
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        yield 10.0**exponent


# ---- units ----


def seconds(value: float) -> str:
    """A time in the unit that suits it."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{_digits(value / factor)} {unit}"
    return f"{_digits(value / 1e-9)} ns" if value else "0"


def size(value: float) -> str:
    """Bytes in the unit that suits them, of which a thousand make the next."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{_digits(value / factor)} {unit}"
    return f"{value:.0f} B"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
