"""The module: what a program is in the IR."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ...formats.messages.calling import Suggesting
from ...formats.messages.errors import InferenceError, UnknownFunctionError
from ...formats.messages.names import near
from ...formats.messages.readable import Readable, brief
from ...formats.types import DataTypeDefinition, FunctionType
from .nodes import Function
from .printer import print_module


@dataclass(frozen=True, eq=False, repr=False)
class Module(Readable, Suggesting):
    """Global functions by name, in order, the data types that they use, and the functions of Python's that they import."""

    functions: Mapping[str, Function]
    data_types: Mapping[str, DataTypeDefinition] = field(default_factory=dict)

    def _shown(self) -> str:
        return f"of {len(self.functions)} functions: {', '.join(self.functions)}"

    def __str__(self) -> str:
        """The text of the module, large constants left out."""
        return self.as_text(elide=True)

    def _repr_html_(self) -> str:
        from ...formats.text.html import heading, preformatted, together

        return together(heading(f"Module {self._shown()}"), preformatted(str(self)))

    def as_text(self, *, constants_file: str | os.PathLike | None = None, elide: bool = False) -> str:
        """The text of the module, which `treadle.compile` takes from a file whose name ends in .ir. Large constants are base64,
        or in a file of their own, or, for reading only, left out."""
        return print_module(self, constants_file=constants_file, elide=elide)

    imports: Mapping[str, FunctionType] = field(default_factory=dict)
    entries: tuple[str, ...] = ()  # those that its author means to be called from outside; none: "main"

    def __getitem__(self, name: str) -> Function:
        """The function of that name. Raises UnknownFunctionError."""
        if isinstance(name, str) and name in self.functions:
            return self.functions[name]
        known = ", ".join(self.functions) or "none"
        raise UnknownFunctionError(
            f"there is no function {brief(name)!r}; the module has {known}{near(name, self.functions)}"
        )

    def __iter__(self) -> Iterator[str]:
        """The names of the functions."""
        return iter(self.functions)

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __setitem__(self, name: str, function: Any) -> NoReturn:
        """A module stays as it is. Raises InferenceError, which says how another one is made."""
        raise InferenceError(f"a module does not change: treadle.Module(module, {name}=…) is one with another function")

    def _instead_of(self, name: str) -> str:
        return (
            f"; the function of that name is module[{name!r}]" if name in self.functions else super()._instead_of(name)
        )
