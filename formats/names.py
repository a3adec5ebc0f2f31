"""What somebody may have meant who wrote a name that there is not: one rule for every kind of name."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 3  # names that are suggested


def near(name: object, known: Iterable[object]) -> str:
    """`; did you mean main?`, the end of a message about a name that there is not; "" where nothing is like it."""
    if not isinstance(name, str):
        return ""
    import difflib  # who makes no mistake does not pay for it

    names = list(dict.fromkeys(each for each in known if isinstance(each, str)))
    by_folded = {each.casefold(): each for each in reversed(names)}
    found = difflib.get_close_matches(name.casefold(), by_folded, _MOST)
    return f"; did you mean {' or '.join(by_folded[each] for each in found)}?" if found else ""
