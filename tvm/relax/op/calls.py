"""Relax's operators that call, print, allocate and ask for shapes: the Relax machine does them. And Treadle's operators under
their own names, so that every program has a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....compiler.builder.programs import op as own
from ....compiler.operators import TABLE
from ....formats.messages.errors import CheckError, UnsupportedNameError
from .. import expr
from ..expr import Call, ExternFunc, Op, as_expr, infos_of
from ..struct_info import (
    ObjectStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    struct_info_of,
)
from .table import Operator


def _extern(func: Any) -> Any:
    return ExternFunc(func) if isinstance(func, str) else func


def _several(args: Any) -> Any:
    several = args if isinstance(args, (list, tuple)) and not isinstance(args, ShapeExpr) else [args]
    return args if isinstance(args, expr.Expr) and _is_tuple(args) else expr.Tuple(several)


def _is_tuple(value: Any) -> bool:
    return isinstance(value, expr.Tuple) or isinstance(value.struct_info, TupleStructInfo)


def _result(call: Call) -> StructInfo:
    several = call.sinfo_args
    return several[0] if len(several) == 1 else TupleStructInfo(several) if several else ObjectStructInfo()


def _first(call: Call) -> StructInfo:
    return call.args[0].struct_info


def _void(call: Call) -> StructInfo:
    return TupleStructInfo([])


def _object(call: Call) -> StructInfo:
    return ObjectStructInfo()


def call_packed(func: Any, *args: Any, sinfo_args: Any = (), **attrs: Any) -> Call:
    """What a registered function gives, of the struct info `sinfo_args`; without one nothing is known of it."""
    return Call(_extern(func), args, attrs, sinfo_args)


def _pure(func: Any, *args: Any, sinfo_args: Any = ()) -> Call:
    return Call(PURE.op, [_extern(func), *args], None, sinfo_args)


def _inplace(func: Any, *args: Any, inplace_indices: Any, sinfo_args: Any = ()) -> Call:
    """Raises CheckError for a place that no argument has."""
    several = tuple(inplace_indices) if isinstance(inplace_indices, (list, tuple)) else (inplace_indices,)
    if any(at >= len(args) for at in several):
        raise CheckError(f"call_inplace_packed: inplace_indices: expected places below {len(args)}, got {several}")
    return Call(INPLACE.op, [_extern(func), *args], {"inplace_indices": several}, sinfo_args)


def _dps(func: Any, args: Any, out_sinfo: Any) -> Call:
    """Raises CheckError for results that are not tensors of shapes."""
    infos = [struct_info_of(each) for each in infos_of(out_sinfo)]
    if not infos or any(not isinstance(each, TensorStructInfo) or each.shape is None for each in infos):
        raise CheckError(f"call_dps_packed: out_sinfo: expected R.Tensor with a shape, got {out_sinfo!r}")
    return Call(DPS.op, [_extern(func), _several(args)], None, infos)


def _with_context(func: Any, args: Any, *, sinfo_args: Any = ()) -> Call:
    return Call(CONTEXT.op, [_extern(func), _several(args)], None, sinfo_args)


def _closure(func: Any, args: Any) -> Call:
    return Call(CLOSURE.op, [func, _several(args)])


def _invoke(op: Op) -> Callable[..., Call]:
    return lambda closure, args, sinfo_args=(): Call(op, [closure, _several(args)], None, sinfo_args)


def _print(*values: Any, format: str = "") -> Call:
    text = format if isinstance(format, expr.StringImm) else expr.StringImm(format)
    return Call(PRINT.op, [text, *values])


def _assert(condition: Any, *format_args: Any, format: Any = "") -> Call:
    args = format_args[0] if len(format_args) == 1 and isinstance(format_args[0], (list, tuple)) else format_args
    text = format if isinstance(format, expr.StringImm) else expr.StringImm(format)
    return Call(ASSERT.op, [as_expr(condition), text, *args])


def _number(value: Any) -> Any:
    return value if isinstance(value, expr.Expr) else expr.PrimValue(value)


def _shape(value: Any) -> Any:
    return ShapeExpr(value) if isinstance(value, (list, tuple)) else value


def _type(value: Any) -> Any:
    return expr.DataTypeImm(value) if isinstance(value, str) else value


def _tensor_of(shape: int, dtype: int) -> Callable[[Call], StructInfo]:
    """A tensor whose shape and element type are arguments."""

    def info(call: Call) -> StructInfo:
        given = call.args[shape]
        return TensorStructInfo(given, call.args[dtype].value)

    return info


def _shape_of(call: Call) -> StructInfo:
    info = call.args[0].struct_info
    if isinstance(info, TensorStructInfo):
        return ShapeStructInfo(info.shape) if isinstance(info.shape, ShapeExpr) else ShapeStructInfo(ndim=info.ndim)
    return ShapeStructInfo()


def _of_shape(call: Call) -> StructInfo:
    info = call.args[0].struct_info
    known = isinstance(info, ShapeStructInfo) and info.ndim >= 0
    return TensorStructInfo((info.ndim,), "int64") if known else TensorStructInfo(None, "int64", ndim=1)


def _to_shape(call: Call) -> StructInfo:
    info = call.args[0].struct_info
    length = info.shape[0] if isinstance(info, TensorStructInfo) and isinstance(info.shape, ShapeExpr) else -1
    return ShapeStructInfo(ndim=length if isinstance(length, int) else -1)


def _one(name: str, info: Callable[[Call], StructInfo]) -> None:
    op = Op(f"relax.{name}")
    Operator(name, info=info, make=lambda x: Call(op, [x]))


PURE = Operator("call_pure_packed", info=_result, make=_pure)
INPLACE = Operator("call_inplace_packed", info=_result, make=_inplace)
DPS = Operator("call_dps_packed", info=_result, make=_dps)
CONTEXT = Operator("call_builtin_with_ctx", info=_result, make=_with_context)
CLOSURE = Operator("make_closure", info=_object, make=_closure)
PRINT = Operator("print", info=_void, make=_print)
ASSERT = Operator("assert_op", info=_void, make=_assert)
NULL: Operator = Operator("null_value", info=_object, make=lambda: Call(NULL.op, []))
for _name in ("invoke_closure", "invoke_pure_closure"):
    Operator(_name, info=_result, make=_invoke(Op(f"relax.{_name}")))
for _name, _rule in (
    ("shape_of", _shape_of),
    ("shape_to_tensor", _of_shape),
    ("tensor_to_shape", _to_shape),
    ("builtin.stop_lift_params", _first),
    ("vm.kill_object", _void),
    ("memory.kill_storage", _void),
    ("memory.kill_tensor", _void),
):
    _one(_name, _rule)


def _on_device(op: Op) -> Callable[..., Call]:
    return lambda data, dst_vdevice: Call(op, [data], {"dst_vdevice": dst_vdevice})


for _name in ("to_vdevice", "hint_on_device"):
    Operator(_name, info=_first, make=_on_device(Op(f"relax.{_name}")))


def _alloc(shape: Any, dtype: Any, runtime_device_index: Any, storage_scope: Any = "global") -> Call:
    return Call(ALLOC.op, [_shape(shape), _type(dtype), _number(runtime_device_index), as_expr(storage_scope)])


def _alloc_storage(shape: Any, runtime_device_index: Any, dtype: Any, storage_scope: Any = "global") -> Call:
    return Call(STORAGE.op, [_shape(shape), _number(runtime_device_index), _type(dtype), as_expr(storage_scope)])


def _memory_storage(size: Any, virtual_device_index: Any, storage_scope: Any, dtype: Any) -> Call:
    return Call(MEMORY.op, [_shape(size), _number(virtual_device_index), as_expr(storage_scope), _type(dtype)])


def _in_storage(op: Op) -> Callable[..., Call]:
    return lambda storage, offset, shape, dtype: Call(op, [storage, _number(offset), _shape(shape), _type(dtype)])


ALLOC = Operator("builtin.alloc_tensor", info=_tensor_of(0, 1), make=_alloc)
STORAGE = Operator("vm.alloc_storage", info=_object, make=_alloc_storage)
MEMORY = Operator("memory.alloc_storage", info=_object, make=_memory_storage)
for _name in ("vm.alloc_tensor", "memory.alloc_tensor"):
    Operator(_name, info=_tensor_of(2, 3), make=_in_storage(Op(f"relax.{_name}")))


def _dyn(func: Any, args: Any) -> Call:
    return Call(DYN.op, [_extern(func), _several(args)])


DYN = Operator("vm.call_tir_dyn", info=_void, make=_dyn)


UNTOLD = "treadle.data."  # what the names of what Relax has no text for begin with
for _name in ("Construct", "Match", "import"):
    Operator(f"{UNTOLD}{_name}", info=_object)


class Treadles(Operator):
    """An operator of Treadle's: any arguments, any attributes."""

    def _own(self, *args: Any, **attributes: Any) -> Any:
        return getattr(own, self.__name__)(*args, **attributes)


def _treadle(name: str) -> None:
    op = Op(f"relax.treadle.{name}")
    made = Treadles(f"treadle.{name}", make=lambda *args, **attributes: Call(op, args, attributes))
    made.body = made._own


for _name in TABLE:
    _treadle(_name)


def _loop(condition: Any, body: Any, initial: Any) -> Call:
    """The tuple that begins as `initial` and becomes what `body` gives for its fields, while `condition` of them holds."""
    return Call(LOOP.op, [condition, body, _several(initial)])


LOOP = Operator("treadle.loop", info=lambda call: call.args[1].struct_info.ret, make=_loop)


class Tir:
    """What of Relax calls functions of TIR, which there are none of: using it says so."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises UnsupportedNameError."""
        raise UnsupportedNameError(
            f"{self.__name__} calls a function of TIR; Treadle's compiler makes kernels of operators, and calls functions "
            "of Python by call_packed and call_dps_packed"
        )


TIR = {name: Tir(name) for name in ("call_tir", "call_tir_inplace", "call_tir_with_grad", "emit_te", "call_te")}
