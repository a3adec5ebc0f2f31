"""Relay's expressions: a tree of plain objects, as people built and walked it. `lower.py` makes programs of them.

Operators of Python on expressions are calls of operators (`OPERATOR_CALLS`), which `op/table.py` registers. An expression's
`checked_type` is there once `transform.InferType` has seen it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, Union

import numpy as np

from ...formats.dtypes import DType
from ..modules.containers import Object
from ..runtime.ndarray import array
from . import ty
from .ty import Type

# What makes a call of an operator, by the operator's name; `op/` registers them.
OPERATOR_CALLS: dict[str, Callable[..., Any]] = {}


@functools.singledispatch
def as_text(value: Any, show_meta_data: bool = True, annotate: Callable[[Expr], str] | None = None) -> str:
    """Relay's text of a value; `text/printer.py` registers that of expressions and modules."""
    raise TypeError(f"there is no text of a {type(value).__name__}")


def _calls(name: str, swapped: bool = False) -> Any:
    def method(self: Expr, other: object) -> Expr:
        if isinstance(other, Number):
            raise TypeError(f'convert "{other}" with `const` first')
        operands = (other, self) if swapped else (self, other)
        return OPERATOR_CALLS[name](*operands)

    return method


class Expr(Object):
    """What a program is made of."""

    _checked_type: Type | None = None  # what inference found
    _known_type: Type | None = None  # what is known without it

    __add__, __radd__ = _calls("add"), _calls("add", swapped=True)
    __sub__, __rsub__ = _calls("subtract"), _calls("subtract", swapped=True)
    __mul__, __rmul__ = _calls("multiply"), _calls("multiply", swapped=True)
    __truediv__, __rtruediv__ = _calls("divide"), _calls("divide", swapped=True)
    __floordiv__, __mod__ = _calls("floor_divide"), _calls("mod")
    __lt__, __le__, __gt__, __ge__ = _calls("less"), _calls("less_equal"), _calls("greater"), _calls("greater_equal")
    span: object = None
    place: int | None = None  # in the order of a text or a model, where it is of one

    def __neg__(self) -> Expr:
        return OPERATOR_CALLS["negative"](self)

    def __call__(self, *args: Expr) -> Call:
        return Call(self, args)

    def astype(self, dtype: str) -> Expr:
        return OPERATOR_CALLS["cast"](self, dtype)

    @property
    def checked_type(self) -> Type:
        """The type that inference found. Raises ValueError before."""
        type_ = self._checked_type or self._known_type
        if type_ is None:
            raise ValueError(
                "The type checker has not populated the checked_type for this node; see transform.InferType"
            )
        return type_

    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        """Relay's text of the expression, which `relay.parse_expr` reads; `annotate` gives what stands behind each expression."""
        return as_text(self, show_meta_data, annotate)

    def __str__(self) -> str:
        return self.astext(show_meta_data=False)

    def __repr__(self) -> str:
        return f"<relay.{type(self).__name__}>"


RelayExpr = Expr
ExprWithOp = Expr


class Constant(Expr):
    """A tensor known now. A scalar with a place is one that is used in several."""

    def __init__(self, data: Any, span: object = None) -> None:
        self._tensor = data if hasattr(data, "numpy") else None
        self._hold(np.array(data.numpy() if hasattr(data, "numpy") else data))

    @classmethod
    def of(cls, array: np.ndarray) -> Constant:
        """The constant of an array that nobody changes, which is not copied."""
        made = cls.__new__(cls)
        made._tensor = None
        made._hold(array.view() if array.flags.writeable else array)
        return made

    def _hold(self, array: np.ndarray) -> None:
        array.flags.writeable = False
        self.array = array
        self._known_type = ty.TensorType(array.shape, DType.of(array.dtype).name)

    @property
    def data(self) -> Any:
        """The tensor, as the runtime has it."""
        if self._tensor is None:
            self._tensor = array(self.array)
        return self._tensor


class Var(Expr):
    """A local variable. Two of one name are two variables."""

    def __init__(self, name_hint: str, type_annotation: Type | None = None, span: object = None) -> None:
        self.name_hint, self.type_annotation = str(name_hint), type_annotation
        if ty.is_known(type_annotation):
            self._known_type = type_annotation

    @property
    def vid(self) -> Var:
        return self

    def __repr__(self) -> str:
        return f"Var({self.name_hint}, ty={self.type_annotation})"


