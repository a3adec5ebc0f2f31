"""Operators that are not Treadle's own: what this process knows of them, and what an executable says that it needs.

A program that uses one cannot be run, nor checked, where it is not known. So the compiler notes in an executable's metadata what
it needs and who provides it, and linking says what is missing, all of it at once. The metadata only words the message: a file
that leaves it out is refused all the same, where its primitives are checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .messages.errors import UnknownOperatorError
from .primitive import Primitive

_KEY = "operator "  # what comes before an operator's name in the metadata
_MODULE = r"(?!__main__$)[^\W\d]\w*(\.[^\W\d]\w*)*"


@dataclass(frozen=True)
class Extension:
    """An operator that a user has defined."""

    name: str
    provider: str  # where it is defined: a module's name
    version: int  # of what the operator means
    digest: str  # of all that decides about its kernels

    @property
    def needed(self) -> str:
        """The note about it in executables."""
        return f"version {self.version} of {self.provider}"


EXTENSIONS: dict[str, Extension] = {}  # by the operator's name


def used(primitives: Iterable[Primitive]) -> list[Extension]:
    """Those that the definitions of these primitives use, by name."""
    if not EXTENSIONS:
        return []
    names = {node.operator for primitive in primitives for node in primitive.definition.nodes}
    return [EXTENSIONS[name] for name in sorted(names & EXTENSIONS.keys())]


def needs(primitives: Iterable[Primitive]) -> dict[str, str]:
    """The metadata that a program with these primitives needs."""
    return {_KEY + each.name: each.needed for each in used(primitives)}


def check_present(metadata: Mapping[str, str]) -> None:
    """Raises UnknownOperatorError, which lists every operator that is needed and is not here, or in another version."""
    lacking, modules = [], set()
    for key, wanted in metadata.items():
        if not key.startswith(_KEY):
            continue
        name = key.removeprefix(_KEY)
        known = EXTENSIONS.get(name)
        if known is None:
            lacking.append(f"{name} ({wanted})")
            modules.add(wanted.partition(" of ")[2])
        elif wanted.split(" of ")[0] != f"version {known.version}":
            lacking.append(f"{name} ({wanted}; here is {known.needed})")
    if lacking:
        named = tuple(sorted(each for each in modules if re.fullmatch(_MODULE, each)))
        what = f"import {', '.join(named)}" if named else "import the module that defines them, with treadle.operator,"
        error = UnknownOperatorError(
            f"the executable needs operators that are not known here: {', '.join(lacking)}; {what} before it is run"
        )
        error.modules = named
        raise error
