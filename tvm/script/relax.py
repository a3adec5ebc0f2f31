"""`from tvm.script import relax as R`: operators, struct infos, and what a function's text says beside them."""

from __future__ import annotations

from typing import Any

from ...formats.messages.errors import CheckError, ParseError
from ..relax import expr, op
from ..relax.expr import ExternFunc as ExternFunc
from ..relax.expr import ShapeExpr
from ..relax.expr import TupleGetItem as TupleGetItem
from ..relax.expr import const as const
from ..relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..relax.ty import PackedFuncType
from .reader import function as function
from .reader import macro as macro
from .reader import quoted_size

globals().update({name: getattr(op, name) for name in op.__all__})
__all__ = [
    *op.__all__,
    *(
        "Callable",
        "ExternFunc",
        "Object",
        "PackedFunc",
        "Prim",
        "Shape",
        "ShapeExpr",
        "Tensor",
        "Tuple",
        "TupleGetItem",
    ),
    *("const", "dtype", "function", "macro", "prim_value", "shape", "str", "tuple"),
]
Object, PackedFunc = ObjectStructInfo(), PackedFuncType()
py_str, py_tuple = str, tuple


def _sizes(shape: Any) -> Any:
    if isinstance(shape, (list, py_tuple)):
        return [quoted_size(each) if isinstance(each, py_str) else each for each in shape]
    return shape


class _Class:
    """A struct info's name, which alone stands for one of which nothing is known."""

    def __init__(self, make: Any) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._make(*args, **kwargs)


@_Class
def Tensor(shape: Any = None, dtype: Any = None, vdevice: Any = None, ndim: int = -1) -> StructInfo:
    """A tensor. Raises CheckError for anything but sizes."""
    if isinstance(shape, py_str) and dtype is None:
        shape, dtype = None, shape
    if shape is not None and not isinstance(shape, (list, py_tuple, expr.Expr)):
        raise CheckError(f"R.Tensor: shape: expected a list of sizes, got {shape!r}")
    if shape is not None and not isinstance(shape, expr.Expr) and ndim == len(shape):
        ndim = -1
    return TensorStructInfo(_sizes(shape), dtype or "", vdevice, ndim=ndim)


@_Class
def Shape(values: Any = None, ndim: int = -1) -> StructInfo:
    """A shape."""
    return ShapeStructInfo(_sizes(values), ndim)


@_Class
def Prim(dtype: Any = None, value: Any = None) -> StructInfo:
    """A number."""
    return PrimStructInfo(dtype, quoted_size(value) if isinstance(value, py_str) else value)


@_Class
def Tuple(*fields: Any) -> StructInfo:
    """A tuple of these struct infos, or of those of a list."""
    several = fields[0] if len(fields) == 1 and isinstance(fields[0], (list, py_tuple)) else fields
    return TupleStructInfo([as_info(each) for each in several])


@_Class
def Callable(params: Any = None, ret: Any = None, purity: Any = None, derive_func: Any = None) -> StructInfo:
    """A function; without arguments one of which nothing is known."""
    result = Object if ret is None else as_info(ret)
    if params is None:
        return FuncStructInfo.opaque_func(ret=result, purity=bool(purity))
    several = params if isinstance(params, (list, py_tuple)) else [params]
    return FuncStructInfo([as_info(each) for each in several], result, purity is not False)


def as_info(value: Any) -> StructInfo:
    """The struct info that an annotation says. Raises ParseError for another value."""
    if value is None:
        return TupleStructInfo([])
    made = value() if isinstance(value, (_Class, type)) else value
    if not isinstance(made, StructInfo):
        raise ParseError(f"expected a struct info, as R.Tensor((2, 3), 'float32'), got {value!r}")
    return made


def shape(value: Any) -> ShapeExpr:
    """A shape of these sizes."""
    return ShapeExpr(each.value if isinstance(each, expr.PrimValue) else each for each in value)


def prim_value(value: Any) -> expr.PrimValue:
    """A number."""
    return expr.PrimValue(value)


def str(value: Any) -> expr.StringImm:
    """A string."""
    return expr.StringImm(value)


def dtype(value: Any) -> expr.DataTypeImm:
    """An element type."""
    return expr.DataTypeImm(value)


def tuple(*fields: Any) -> expr.Tuple:
    """A tuple."""
    return expr.Tuple(fields)
