"""`relax.BlockBuilder` and the values that it is given, onto Treadle's builder: what is emitted is an expression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from ...compiler import ir
from ...compiler.builder import programs
from ...compiler.builder.programs import Expression, FunctionExpression, if_, tuple_
from ...formats.messages.errors import ArgumentError, CheckError
from ...formats.types import UNKNOWN, TensorType, TupleType, Type, tensor
from ...vm.tensor import Tensor

__all__ = ["BlockBuilder", "Expr", "If", "TensorStructInfo", "Tuple", "TupleGetItem", "TupleStructInfo", "Var", "const"]

Expr = Expression


def TensorStructInfo(shape: Sequence[Any] | None = None, dtype: str = "float32", ndim: int = -1) -> TensorType:
    """The type of a tensor; without a shape, of `ndim` unknown sizes. Raises ArgumentError where neither is known."""
    if shape is None and ndim < 0:
        raise ArgumentError("TensorStructInfo: expected a shape or ndim; Treadle's tensors have a rank")
    return tensor(dtype, (UNKNOWN,) * ndim if shape is None else tuple(shape))


def TupleStructInfo(fields: Sequence[Type]) -> TupleType:
    """The type of a tuple."""
    return TupleType(tuple(fields))


class Var(Expression):
    """A variable of a type."""

    def __init__(self, name_hint: str, struct_info: Type | None = None, span: object = None) -> None:
        super().__init__(atom=ir.Var(name_hint, struct_info), type=struct_info)
        self.name_hint, self.struct_info = name_hint, struct_info


DataflowVar = Var


def const(value: Any, dtype: str | None = None) -> Expression:
    """A tensor known now; numbers are float32 and int32, as TVM has them, unless `dtype` says otherwise."""
    if dtype is None and isinstance(value, (bool, int, float)):
        dtype = {bool: "bool", int: "int32", float: "float32"}[type(value)]
    return programs.constant(value.array if isinstance(value, Tensor) else np.asarray(value), dtype)


def Tuple(fields: Sequence[Expression], span: object = None) -> Expression:
    """A tuple."""
    return tuple_(*fields)


def TupleGetItem(tuple_value: Expression, index: int, span: object = None) -> Expression:
    """A field of a tuple."""
    return programs.field(tuple_value, index)


def If(cond: Expression, true_branch: Expression, false_branch: Expression, span: object = None) -> Expression:
    """One of two values."""
    return if_(cond, true_branch, false_branch)


class BlockBuilder:
    """Collects functions, made of what is emitted."""

    _stack: ClassVar[list[BlockBuilder]] = []

    def __init__(self, mod: ir.Module | None = None) -> None:
        self._functions: dict[str, FunctionExpression] = {}
        self._names: dict[str, int] = {}
        self._params: list[Expression] | None = None
        self._calls: list[
            Expression
        ] = []  # of registered functions, which are made whether their results are used or not
        self._name = ""

    @staticmethod
    def current() -> BlockBuilder | None:
        """The one whose function is being built."""
        return BlockBuilder._stack[-1] if BlockBuilder._stack else None

    def unique(self, name: str) -> str:
        """A name that no other value of the function has."""
        count = self._names[name] = self._names.get(name, -1) + 1
        return f"{name}{count}" if count else name

    @contextmanager
    def function(self, name: str, params: Any = None, attrs: Any = None, private: bool = False) -> Iterator[None]:
        """Within this, a function is built. Raises CheckError where it ends without emit_func_output."""
        self._name, self._params, self._names = name, None if params is None else _params(params), {}
        self._calls = []
        BlockBuilder._stack.append(self)
        try:
            yield
        finally:
            BlockBuilder._stack.pop()
        if name not in self._functions:
            raise CheckError(f"emit_func_output must be called in the end of the function {name!r}")

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """What is emitted within has no effects, as all has here."""
        yield

    def emit(self, expr: Any, name_hint: str = "") -> Expression:
        """The value of an expression."""
        value = programs.expression(expr)
        if value.imported is not None:
            self._calls.append(value)
        return programs.named(self.unique(name_hint), value) if name_hint and value.atom is None else value

    def emit_output(self, output: Any, name_hint: str = "") -> Expression:
        return self.emit(_value(output), name_hint)

    def match_cast(self, value: Expression, struct_info: TensorType, name_hint: str = "") -> Expression:
        """The value, whose shape is compared when the program runs."""
        return programs.match_shape(value, struct_info.shape)  # type: ignore[arg-type]

    def emit_func_output(self, output: Any, params: Any = None) -> None:
        """The function's result; its parameters, if `function` was not told them."""
        if not self._name or self._name in self._functions:
            raise CheckError("emit_func_output should happen once in a function scope")
        if params is not None and self._params is not None:
            raise CheckError("function parameters have been given in function(…) already")
        own = self._params if params is None else _params(params)
        if own is None:
            raise CheckError(f"the parameters of the function {self._name!r} are not known")
        result = _value(output)
        if self._calls:
            result = programs.field(tuple_(*self._calls, result), len(self._calls))
        self._functions[self._name] = programs.function(own, result, name=self._name)

    def get(self) -> ir.Module:
        """The module."""
        return programs.Module(self._functions)

    finalize = get


def _params(params: Any) -> list[Expression]:
    return [params] if isinstance(params, Expression) else list(params)


def _value(value: Any) -> Expression:
    return tuple_(*map(_value, value)) if isinstance(value, (list, tuple)) else value
