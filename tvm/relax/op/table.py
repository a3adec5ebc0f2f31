"""Relax's operators: a row says an operator's arguments and attributes (`body`'s parameters, keywords last), and what it is in
Treadle's operators, which also says what is known of its result. Rows without a body are what the Relax machine does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....compiler import ir
from ....compiler.builder.programs import Expression, constant, tuple_
from ....formats import dims
from ....formats.dims import SymbolicDim
from ....formats.dtypes import DType
from ....formats.messages.errors import CompileError, InferenceError
from ....formats.types import UNKNOWN, TensorType, TupleType
from ...relay.op.table import SIZE, naming_dims
from .. import expr
from ..expr import OPERATOR_CALLS, Call, Expr, Op, as_expr
from ..struct_info import (
    ObjectStructInfo,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    known_type,
    map_sizes,
    sizes_in,
    struct_info_of,
)

SHAPES = ("shape", "new_shape")  # the arguments that are shapes
_LISTS = ("axes", "strides", "padding", "dilation", "output_padding", "pool_size", "inplace_indices", "repeats")
_FIT = {"greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "isnan", "isinf", "isfinite"}


@dataclass(eq=False)
class Operator:
    """A row. Calling it makes a call of the operator."""

    name: str
    body: Callable[..., Any] | None = None
    info: Callable[[Call], StructInfo] | None = None  # of the result; None: the body says it
    make: Callable[..., Call] | None = None  # of calls whose arguments are not by name
    listed: tuple[str, ...] = ()  # further attributes that are lists

    def __post_init__(self) -> None:
        parameters = inspect.signature(self.body).parameters.values() if self.body else ()
        self.arguments = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        self.attributes = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
        free = [each.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD) for each in parameters]
        free.sort(key=lambda each: each.default is not inspect.Parameter.empty)
        self.__signature__ = inspect.signature(self.make) if self.make else inspect.Signature(free)
        self.__name__ = self.name.rpartition(".")[2]
        OPERATOR_CALLS[self.name] = self

    @property
    def op(self) -> Op:
        return Op(f"relax.{self.name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Call:
        """A call. Raises TypeError for arguments that are not the operator's."""
        if self.make is not None:
            return self.make(*args, **kwargs)
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        operands = [self._argument(name, given[name]) for name in self.arguments]
        while operands and operands[-1] is None:
            operands.pop()
        made = [self._number(each, operands) if isinstance(each, (int, float)) else each for each in operands]
        attributes = {name: self._attribute(name, given[name]) for name in self.attributes}
        if attributes.get("out_layout", "") is None:
            attributes["out_layout"] = attributes.get("data_layout", attributes.get("layout"))
        if self.name == "reshape" and isinstance(made[1], ShapeExpr):
            made[1] = _resolved(made[1], made[0].struct_info)
        return Call(self.op, made, attributes)

    def _argument(self, name: str, value: Any) -> Any:
        if isinstance(value, (list, tuple)) and name in SHAPES and not isinstance(value, ShapeExpr):
            return ShapeExpr([each.value if isinstance(each, expr.PrimValue) else each for each in value])
        return value if value is None or isinstance(value, (int, float)) else as_expr(value)

    def _number(self, value: float, operands: list[Any]) -> Any:
        """A number among tensors, in binary operators: a constant of their element type."""
        if set(self.arguments) - {"x1", "x2", "condition"}:
            return expr.PrimValue(value)
        infos = (each.struct_info for each in operands if isinstance(each, Expr))
        dtypes = [info.dtype for info in infos if isinstance(info, TensorStructInfo) and info.dtype]
        return expr.const(value, dtypes[0] if dtypes else None)

    def _attribute(self, name: str, value: Any) -> Any:
        if isinstance(value, expr.PrimValue):
            value = value.value
        if isinstance(value, (expr.StringImm, expr.DataTypeImm)):
            value = value.value
        if name.endswith("dtype"):
            return "void" if value in (None, "") else value.name if isinstance(value, DType) else str(value)
        count = next((int(each) for each in self.name if each.isdigit()), 0)
        if value is not None and name in (*_LISTS, *self.listed):
            several = tuple(value) if isinstance(value, (list, tuple)) else (value,)
            if count and name in ("strides", "dilation", "output_padding", "padding", "pool_size"):
                several = several * count if len(several) == 1 else several
                several = several * 2 if name == "padding" and len(several) == count else several
            return several
        return tuple(value) if isinstance(value, list) else value

    # ---- what it is ----

    def deduce(self, call: Call) -> StructInfo:
        """The struct info of a call. Raises InferenceError where its arguments do not fit."""
        if self.info is not None:
            return self.info(call)
        if self.body is None:
            return ObjectStructInfo()
        try:
            with naming_dims():
                made = self.lowered(call, _placeholder)
        except _UnknownError:
            return self._fallback(call)
        except InferenceError:
            infos = [each.struct_info for each in call.args]
            if len(infos) == 2 and not self.attributes and any(isinstance(each, SymbolicDim) for each in _sizes(infos)):
                return self._fallback(call)  # whether the sizes fit, a run says
            raise
        return _info(made)

    def lowered(self, call: Call, value: Callable[[Expr], Expression]) -> Expression:
        """The call in Treadle's operators, over what `value` gives for its arguments. Raises InferenceError."""
        if self.body is None:
            raise CompileError(f"relax.{self.name} is an operator of the Relax machine alone")
        args = [_operand(each, value) for each in call.args]
        attributes = {name: None if each == "void" else each for name, each in call.attrs.items()}
        try:
            return self.body(*args, **attributes)
        except InferenceError as error:
            raise InferenceError(f"relax.{self.name}: {error.message}") from None

    def _fallback(self, call: Call) -> StructInfo:
        """What is known where a rank or an element type is not."""
        infos = [each.struct_info for each in call.args if isinstance(each.struct_info, TensorStructInfo)]
        if not infos:
            return ObjectStructInfo()
        dtypes, ranks = {info.dtype for info in infos}, {info.ndim for info in infos}
        same = set(self.arguments) <= {"x", "x1", "x2", "data"} and not self.attributes
        dtype = "bool" if self.name in _FIT else dtypes.pop() if len(dtypes) == 1 and (same or "" not in dtypes) else ""
        dtype = "" if "dtype" in self.attributes else dtype
        if same and len(infos) == 1 and infos[0].shape is not None and infos[0].dtype == dtype:
            return infos[0]
        sizes = {info.sizes for info in infos}
        if same and len(sizes) == 1 and None not in sizes:
            return TensorStructInfo(sizes.pop(), dtype)
        return TensorStructInfo(None, dtype, ndim=max(ranks) if same and -1 not in ranks else -1)


