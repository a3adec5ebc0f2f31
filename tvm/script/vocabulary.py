"""What a text of TVMScript may name and call: R, T, I and `relax`, and nothing else."""

from __future__ import annotations

from typing import Any

from ...formats.messages.errors import CheckError
from .. import relax as relax_names
from .. import tir as sizes
from ..relax import expr, op
from ..relax.expr import ExternFunc, ShapeExpr, TupleGetItem, const
from ..relax.module import DummyGlobalInfo, VDevice
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
from .expressions import Vocabulary, quoted_size
from .names import MATCH_CAST, InfoName, Names, as_info
from .tir import T

Object = ObjectStructInfo()


def _sizes(shape: Any) -> Any:
    if isinstance(shape, (list, tuple)):
        return [quoted_size(each) if isinstance(each, str) else each for each in shape]
    return shape


@InfoName
def Tensor(shape: Any = None, dtype: Any = None, vdevice: Any = None, ndim: int = -1) -> StructInfo:
    """A tensor. Raises CheckError for anything but sizes."""
    if isinstance(shape, str) and dtype is None:
        shape, dtype = None, shape
    if shape is not None and not isinstance(shape, (list, tuple, expr.Expr)):
        raise CheckError(f"R.Tensor: shape: expected a list of sizes, got {shape!r}")
    if shape is not None and not isinstance(shape, expr.Expr) and ndim == len(shape):
        ndim = -1
    return TensorStructInfo(_sizes(shape), dtype or "", vdevice, ndim=ndim)


@InfoName
def Shape(values: Any = None, ndim: int = -1) -> StructInfo:
    """A shape."""
    return ShapeStructInfo(_sizes(values), ndim)


@InfoName
def Prim(dtype: Any = None, value: Any = None) -> StructInfo:
    """A number."""
    return PrimStructInfo(dtype, quoted_size(value) if isinstance(value, str) else value)


@InfoName
def Tuple(*fields: Any) -> StructInfo:
    """A tuple of these struct infos, or of those of a list."""
    several = fields[0] if len(fields) == 1 and isinstance(fields[0], (list, tuple)) else fields
    return TupleStructInfo([as_info(each) for each in several])


@InfoName
def Callable(params: Any = None, ret: Any = None, purity: Any = None, derive_func: Any = None) -> StructInfo:
    """A function; without arguments one of which nothing is known."""
    result = Object if ret is None else as_info(ret)
    if params is None:
        return FuncStructInfo.opaque_func(ret=result, purity=bool(purity))
    several = params if isinstance(params, (list, tuple)) else [params]
    return FuncStructInfo([as_info(each) for each in several], result, purity is not False)


def shape(value: Any) -> ShapeExpr:
    """A shape of these sizes."""
    return ShapeExpr(each.value if isinstance(each, expr.PrimValue) else each for each in value)


_SYNTAX = """
    Call Constant DataTypeImm DynTensorType ExternFunc FuncStructInfo ObjectStructInfo PrimStructInfo PrimValue ShapeExpr
    ShapeStructInfo StringImm TensorStructInfo Tuple TupleGetItem TupleStructInfo call_dps_packed call_packed call_pure_packed
    call_tir const
"""
R: dict[str, Any] = {
    **{name: getattr(op, name) for name in op.__all__},
    "Callable": Callable,
    "Object": Object,
    "PackedFunc": PackedFuncType(),
    "Prim": Prim,
    "Shape": Shape,
    "Tensor": Tensor,
    "ExternFunc": ExternFunc,
    "ShapeExpr": ShapeExpr,
    "Tuple": Tuple,
    "TupleGetItem": TupleGetItem,
    "const": const,
    "dtype": expr.DataTypeImm,
    "prim_value": expr.PrimValue,
    "shape": shape,
    "str": expr.StringImm,
    "tuple": lambda *fields: expr.Tuple(fields),
}
_OP = Names("relax.op", R)
_RELAX = Names("relax", {**{name: getattr(relax_names, name) for name in _SYNTAX.split()}, "op": _OP})
_TIR = Names("tir", {name: getattr(sizes, name) for name in ("Var", "max", "min", "floordiv", "floormod")})
_TVM = Names("tvm", {"relax": _RELAX, "tir": _TIR, "ir": Names("ir", {"VDevice": VDevice})})
VOCABULARY = Vocabulary(
    R=Names("R", {**R, "match_cast": MATCH_CAST}),
    T=T,
    I=Names("I", {"dummy_global_info": DummyGlobalInfo, "vdevice": VDevice}),
    op=_OP,
    relax=_RELAX,
    tvm=_TVM,
    float=float,
)
