"""Relay's operators: one table. An entry is a Python function whose signature is Relay's (argument names, order, defaults), and
whose body says the same with Treadle's operators.

    @operator("nn.leaky_relu")
    def leaky_relu(data: Tensor, alpha: float = 0.01) -> Expression:
        return op.leaky_relu(data, alpha=alpha)

The decorator registers the body, and gives what users call: a function that makes a `Call`. Arguments that are
expressions are the call's arguments, all others its attributes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from ....compiler import ir
from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....compiler.operators import TABLE as OPERATORS
from ....formats import dims, types
from ....formats.dims import Dim, SymbolicDim
from ....formats.dtypes import DType
from ....formats.messages.errors import InferenceError
from ..expr import OPERATOR_CALLS, Call, Expr, Op, Tuple, TupleWrapper, as_expr
from ..ty import Any as AnyDim

Tensor = Expression
Tensors = Sequence[Expression]
Results = Union[int, Callable[[dict[str, Any]], int], None]


@dataclass(frozen=True)
class Row:
    """An operator: its name, its signature, and what it is here."""

    name: str
    function: Callable[..., Expression]
    signature: inspect.Signature
    results: Results  # of several: how many, perhaps by the arguments; None: one

    def bound(self, call: Call, args: Sequence[Expression]) -> dict[str, Any]:
        """The arguments by name, attributes among them."""
        names = call.names or tuple(self.signature.parameters)[: len(args)]
        return {**(call.attrs or {}), **dict(zip(names, args, strict=True))}

    def __call__(self, call: Call, args: Sequence[Expression]) -> Expression:
        """The call in Treadle's operators. Raises InferenceError."""
        bound = self.bound(call, args)
        for name, value in bound.items():
            if str(self.signature.parameters[name].annotation) == "Tensors" and isinstance(value, Expression):
                bound[name] = list(fields_of(value))
        try:
            return self.function(**bound)
        except InferenceError as error:
            raise InferenceError(f"{self.name}: {error.message}", function=error.function, node=error.node) from None


TABLE: dict[str, Row] = {}


def operator(
    name: str, results: Results = None, summary: str = ""
) -> Callable[[Callable[..., Expression]], Callable[..., Any]]:
    """Registers an operator; see above. With a `summary`, its docstring, the function is made, and gets the operator's name."""

    def register(function: Callable[..., Expression]) -> Callable[..., Any]:
        if summary:
            function.__name__ = function.__qualname__ = name.rpartition(".")[2]
            function.__doc__ = summary
        row = Row(name, function, inspect.signature(function), results)
        TABLE[name] = row

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return _call(row, args, kwargs)

        OPERATOR_CALLS[name] = call
        return call

    return register


def operators_in(names: Mapping[str, Any]) -> list[str]:
    """Those of a module's public names that are operators."""
    known = set(map(id, OPERATOR_CALLS.values()))
    return [name for name, value in names.items() if not name.startswith("_") and id(value) in known]


