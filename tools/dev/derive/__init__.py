"""Pages, stubs and lists that are derived from tables."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]


def stale(texts: Mapping[Path, str]) -> str:
    """The difference between files and their derived texts; "" when there is none."""
    difference: list[str] = []
    for path, text in texts.items():
        name, old = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8") if path.exists() else ""
        difference += difflib.unified_diff(old.splitlines(True), text.splitlines(True), name, f"{name} (derived)")
    return "".join(difference)


def write(texts: Mapping[Path, str]) -> None:
    """Writes the files that are not up to date: other processes may be reading the others."""
    for path, text in texts.items():
        if stale({path: text}):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
