"""NumPy's interface of an expression: an array's attributes and methods, and NumPy's functions of it.

Nothing here computes: each makes operators of the table, by `_operator`, which `expressions.py` provides. What
NumPy has and no operator does raises UnsupportedOperatorError; nothing becomes an array of objects in silence.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...formats import dims
from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.messages.calling import Suggesting, public_class
from ...formats.messages.elsewhere import elsewhere
from ...formats.messages.errors import InferenceError, UnsupportedOperatorError
from ...formats.types import UNKNOWN, ShapeDim, TensorType, TupleType, Type
from .einsum import einsum
from .operator_functions import is_operator

if TYPE_CHECKING:
    from typing_extensions import Self

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
_BITS = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "invert": "logical_not",
}


_NO_ELEMENTS = "an expression has no elements while the program is built; compile it, and call what comes out"
_OF_ELEMENTS = frozenset(
    ["item", "numpy", "tolist", "tobytes", "data", "flat", "copy", "sort", "argsort", "fill", "tofile"]
)
_REDUCED = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}


@public_class
class ArrayMethods(Suggesting):
    """An expression of a tensor, seen as an array. Attributes are None where inference alone will know the type."""

    type: Type | None
    name: str

    def _operator(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """An operator of the table on operands."""
        raise NotImplementedError

    def _of_shape(self, shape: tuple[Dim, ...]) -> Any:
        """The same, its shape checked when the program runs."""
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

    @property
    def size(self) -> ShapeDim | None:
        """The number of elements: an integer, or a symbolic dimension."""
        return (
            functools.reduce(operator.mul, self.shape, 1)
            if self.shape is not None and UNKNOWN not in self.shape
            else None
        )

    def __len__(self) -> int:
        if isinstance(self.type, TupleType):
            return len(self.type.fields)
        if not self._rank("len()"):
            raise InferenceError("len() of a tensor without axes")
        size = (self.shape or ())[0]
        if not isinstance(size, int):
            raise InferenceError(
                f"len(): axis 0 is {size}, whose size is known only at run time; shape[0] is that size, as a dimension"
            )
        return size

    def _no_number(self, *_: Any) -> Any:
        raise InferenceError(_NO_ELEMENTS)

    __float__ = __int__ = __index__ = __complex__ = _no_number

    def __format__(self, form: str) -> str:
        if form:
            raise InferenceError(f"the format {form!r} is for numbers: {_NO_ELEMENTS}")
        return str(self)

    def __round__(self, digits: int | None = None) -> Any:
        if digits:
            raise UnsupportedOperatorError(
                "round to digits has no operator for expressions", operators=[("round", "", "no operator")]
            )
        return self.round()

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def _instead_of(self, name: str) -> str:
        if name in _OF_ELEMENTS:
            return f": {_NO_ELEMENTS}"
        if is_operator(name):
            return f"; op.{name}(x) is the operator"
        if meant := elsewhere("Expression", name) or elsewhere("op", name):
            return meant
        if hasattr(np.ndarray, name):
            return ", which arrays have; dir(treadle.op) lists the operators"
        return super()._instead_of(name)

    def _rank(self, asking: str) -> int:
        if not isinstance(self.type, TensorType):
            kind = "not known yet" if self.type is None else str(self.type)
            raise InferenceError(f"{asking} asks for the number of axes of a tensor; the type is {kind}")
        return self.type.rank

    # ---- elements ----

    def astype(self, dtype: Any) -> Self:
        """The elements, converted."""
        return self._operator("cast", self, dtype=dtype)

    def round(self) -> Self:
        """The nearest integers, halves to the even one."""
        return self._operator("round", self)

    def clip(self, min: Any = None, max: Any = None) -> Self:
        """The elements, none below `min` or above `max`: numbers, or tensors."""
        if all(bound is None or isinstance(bound, (bool, int, float)) for bound in (min, max)):
            given = {name: bound for name, bound in (("min", min), ("max", max)) if bound is not None}
            return self._operator("clip", self, **given)
        lower: Any = self if min is None else self._operator("maximum", self, min)
        return lower if max is None else self._operator("minimum", lower, max)

    # ---- along axes ----

    def _reduced(self, name: str, axis: Any, keepdims: bool) -> Any:
        several = axis if isinstance(axis, (tuple, list)) else (axis,)
        axes = None if axis is None else tuple(_whole(name, each) for each in several)
        return self._operator(name, self, axes=axes, keepdims=keepdims)

    def sum(self, axis: Any = None, *, keepdims: bool = False) -> Self:
        """The sum over an axis, several, or all; of the same element type, unlike NumPy's of short integers."""
        return self._reduced("sum", axis, keepdims)

    def prod(self, axis: Any = None, *, keepdims: bool = False) -> Self:
        """The product; of the same element type, unlike NumPy's of short integers."""
        return self._reduced("prod", axis, keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> Self:
        return self._reduced("mean", axis, keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Self:
        return self._reduced("max", axis, keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> Self:
        return self._reduced("min", axis, keepdims)

    def all(self, axis: Any = None, *, keepdims: bool = False) -> Self:
        return self._reduced("all", axis, keepdims)

    def any(self, axis: Any = None, *, keepdims: bool = False) -> Self:
        return self._reduced("any", axis, keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        """Where the largest element lies along an axis; without one, among all in a row."""
        return self._placed("argmax", axis, keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Self:
        return self._placed("argmin", axis, keepdims)

    def _placed(self, name: str, axis: int | None, keepdims: bool) -> Any:
        if axis is None:
            return self._operator(name, self.reshape(-1), axis=0, keepdims=keepdims)
        return self._operator(name, self, axis=_whole(name, axis), keepdims=keepdims)

    def var(self, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Self:
        """The variance; of `ddof`, the sizes of the axes must be known."""
        return _var(self._operator, self, axis, ddof=ddof, keepdims=keepdims)

    def std(self, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Self:
        """The standard deviation, as `var`."""
        return _std(self._operator, self, axis, ddof=ddof, keepdims=keepdims)

    def cumsum(self, axis: int | None = None) -> Self:
        """Sums from the first element on along an axis; without one, of all in a row."""
        if axis is None:
            return self._operator("cumulative_sum", self.reshape(-1), axis=0)
        return self._operator("cumulative_sum", self, axis=axis)

    def repeat(self, repeats: int, axis: int | None = None) -> Self:
        """Each element, or each part along an axis, several times in a row."""
        if axis is None:
            return self.reshape(-1).repeat(repeats, 0)
        rank = self._rank("repeat")
        if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 0:
            raise InferenceError(f"repeat: expected a number of repeats from 0 on, got {repeats!r}")
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise InferenceError(f"repeat: expected an axis from {-rank} to {rank - 1}, got {axis!r}")
        before, after = (self.shape or ())[: axis % rank], (self.shape or ())[axis % rank + 1 :]
        own = (self.shape or ())[axis % rank]
        if own is UNKNOWN:
            raise InferenceError(f"repeat: the size of axis {axis} is not known; treadle.match_shape names it")
        times: Any = own
        apart = self._operator("expand_dims", self, axes=(axis % rank + 1,))
        wide = self._operator("tile", apart, repetitions=(*[1] * (axis % rank + 1), repeats, *[1] * len(after)))
        return self._operator("reshape", wide, shape=(*before, times * repeats, *after))

    # ---- shapes ----

    def reshape(self, *shape: Any) -> Self:
        """The same elements in another shape, of which one size may be -1."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self._operator("reshape", self, shape=tuple(sizes))

    def ravel(self) -> Self:
        return self.reshape(-1)

    flatten = ravel

    def transpose(self, *axes: Any) -> Self:
        """The axes in another order, without one in the reverse order."""
        order = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
        return self._operator("permute_dims", self, axes=tuple(order) if order else None)

    @property
    def T(self) -> Self:
        return self._operator("permute_dims", self)

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        rank = self._rank("swapaxes")
        order = list(range(rank))
        one, other = _axis("swapaxes", axis1, rank), _axis("swapaxes", axis2, rank)
        order[one], order[other] = other, one
        return self.transpose(order)

    def squeeze(self, axis: Any = None) -> Self:
        """Without axes of size 1: these, or all that are known to be."""
        if axis is None:
            self._rank("squeeze")
            axis = [at for at, size in enumerate(self.shape or ()) if isinstance(size, int) and size == 1]
        return self._operator("squeeze", self, axes=axis if isinstance(axis, (tuple, list)) else (axis,))

    def take(self, indices: Any, axis: int = 0) -> Self:
        return self._operator("take", self, indices, axis=axis)

    # ---- NumPy's functions ----

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise InferenceError(_NO_ELEMENTS)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = function.__name__
        if method == "reduce" and name in _REDUCED and not options.keys() - {"axis", "keepdims"}:
            return self._reduced(_REDUCED[name], options.get("axis", 0), options.get("keepdims", False))
        if method != "__call__" or options:
            how = f"np.{name}.{method}" if method != "__call__" else f"np.{name} with {', '.join(options)}"
            raise UnsupportedOperatorError(
                f"{how} has no operator for expressions", operators=[(f"np.{name}", "", "no operator")]
            )
        if name in _BITS:
            return bitwise(self._operator, name, *inputs)
        if name in _COMPOSED:
            return _COMPOSED[name](*(_expression(self._operator, each) for each in inputs))
        if name not in UFUNCS and not (is_operator(name) and getattr(np, name, None) is function):
            raise _none(name)
        return self._operator(UFUNCS.get(name, name), *inputs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        made = FUNCTIONS.get(function)
        if made is None:
            module = getattr(function, "__module__", "numpy").replace("numpy", "np", 1)
            raise _none(getattr(function, "__name__", str(function)), module)
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


def _none(name: str, module: str = "np") -> UnsupportedOperatorError:
    message = f"{module}.{name} has no operator for expressions; dir(treadle.op) lists what there is"
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
    x, counts = _expression(apply, A), tuple(reps) if isinstance(reps, (tuple, list)) else (reps,)
    rank = x._rank("np.tile")
    if len(counts) > rank:
        x = x.reshape((*[1] * (len(counts) - rank), *x.shape))
    return apply("tile", x, repetitions=(*[1] * (rank - len(counts)), *counts))


def _flip(apply: Callable[..., Any], m: Any, axis: Any = None) -> Any:
    x = _expression(apply, m)
    rank = x._rank("np.flip")
    axes = range(rank) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    turned = {_axis("np.flip", each, rank) for each in axes}
    return x[tuple(slice(None, None, -1 if at in turned else None) for at in range(rank))]


def _diff(apply: Callable[..., Any], a: Any, n: int = 1, axis: int = -1) -> Any:
    x = _expression(apply, a)
    before = (slice(None),) * _axis("np.diff", axis, x._rank("np.diff"))
    for _ in range(n):
        x = x[(*before, slice(1, None))] - x[(*before, slice(None, -1))]
    return x


def _roll(apply: Callable[..., Any], a: Any, shift: int, axis: int | None = None) -> Any:
    x = _expression(apply, a)
    if axis is None:
        return _roll(apply, x.reshape(-1), shift, 0).reshape(x.shape)
    at = _axis("np.roll", axis, x._rank("np.roll"))
    before, size = (slice(None),) * at, x.shape[at]
    if not isinstance(size, int):
        raise InferenceError(f"np.roll: axis {axis} is {size}, whose size is not known")
    place = -shift % size if size else 0
    return apply("concat", x[(*before, slice(place, None))], x[(*before, slice(None, place))], axis=at)


def _moveaxis(apply: Callable[..., Any], a: Any, source: int, destination: int) -> Any:
    x = _expression(apply, a)
    rank = x._rank("np.moveaxis")
    order = [at for at in range(rank) if at != _axis("np.moveaxis", source, rank)]
    order.insert(_axis("np.moveaxis", destination, rank), source % rank)
    return x.transpose(order)


def _whole(where: str, axis: Any) -> int:
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise InferenceError(f"{where}: axis: expected an integer, got {axis!r}")
    return int(axis)


def _axis(where: str, axis: Any, rank: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
        raise InferenceError(f"{where}: expected an axis from {-rank} to {rank - 1}, got {axis!r}")
    return axis % rank


def _filled(value: float) -> Callable[..., Any]:
    def like(apply: Callable[..., Any], a: Any, dtype: Any = None) -> Any:
        return _full_like(apply, a, value, dtype)

    return like


def _full_like(apply: Callable[..., Any], a: Any, fill_value: Any, dtype: Any = None) -> Any:
    """Of the shape, not of the elements: NaN times 0 is not 0."""
    x = _expression(apply, a)
    kind = x.dtype if dtype is None else dtype
    if kind is None or x.shape is None:
        raise InferenceError("np.full_like: the type of the tensor is not known yet")
    return apply("broadcast_to", np.array(fill_value, DType.of(kind).numpy), shape=x.shape)


def _outer(apply: Callable[..., Any], a: Any, b: Any) -> Any:
    return _expression(apply, a).reshape(-1, 1) * _expression(apply, b).reshape(1, -1)


def _logaddexp(a: Any, b: Any) -> Any:
    top = np.maximum(a, b)
    return top + np.log1p(np.exp(-abs(a - b)))


_COMPOSED: dict[str, Callable[..., Any]] = {
    "hypot": lambda a, b: np.sqrt(a * a + b * b),
    "logaddexp": _logaddexp,
    "exp2": lambda a: 2.0**a,
    "log2": lambda a: np.log(a) * (1 / math.log(2)),
    "log10": lambda a: np.log(a) * (1 / math.log(10)),
    "cbrt": lambda a: np.sign(a) * abs(a) ** (1 / 3),
    "deg2rad": lambda a: a * (math.pi / 180),
    "rad2deg": lambda a: a * (180 / math.pi),
}


class _Steps:
    """The steps of a lowering as expressions."""

    def __init__(self, apply: Callable[..., Any]) -> None:
        self.op = apply

    @staticmethod
    def checked(value: Any, shape: tuple[Dim, ...]) -> Any:
        return value._of_shape(shape) if dims.asks_a_run(value.shape, shape) else value


def _einsum(apply: Callable[..., Any], equation: Any, *operands: Any, optimize: Any = True) -> Any:
    """In an order that nothing changes: from left to right."""
    if not isinstance(equation, str):
        raise InferenceError("np.einsum: equation: expected a text, such as 'ij,jk->ik', in front of the operands")
    given = [_expression(apply, each) for each in operands]
    for each in given:
        each._rank("np.einsum")
    return einsum(_Steps(apply), given, equation)


def _sort(apply: Callable[..., Any], a: Any, axis: int | None = -1, *, place: int = 0) -> Any:
    """The elements, or for `place` 1 where they stood, of equal ones the first in front."""
    x = _expression(apply, a)
    if axis is None:
        x, axis = x.reshape(-1), 0
    size = x.shape[_axis("np.sort", axis, x._rank("np.sort"))]
    return apply("top_k", x, k=size, axis=axis, largest=False)[place]


def _norm(apply: Callable[..., Any], x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Of vectors the sum of the magnitudes (order 1), or the root of the sum of the squares (2), which is a matrix's too."""
    is_one_axis = axis is not None and not isinstance(axis, (tuple, list))
    of_vectors = is_one_axis or _expression(apply, x)._rank("np.linalg.norm") == 1
    if ord not in ((None, 1, 2) if of_vectors else (None, "fro")):
        raise _none(f"norm of order {ord!r}", "np.linalg")
    axes = (axis,) if is_one_axis else axis
    return apply("l1_norm" if ord == 1 else "l2_norm", x, axes=axes, keepdims=keepdims)


def _result_type(apply: Callable[..., Any], *operands: Any) -> np.dtype:
    dtypes = [each.dtype if isinstance(each, ArrayMethods) else each for each in operands]
    if any(dtype is None for dtype in dtypes):
        raise InferenceError("np.result_type: the type of an expression is not known yet")
    return np.result_type(*(dtype.numpy if isinstance(dtype, DType) else dtype for dtype in dtypes))


def _var(apply: Callable[..., Any], a: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
    a = _expression(apply, a)
    apart = a - a.mean(axis=axis, keepdims=True)
    squares = apart * apart
    if ddof == 0:
        return squares.mean(axis=axis, keepdims=keepdims)
    rank = a._rank("np.var")
    axes = range(rank) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    if isinstance(ddof, bool) or not isinstance(ddof, int):
        raise InferenceError(f"np.var: ddof: expected an integer, got {ddof!r}")
    sizes = [a.shape[_axis("np.var", each, rank)] for each in axes]
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
        raise InferenceError(f"np.split: expected an axis from {-rank} to {rank - 1}, got {axis!r}")
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


_METHODS = (
    "sum", "prod", "mean", "max", "min", "all", "any", "argmax", "argmin", "cumsum", "repeat", "round", "clip", "reshape",
    "ravel", "transpose", "swapaxes", "squeeze", "take",
)  # fmt: skip
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
    np.flip: _flip,
    np.diff: _diff,
    np.roll: _roll,
    np.moveaxis: _moveaxis,
    np.full_like: _full_like,
    np.zeros_like: _filled(0),
    np.ones_like: _filled(1),
    np.outer: _outer,
    np.var: _var,
    np.std: _std,
    np.split: _split,
    np.pad: _pad,
    np.shape: _shape,
    np.ndim: _ndim,
    np.einsum: _einsum,
    np.sort: _sort,
    np.argsort: functools.partial(_sort, place=1),
    np.linalg.norm: _norm,
    np.result_type: _result_type,
}
