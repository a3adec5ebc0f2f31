"""Functions that a server's owner registers for clients of the remote device: they may call these, and programs may import them.

Nothing bounds such a function but itself. It is given tensors that may be the program's own: what it writes there, the program
sees. An import is found by name, and where the owner says its type, the program must declare this very type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...formats.messages.errors import ArgumentError, UnknownFunctionError
from ...formats.program import Program
from ...formats.types import FunctionType
from ...vm.imports import missing_imports


@dataclass(frozen=True)
class Registered:
    """A function, and the type that programs import it by; None: any."""

    function: Callable[..., Any]
    type: FunctionType | None = None


class Functions:
    """The functions that an owner has registered, by name."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """A value is a function, or a pair of a function and its type, as `treadle.import_` takes it. Raises ArgumentError,
        ParseError."""
        self._by_name = {name: _registered(name, value) for name, value in given.items()}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._by_name

    def find(self, name: str) -> Callable[..., Any]:
        """Raises UnknownFunctionError."""
        found = self._by_name.get(name)
        if found is None:
            raise UnknownFunctionError(f"the server's owner has registered no function {name!r}")
        return found.function

    def imports(self, program: Program) -> dict[str, Callable[..., Any]]:
        """The imports of a program. Raises UnknownFunctionError with all that are not registered, and ArgumentError for one of
        another type."""
        if missing := missing_imports(program, self._by_name, "registered by the server's owner"):
            raise UnknownFunctionError(missing)
        for entry in program.imports:
            type_ = self._by_name[entry.name].type
            if type_ is not None and str(type_) != str(entry.type):
                raise ArgumentError(f"import {entry}: the server's owner has registered {entry.name}: {type_}")
        return {entry.name: self._by_name[entry.name].function for entry in program.imports}


def _registered(name: str, value: Any) -> Registered:
    function, type_ = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if isinstance(type_, str):
        from ...compiler.ir.text import parse_type

        type_ = parse_type(type_)
    if not callable(function) or not (type_ is None or isinstance(type_, FunctionType)):
        raise ArgumentError(f"functions[{name!r}]: expected a function, or a pair of a function and its type")
    return Registered(function, type_)