def _call(row: Row, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    bound = row.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    operands, names, attributes = [], [], {}
    for name, value in bound.arguments.items():
        annotation = str(row.signature.parameters[name].annotation)
        value = Tuple(list(value)) if annotation == "Tensors" and isinstance(value, TupleWrapper) else value
        if isinstance(value, (Expr, TupleWrapper)) or (annotation.startswith("Tensor") and value is not None):
            operands.append(as_expr(value))
            names.append(name)
        elif isinstance(value, (list, tuple)) and any(isinstance(each, Expr) for each in value):
            raise TypeError(f"{row.name}: {name} must be one expression or a list of numbers; see relay.stack")
        else:
            attributes[name] = value
    made = Call(Op.get(row.name), operands, attributes, names=names)
    count = row.results(bound.arguments) if callable(row.results) else row.results
    return made if count is None else TupleWrapper(made, count)


# ---- operators under Treadle's own names ----


class Native(Row):
    """An operator of Treadle's that Relay lacks: `treadle.gelu`, with the attributes of `compiler/operators`, by place."""

    def bound(self, call: Call, args: Sequence[Expression]) -> dict[str, Any]:
        return dict(call.attrs or {})

    def __call__(self, call: Call, args: Sequence[Expression]) -> Expression:
        return self.function(*args, **(call.attrs or {}))


def native_call(name: str, args: Sequence[Any], attributes: Mapping[str, Any]) -> Call:
    """A call of an operator of Treadle's."""
    return Call(Op.get(PREFIX + name), args, attributes)


def _matched(data: Expression, shape: Sequence[Any]) -> Expression:
    sizes: list[Any] = [types.UNKNOWN if isinstance(dim, AnyDim) else dim for dim in shape]
    return programs.match_shape(data, sizes)


def _natives() -> dict[str, Row]:
    functions: dict[str, Any] = {name: functools.partial(programs.Expression._operator, name) for name in OPERATORS}
    functions["match_shape"] = _matched
    functions["import"] = lambda *args, function, signature: programs.import_(function, signature)(*args)
    return {PREFIX + name: Native(PREFIX + name, each, inspect.Signature(), None) for name, each in functions.items()}


PREFIX = "treadle."
NATIVE = _natives()
ROWS: Mapping[str, Row] = ChainMap(TABLE, NATIVE)
OPERATOR_CALLS |= {
    name: functools.partial(
        lambda name, /, *args, **attributes: native_call(name, args, attributes), name[len(PREFIX) :]
    )
    for name in NATIVE
}


# ---- calls as text has them ----


def call_operator(name: str, args: Sequence[Expr], attributes: dict[str, Any]) -> Expr:
    """A call of an operator: arguments by place, attributes by name. Raises TypeError for what does not fit."""
    if name in NATIVE:
        return OPERATOR_CALLS[name](*args, **attributes)
    row = TABLE[name]
    for key, value in attributes.items():
        if isinstance(value, tuple) and key in row.signature.parameters:
            attributes[key] = Said(value) if value == row.signature.parameters[key].default else value
    attributes = {**_OMITTED.get(name, {}), **attributes}
    names = _places(row, attributes)
    if len(args) > len(names):
        raise TypeError(f"expected at most {len(names)} arguments, got {len(args)}")
    return as_expr(_call(row, (), {**attributes, **dict(zip(names, args))}))  # noqa: B905


# What TVM's text leaves out: defaults that its Python functions do not have.
_OMITTED: dict[str, dict[str, Any]] = {
    "concatenate": {"axis": 0},
    "stack": {"axis": 0},
    "repeat": {"axis": 0},
    "gather": {"axis": 0},
    "one_hot": {"axis": -1},
}

# What TVM's text has always: attributes that have a default in its Python functions alone.
ALWAYS_SHOWN = {
    "arange": ("dtype",),
    "full": ("shape",),
    "nn.dense": ("units",),
    "nn.l2_normalize": ("axis",),
    "nn.matmul": ("units",),
    "nn.nll_loss": ("ignore_index",),
    "nn.upsampling": ("scale_h", "scale_w"),
    "nn.upsampling3d": ("scale_d", "scale_h", "scale_w"),
    "slice_like": ("axes",),
    "strided_slice": ("strides", "axes"),
    "topk": ("k",),
    "transpose": ("axes",),
    **{f"nn.{kind}_pool{count}d": ("pool_size",) for kind in ("avg", "max") for count in (1, 2, 3)},
}


def operands_by_name(call: Call, attributes: Sequence[str]) -> dict[str, Expr]:
    """The operands that are not arguments by place where these attributes are told by name."""
    assert isinstance(call.op, Op)
    if call.op.name in NATIVE:
        return {}
    row = TABLE[call.op.name]
    names = list(call.names or tuple(row.signature.parameters)[: len(call.args)])
    operands = dict(zip(names, call.args, strict=True))
    named: dict[str, Expr] = {}
    while names != (places := _places(row, [*attributes, *named])[: len(names)]):
        wrong = next(name for place, name in enumerate(names) if places[place : place + 1] != [name])
        names.remove(wrong)
        named[wrong] = operands[wrong]
    return named


def _places(row: Row, given: Iterable[str]) -> list[str]:
    """The parameters that arguments are in order: tensors, then what may be one."""
    given = set(given)
    free = [each for each in row.signature.parameters.values() if each.name not in given]
    tensors = [each.name for each in free if str(each.annotation).startswith("Tensor")]
    return [*tensors, *(each.name for each in free if str(each.annotation) == "Any")]


# ---- for the bodies ----


class Said(tuple):
    """Numbers that a text or a model says, though they are the default."""


def said(row: str, **values: Any) -> dict[str, Any]:
    """The attributes of a call that are not the defaults of its row, or are said."""
    defaults = TABLE[row].signature.parameters
    return {name: each for name, each in values.items() if isinstance(each, Said) or each != defaults[name].default}


def fields_of(value: Expression) -> Sequence[Expression]:
    """The fields of a tuple: what it is made of, where that is known."""
    is_made = value.name == "tuple" and value.fields is not None and len(value.operands) == len(value.fields)
    return value.operands if is_made else list(value)  # type: ignore[return-value]


def as_places(indices: Expression) -> Expression:
    """Indices as Treadle's operators have them."""
    return indices if type_of(indices).dtype is DType.int64 else op.cast(indices, dtype="int64")


def type_of(x: Expression) -> types.TensorType:
    """The type of a tensor. Raises InferenceError where only inference would know it."""
    if not isinstance(x.type, types.TensorType):
        raise InferenceError("the operand's type must be known here; give the variables that it comes from types")
    return x.type


def rank_of(x: Expression) -> int:
    return type_of(x).rank


def axis_of(x: Expression, axis: int, extra: int = 0) -> int:
    """The axis, counted from the front. Raises InferenceError."""
    rank = rank_of(x) + extra
    if not -rank <= axis < rank:
        raise InferenceError(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


SIZE = "size_"  # what the names of dimensions begin with that lowering names
_NUMBERS: ContextVar[Iterator[int]] = ContextVar("numbers")


@contextlib.contextmanager
def naming_dims() -> Iterator[None]:
    """Within this, `fresh_dim` counts from 1: a program's names are the same each time."""
    token = _NUMBERS.set(itertools.count(1))
    try:
        yield
    finally:
        _NUMBERS.reset(token)


def fresh_dim() -> SymbolicDim:
    """A symbolic dimension that nothing else in the program has."""
    made = dims.variable(f"{SIZE}{next(_NUMBERS.get())}")
    assert isinstance(made, SymbolicDim)
    return made


def known(what: str, *sizes: object) -> tuple[int, ...]:
    """The sizes, which must be numbers. Raises NotImplementedError, which says what must be known."""
    numbers = tuple(size for size in sizes if isinstance(size, int))
    if len(numbers) != len(sizes):
        raise NotImplementedError(f"{what} must be known")
    return numbers


def minus(a: Dim, b: Dim) -> Dim:
    """a - b."""
    return dims.add(a, dims.multiply(b, -1))


def shape_of(x: Expression) -> tuple[Expression, tuple[Dim, ...]]:
    """The tensor and its shape, dimensions that were not known named."""
    shape = type_of(x).shape
    if not any(dim is types.UNKNOWN for dim in shape):
        return x, shape  # type: ignore[return-value]
    named: tuple[Any, ...] = tuple(fresh_dim() if dim is types.UNKNOWN else dim for dim in shape)
    return programs.match_shape(x, named), named


def behind(operator_name: str, x: Expression, waits: Sequence[Expression], **attributes: Any) -> Expression:
    """An operator on `x` whose attributes use dimensions that `waits` bind: it comes behind them."""
    operator_ = OPERATORS[operator_name]
    canonical = operator_.canonical(attributes)
    result = operator_.result_types([type_of(x)], canonical)[0]
    return Expression(
        lambda atoms, _: ir.OperatorCall(operator_name, atoms[:1], canonical),
        (x, *waits),
        type=result,
        name=operator_name,
    )


def cut_to(data: Expression, lengths: Mapping[int, Dim], waits: Sequence[Expression]) -> Expression:
    """The beginning of the tensor, of these lengths by axis, which `waits` bind; that it is as long is checked."""
    data, shape = shape_of(data)
    axes = [axis for axis, length in lengths.items() if length != shape[axis]]
    if not axes:
        return data
    ends = [lengths[axis] for axis in axes]
    part = behind("slice", data, waits, starts=[0] * len(axes), ends=ends, axes=axes, steps=[1] * len(axes))
    whole = tuple(lengths.get(axis, length) for axis, length in enumerate(shape))
    return part if type_of(part).shape == whole else programs.match_shape(part, whole)


def as_dims(value: Any) -> tuple[Any, ...] | None:
    """Numbers from a list, an array or a constant expression; None if known only at run time."""
    if isinstance(value, Expression):
        array = getattr(value.atom, "value", None)
        return None if array is None else tuple(int(number) for number in np.ravel(array))
    if isinstance(value, (int, SymbolicDim)):
        return (value,)
    return tuple(dim if isinstance(dim, SymbolicDim) else int(dim) for dim in np.ravel(np.array(value, object)))


def pair(value: Any, count: int) -> tuple[int, ...]:
    """One number for each axis."""
    if isinstance(value, (int, np.integer)):
        return (int(value),) * count
    numbers = tuple(map(int, value))
    return numbers * count if len(numbers) == 1 else numbers


def like(x: Expression, value: float) -> Expression:
    """A number as a scalar of the tensor's element type."""
    return programs.constant(value, type_of(x).dtype)


def scalar(value: Any, dtype: DType) -> Expression:
    return value if isinstance(value, Expression) else programs.constant(value, dtype)


def get(name: str) -> Op:
    """The operator of that name. Raises ValueError."""
    return Op.get(name)


# ---- what passes ask operators for ----


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Gives an operator an attribute, as a decorator too. Raises ValueError for an unknown operator."""

    def register(rule: Any) -> Any:
        Op.get(op_name).set_attr(attr_key, rule)
        return rule

    return register if value is None else register(value)


def _registers(attr_key: str, what: str) -> Callable[..., Any]:
    def register(op_name: str, rule: Any = None, level: int = 10) -> Any:
        return register_op_attr(op_name, attr_key, rule, level)

    register.__doc__ = f"Gives an operator its rule for {what}; as a decorator too."
    return register


register_alter_op_layout = _registers(
    "FTVMAlterOpLayout", "AlterOpLayout: `(attrs, operands, types) → expression or None`"
)
register_convert_op_layout = _registers(
    "FTVMConvertOpLayout", "ConvertLayout: `(attrs, operands, types, layouts) → expression or None`"
)
register_gradient = _registers("FPrimalGradient", "gradient: `(call, gradient of the result) → of the operands`")
register_legalize = _registers("FTVMLegalize", "Legalize: `(attrs, operands, types) → expression or None`")
register_fake_quantization_to_integer = _registers(
    "FTVMFakeQuantizationToInteger", "FakeQuantizationToInteger: `(call, types) → [expression, type]`"
)
register_mixed_precision_conversion = _registers(
    "FTVMMixedPrecisionConversionType", "ToMixedPrecision: `(call, type) → [category, accumulation type, result type]`"
)
