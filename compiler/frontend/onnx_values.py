"""The values of a model while it is imported, and the builder that turns operators on them into bindings of the IR.

Exporters compute shapes with ordinary operators: Shape, Gather, Mul, Concat, then Reshape. A value whose elements are integers
or expressions over the model's dimensions carries them along (`Value.elements`), so that such chains vanish at import and
attributes of operators get dimensions. Operators on constants are evaluated when they are small; what is large is left to
the compiler's passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Union

import numpy as np

from ...formats import dims, limits
from ...formats.dims import Dim, SymbolicDim
from ...formats.dtypes import DType
from ...formats.errors import CompileError, InferenceError, ModelError, TreadleError
from ...formats.strings import to_numbers
from ...formats.types import UNKNOWN, ShapeDim, TensorType, TupleType, Type
from .. import effort, ir
from ..operators import Operator, lookup
from ..weights import results_of
from .onnx_dims import NotKnownError, evaluate_symbolically

FOLD_BYTES = 1 << 20
_TRACKED_ELEMENTS = 1024
_EXACT_INTEGERS = 1 << 24  # floats count as integers below this


class NotImportedError(Exception):
    """Something in a graph that is part of a node is not supported, and has been noted."""


class UnsupportedError(CompileError):
    """Raised by an importer: why this node is beyond what Treadle supports."""


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the model. `atom` is None while it is known by its elements alone: see `GraphBuilder.atom`."""

    type: TensorType
    atom: ir.Atom | None
    dims: np.ndarray | None = None  # objects: integers and SymbolicDims

    @property
    def constant(self) -> np.ndarray | None:
        """The elements of a constant."""
        return self.atom.value if isinstance(self.atom, ir.Constant) else None

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
        """Dimensions, all of them known: the builder names those that only a run can tell."""
        return self.type.shape  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class AnyRank:
    """A tensor of the model whose rank only a run can tell. The atom is of the data type RANKED; `types` are what the tensor may
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
    """A sequence whose length only a run can tell. `element` is a type of tensors of unknown sizes, or RANKED of such."""

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
    """A tensor or a sequence that may not be there, which only a run can tell; None: it is not there."""

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
                raise UnsupportedError("a tensor whose rank only a run can tell stands where that must be known")
            raise UnsupportedError(f"{'an' if what[0] == 'o' else 'a'} {what} stands where only tensors are supported")
    return list(values)  # type: ignore[arg-type]


def present(values: Sequence[Imported | None]) -> list[Value]:
    """Those of the values that could be imported, and are tensors: see `tensors_of`."""
    return [value for value in tensors_of(values) if value is not None]


def constant(array: np.ndarray) -> Value:
    """A constant as a value; the array must not change any more."""
    return Value(TensorType(DType.of(array.dtype), array.shape), ir.Constant(array))


def scalar(array: np.ndarray, what: str) -> Any:
    """The one element of a constant. Raises ModelError if it has more, or none."""
    if array.size != 1:
        raise ModelError(f"{what} is one number, but a tensor of shape {list(array.shape)} came")
    return array.reshape(()).item()


class Noted(NamedTuple):
    """An operator that a builder was asked for."""

    operator: str
    inputs: Sequence[Value]
    attributes: dict[str, Any]
    results: Sequence[Value]


class GraphBuilder:
    """Collects the bindings of a block. Importers call `op`; `opset` and `output_count` tell them of the node at hand."""

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
        self._places_given = 0
        self.kept_loops: set[str] = set()  # origins of loops that are not to be written out
        self.tape: list[Noted] | None = None  # notes what is asked for: see onnx_gradient.py
        self.has_data = False  # whether there are values that are no tensors in the program

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
        canonical = entry.canonical(attributes)
        types = entry.result_types([value.type for value in values], canonical)
        folded = self._fold(entry, values, canonical, types)
        if folded is not None:
            return folded
        call = ir.OperatorCall(operator, tuple(map(self.atom, values)), canonical)
        if len(types) == 1:
            return (self.bind(call, types[0]),)
        results = ir.Var(self.hint, TupleType(types))
        self.bindings.append(ir.Binding(results, call, self.origin))
        return tuple(self.bind(ir.GetItem(results, index), type_) for index, type_ in enumerate(types))

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
            raise ModelError(f"{value!r} is no value of type {dtype.name if dtype else '?'}: {error}") from None
        array.flags.writeable = False
        return constant(array)

    def from_dims(self, elements: Any, dtype: DType = DType.int64) -> Value:
        """A tensor whose elements are dimensions: a constant when all of them are integers."""
        array = np.asarray(elements, object)
        if not any(isinstance(element, SymbolicDim) for element in array.flat):
            return self.constant(array, dtype)
        return Value(TensorType(dtype, array.shape), None, array)

    def bind(self, expression: ir.Expr, type_: TensorType) -> Value:
        """An expression as a value. Dimensions that only a run can tell get names."""
        var = ir.Var(self.hint, type_)
        self.bindings.append(ir.Binding(var, expression, self.origin))
        if UNKNOWN not in type_.shape:
            return Value(type_, var)
        shape = tuple(self.new_dimension() if dim is UNKNOWN else dim for dim in type_.shape)
        named = ir.Var(self.hint, TensorType(type_.dtype, shape))
        self.bindings.append(ir.Binding(named, ir.MatchShape(var, shape), self.origin))
        return Value(named.type, named)  # type: ignore[arg-type]

    def broadcast(self, operator: str, *values: Value, **attributes: Any) -> Value:
        """An elementwise operator. Dimensions that may differ, as far as is known, are checked when the program runs."""
        return self.op(operator, *self.aligned(values), **attributes)

    def aligned(self, values: Sequence[Value], axes: slice = slice(None)) -> list[Value]:
        """The values with dimensions that broadcast: on each of `axes`, counted in the common shape, all are 1 or the same."""
        rank = max(value.rank for value in values)
        target: list[Dim] = [1] * rank
        for value in values:
            for axis, dim in enumerate(value.shape, rank - value.rank):
                target[axis] = _likelier(target[axis], dim)
        chosen = set(range(rank)[axes])
        return [
            self.checked(
                value,
                tuple(
                    target[axis] if axis in chosen and dim != 1 else dim
                    for axis, dim in enumerate(value.shape, rank - value.rank)
                ),
            )
            for value in values
        ]

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
        """The value as one of this shape: if it is not known to have it, a run checks."""
        differs = [(a, b) for a, b in zip(value.shape, shape, strict=True) if a != b]
        if not any(isinstance(a, SymbolicDim) or isinstance(b, SymbolicDim) for a, b in differs):
            return value  # equal, or never equal: the operator's inference will say so
        result = self.bind(ir.MatchShape(self.atom(value), shape), TensorType(value.dtype, shape))
        if self.tape is not None:
            self.tape.append(Noted("checked", (value,), {}, (result,)))
        return result

    def atom(self, value: Value) -> ir.Atom:
        """The value as an operand. One that is known by its elements alone is made a tensor, once."""
        if value.atom is not None:
            return value.atom
        if value not in self._atoms:
            assert value.dims is not None
            tensor = self.bind(
                ir.OperatorCall("shape_tensor", (), (("dims", tuple(value.dims.flat)),)),
                TensorType(DType.int64, (value.dims.size,)),
            )
            tensor = self.op("reshape", tensor, shape=value.dims.shape) if value.rank != 1 else tensor
            tensor = self.op("cast", tensor, dtype=value.dtype) if value.dtype is not DType.int64 else tensor
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
        """The elements of a vector or scalar of integers; None for those that only a run can tell. Raises UnsupportedError
        where not even their number is known."""
        if value.elements is not None:
            return list(value.elements.flat)
        if value in self._parts:
            return [element for part in self._parts[value] for element in self.known_elements(part, what)]
        if not value.type.is_static or value.rank > 1:
            raise UnsupportedError(
                f"how many {what} there are is known at run time only, and so would be the rank; "
                f"fix the size of {value.type} with shapes={{…}}"
            )
        return [None] * int(dims.product(value.shape))  # type: ignore[arg-type]

    def sizes(self, value: Value, what: str) -> tuple[Dim, ...]:
        """The elements of a vector of integers as dimensions. Those that only a run can tell get names, and the run fails where
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

    def new_dimension(self, name: str = "") -> SymbolicDim:
        """A dimension variable that is not in use, named like `name`."""
        base = re.sub(r"\W", "_", name or f"{self.hint}_dim") or "dim"
        base = f"_{base}" if base[0].isdigit() or base in ("min", "max") else base
        unique, number = base, 1
        while unique in self._dimension_names:
            number += 1
            unique = f"{base}_{number}"
        self._dimension_names.add(unique)
        return dims.variable(unique)

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
        try:
            yield self.bindings
        finally:
            self.bindings, self._atoms, self._sizes = outer, known, sizes

    def choose(self, condition: Value, *branches: Callable[[], Sequence[Value]]) -> tuple[Value, ...]:
        """What the first branch makes if the condition holds, else what the second one makes; what they raise is passed on."""
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
        if can and effort.may_fold(operator, [value.type for value in values], types, attributes):
            try:
                results = operator.evaluate([atom.array for atom in atoms], attributes)
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


def _likelier(a: Dim, b: Dim) -> Dim:
    """Of two dimensions that should be equal, the one that says more; 1 gives way to all."""
    if a == 1 or b == 1:
        return b if a == 1 else a
    return min(a, b, key=_vagueness)


def _vagueness(dim: Dim) -> tuple[bool, int, str]:
    """The less, the more a dimension says."""
    return isinstance(dim, SymbolicDim), len(str(dim)), str(dim)


def _is_symbolic(value: object) -> bool:
    return isinstance(value, SymbolicDim) or (isinstance(value, tuple) and any(map(_is_symbolic, value)))
