"""Calls of registered functions in programs of `relax.BlockBuilder`, onto imports (`tvm/relax/packed.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....compiler.builder.programs import Expression, expression, import_
from ....formats.messages.errors import ArgumentError
from ....formats.types import FunctionType, TensorType, TupleType, Type
from ..packed import DPS, PACKED
from ..struct_info import StructInfo, type_of

__all__ = ["Call", "ExternFunc", "call_dps_packed", "call_packed", "call_pure_packed"]


class ExternFunc:
    """A registered function, to be called by a program: `func(x, sinfo_args=[…])`."""

    def __init__(self, global_symbol: str, struct_info: Any = None, span: object = None) -> None:
        self.global_symbol = str(global_symbol)

    def __call__(self, *args: Any, sinfo_args: Any = (), attrs: Any = None) -> Expression:
        return call_packed(self, *args, sinfo_args=sinfo_args)


def Call(op: Any, args: Sequence[Any], attrs: Any = None, sinfo_args: Any = (), span: object = None) -> Expression:
    """The call of a registered function, or of a function of the program."""
    return call_packed(op, *args, sinfo_args=sinfo_args) if isinstance(op, ExternFunc) else op(*args)


def call_packed(func: ExternFunc | str, *args: Any, sinfo_args: Any = (), **attrs: Any) -> Expression:
    """What a registered function gives, of the type `sinfo_args`; without one, (): what it gives is dropped."""
    several = [sinfo_args] if isinstance(sinfo_args, (StructInfo, TensorType, TupleType)) else list(sinfo_args)
    if len(several) > 1:
        raise ArgumentError(f"call_packed: expected one type in sinfo_args, got {len(several)}")
    return _call(PACKED, func, args, type_of(several[0]) if several else TupleType(()))


def call_pure_packed(func: ExternFunc | str, *args: Any, sinfo_args: Any = (), **attrs: Any) -> Expression:
    """`call_packed` of a function without effects; it is called as often as the program says all the same."""
    return call_packed(func, *args, sinfo_args=sinfo_args)


def call_dps_packed(func: ExternFunc | str, args: Any, out_sinfo: Any) -> Expression:
    """The tensors of the types `out_sinfo` that a registered function writes, which is given them after its arguments."""
    operands = [args] if isinstance(args, Expression) else list(args)
    several = isinstance(out_sinfo, (list, tuple))
    result = TupleType(tuple(map(type_of, out_sinfo))) if several else type_of(out_sinfo)
    fields = result.fields if isinstance(result, TupleType) else (result,)
    if not fields or not all(isinstance(field, TensorType) for field in fields):
        raise ArgumentError(f"call_dps_packed: expected types of tensors in out_sinfo, got {out_sinfo!r}")
    return _call(DPS, func, operands, result)


def _call(manner: str, func: ExternFunc | str, args: Sequence[Any], result: Type) -> Expression:
    name = func.global_symbol if isinstance(func, ExternFunc) else str(func)
    operands = [expression(arg) for arg in args]
    for number, operand in enumerate(operands):
        if operand.type is None:
            raise ArgumentError(
                f"{manner}({name!r}): the type of argument {number} is not known; match_cast gives it one"
            )
    type_ = FunctionType(tuple(operand.type for operand in operands), result)  # type: ignore[misc]
    return import_(f"{manner} {name} {type_}", type_)(*operands)
