"""`relax.BlockBuilder` and the values that it is given, onto Treadle's builder: what is emitted is an expression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from ...compiler.builder import programs
from ...compiler.builder.programs import Expression, FunctionExpression, if_, tuple_
from ...formats.messages.errors import CheckError
from ...vm.tensor import Tensor
from .module import IRModule
from .struct_info import StructInfo, TensorStructInfo, type_of
from .values import DataflowVar, Var

__all__ = ["BlockBuilder", "If", "Tuple", "TupleGetItem", "const"]


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

    def __init__(self, mod: IRModule | None = None) -> None:
        self._functions: dict[str, FunctionExpression] = {}
        self._names: dict[str, int] = {}
        self._params: list[Expression] | None = None
        self._calls: list[
            Expression
        ] = []  # of registered functions, which are made whether their results are used or not
        self._name = ""
        self._variable: type[Var] = Var  # what `emit` makes

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
        outer, self._variable = self._variable, DataflowVar
        try:
            yield
        finally:
            self._variable = outer

    def emit(self, expr: Any, name_hint: str = "") -> Expression:
        """The value of an expression, as a variable: "lv" in a dataflow block, else "gv", where no name is given."""
        return self._bound(expr, name_hint, self._variable)

    def emit_output(self, output: Any, name_hint: str = "") -> Expression:
        """What a dataflow block gives."""
        return self._bound(_value(output), name_hint, Var)

    def _bound(self, expr: Any, name_hint: str, variable: type[Var]) -> Expression:
        value = programs.expression(expr)
        if value.imported is not None:
            self._calls.append(value)
        name = self.unique(name_hint or ("lv" if variable is DataflowVar else "gv"))
        return variable.bound(name, programs.named(name, value) if name_hint and value.atom is None else value)

    def match_cast(self, value: Expression, struct_info: StructInfo, name_hint: str = "") -> Expression:
        """The value, whose shape is compared when the program runs. Raises CheckError for what is not a tensor's."""
        if not isinstance(struct_info, TensorStructInfo):
            raise CheckError(
                f"match_cast: expected a TensorStructInfo, got {struct_info!r}; tensors are compared alone"
            )
        return self._bound(programs.match_shape(value, type_of(struct_info).shape), name_hint, self._variable)

    def normalize(self, expr: Any) -> Expression:
        """The expression, which knows its struct info."""
        return Var.bound("", programs.expression(expr))

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

    def get(self) -> IRModule:
        """The module."""
        return IRModule.of(programs.Module(self._functions))

    finalize = get


def _params(params: Any) -> list[Expression]:
    return [params] if isinstance(params, Expression) else list(params)


def _value(value: Any) -> Expression:
    return tuple_(*map(_value, value)) if isinstance(value, (list, tuple)) else value
