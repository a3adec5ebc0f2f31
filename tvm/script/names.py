"""What a text of TVMScript may name and call: R, T, I and `relax`, and nothing else."""

from __future__ import annotations

import ast
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats.messages.errors import ParseError, UnsupportedNameError
from ..error import DiagnosticError
from ..relax.module import VDevice
from ..relax.op.table import Operator
from ..relax.struct_info import StructInfo

# what a text may look at of expressions, struct infos and sizes
ATTRIBUTES = {"astype", "dtype", "fields", "ndim", "params", "ret", "shape", "struct_info", "value", "values"}


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


MATCH_CAST = object()
BY_MODULE = {"ir": "I", "tir": "T", "relax": "R"}
_PACKAGE = __package__.rpartition(".")[0]
ALIASES = {
    **{f"{__package__}.{name}": letter for name, letter in BY_MODULE.items()},
    f"{_PACKAGE}.relax": "relax",
    f"{_PACKAGE}.relax.op": "op",
    f"{_PACKAGE}": "tvm",
}
_CACHE: dict[str, Any] = {}


def known_names() -> dict[str, Any]:
    """The names that a text has."""
    if not _CACHE:
        from .. import relax as relax_names
        from .. import tir as sizes
        from . import ir, relax, tir

        own = {name: getattr(relax, name) for name in relax.__all__}
        numbers = {name: getattr(tir, name) for name in ("Var", "max", "min", *_NUMBERS)}
        syntax = {name: getattr(relax_names, name) for name in _SYNTAX.split()}
        members = {name: getattr(ir, name) for name in ir.__all__}
        _CACHE.update(
            R=Names("R", {**own, "match_cast": MATCH_CAST}),
            T=Names("T", numbers),
            I=Names("I", members),
            op=Names("relax.op", own),
            relax=Names("relax", {**syntax, "op": Names("relax.op", own)}),
        )
        tir_names = Names("tir", {name: getattr(sizes, name) for name in ("Var", "max", "min", "floordiv", "floormod")})
        _CACHE["tvm"] = Names(
            "tvm", {"relax": _CACHE["relax"], "tir": tir_names, "ir": Names("ir", {"VDevice": VDevice})}
        )
        _CACHE["float"] = float
        allowed = [*own.values(), *numbers.values(), *syntax.values(), *members.values(), *tir_names.members.values()]
        _CALLED.extend([*allowed, VDevice, float, np.array, *_NUMPY])
    return _CACHE


_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")
_NUMPY = [getattr(np, name) for name in _NUMBERS if name != "bool"]
_SYNTAX = """
    Call Constant DataTypeImm DynTensorType ExternFunc FuncStructInfo ObjectStructInfo PrimStructInfo PrimValue ShapeExpr
    ShapeStructInfo StringImm TensorStructInfo Tuple TupleGetItem TupleStructInfo call_dps_packed call_packed call_pure_packed
    call_tir const
"""
_CALLED: list[Any] = []


def is_allowed(callee: Any) -> bool:
    known_names()
    return isinstance(callee, (Operator, StructInfo)) or any(callee is each for each in _CALLED)


def is_enum(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, enum.Enum)
