"""Relax's types, which know less than struct infos: ranks and element types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .node import Node

__all__ = ["DynTensorType", "FuncType", "ObjectType", "PackedFuncType", "PrimType", "ShapeType", "TupleType"]


@dataclass(frozen=True, repr=False)
class ShapeType(Node):
    """A shape."""

    ndim: int = -1


@dataclass(frozen=True, repr=False)
class ObjectType(Node):
    """A value."""


@dataclass(frozen=True, repr=False)
class PackedFuncType(Node):
    """A registered function."""


@dataclass(frozen=True, repr=False)
class PrimType(Node):
    """A number."""

    dtype: str


@dataclass(frozen=True, repr=False)
class DynTensorType(Node):
    """A tensor; a rank of -1 is not known."""

    ndim: int = -1
    dtype: str = "float32"


@dataclass(frozen=True, repr=False)
class TupleType(Node):
    """A tuple."""

    fields: tuple[Any, ...]

    def __init__(self, fields: Sequence[Any]) -> None:
        object.__setattr__(self, "fields", tuple(fields))


@dataclass(frozen=True, repr=False)
class FuncType(Node):
    """A function."""

    arg_types: tuple[Any, ...]
    ret_type: Any

    def __init__(self, arg_types: Sequence[Any], ret_type: Any) -> None:
        object.__setattr__(self, "arg_types", tuple(arg_types))
        object.__setattr__(self, "ret_type", ret_type)
