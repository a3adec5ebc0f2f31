"""The few names of `tvm.tir` that Relay programs use: dimensions that are not known, symbolic ones, and integers with a type."""

from __future__ import annotations

import sys

import numpy as np

from ..formats import dims
from ..formats.dims import SymbolicDim
from .modules.containers import FloatImm, IntImm


class Any:
    """A dimension that is known when the program runs."""

    def __repr__(self) -> str:
        return "?"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Any)

    def __hash__(self) -> int:
        return hash(Any)


class StringImm(str):
    """A string among attributes."""

    @property
    def value(self) -> str:
        return str(self)


class _OfVariables(type):
    """`isinstance(dim, tvm.tir.Var)` asks whether a dimension is a variable."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, SymbolicDim) and dims.is_variable(instance)

    def __call__(cls, name: str, dtype: str = "int32", span: object = None) -> SymbolicDim:
        return dims.named(name)


class Var(metaclass=_OfVariables):
    """A symbolic dimension. Two of one name are one dimension, as in Treadle's types."""


class SizeVar(metaclass=_OfVariables):
    """The same: no dimension is negative."""


def const(value: float, dtype: str = "int32") -> IntImm | FloatImm:
    """A number with a type."""
    return IntImm(dtype, value) if isinstance(value, int) else FloatImm(dtype, value)


def _limits(dtype: str) -> tuple[float, float]:
    kind = np.dtype(dtype)
    limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    return kind.type(limits.min).item(), kind.type(limits.max).item()


def min_value(dtype: str) -> IntImm | FloatImm:
    """The least number of a type."""
    return const(_limits(dtype)[0], dtype)


def max_value(dtype: str) -> IntImm | FloatImm:
    """The greatest number of a type."""
    return const(_limits(dtype)[1], dtype)


floordiv = indexdiv = dims.floordiv
floormod = indexmod = dims.modulo
max, min = dims.maximum, dims.minimum

expr = sys.modules[__name__]  # `tvm.tir.expr` has the same names
