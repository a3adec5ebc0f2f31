"""`from tvm.script import tir as T`: sizes and numbers. Functions of TIR are read by nobody here: using one says so."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...formats import dims
from ..modules.containers import FloatImm, IntImm
from ..tir import Var as Var
from ..tir import max, min
from .names import Names, PrimFunc, Size

__all__ = ["Size", "max", "min", "prim_func"]


def _number(name: str) -> Any:
    def number(value: Any = None, *, is_size_var: bool = False) -> Any:
        if value is None:
            return Size(name)
        if isinstance(value, dims.SymbolicDim):
            return value
        if name == "bool":
            return bool(value)
        return FloatImm(name, value) if np.dtype(name).kind == "f" else IntImm(name, value)

    number.__name__ = name
    return number


NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")
int64 = _number("int64")
globals().update({name: _number(name) for name in NUMBERS if name != "int64"})
T = Names("T", {"Var": Var, "max": max, "min": min, **{name: globals()[name] for name in NUMBERS}})  # what a text has


def prim_func(function: Any = None, **_: Any) -> Any:
    """A function of TIR, which is refused where it is used."""
    return prim_func if function is None else PrimFunc(function)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent(f"T.{name}")


class Absent:
    """A name of TIR's, which may stand in annotations that nobody reads."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Absent:
        return self

    def __iter__(self) -> Any:
        return iter(())

    def __getitem__(self, key: Any) -> Absent:
        return self
