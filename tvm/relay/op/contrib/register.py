"""`relay.op.contrib.register`: the patterns that a compiler takes as composite functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_TABLES: dict[str, Any] = {}


def register_pattern_table(compiler: str, table: Callable[[], Any] | None = None) -> Any:
    """Registers what gives a compiler's patterns, `(name, pattern[, check])`; a decorator without `table`."""

    def register(given: Callable[[], Any]) -> Callable[[], Any]:
        _TABLES[compiler] = given()
        return given

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> Any:
    """The patterns of a compiler, or None."""
    return _TABLES.get(compiler)
