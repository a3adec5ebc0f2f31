"""The values of a model while it is imported, and the builder that turns operators on them into bindings of the IR.

Exporters compute shapes with ordinary operators: Shape, Gather, Mul, Concat, then Reshape. A value whose elements are integers
or expressions over the model's dimensions carries them along (`Value.elements`), so that such chains vanish at import and
attributes of operators get dimensions. Operators on constants are evaluated when they are small; what is large is left to
the compiler's passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Union

import numpy as np

from ...formats import dims, limits
from ...formats.dims import Dim, SymbolicDim
from ...formats.dtypes import DType
from ...formats.messages.errors import CompileError, InferenceError, ModelError, TreadleError
from ...formats.messages.names import NAME
from ...formats.strings import to_numbers
from ...formats.types import UNKNOWN, ShapeDim, TensorType, TupleType, Type
from .. import effort, ir
from ..named_weights import results_of
from ..operators import Operator, lookup
from ..operators.shapes import mismatch
from .dims import NotKnownError, evaluate_symbolically

FOLD_BYTES = 1 << 20
_TRACKED_ELEMENTS = 1024
# what exporters put before shared weights
_VIEWS = frozenset({"reshape", "squeeze", "expand_dims", "permute_dims", "cast"})
_SAMPLES = (2, 3, 4, 5, 8, 64, 96, 224)  # sizes, to find out whether two dimensions can be equal
_EXACT_INTEGERS = 1 << 24  # floats count as integers below this
_NUMBERED = 24  # characters of a size's name that are left for a number behind it
_LONG_DIM = 24  # parts of a dimension that gets a name: what slices, sums and products of such make stays short enough


class NotImportedError(Exception):
    """Something in a graph that is part of a node is not supported, and has been noted."""


class UnsupportedError(CompileError):
    """Raised by an importer: why this node is beyond what Treadle supports."""


class LengthError(UnsupportedError):
    """Raised where the rank of a result, or similar, follows from the last size of a tensor, known only at run time."""

    def __init__(self, value: Value, what: str) -> None:
        super().__init__(
            f"how many {what} there are is known at run time only, and so would be the rank; "
            f"fix the size of {value.type} with shapes={{…}}"
        )
        self.value = value


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the model. `atom` is None while it is known by its elements alone: see `GraphBuilder.atom`."""

    type: TensorType
    atom: ir.Atom | None
    dims: np.ndarray | None = None  # objects: integers and SymbolicDims
    made: tuple[str, str] | None = (
        None  # the origin and the hint of the node whose result is known by its elements alone
    )
    view: Callable[[], np.ndarray] | None = (
        None  # of a constant, larger than what is folded: its elements, or some of a cast
    )

    @property
    def constant(self) -> np.ndarray | None:
        """The elements of a constant."""
        return self.atom.value if isinstance(self.atom, ir.Constant) else None

    @property
    def is_content(self) -> bool:
        """Whether `content` is known: it is computed only if it is asked for."""
        return isinstance(self.atom, ir.Constant) or self.view is not None

    @property
    def content(self) -> np.ndarray | None:
        """The elements of a constant, or of a view of one, whatever its size: for importers that repack weights."""
        return self.view() if self.view is not None else self.constant

    @cached_property
    def elements(self) -> np.ndarray | None:
        """The elements as objects (integers, truth values, dimensions), where they are known and few."""
        array = None if isinstance(self.atom, ir.Weight) or self.dtype.is_string else self.constant
        if array is None and self.dims is None and 0 in self.type.shape and self.type.is_static:
            return np.empty(self.type.shape, object)  # type: ignore[arg-type]
        if array is None or array.size > _TRACKED_ELEMENTS:
            return self.dims
        if not self.dtype.is_numpys:
            array = array.astype(self.dtype.computed.numpy)
        if array.dtype.kind in "iub":
            return array.astype(object)
        with np.errstate(all="ignore"):
            whole = np.all(array == np.floor(array)) and np.all(np.abs(array) < _EXACT_INTEGERS)
        return array.astype(np.int64).astype(object) if whole else None

    @property
    def rank(self) -> int:
        return self.type.rank

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Dimensions, all of them known: the builder names those known only at run time."""
        return self.type.shape  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class AnyRank:
    """A tensor of the model whose rank is known only at run time. The atom has the data type RANKED; `types` are what it may
    be, one for each rank that it may have."""

    atom: ir.Atom
    types: tuple[TensorType, ...]

    @property
    def dtype(self) -> DType:
        return self.types[0].dtype


@dataclass(frozen=True, eq=False)
class TensorSequence:
    """A sequence of tensors of the model, of a length that is known."""

    tensors: tuple[Value | AnyRank, ...] = ()
    dtype: DType | None = None  # where there are no tensors


@dataclass(frozen=True, eq=False)
class HeldSequence:
    """A sequence whose length is known only at run time. `element` is a type of tensors of unknown sizes, or RANKED of such."""

    atom: ir.Atom
    element: Type


AnySequence = Union[TensorSequence, HeldSequence]


@dataclass(frozen=True, eq=False)
class Maps:
    """A map of the model, or several of the same keys: keys [n], values [n] or [rows, n]."""

    keys: Value
    values: Value


@dataclass(frozen=True, eq=False)
class OptionalTensor:
    """A tensor or a sequence that may not be there, known only at run time; None: it is not there."""

    atom: ir.Atom | None
    type: Type | None = None


Imported = Union[Value, AnyRank, TensorSequence, HeldSequence, Maps, OptionalTensor]
KINDS = {
    TensorSequence: "sequence",
    HeldSequence: "sequence",
    Maps: "map",
    OptionalTensor: "optional value",
    AnyRank: "tensor",
    Value: "tensor",
}


def tensors_of(values: Sequence[Imported | None]) -> list[Value | None]:
    """The values, all of which must be tensors. Raises UnsupportedError."""
    for value in values:
        if value is not None and not isinstance(value, Value):
            what = "sequence of tensors" if KINDS[type(value)] == "sequence" else KINDS[type(value)]
            if isinstance(value, AnyRank):
                raise UnsupportedError("a tensor whose rank is known only at run time stands where that must be known")
            raise UnsupportedError(f"{'an' if what[0] == 'o' else 'a'} {what} stands where only tensors are supported")
    return list(values)  # type: ignore[arg-type]


def present(values: Sequence[Imported | None]) -> list[Value]:
    """Those of the values that could be imported, and are tensors: see `tensors_of`."""
    return [value for value in tensors_of(values) if value is not None]


def constant(array: np.ndarray) -> Value:
    """A constant as a value; the array must not change any more."""
    return Value(TensorType(DType.of(array.dtype), array.shape), ir.Constant(array))


def _is_long(dim: object) -> bool:
    return isinstance(dim, SymbolicDim) and dim.atoms > _LONG_DIM


def scalar(array: np.ndarray, what: str) -> Any:
    """The one element of a constant. Raises ModelError if it has more, or none."""
    if array.size != 1:
        raise ModelError(f"{what} must be one number, got a tensor of shape {list(array.shape)}")
    return array.reshape(()).item()


class Noted(NamedTuple):
    """An operator that a builder was asked for."""

    operator: str
    inputs: Sequence[Value]
    attributes: dict[str, Any]
    results: Sequence[Value]


class GraphBuilder:
    """Collects the bindings of a block. Importers call `op`; `opset` and `output_count` tell them of the node at hand."""

    finds_sizes = True  # whether later nodes may depend on sizes known only at run time

    def __init__(self) -> None:
        self.bindings: list[ir.Binding] = []
        self.origin = ""
        self.hint = "v"
        self.opset = 0
        self.output_count = 1
        self._atoms: dict[Value, ir.Atom] = {}  # of values that are known by their elements
        self._sizes: dict[Value, tuple[Dim, ...]] = {}  # of values whose elements were made dimensions
        self._parts: dict[Value, Sequence[Value]] = {}  # of vectors that were joined
        self._dimension_names: set[str] = set()
        self._dimension_numbers: dict[str, int] = {}  # by name, the last number after it
        self.input_names: frozenset[str] | None = None  # of the dimensions that the inputs' shapes tell; None: of all
        self._commons: dict[frozenset[Dim], Dim] = {}  # of two sizes that broadcast
        self._short: dict[Dim, Dim] = {}  # names of long dimensions
        self._within: dict[Dim, frozenset[Dim]] = {}  # the sizes that broadcast to one
        self._choices: dict[
            str, frozenset[int]
        ] = {}  # by names of dimensions, all that they can be, where these are few
        self._places_given = 0
        self.kept_loops: set[str] = set()  # origins of loops that are not to be written out
        self.asks = False  # whether a run asks of all sizes that meet under other names which is 1
        self.held_equal: list[tuple[Dim, Dim]] = []  # if not: those that are taken for one
        # those that the model says are one, such as past + length and a total
        self.told_equal: set[frozenset[Dim]] = set()
        self.result_sizes: frozenset[Dim] = frozenset()  # what it says of the results of the node at hand
        self.tape: list[Noted] | None = None  # notes what is asked for: see gradient.py
        # what the standard's function of an operator makes of inputs: (operator, version, inputs, attributes)
        self.standard: Callable[[str, int, Sequence[Value | None], dict[str, Any]], tuple[Value, ...]]
        self.has_data = False  # whether there are values that are not tensors in the program

    def op(self, operator: str, *values: Value, **attributes: Any) -> Value:
        """An operator of one result."""
        (result,) = self.ops(operator, *values, **attributes)
        return result

    def ops(self, operator: str, *values: Value, **attributes: Any) -> tuple[Value, ...]:
        """An operator on values. Raises InferenceError when their types do not suit it."""
        results = self._operator(operator, values, attributes)
        if self.tape is not None:
            self.tape.append(
                Noted(operator, values, lookup(operator).bind(lookup(operator).canonical(attributes)), results)
            )
        return results

    def _operator(self, operator: str, values: Sequence[Value], attributes: dict[str, Any]) -> tuple[Value, ...]:
        entry = lookup(operator)
        canonical = entry.canonical(self._by_names(attributes) if self._short else attributes)
        types = entry.result_types([value.type for value in values], canonical)
        folded = self._fold(entry, values, canonical, types)
        if folded is not None:
            return folded
        call = ir.OperatorCall(operator, tuple(map(self.atom, values)), canonical)
        if len(types) == 1:
            result = self.bind(call, types[0])
            if operator in _VIEWS and all(value.is_content for value in values) and not _is_symbolic(canonical):
                result = replace(result, view=lambda: _viewed(entry, values, canonical))
            return (result,)
        results = ir.Var(self.hint, TupleType(types))
        self.bindings.append(ir.Binding(results, call, self.origin))
        return tuple(self.bind(ir.GetItem(results, index), type_) for index, type_ in enumerate(types))

    def _by_names(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The same with the names of long dimensions, which tensors at hand have in their place."""
        return {
            name: tuple(self._short.get(each, each) if isinstance(each, SymbolicDim) else each for each in value)
            if isinstance(value, tuple)
            else value
            for name, value in attributes.items()
        }

    def constant(self, value: Any, dtype: DType | None = None) -> Value:
        """A small constant."""
        try:
            if dtype is DType.string and not isinstance(value, np.ndarray):
                value = np.array(value, object)
            if dtype is DType.string:
                value = to_numbers(value)
            with np.errstate(all="ignore"):
                array = np.array(value, dtype.numpy if dtype else None)
        except (OverflowError, ValueError) as error:
            raise ModelError(f"{value!r} is not a value of type {dtype.name if dtype else '?'}: {error}") from None
        array.flags.writeable = False
        return constant(array)

    def from_dims(self, elements: Any, dtype: DType = DType.int64) -> Value:
        """A tensor whose elements are dimensions: a constant when all of them are integers. Long ones get names."""
        array = np.asarray(elements, object)
        for place, element in enumerate(array.flat):
            if _is_long(element):
                array = array.copy()
                array.flat[place] = self._name_of(element)
        if not any(isinstance(element, SymbolicDim) for element in array.flat):
            return self.constant(array, dtype)
        return Value(TensorType(dtype, array.shape), None, array, (self.origin, self.hint))

    def bind(self, expression: ir.Expr, type_: TensorType) -> Value:
        """An expression as a value. Dimensions known only at run time get names, and so do long ones: a model of many sizes
        in one tensor, such as the anchors of all levels of a detector, would make them longer without end."""
        var = ir.Var(self.hint, type_)
        self.bindings.append(ir.Binding(var, expression, self.origin))
        shape = tuple(
            self._named(dim) if isinstance(dim, (int, SymbolicDim)) else self.new_dimension() for dim in type_.shape
        )
        if shape == type_.shape:
            return Value(type_, var)
        named = ir.Var(self.hint, TensorType(type_.dtype, shape))
        self.bindings.append(ir.Binding(named, ir.MatchShape(var, shape), self.origin))
        return Value(named.type, named)  # type: ignore[arg-type]

    def _named(self, dim: Dim) -> Dim:
        """A dimension of a tensor at hand, or a name in its place that a check binds."""
        if _is_long(dim) and dim not in self._short:
            self._short[dim] = self.new_dimension()
        return self._short.get(dim, dim)

    def _name_of(self, dim: SymbolicDim) -> Dim:
        """The name of a long dimension that is computed of others, and that no tensor may have."""
        if dim not in self._short:
            number = Value(TensorType(DType.int64, (1,)), None, np.array([dim], object))
            self._short[dim] = self.op("extents", number).shape[1]
        return self._short[dim]

    def broadcast(self, operator: str, *values: Value, **attributes: Any) -> Value:
        """An elementwise operator. Dimensions that may differ, as far as is known, are checked when the program runs."""
        return self.op(operator, *self.aligned(values), **attributes)

    def aligned(self, values: Sequence[Value], axes: slice = slice(None)) -> list[Value]:
        """The values with dimensions that broadcast: on each of `axes`, counted in the common shape, all are 1 or the same. Where
        which is known only at run time, one of size 1 is repeated then (`_is_open`), and others are checked."""
        rank = max(value.rank for value in values)
        chosen = range(rank)[axes]
        places = [[axis if axis in chosen else None for axis in range(rank - value.rank, rank)] for value in values]
        return self.meeting(values, places)

    def meeting(self, values: Sequence[Value], labels: Sequence[Sequence[Hashable]]) -> list[Value]:
        """The values with sizes that are 1 or the same on all axes of one label; on those without, None, they stay."""
        met: dict[Hashable, list[Dim]] = {}
        for value, own in zip(values, labels, strict=True):
            for label, dim in zip(own, value.shape, strict=True):
                if label is not None and dim != 1 and dim not in met.setdefault(label, []):
                    met[label].append(dim)
        target = {label: self._common(sizes) for label, sizes in met.items() if sizes}
        return [self._fitted(value, own, target) for value, own in zip(values, labels, strict=True)]

    def repeated_to(self, parameter: Value, x: Value) -> Value:
        """A parameter of an operator that repeats it along axes on which it has 1 and x more."""
        axes = range(x.rank - parameter.rank, x.rank)
        return self._fitted(parameter, axes, dict(enumerate(x.shape)))

    def _common(self, sizes: Sequence[Dim]) -> Dim:
        """The size to which sizes on an axis broadcast."""
        common = sizes[0]
        for size in sizes[1:]:
            common = self._met(common, size) if self._is_open(common, size) else min(common, size, key=_vagueness)
        return common

    def _is_open(self, a: Dim, b: Dim) -> bool:
        """Whether a run must ask which of two sizes is 1: one is a number that a run finds, or equal they never are. Sizes that
        the inputs' shapes tell under other names are held equal in one version of the program, which is called where they are
        (`versions.py`), and asked of in the other."""
        if a == b or self.tape is not None or self.input_names is None or (isinstance(a, int) and isinstance(b, int)):
            return False
        names, others = dims.variables(a), dims.variables(b)
        if not self.input_names.issuperset({*names, *others}):
            return True
        if set(names) != set(others):
            if self._is_told_equal(a, b):
                return False
            if not self.asks:
                self.held_equal.append((a, b))
            return self.asks
        return all(
            dims.substitute(a, dict.fromkeys(names, size)) != dims.substitute(b, dict.fromkeys(names, size))
            for size in _SAMPLES
        )

    def _is_told_equal(self, a: Dim, b: Dim) -> bool:
        """Whether the model itself says that a size which is computed of several is another one."""
        if all(len(dims.variables(dim)) < 2 for dim in (a, b)):
            return False
        return frozenset((a, b)) in self.told_equal or not self.result_sizes.isdisjoint((a, b))

    def _met(self, a: Dim, b: Dim) -> Dim:
        """The size of two that broadcast, of which a run finds out whether one is 1."""
        for one, other in ((a, b), (b, a)):
            if isinstance(one, int) or one in self._within.get(other, ()):
                return one if isinstance(one, int) else other
        pair = frozenset((a, b))
        if pair not in self._commons:
            sizes = [self._number(dim) for dim in (a, b)]
            is_one = self.op("equal", sizes[0], self.constant(1, DType.int64))
            common = self.op("reshape", self.op("where", is_one, sizes[1], sizes[0]), shape=(1,))
            self._commons[pair] = found = self.op("extents", common).shape[1]
            self._within[found] = pair | self._within.get(a, frozenset()) | self._within.get(b, frozenset())
        return self._commons[pair]

    def _number(self, dim: Dim) -> Value:
        return self.from_dims(np.array(dim, object))

    def _fitted(self, value: Value, labels: Sequence[Hashable], target: Mapping[Any, Dim]) -> Value:
        """A value of sizes that are those of their labels, or 1."""
        shape = list(value.shape)
        for axis, (label, dim) in enumerate(zip(labels, value.shape, strict=True)):
            common = target.get(label, dim)
            if dim != 1 and self._is_open(dim, common):
                value = self.stretched(value, axis, common)
            shape[axis] = dim if dim == 1 else common
        return self.checked(value, tuple(shape))

    def stretched(self, value: Value, axis: int, size: Dim) -> Value:
        """A tensor of that size along an axis, of one that may have 1 there as well: a run finds out."""

        def of(size: Dim) -> tuple[Dim, ...]:
            return (*value.shape[:axis], size, *value.shape[axis + 1 :])

        one = self.constant(1, DType.int64)
        is_one = self.op("equal", self._number(value.shape[axis]), one)
        if not isinstance(size, int):
            is_one = self.op("logical_and", is_one, self.op("not_equal", self._number(size), one))
        (made,) = self.choose(
            is_one,
            lambda: [self.op("broadcast_to", self.checked(value, of(1)), shape=of(size))],
            lambda: [self.checked(value, of(size))],
        )
        return made

    def same_sizes(self, values: Sequence[Value], axes: Iterable[int]) -> list[Value]:
        """The values with the same sizes on each of the axes, where 1 is a size like others: if they are not known to have them,
        a run checks."""
        target: dict[int, Dim] = {}
        for axis in axes:
            target[axis] = min((value.shape[axis] for value in values if axis < value.rank), key=_vagueness)
        return [
            self.checked(value, tuple(target.get(axis, dim) for axis, dim in enumerate(value.shape)))
            for value in values
        ]

    def checked(self, value: Value, shape: tuple[Dim, ...]) -> Value:
        """The value as one of this shape: if it is not known to have it, a run checks. Raises InferenceError for another rank."""
        if len(shape) != value.rank:
            raise mismatch(f"a tensor of {len(shape)} axes", value.type)
        if not dims.asks_a_run(value.shape, shape):
            return value
        result = self.bind(ir.MatchShape(self.atom(value), shape), TensorType(value.dtype, shape))
        if self.tape is not None:
            self.tape.append(Noted("checked", (value,), {}, (result,)))
        return result

    def _from_elements(self, value: Value) -> Value:
        assert value.dims is not None
        tensor = self.bind(
            ir.OperatorCall("shape_tensor", (), (("dims", tuple(value.dims.flat)),)),
            TensorType(DType.int64, (value.dims.size,)),
        )
        tensor = self.op("reshape", tensor, shape=value.dims.shape) if value.rank != 1 else tensor
        return self.op("cast", tensor, dtype=value.dtype) if value.dtype is not DType.int64 else tensor

    def atom(self, value: Value) -> ir.Atom:
        """The value as an operand. One that is known by its elements alone is made a tensor, once, under its own node's name."""
        if value.atom is not None:
            return value.atom
        if value not in self._atoms:
            user, (self.origin, self.hint) = (self.origin, self.hint), value.made or (self.origin, self.hint)
            try:
                tensor = self._from_elements(value)
            finally:
                self.origin, self.hint = user
            assert tensor.atom is not None
            self._atoms[value] = tensor.atom
        return self._atoms[value]

    def joined(self, parts: Sequence[Value], axis: int = 0) -> Value:
        """Tensors joined along an axis. What is known of some parts of a vector of integers is not forgotten."""
        result = self.op("concat", *parts, axis=axis)
        if result.rank == 1 and result.dtype.is_integer and result.elements is None:
            self._parts[result] = tuple(parts)
        return result

    def known_elements(self, value: Value, what: str) -> list[Dim | None]:
        """The elements of a vector or scalar of integers; None for those known only at run time, which must be paid for. Raises
        LengthError where not even their number is known."""
        if value.elements is not None:
            return list(value.elements.flat)
        if value in self._parts:
            if not value.type.is_static:
                raise LengthError(value, what)
            return [element for part in self._parts[value] for element in self.known_elements(part, what)]
        if value.rank > 1:
            raise ModelError(f"{what}: expected a list of integers, got {value.type}")
        if not value.type.is_static:
            raise LengthError(value, what)
        count: int = dims.product(value.shape)  # type: ignore[assignment]
        effort.spend(effort.NODE_UNITS * count, self.origin)
        return [None] * count

    def sizes(self, value: Value, what: str) -> tuple[Dim, ...]:
        """The elements of a vector of integers as dimensions. Those known only at run time get names, and the run fails where
        one is below 0."""
        known = self.known_elements(value, what)
        unknown = [place for place, element in enumerate(known) if element is None]
        if unknown and value not in self._sizes:
            numbers = self.op("reshape", value, shape=(len(known),)) if value.rank != 1 else value
            numbers = self.op("cast", numbers, dtype=DType.int64) if numbers.dtype is not DType.int64 else numbers
            if len(unknown) < len(known):
                numbers = self.op("take", numbers, self.constant(unknown, DType.int64), axis=0)
            found: list[Dim] = []
            for first in range(0, len(unknown), limits.RANK - 1):
                part = self.op("slice", numbers, starts=(first,), ends=(first + limits.RANK - 1,))
                found.extend(self.op("extents", part).shape[1:])
            self._sizes[value] = tuple(found)
        named = iter(self._sizes[value]) if unknown else iter(())
        return tuple(next(named) if element is None else element for element in known)

    @property
    def dimension_names(self) -> frozenset[str]:
        """Of the dimension variables that are in use."""
        return frozenset(self._dimension_names)

    def reserve(self, names: Iterable[str]) -> None:
        """Says of dimension variables that they are in use."""
        self._dimension_names.update(names)

    def new_dimension(self, name: str = "") -> SymbolicDim:
        """A dimension variable that is not in use, named like `name`."""
        base = re.sub(r"\W", "_", name or f"{self.hint}_dim")[: limits.DIM_NAME - _NUMBERED] or "dim"
        base = base if re.match(NAME, base) and base not in ("min", "max") else f"_{base}"
        unique, number = base, self._dimension_numbers.get(base, 1)
        while unique in self._dimension_names:
            number += 1
            unique = f"{base}_{number}"
        self._dimension_names.add(unique)
        self._dimension_numbers[base] = number
        return dims.variable(unique)

    def is_one_of(self, dim: Dim, choices: Iterable[int]) -> None:
        """Notes all numbers that a dimension variable can stand for."""
        self._choices[str(dim)] = frozenset(choices)

    def choices(self, dim: Dim) -> frozenset[int] | None:
        """All numbers that a dimension of one variable can stand for, where they are known."""
        names = dims.variables(dim)
        found = self._choices.get(names[0]) if len(names) == 1 else None
        if isinstance(dim, int) or found is None:
            return frozenset((dim,)) if isinstance(dim, int) else None
        made = {dims.substitute(dim, {names[0]: each}) for each in found}
        return frozenset(each for each in made if isinstance(each, int) and each >= 0)

    def new_place(self) -> int:
        """A number that no other node's draw has."""
        self._places_given += 1
        return self._places_given

    def written(self, value: Value, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The shape that a model writes down for what is made of `value`; a builder may know better."""
        return shape

    def keeps_loop(self) -> None:
        """Told before rounds that stay a loop are imported. A builder that cannot follow them raises UnsupportedError."""

    @contextmanager
    def block(self) -> Iterator[list[ir.Binding]]:
        """Bindings made inside go to a block of their own."""
        outer, self.bindings = self.bindings, []
        known, self._atoms = self._atoms, dict(self._atoms)
        sizes, self._sizes = self._sizes, dict(self._sizes)
        commons, self._commons = self._commons, dict(self._commons)
        short, self._short = self._short, dict(self._short)
        try:
            yield self.bindings
        finally:
            self.bindings, self._atoms, self._sizes, self._commons = outer, known, sizes, commons
            self._short = short

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undoes what is made inside if an exception leaves the block."""
        count, noted = len(self.bindings), len(self.tape or ())
        kept: list[dict[Any, Any]] = [self._atoms, self._sizes, self._commons, self._short]
        copies, place = list(map(dict, kept)), (self.origin, self.hint)
        try:
            yield
        except BaseException:
            del self.bindings[count:]
            if self.tape is not None:
                del self.tape[noted:]
            for own, before in zip(kept, copies, strict=True):
                own.clear()
                own.update(before)
            self.origin, self.hint = place
            raise

    def choose(self, condition: Value, *branches: Callable[[], Sequence[Value]]) -> tuple[Value, ...]:
        """The first branch's results if the condition holds, else the second's; their exceptions are passed on."""
        atom = self.atom(self.op("reshape", condition, shape=()) if condition.rank else condition)
        blocks, types = [], []
        for branch in branches:
            with self.block() as bindings:
                values = branch()
                types.append(TupleType(tuple(value.type for value in values)))
                result = ir.Var("branch", types[-1])
                bindings.append(ir.Binding(result, ir.MakeTuple(tuple(map(self.atom, values))), self.origin))
            blocks.append(ir.Block(tuple(bindings), result))
        joined = _joined(*types)
        chosen = ir.Var(self.hint, joined)
        self.bindings.append(ir.Binding(chosen, ir.If(atom, *blocks), self.origin))
        return tuple(self.bind(ir.GetItem(chosen, i), type_) for i, type_ in enumerate(joined.fields))  # type: ignore[arg-type]

    def _fold(
        self, operator: Operator, values: Sequence[Value], attributes: Any, types: Sequence[TensorType]
    ) -> tuple[Value, ...] | None:
        """The results, if they can be told now: of constants by evaluation, of dimensions by symbolic arithmetic."""
        if operator.name == "dequantize" and values[0].rank > 1:
            return None  # products are made of such weights' integers
        atoms = [value.atom for value in values if isinstance(value.atom, ir.Constant)]
        small = all(type_.is_static and type_.nbytes <= FOLD_BYTES for type_ in types)
        can = small and not _is_symbolic(attributes) and len(atoms) == len(values)
        arrays = [atom.array for atom in atoms] if can else []
        if can and effort.may_fold(operator, [value.type for value in values], types, attributes, arrays):
            try:
                results = operator.evaluate(arrays, attributes)
            except TreadleError as error:
                raise InferenceError(f"{operator.name} of constants: {error}") from None
            if any(isinstance(atom, ir.Weight) for atom in atoms):
                call = ir.OperatorCall(operator.name, tuple(atoms), attributes)
                return tuple(Value(made.type, made) for made in results_of(call, results))
            return tuple(map(self.constant, results))
        elements = [value.elements for value in values]
        if len(types) != 1 or not elements or any(array is None for array in elements) or not _is_tracked(types[0]):
            return None
        try:
            result = evaluate_symbolically(
                operator.name,
                elements,  # type: ignore[arg-type]
                operator.bind(attributes),
                is_float=types[0].dtype.is_float,
            )
        except NotKnownError:
            return None
        return (self.from_dims(result, types[0].dtype),)


def _joined(then: TupleType, otherwise: TupleType) -> TupleType:
    """The type that the results of both branches have: dimensions that differ are not known."""
    fields = []
    for a, b in zip(then.fields, otherwise.fields, strict=True):
        assert isinstance(a, TensorType)
        assert isinstance(b, TensorType)
        if a.dtype is not b.dtype or a.rank != b.rank:
            raise UnsupportedError(f"its branches give {a} and {b}")
        shape: list[ShapeDim] = [x if x == y else UNKNOWN for x, y in zip(a.shape, b.shape, strict=True)]
        fields.append(TensorType(a.dtype, tuple(shape)))
    return TupleType(tuple(fields))


def _is_tracked(type_: TensorType) -> bool:
    """Whether the elements of a tensor may be known, which is of dimensions or of small integers."""
    return type_.is_static and math.prod(type_.shape) <= _TRACKED_ELEMENTS  # type: ignore[arg-type]


def _viewed(operator: Operator, values: Sequence[Value], attributes: Any) -> np.ndarray:
    """The result of an operator on values whose content is known."""
    arrays = [array for value in values if (array := value.content) is not None]
    return operator.views(arrays, attributes)[0]


def _vagueness(dim: Dim) -> tuple[bool, int, str]:
    """The less, the more a dimension says."""
    return isinstance(dim, SymbolicDim), len(str(dim)), str(dim)


def _is_symbolic(value: object) -> bool:
    return isinstance(value, SymbolicDim) or (isinstance(value, tuple) and any(map(_is_symbolic, value)))