def _resolved(shape: ShapeExpr, info: Any) -> ShapeExpr:
    """A shape whose 0 is the tensor's own size, and -1 what is left."""
    sizes = getattr(info, "sizes", None)
    if sizes is None or UNKNOWN in sizes or not {0, -1} & {each for each in shape if isinstance(each, int)}:
        return shape
    made = [sizes[at] if each == 0 and at < len(sizes) else each for at, each in enumerate(shape)]
    rest = dims.product(each for each in made if each != -1)
    return ShapeExpr([dims.floordiv(dims.product(sizes), rest) if each == -1 and rest != 0 else each for each in made])


def _sizes(infos: list[Any]) -> Iterator[Any]:
    return (each for info in infos for each in sizes_in(info))


class _UnknownError(Exception):
    """The type of an argument is not known."""


def _placeholder(value: Expr) -> Expression:
    type_ = known_type(value.struct_info)
    if type_ is None:
        raise _UnknownError
    if isinstance(value, expr.Constant):
        return constant(value.data.array)
    return Expression(atom=ir.Var("x", type_), type=type_)


def _info(made: Any) -> StructInfo:
    if isinstance(made, (list, tuple)):
        made = tuple_(*made)
    if made.type is None and made.fields:
        made.type = TupleType(made.fields) if None not in made.fields else None
    if made.type is None:
        return ObjectStructInfo()
    return map_sizes(struct_info_of(made.type), lambda each: UNKNOWN if SIZE in str(each) else each)


def _operand(value: Any, lower: Callable[[Expr], Expression]) -> Any:
    """An argument as a body takes it: shapes as sizes, numbers as numbers, tuples as lists, all else as expressions."""
    if isinstance(value, ShapeExpr):
        return tuple(value)
    if isinstance(value, (expr.PrimValue, expr.StringImm, expr.DataTypeImm)):
        return value.value
    if isinstance(value, expr.Tuple):
        return [_operand(each, lower) for each in value.fields]
    made = lower(value)
    return list(made) if isinstance(made.type, TupleType) else made


def namespace(prefix: str = "") -> SimpleNamespace:
    """The operators whose names begin with `prefix`, and a dot, as attributes."""
    begin = f"{prefix}." if prefix else ""
    names = (name.removeprefix(begin) for name in OPERATOR_CALLS if name.startswith(begin))
    return SimpleNamespace(**{name: OPERATOR_CALLS[begin + name] for name in names if "." not in name})


def numbers_of(value: Any) -> Any:
    """The numbers of a constant expression; numbers as they are."""
    found = getattr(getattr(value, "atom", None), "value", None)
    return value if found is None else np.asarray(found).tolist()


def element_type(x: Expression) -> DType:
    assert isinstance(x.type, TensorType)
    return x.type.dtype


Rows = Mapping[str, Callable[..., Any]]


def register(rows: Rows, listed: Mapping[str, tuple[str, ...]]) -> Iterator[Operator]:
    """Rows with bodies, by name; `listed` says of which further attributes are lists."""
    for name, body in rows.items():
        yield Operator(name, body, listed=listed.get(name, ()))
