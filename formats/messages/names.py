"""The syntax of names, in every text and file, and "did you mean" suggestions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping

# A name without quotes: a letter of any script or "_", then letters, digits, "_" and ".". Names of sizes are never quoted.
NAME = r"[^\W\d][\w.]*"
_MOST = 3  # names that are suggested


def near(name: object, known: Iterable[object]) -> str:
    """`; did you mean main?`, the end of a message about an unknown name; "" where nothing is like it. What other tools
    call one of the known names comes before what is only written like one."""
    if not isinstance(name, str):
        return ""
    import difflib  # who makes no mistake does not pay for it

    from .elsewhere import own_words

    names = list(dict.fromkeys(each for each in known if isinstance(each, str)))
    found = own_words(name, names)
    if not found:
        by_folded = {each.casefold(): each for each in reversed(names)}
        found = [by_folded[each] for each in difflib.get_close_matches(name.casefold(), by_folded, _MOST)]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose names are in these modules, which are imported when the names are first used."""

    def get(name: str) -> object:
        home = homes.get(name)
        if home is None:
            from .elsewhere import elsewhere
            from .errors import UnknownAttributeError

            kind = package.rpartition(".")[2]
            raise UnknownAttributeError(
                f"module {package!r} has no attribute {name!r}", lambda: elsewhere(kind, name) or near(name, homes)
            )
        module = importlib.import_module(home, package)
        value: object = module if home == f".{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get
