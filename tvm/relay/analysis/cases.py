"""What a match does not fit (`match_exhaustion.cc`)."""

from __future__ import annotations

import itertools
from typing import Any

from ..adt import Match, Pattern, PatternConstructor, PatternTuple, PatternWildcard
from ..module import IRModule


def _fits(pattern: Any, value: Any) -> bool | None:
    """Whether a pattern fits all values of another one; None: some of them, perhaps."""
    if not isinstance(pattern, (PatternConstructor, PatternTuple)):
        return True
    if type(value) is not type(pattern):
        return None
    mine, other = (getattr(each, "constructor", None) for each in (pattern, value))
    if mine is not None and other is not None and mine.name_hint != other.name_hint:
        return False
    parts = [_fits(mine, other) for mine, other in zip(pattern.patterns, value.patterns, strict=True)]
    return False if False in parts else None if None in parts else True


def _wildcards(count: int) -> list[Pattern]:
    return [PatternWildcard() for _ in range(count)]


def _expanded(pattern: Pattern, value: Pattern, module: IRModule) -> list[Pattern]:
    """The values of a pattern as several, each with one wildcard less where `pattern` says more."""
    if not isinstance(pattern, (PatternConstructor, PatternTuple)):
        return [value]
    if isinstance(value, PatternWildcard):
        if isinstance(pattern, PatternTuple):
            return [PatternTuple(_wildcards(len(pattern.patterns)))]
        constructors = module[pattern.constructor.belong_to].constructors
        return [PatternConstructor(each, _wildcards(len(each.inputs))) for each in constructors]
    same = isinstance(value, PatternTuple) or value.constructor.name_hint == pattern.constructor.name_hint  # type: ignore
    if not same:
        return [value]
    fields = [_expanded(mine, other, module) for mine, other in zip(pattern.patterns, value.patterns, strict=True)]  # type: ignore
    several = itertools.product(*fields)
    if isinstance(value, PatternTuple):
        return [PatternTuple(each) for each in several]
    return [PatternConstructor(value.constructor, each) for each in several]  # type: ignore[attr-defined]


def unmatched_cases(match: Match, mod: IRModule | None = None) -> list[Pattern]:
    """Patterns of the values that no clause fits; `mod` has the data types."""
    module = IRModule() if mod is None else mod
    waiting: list[Pattern] = [PatternWildcard()]
    failed = []
    while waiting:
        value = waiting.pop()
        for clause in match.clauses:
            fits = _fits(clause.lhs, value)
            if fits is None:
                waiting += _expanded(clause.lhs, value, module)
            if fits is not False:
                break
        else:
            failed.append(value)
    return failed
