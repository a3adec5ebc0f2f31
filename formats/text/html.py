"""HTML of objects for notebooks: tables and text. Names come from models, and are only ever text: everything is escaped here.

No colours are set, so that it is read on light pages and dark ones.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from ..ports import inputs_of, outputs_of
from ..program import Function

_LINES = 60
_COLUMNS = 240  # characters of a line
_CELL = 120  # and of a table's cell
_LEFT, _RIGHT = "text-align:left", "text-align:right"


def preformatted(text: str) -> str:
    """The text as HTML, in the notebook's own fixed font."""
    lines = text.splitlines()
    shown = [line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…" for line in lines[:_LINES]]
    if len(lines) > _LINES:
        shown.append(f"… {len(lines) - _LINES} more lines")
    return f"<pre>{html.escape(chr(10).join(shown))}</pre>"


def heading(text: str) -> str:
    """One line above what follows. Lines of the text stay lines."""
    lines = [html.escape(_cut(line, _COLUMNS)) for line in text.splitlines()[:_LINES]]
    return f"<div><strong>{'<br>'.join(lines)}</strong></div>"


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    numbers: Iterable[str] = (),
    *,
    more: int = 0,
    first_once: bool = True,
) -> str:
    """A table under a line of names. Columns among `numbers` are aligned to the right. With `first_once`, what stands first in a
    row is left empty where it is that of the row above. At most 60 rows are shown; `more` are not in `rows`."""
    right = {head.index(name) for name in numbers if name in head}
    places = [_RIGHT if at in right else _LEFT for at in range(len(head))]
    lines = [_row("th", head, places)]
    above = None
    for row in rows[:_LINES]:
        first, *rest = row
        lines.append(_row("td", ["" if first_once and first == above else first, *rest], places))
        above = first
    hidden = more + max(0, len(rows) - _LINES)
    if hidden:
        lines.append(f'<tr><td colspan="{len(head)}" style="{_LEFT}">… {hidden} more rows</td></tr>')
    return f"<table>{''.join(lines)}</table>"


def port_table(functions: Iterable[Function]) -> str:
    """A table of the parameters and results of functions, except those of closures."""
    rows = [
        (function.name, way, port.name, port.type)
        for function in functions
        if not function.captured
        for way, ports in (("in", inputs_of(function)), ("out", outputs_of(function)))
        for port in ports
    ]
    return table(("function", "", "name", "type"), rows)


def unfolded(title: str, content: str, is_open: bool) -> str:
    """What its reader unfolds, by a click on the title, or finds open."""
    return f"<details{' open' * is_open}><summary>{html.escape(title)}</summary>{content}</details>"


def together(*parts: str) -> str:
    """Parts one after another."""
    return f"<div>{''.join(parts)}</div>"


def _row(tag: str, cells: Sequence[object], places: Sequence[str]) -> str:
    made = (
        f'<{tag} style="{place}">{html.escape(_cut(str(cell), _CELL))}</{tag}>'
        for cell, place in zip(cells, places, strict=True)
    )
    return f"<tr>{''.join(made)}</tr>"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
