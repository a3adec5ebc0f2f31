"""The relations between types that inference is made of.

`flow(actual, expected)`   a value of the one type may be used where the other is expected: float32[3] flows into float32[?],
                           data types and tuples flow by their parts, functions contravariantly in their parameters
`join(a, b)`               the least type that both flow into: what an `if` gives
`Hole`                     a type that is not known yet; `flow` and `join` fill it

Holes stand for the type arguments of generic functions and constructors (Hindley and Milner's unification, with the order on
dimensions on top). While a call is typed its own holes are `young`: their content may still be widened by a join.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...formats import dims
from ...formats.dims import SymbolicDim
from ...formats.messages.errors import InferenceError
from ...formats.types import (
    UNKNOWN,
    DataType,
    FunctionType,
    ShapeDim,
    TensorType,
    TupleType,
    Type,
    TypeVariable,
    map_types,
    replace_dims,
    types_in,
)
from ..operators.shapes import mismatch


@dataclass(frozen=True)
class Hole(TypeVariable):
    """A type to be found out."""


# The type of a call to a function whose result is not known yet; everything computed of it has this type too.
NOTHING = Hole("nothing")


def leaves(type_: Type) -> Iterator[Type]:
    """The tensor types and type variables in a type."""
    return (each for each in types_in(type_) if isinstance(each, (TensorType, TypeVariable)))


def replace_variables(type_: Type, arguments: dict[str, Type]) -> Type:
    """`type_` with type variables replaced by name."""
    return map_types(type_, lambda leaf: arguments.get(leaf.name, leaf) if type(leaf) is TypeVariable else leaf)


def dim_variables(types: Iterable[Type]) -> dict[str, None]:
    """The names of the dimension variables in types, in order."""
    tensors = (leaf for type_ in types for leaf in leaves(type_) if isinstance(leaf, TensorType))
    symbolic = (dim for tensor in tensors for dim in tensor.shape if isinstance(dim, SymbolicDim))
    return {name: None for dim in symbolic for name in dims.variables(dim)}


def bind_dims(params: Sequence[Type], actual: Sequence[Type]) -> dict[str, ShapeDim]:
    """The dimension variables that arguments fix: those that stand alone as a dimension of a parameter."""
    values: dict[str, ShapeDim] = {}
    waiting = list(zip(params, actual, strict=True))
    while waiting:  # breadth first: a tensor that is an argument says more than one in an argument does
        nested = []
        for param, got in waiting:
            if isinstance(param, TensorType) and isinstance(got, TensorType) and param.rank == got.rank:
                for dim, value in zip(param.shape, got.shape, strict=True):
                    if isinstance(dim, SymbolicDim) and dims.is_variable(dim):
                        values.setdefault(str(dim), value)
            nested += [(part, other) for part, other, _ in parallel_parts(param, got) or ()]
        waiting = nested
    return values


def substituted(type_: Type, values: dict[str, ShapeDim]) -> Type:
    """`type_` with dimension variables replaced; a dimension with a variable that has no value is unknown."""

    def change(dim: SymbolicDim) -> ShapeDim:
        known = {
            name: value for name in dims.variables(dim) if isinstance(value := values.get(name), (int, SymbolicDim))
        }
        return dims.substitute(dim, known) if len(known) == len(dims.variables(dim)) else UNKNOWN

    return replace_dims(type_, change)


class Unifier:
    """The holes and what is known of them."""

    def __init__(self) -> None:
        self._content: dict[Hole, Type] = {}
        self._names = (f"?{number}" for number in itertools.count(1))
        self.young: set[Hole] = set()

    def hole(self) -> Hole:
        return Hole(next(self._names))

    def resolve(self, type_: Type) -> Type:
        """The type that a hole is bound to, if any; its parts may be holes again."""
        while isinstance(type_, Hole) and type_ in self._content:
            type_ = self._content[type_]
        return type_

    def deep(self, type_: Type) -> Type:
        """`type_` with all filled holes replaced by what they hold."""
        return map_types(type_, lambda leaf: leaf if self.resolve(leaf) is leaf else self.deep(self.resolve(leaf)))

    def _fill(self, hole: Hole, type_: Type) -> None:
        if type_ is hole or NOTHING in (hole, type_):
            return
        if any(leaf == hole for leaf in leaves(self.deep(type_))):
            raise InferenceError(f"a type would contain itself: {hole} = {self.deep(type_)}")
        self._content[hole] = type_

    def flow(self, actual: Type, expected: Type) -> None:
        """Raises InferenceError unless a value of type `actual` can be used as one of type `expected`."""
        target = expected
        while isinstance(target, Hole) and isinstance(self._content.get(target), Hole):
            target = self._content[target]
        actual, expected = self.resolve(actual), self.resolve(expected)
        if actual == expected:
            return
        if isinstance(expected, Hole):
            self._fill(expected, actual)
        elif isinstance(actual, Hole):
            self._fill(actual, expected)
        elif isinstance(target, Hole) and target in self.young:
            self._content[target] = self.join(expected, actual)
        elif not self._parts_flow(actual, expected):
            raise mismatch(self.deep(expected), self.deep(actual))

    def _parts_flow(self, actual: Type, expected: Type) -> bool:
        if isinstance(actual, TensorType) and isinstance(expected, TensorType):
            return _tensor_flows(actual, expected)
        pairs = parallel_parts(actual, expected)
        if pairs is None:
            return False
        for a, b, forward in pairs:
            self.flow(*((a, b) if forward else (b, a)))
        return True

    def flow_checked(self, actual: Type, expected: Type) -> None:
        """As `flow`, for an argument, a result, or a variable of a loop: a tensor's unknown dimension flows into a known one,
        because the machine checks it there."""
        actual, expected = self.resolve(actual), self.resolve(expected)
        if isinstance(actual, TensorType) and isinstance(expected, TensorType) and actual.rank == expected.rank:
            pairs = zip(actual.shape, expected.shape, strict=True)
            known = TensorType(actual.dtype, tuple(e if a is UNKNOWN else a for a, e in pairs))
            if not _tensor_flows(known, expected):
                raise mismatch(expected, actual)
            return
        self.flow(actual, expected)

    def join(self, a: Type, b: Type) -> Type:
        """The least type that both flow into. Raises InferenceError if there is none."""
        a, b = self.resolve(a), self.resolve(b)
        if a == b or b is NOTHING:
            return a
        if a is NOTHING:
            return b
        if isinstance(a, Hole) or isinstance(b, Hole):
            hole, other = (b, a) if isinstance(b, Hole) else (a, b)  # of two holes the older one stays
            self._fill(hole, other)  # type: ignore[arg-type]
            return other
        if isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype is b.dtype and a.rank == b.rank:
            shape = tuple(d if d == e else UNKNOWN for d, e in zip(a.shape, b.shape, strict=True))
            return a.with_shape(shape)
        pairs = parallel_parts(a, b)
        if pairs is None:
            raise mismatch(self.deep(a), self.deep(b))
        return _with_parts(a, [self.join(x, y) if forward else self._meet(x, y) for x, y, forward in pairs])

    def _meet(self, a: Type, b: Type) -> Type:
        """The one of two types that flows into the other."""
        try:
            self.flow(a, b)
            return a
        except InferenceError:
            self.flow(b, a)
            return b


def _tensor_flows(actual: TensorType, expected: TensorType) -> bool:
    if actual.dtype is not expected.dtype or actual.rank != expected.rank:
        return False
    return all(e is UNKNOWN or a == e for a, e in zip(actual.shape, expected.shape, strict=True))


def parallel_parts(a: Type, b: Type) -> list[tuple[Type, Type, bool]] | None:
    """The parts of two types of one form, and whether they flow forwards; None for types of different forms."""
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.fields) == len(b.fields):
        return [(x, y, True) for x, y in zip(a.fields, b.fields, strict=True)]
    if (
        isinstance(a, DataType)
        and isinstance(b, DataType)
        and a.name == b.name
        and len(a.arguments) == len(b.arguments)
    ):
        return [(x, y, True) for x, y in zip(a.arguments, b.arguments, strict=True)]
    if isinstance(a, FunctionType) and isinstance(b, FunctionType) and len(a.params) == len(b.params):
        params = [(x, y, False) for x, y in zip(a.params, b.params, strict=True)]
        return [*params, (a.result, b.result, True)]
    return None


def _with_parts(type_: Type, parts: list[Type]) -> Type:
    """A type of the form of `type_` with other parts."""
    if isinstance(type_, TupleType):
        return TupleType(tuple(parts))
    if isinstance(type_, DataType):
        return DataType(type_.name, tuple(parts))
    return FunctionType(tuple(parts[:-1]), parts[-1])
