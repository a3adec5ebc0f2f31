"""What notebooks show of objects: their text, escaped and short."""

from __future__ import annotations

_LINES = 60
_COLUMNS = 240  # characters of a line


def preformatted(text: str) -> str:
    """The text as HTML, in the notebook's own fixed font: names in it come from models, and are only ever text."""
    import html

    lines = text.splitlines()
    shown = [line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…" for line in lines[:_LINES]]
    if len(lines) > _LINES:
        shown.append(f"… {len(lines) - _LINES} more lines")
    return f"<pre>{html.escape(chr(10).join(shown))}</pre>"