class GlobalVar(Expr):
    """A function of the module, by name. Two of one name are equal."""

    def __init__(self, name_hint: str, type_annot: Type | None = None) -> None:
        self.name_hint = str(name_hint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalVar) and other.name_hint == self.name_hint

    def __hash__(self) -> int:
        return hash(self.name_hint)

    def astext(self, show_meta_data: bool = True, annotate: object = None) -> str:
        return f"@{self.name_hint}"

    __str__ = astext

    def __repr__(self) -> str:
        return f"GlobalVar({self.name_hint})"


class Op(Expr):
    """An operator, as what a call calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._attributes: dict[str, Any] = {}  # what passes ask for: rules, and whether a compiler takes it

    def get_attr(self, attr_name: str) -> Any:
        """An attribute for passes, or None."""
        return self._attributes.get(attr_name)

    def has_attr(self, attr_name: str) -> bool:
        return attr_name in self._attributes

    def set_attr(self, attr_name: str, value: Any, plevel: int = 10) -> None:
        self._attributes[attr_name] = value

    def reset_attr(self, attr_name: str) -> None:
        self._attributes.pop(attr_name, None)

    @staticmethod
    def get(name: str) -> Op:
        """The operator of that name. Raises ValueError."""
        if name not in OPERATOR_CALLS:
            raise ValueError(f"Cannot find op {name}")
        return _OPS.setdefault(name, Op(name))

    def __repr__(self) -> str:
        return f"Op({self.name})"


_OPS: dict[str, Op] = {}


@dataclass(frozen=True)
class SourceName(Object):
    """The name of a text that programs are from."""

    name: str


@dataclass(frozen=True)
class Span(Object):
    """Where in a text an expression stands."""

    source_name: SourceName
    line: int
    end_line: int
    column: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.source_name.name if self.source_name else '?'}:{self.line}:{self.column}"


class Attrs(dict):
    """The attributes of a call, as attributes and as items."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no attribute {name!r}; there are {', '.join(self) or 'none'}") from None

    def get_int(self, key: str) -> int:
        return int(self[key])

    def get_str(self, key: str) -> str:
        return str(self[key])

    def get_int_tuple(self, key: str) -> tuple[int, ...]:
        return tuple(map(int, self[key]))


