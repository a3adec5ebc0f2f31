"""Variants of a kernel: alternative decisions of its template, which may be faster on some machine.

A template takes each decision that only affects speed by `decide`, with the default and all options. The text of a variant
names those that differ, "band=4 tile=6x4", and can only choose from these lists: one that comes from
a file can make a kernel slow, not wrong. All variants of a kernel give bitwise equal results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TypeVar

from .....formats.messages.errors import CompileError
from .....formats.tuning import parse_variant

_T = TypeVar("_T")


class Decisions:
    """The decisions of one lowering. `space`: the texts of the options by name, the default first."""

    def __init__(self, variant: str = "") -> None:
        self._wanted = parse_variant(variant)
        self.space: dict[str, tuple[str, ...]] = {}

    def decide(self, name: str, default: _T, options: Callable[[], Sequence[_T]]) -> _T:
        found = {str(option): option for option in (default, *options())}
        self.space.setdefault(name, tuple(found))
        text = self._wanted.get(name)
        if text is None:
            return default
        if text not in found:
            raise CompileError(f"the variant {name}={text} is none of the template's: {', '.join(found)}")
        return found[text]

    def check(self) -> None:
        """Raises CompileError for a choice that the template does not know."""
        for name in self._wanted:
            if name not in self.space:
                known = ", ".join(self.space) or "nothing"
                raise CompileError(f"the variant decides {name!r}; the template decides {known}")


_decisions: ContextVar[Decisions | None] = ContextVar("decisions", default=None)


def decide(name: str, default: _T, options: Callable[[], Sequence[_T]]) -> _T:
    """A template's decision: the default, unless the variant being lowered says otherwise.

    Options are told apart by their text. A decision may be asked for more than once.
    """
    decisions = _decisions.get()
    return default if decisions is None else decisions.decide(name, default, options)


@contextlib.contextmanager
def deciding(decisions: Decisions) -> Iterator[None]:
    """Within this, `decide` consults `decisions`."""
    token = _decisions.set(decisions)
    try:
        yield
    finally:
        _decisions.reset(token)


def nearby(size: int) -> Callable[[], Sequence[int]]:
    """Halves and doubles of a size, as further options."""
    return lambda: sorted({max(1, size // 4), max(1, size // 2), size, 2 * size, 4 * size})
