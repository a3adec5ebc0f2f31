"""What a text of TVMScript has beside values: names, sizes, casts, macros; and what is wrong with one."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...formats.messages.errors import ParseError, UnsupportedNameError
from ..error import DiagnosticError
from ..relax.struct_info import StructInfo, TupleStructInfo


class ScriptError(ParseError, DiagnosticError):
    """A text that is not TVMScript, with line and column."""


class TirError(UnsupportedNameError, DiagnosticError):
    """A text that needs functions of TIR."""


@dataclass
class Names:
    """What stands behind R, T, I or `relax`: names, and nothing else."""

    name: str
    members: Mapping[str, Any]


class Own:
    """The module that is being read, within it: `cls.f` is a function of it."""


@dataclass
class Cast:
    """`R.match_cast`, which a statement gives a name."""

    value: Any
    info: Any


@dataclass
class Macro:
    """A function whose statements are put where it is called."""

    node: ast.FunctionDef
    env: Mapping[str, Any]
    is_hygienic: bool
    origin: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises ScriptError: only a reader calls it."""
        raise ScriptError(f"the macro {self.node.name} is called outside of a function that is read")


class PrimFunc:
    """A function of TIR that stands in a class or beside one: using it is an error that says so."""

    def __init__(self, function: Any) -> None:
        code = getattr(function, "__code__", None)
        self.name = getattr(function, "__name__", "")
        self.line = getattr(code, "co_firstlineno", 0)


@dataclass(frozen=True)
class Size:
    """A size that has no name yet: an assignment gives it one."""

    dtype: str


class InfoName:
    """A struct info's name, which alone stands for one of which nothing is known."""

    def __init__(self, make: Any) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._make(*args, **kwargs)


def as_info(value: Any) -> StructInfo:
    """The struct info that an annotation says. Raises ParseError for another value."""
    if value is None:
        return TupleStructInfo([])
    made = value() if isinstance(value, (InfoName, type)) else value
    if not isinstance(made, StructInfo):
        raise ParseError(f"expected a struct info, as R.Tensor((2, 3), 'float32'), got {value!r}")
    return made


MATCH_CAST = object()
