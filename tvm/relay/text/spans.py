"""Spans in Relay's text: `/* ty=float32 span=conv1:0:0 */` behind an expression says what it is called where it is from.

A name with spaces, quotes or the marks of comments is written as JSON does it.
"""

from __future__ import annotations

import json
import re

from ..expr import SourceName, Span

_PLAIN = re.compile(r"[^\s\"*]+")
_SPAN = re.compile(r"span=(\"(?:[^\"\\]|\\.)*\"|[^\s\"*]+):(\d{1,9}):(\d{1,9}) \*/$")


def span_text(span: object) -> str:
    """The text of a span: the name, line and column."""
    if not isinstance(span, Span):
        return str(span)
    name = span.source_name.name if span.source_name else "?"
    quoted = name if _PLAIN.fullmatch(name) else json.dumps(name).replace("*", "\\u002a")
    return f"{quoted}:{span.line}:{span.column}"


def span_of(comment: str) -> Span | None:
    """The span that a comment tells; None for any other comment."""
    found = _SPAN.search(comment)
    if found is None:
        return None
    name, line, column = found.groups()
    try:
        name = json.loads(name) if name.startswith('"') else name
    except ValueError:
        return None
    return Span(SourceName(name), int(line), int(line), int(column), int(column))