class Call(Expr):
    """A call of an operator, a global function, a constructor, or of a function value."""

    def __init__(
        self,
        op: Any,
        args: Sequence[Expr],
        attrs: Mapping[str, Any] | None = None,
        type_args: Sequence[Type] | None = None,
        span: object = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """`names` says which parameters of an operator the arguments are, where that is not the first ones."""
        self.op, self.args = op, tuple(map(as_expr, args))
        self.attrs = Attrs(attrs or {}) if isinstance(op, Op) else attrs
        self.type_args, self.names, self.span = tuple(type_args or ()), tuple(names or ()), span


class Tuple(Expr):
    def __init__(self, fields: Sequence[Expr], span: object = None) -> None:
        self.fields = tuple(map(as_expr, fields))

    def __getitem__(self, index: int) -> Expr:
        if not -len(self.fields) <= index < len(self.fields):
            raise IndexError("Tuple index out of range")
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def astype(self, dtype: str) -> Expr:
        raise TypeError("astype cannot be used on tuple")


class TupleGetItem(Expr):
    def __init__(self, tuple_value: Any, index: int, span: object = None) -> None:
        self.tuple_value, self.index = as_expr(tuple_value), index


class TupleWrapper:
    """A tuple of known size, before it is taken apart: what operators of several results give."""

    def __init__(self, tuple_value: Expr, size: int) -> None:
        self.tuple_value, self.size = tuple_value, size

    def astuple(self) -> Expr:
        return self.tuple_value

    def astext(self, show_meta_data: bool = True) -> str:
        return self.tuple_value.astext(show_meta_data)

    def __getitem__(self, index: int) -> TupleGetItem:
        if not 0 <= index < self.size:
            raise IndexError("Tuple index out of range")
        return TupleGetItem(self.tuple_value, index)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[TupleGetItem]:
        return (self[index] for index in range(self.size))

    def astype(self, dtype: str) -> Expr:
        raise TypeError("astype cannot be used on tuple")


class Let(Expr):
    def __init__(self, variable: Var, value: Any, body: Any, span: object = None) -> None:
        self.var, self.value, self.body = variable, as_expr(value), as_expr(body)


class If(Expr):
    def __init__(self, cond: Any, true_branch: Any, false_branch: Any, span: object = None) -> None:
        self.cond, self.true_branch, self.false_branch = as_expr(cond), as_expr(true_branch), as_expr(false_branch)


next_place = itertools.count(1).__next__  # of an expression that a text or a model has next


class Function(Expr):
    """A function: one of the module's, or a value."""

    def __init__(
        self,
        params: Sequence[Var],
        body: Any,
        ret_type: Type | None = None,
        type_params: Sequence[ty.TypeVar] | None = None,
        attrs: Mapping[str, Any] | None = None,
        span: object = None,
    ) -> None:
        self.params, self.body, self.ret_type = tuple(params), as_expr(body), ret_type
        for param in self.params:
            if not isinstance(param, Var):
                raise TypeError(f"Function: expected variables as parameters, got a {type(param).__name__}")
        self.type_params, self.attrs = tuple(type_params or ()), Attrs(attrs or {})

    _make: Callable[[], Function]
    source: Any = None  # Treadle's form, of one that a frontend read; see `raising.py`

    @classmethod
    def later(cls, source: Any, make: Callable[[], Function]) -> Function:
        """A function that is made when somebody asks for a part of it; until then it is its source alone."""
        function = cls.__new__(cls)
        function.source, function._make = source, make
        return function

    def __getattr__(self, name: str) -> Any:
        if name not in _FUNCTION_FIELDS or "_make" not in self.__dict__:
            raise AttributeError(f"a function of Relay has no attribute {name!r}")
        self.__dict__.update(vars(self.__dict__.pop("_make")()))
        return getattr(self, name)

    @property
    def checked_type(self) -> Type:
        """The type that inference found; of an imported function it is known. Raises ValueError before."""
        self.body  # noqa: B018
        return super().checked_type

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> Function:
        """The function with one attribute more, or several."""
        more = key if isinstance(key, Mapping) else {key: value}
        made = Function(self.params, self.body, self.ret_type, self.type_params, {**self.attrs, **more})
        made._checked_type = self._checked_type
        return made

    def without_attr(self, key: str) -> Function:
        rest = {name: value for name, value in self.attrs.items() if name != key}
        return Function(self.params, self.body, self.ret_type, self.type_params, rest)


_FUNCTION_FIELDS = ("params", "body", "ret_type", "type_params", "attrs")
BaseFunc = Function


class _OfReferences(type):
    """`RefCreate(x)` is a call of the operator `ref`, which `isinstance` knows again."""

    operator: str

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Call) and isinstance(instance.op, Op) and instance.op.name == cls.operator

    def __call__(cls, *args: Any) -> Any:
        return OPERATOR_CALLS[cls.operator](*args)


class RefCreate(metaclass=_OfReferences):
    operator = "ref"


class RefRead(metaclass=_OfReferences):
    operator = "ref_read"


class RefWrite(metaclass=_OfReferences):
    operator = "ref_write"


def as_expr(value: Any) -> Expr:
    """The value as an expression: tuples as Tuple, arrays as constants."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    if isinstance(value, (tuple, list)):
        return Tuple(value)
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "numpy"):
        return Constant(value)
    raise TypeError(f"expected an expression of Relay, got a {type(value).__name__}; see relay.const")


def var(
    name_hint: str,
    type_annotation: Type | str | None = None,
    shape: Sequence[Any] | None = None,
    dtype: str = "float32",
    span: object = None,
) -> Var:
    """A variable: of a type, of a scalar type by its element type's name, or of a shape and an element type."""
    if type_annotation is not None and shape is not None:
        raise ValueError("Can only specify either type_annotation or shape.")
    if shape is not None:
        type_annotation = ty.TensorType(tuple(shape), dtype)
    elif isinstance(type_annotation, str):
        type_annotation = ty.TensorType((), type_annotation)
    return Var(name_hint, type_annotation)


_DEFAULTS = {"float64": "float32", "int64": "int32"}


def const(value: Any, dtype: str | None = None, span: object = None) -> Constant:
    """A constant: of numbers, lists and NumPy's arrays, float64 becomes float32 and int64 int32 unless a type is given."""
    if not dtype and isinstance(value, (bool, int, float, list, tuple, np.ndarray, np.generic)):
        array = np.array(value)
        dtype = _DEFAULTS.get(array.dtype.name, array.dtype.name)
    elif hasattr(value, "numpy"):
        value = value.numpy()
    elif not isinstance(value, (bool, int, float, list, tuple, np.ndarray, np.generic)):
        raise ValueError("value has to be scalar or NDArray")
    return Constant(np.array(value, DType.of(ty.dtype_name(dtype)).numpy if dtype else None))


Atom = Union[Var, Constant, GlobalVar]
