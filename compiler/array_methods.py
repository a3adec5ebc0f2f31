"""What those who know NumPy expect of an expression: an array's attributes and methods, and NumPy's functions of it.

Nothing here computes: each makes operators of the table, by `_operator`, which the expressions of `builder.py` provide. What
NumPy has and no operator does raises UnsupportedOperatorError; nothing becomes an array of objects in silence.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..formats.dtypes import DType
from ..formats.errors import InferenceError, UnsupportedOperatorError
from ..formats.types import ShapeDim, TensorType, Type

UFUNCS = {  # NumPy's name → the operator's, where they differ; others that have the name of an operator are that one
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctanh": "atanh",
    "fabs": "abs",
    "left_shift": "shift_left",
    "positive": "identity",
    "power": "pow",
    "right_shift": "shift_right",
    "rint": "round",
}
SAME_UFUNCS = frozenset(
    [
        "add",
        "ceil",
        "cos",
        "cosh",
        "divide",
        "equal",
        "exp",
        "expm1",
        "floor",
        "floor_divide",
        "fmod",
        "greater",
        "greater_equal",
        "isfinite",
        "isinf",
        "isnan",
        "less",
        "less_equal",
        "log",
        "log1p",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "matmul",
        "maximum",
        "minimum",
        "multiply",
        "negative",
        "not_equal",
        "reciprocal",
        "remainder",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "subtract",
        "tan",
        "tanh",
        "trunc",
    ]
)
_BITS = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "invert": "logical_not",
}


class ArrayMethods:
    """An expression of a tensor, seen as an array. Attributes are None where inference alone will know the type."""

    type: Type | None

    def _operator(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """An operator of the table on operands."""
        raise NotImplementedError

    # ---- what it is ----

    @property
    def dtype(self) -> DType | None:
        """The element type, where it is known."""
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> tuple[ShapeDim, ...] | None:
        """The sizes: integers, or symbolic dimensions, with which one can compute, and which `var` and attributes take."""
        return self.type.shape if isinstance(self.type, TensorType) else None

    @property
    def ndim(self) -> int | None:
        """The number of axes."""
        return self.type.rank if isinstance(self.type, TensorType) else None

    def _rank(self, asking: str) -> int:
        if not isinstance(self.type, TensorType):
            kind = "not known yet" if self.type is None else str(self.type)
            raise InferenceError(f"{asking} asks for the number of axes of a tensor; the type is {kind}")
        return self.type.rank

    # ---- elements ----

    def astype(self, dtype: Any) -> Any:
        """The elements, converted."""
        return self._operator("cast", self, dtype=dtype)

    def round(self) -> Any:
        """The nearest integers, halves to the even one."""
        return self._operator("round", self)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """The elements, none below `min` or above `max`: numbers, or tensors."""
        if all(bound is None or isinstance(bound, (bool, int, float)) for bound in (min, max)):
            given = {name: bound for name, bound in (("min", min), ("max", max)) if bound is not None}
            return self._operator("clip", self, **given)
        lower = self if min is None else self._operator("maximum", self, min)
        return lower if max is None else self._operator("minimum", lower, max)

    # ---- along axes ----

    def _reduced(self, name: str, axis: Any, keepdims: bool) -> Any:
        axes = None if axis is None else axis if isinstance(axis, (tuple, list)) else (operator.index(axis),)
        return self._operator(name, self, axes=axes, keepdims=keepdims)

    def sum(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """The sum over an axis, several, or all; of the same element type, unlike NumPy's of short integers."""
        return self._reduced("sum", axis, keepdims)

    def prod(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """The product; of the same element type, unlike NumPy's of short integers."""
        return self._reduced("prod", axis, keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        return self._reduced("mean", axis, keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        return self._reduced("max", axis, keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        return self._reduced("min", axis, keepdims)

    def all(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        return self._reduced("all", axis, keepdims)

    def any(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        return self._reduced("any", axis, keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Where the largest element lies along an axis; without one, among all in a row."""
        return self._placed("argmax", axis, keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Any:
        return self._placed("argmin", axis, keepdims)

    def _placed(self, name: str, axis: int | None, keepdims: bool) -> Any:
        if axis is None:
            return self._operator(name, self.reshape(-1), axis=0, keepdims=keepdims)
        return self._operator(name, self, axis=operator.index(axis), keepdims=keepdims)

    def cumsum(self, axis: int) -> Any:
        return self._operator("cumulative_sum", self, axis=axis)

    # ---- shapes ----

    def reshape(self, *shape: Any) -> Any:
        """The same elements in another shape, of which one size may be -1."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self._operator("reshape", self, shape=tuple(sizes))

    def ravel(self) -> Any:
        return self.reshape(-1)

    flatten = ravel

    def transpose(self, *axes: Any) -> Any:
        """The axes in another order, without one in the reverse order."""
        order = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
        return self._operator("permute_dims", self, axes=tuple(order) if order else None)

    @property
    def T(self) -> Any:
        return self._operator("permute_dims", self)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        order = list(range(self._rank("swapaxes")))
        order[axis1], order[axis2] = order[axis2], order[axis1]
        return self.transpose(order)

    def squeeze(self, axis: Any = None) -> Any:
        """Without axes of size 1: these, or all that are known to be."""
        if axis is None:
            self._rank("squeeze")
            axis = [at for at, size in enumerate(self.shape or ()) if isinstance(size, int) and size == 1]
        return self._operator("squeeze", self, axes=axis if isinstance(axis, (tuple, list)) else (axis,))

    def take(self, indices: Any, axis: int = 0) -> Any:
        return self._operator("take", self, indices, axis=axis)

    # ---- NumPy's functions ----

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise InferenceError(
            "an expression has no elements while the program is built; compile it, and call what comes out"
        )

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = function.__name__
        if method != "__call__" or options:
            how = f"np.{name}.{method}" if method != "__call__" else f"np.{name} with {', '.join(options)}"
            raise UnsupportedOperatorError(
                f"{how} has no operator for expressions", operators=[(f"np.{name}", "", "no operator")]
            )
        if name in _BITS:
            return bitwise(self._operator, name, *inputs)
        if name not in UFUNCS and name not in SAME_UFUNCS:
            raise _none(name)
        return self._operator(UFUNCS.get(name, name), *inputs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        made = FUNCTIONS.get(function)
        if made is None:
            raise _none(getattr(function, "__name__", str(function)))
        try:
            return made(self._operator, *args, **kwargs)
        except TypeError as error:
            if isinstance(error, InferenceError):
                raise
            raise InferenceError(f"np.{function.__name__} of expressions: {error}") from None


def bitwise(apply: Callable[..., Any], name: str, *operands: Any) -> Any:
    """`&`, `|`, `^`, `~`: of integers, of their bits, else of truth values."""
    dtypes = [operand.dtype for operand in operands if isinstance(getattr(operand, "dtype", None), (DType, np.dtype))]
    integers = any(DType.of(dtype).is_integer for dtype in dtypes)
    return apply("bitwise_invert" if integers and name == "invert" else name if integers else _BITS[name], *operands)


def _none(name: str) -> UnsupportedOperatorError:
    message = f"np.{name} has no operator for expressions; dir(treadle.op) lists what there is"
    return UnsupportedOperatorError(message, operators=[(f"np.{name}", "", "no operator")])


def _method(name: str) -> Callable[..., Any]:
    def call(apply: Callable[..., Any], x: Any, *args: Any, **options: Any) -> Any:
        return getattr(_expression(apply, x), name)(*args, **options)

    return call


def _expression(apply: Callable[..., Any], value: Any) -> Any:
    return value if isinstance(value, ArrayMethods) else apply("identity", value)


def _where(apply: Callable[..., Any], condition: Any, x: Any, y: Any) -> Any:
    return apply("where", condition, x, y)


def _concatenate(apply: Callable[..., Any], arrays: Sequence[Any], axis: int | None = 0) -> Any:
    if axis is None:
        return apply("concat", *(_expression(apply, array).reshape(-1) for array in arrays), axis=0)
    return apply("concat", *arrays, axis=axis)


def _stack(apply: Callable[..., Any], arrays: Sequence[Any], axis: int = 0) -> Any:
    return apply("stack", *arrays, axis=axis)


def _expand_dims(apply: Callable[..., Any], a: Any, axis: Any) -> Any:
    return apply("expand_dims", a, axes=axis if isinstance(axis, (tuple, list)) else (axis,))


def _broadcast_to(apply: Callable[..., Any], array: Any, shape: Any) -> Any:
    return apply("broadcast_to", array, shape=shape if isinstance(shape, (tuple, list)) else (shape,))


def _take_along_axis(apply: Callable[..., Any], arr: Any, indices: Any, axis: int = -1) -> Any:
    return apply("take_along_axis", arr, indices, axis=axis)


def _dot(apply: Callable[..., Any], a: Any, b: Any) -> Any:
    a, b = _expression(apply, a), _expression(apply, b)
    ranks = a._rank("np.dot"), b._rank("np.dot")
    if 0 in ranks:
        return apply("multiply", a, b)
    if max(ranks) > 2:
        raise UnsupportedOperatorError(
            "np.dot of more than two axes has no operator; use np.matmul", operators=[("np.dot", "", "no operator")]
        )
    return apply("matmul", a, b)


def _tile(apply: Callable[..., Any], A: Any, reps: Any) -> Any:
    return apply("tile", A, repetitions=reps if isinstance(reps, (tuple, list)) else (reps,))


def _var(apply: Callable[..., Any], a: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
    a = _expression(apply, a)
    apart = a - a.mean(axis=axis, keepdims=True)
    squares = apart * apart
    if ddof == 0:
        return squares.mean(axis=axis, keepdims=keepdims)
    rank = a._rank("np.var")
    axes = range(rank) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    sizes = [a.shape[each] for each in axes]
    if not all(isinstance(size, int) for size in sizes):
        raise InferenceError(f"np.var: ddof={ddof!r} needs axes whose sizes are known; they are {sizes}")
    return squares.sum(axis=axis, keepdims=keepdims) / float(math.prod(sizes) - ddof)


def _std(apply: Callable[..., Any], a: Any, axis: Any = None, **options: Any) -> Any:
    return apply("sqrt", _var(apply, a, axis, **options))


def _split(apply: Callable[..., Any], ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """By a number of equal parts, or by the places where parts begin."""
    x = _expression(apply, ary)
    rank = x._rank("np.split")
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise InferenceError(f"np.split: expected an axis from {-rank} to {rank - 1}, but {axis!r} came")
    size = x.shape[axis]
    if not isinstance(size, int):
        raise InferenceError(f"np.split: axis {axis} is {size}, whose size is not known; x[:2], x[2:] take parts of it")
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count < 1 or size % count:
            raise InferenceError(f"np.split: axis {axis} of {size} elements has no {count} equal parts")
        places = list(range(size // count, size, size // count)) if size else [0] * (count - 1)
    else:
        places = [int(place) for place in indices_or_sections]
    bounds = [0, *places, size]
    before = (slice(None),) * (axis % rank)
    return [x[(*before, slice(*pair))] for pair in itertools.pairwise(bounds)]


def _pad(apply: Callable[..., Any], array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Any:
    x = _expression(apply, array)
    modes = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}
    if mode not in modes or options.keys() - {"constant_values"}:
        raise InferenceError(
            f"np.pad: mode {mode!r} with {sorted(options)}: expected {', '.join(modes)}, and constant_values"
        )
    value = options.get("constant_values", 0)
    if not isinstance(value, (int, float)):
        raise InferenceError(f"np.pad: constant_values={value!r}: expected one number")
    try:
        widths = np.broadcast_to(np.asarray(pad_width), (x._rank("np.pad"), 2))
    except ValueError:
        raise InferenceError(
            f"np.pad: pad_width={pad_width!r}: expected one number, a pair, or a pair for each axis"
        ) from None
    if widths.dtype.kind not in "iu" or (widths < 0).any():
        raise InferenceError(f"np.pad: pad_width={pad_width!r}: expected whole numbers from 0 on")
    return apply("pad", x, pads=[int(each) for each in widths.T.ravel()], mode=mode, value=float(value))


def _shape(_: Callable[..., Any], a: Any) -> Any:
    return a.shape


def _ndim(_: Callable[..., Any], a: Any) -> Any:
    return a.ndim


_METHODS = [
    "sum",
    "prod",
    "mean",
    "max",
    "min",
    "all",
    "any",
    "argmax",
    "argmin",
    "cumsum",
    "round",
    "clip",
    "reshape",
    "ravel",
    "transpose",
    "swapaxes",
    "squeeze",
    "take",
]
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {getattr(np, name): _method(name) for name in _METHODS}
FUNCTIONS |= {
    np.where: _where,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.expand_dims: _expand_dims,
    np.broadcast_to: _broadcast_to,
    np.take_along_axis: _take_along_axis,
    np.dot: _dot,
    np.tile: _tile,
    np.var: _var,
    np.std: _std,
    np.split: _split,
    np.pad: _pad,
    np.shape: _shape,
    np.ndim: _ndim,
}
