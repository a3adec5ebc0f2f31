"""The walk of a random program through a block: its pool of values, and what all steps need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from .....compiler.builder.programs import Expression, field, op, var
from .....compiler.operators import TABLE
from .....formats import dims
from .....formats.dims import SymbolicDim
from .....formats.dtypes import DType
from .....formats.messages.errors import InferenceError
from .....formats.types import UNKNOWN, TensorType
from .values import LARGEST, Dead, Value

MOST_ELEMENTS = 4096  # of a value in the witness
_BITS = {DType.float16: 10, DType.float32: 22, DType.float64: 50}  # of an exact float's magnitude over its grain


@dataclass(frozen=True)
class Callee:
    """A function that may be called: what it takes, and what it gives."""

    made: Expression
    params: tuple[TensorType, ...]
    result: Value  # in terms of the parameters' dimensions
    counted: bool = False  # the first argument is a number of rounds


def evaluated(shape: Sequence[Any], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape for these sizes."""
    return tuple(dims.evaluate(dim, sizes) if isinstance(dim, SymbolicDim) else int(dim) for dim in shape)


@dataclass(frozen=True)
class Kinds:
    """The steps that a walk may take: those that make a value, and those with blocks of their own, which are told their depth."""

    steps: tuple[Callable[[Walk], Value], ...]
    control: tuple[Callable[[Walk, int], Value], ...]


class Walk:
    """Makes the values of one block."""

    def __init__(self, random: Random, witness: Mapping[str, int], callees: Sequence[Callee], kinds: Kinds) -> None:
        self.random, self.witness, self.kinds = random, witness, kinds
        self.callees = list(callees)
        self.pool: list[Value] = []
        self.coarse = False

    def inner(self) -> Walk:
        """The walk of a block in this one."""
        walk = Walk(self.random, self.witness, self.callees, self.kinds)
        walk.pool = list(self.pool)
        return walk

    def parameters(self, types: Sequence[TensorType], letter: str, exact: bool = False) -> list[Expression]:
        variables = [var(f"{letter}{number}", type_) for number, type_ in enumerate(types)]
        for variable, type_ in zip(variables, types, strict=True):
            shape = evaluated([2 if dim is UNKNOWN else dim for dim in type_.shape], self.witness)
            self.pool.append(Value(variable, type_, shape, LARGEST, 1 if exact else None))
        return variables

    def pick(self, float_: bool | None = None, least_rank: int = 0, dtype: DType | None = None) -> Value:
        """A value of the pool, a recent one more likely than an old one."""
        usable = [
            value
            for value in self.pool
            if value.type.rank >= least_rank
            and (float_ is None or value.is_float == float_)
            and (dtype is None or value.type.dtype is dtype)
        ]
        if not usable:
            raise Dead
        return usable[max(self.random.randrange(len(usable)), self.random.randrange(len(usable)))]

    def of_type(self, type_: TensorType) -> Value:
        """A value of the pool of this type; made, if there is none."""
        usable = [value for value in self.pool if value.type == type_]
        if usable:
            return self.random.choice(usable)
        if any(dim is UNKNOWN for dim in type_.shape):
            raise Dead
        shape = evaluated(type_.shape, self.witness)
        return Value(op.full(shape=type_.shape, value=0.5, dtype=type_.dtype), type_, shape, 1.0, 1)

    def add(self, value: Value) -> Value:
        if np.prod(value.shape, dtype=float) > MOST_ELEMENTS or len(value.shape) > 5:
            raise Dead
        value = self.clipped(value) if value.bound > 200 else value
        self.coarse |= value.type.dtype is DType.float16
        self.pool.append(value)
        return value

    def clipped(self, value: Value) -> Value:
        """The value, small enough for any use. Unsigned integers wrap around, and stay as they are."""
        if value.bound <= LARGEST or value.type.dtype in (DType.bool, DType.uint8):
            return value
        if value.is_float:
            return replace(value, made=op.clip(value.made, min=-LARGEST, max=LARGEST), bound=LARGEST)
        return replace(value, made=op.remainder(value.made, 7), bound=7.0)

    def exact_scalar(self) -> Expression:
        """A condition that rounding cannot turn."""
        usable = [value for value in self.pool if value.is_exact]
        if not usable:
            raise Dead
        value = self.random.choice(usable)
        made = op.sum(op.remainder(op.cast(value.made, dtype="int64"), 5)) if value.type.rank else value.made
        compare = self.random.choice((op.greater, op.less_equal))
        return compare(op.cast(made, dtype="int64"), self.random.randrange(4))

    def apply(self, name: str, *values: Value, **attributes: Any) -> Value:
        """An operator's one result. Raises InferenceError where it does not take the values."""
        operator = TABLE[name]
        canonical = operator.canonical(attributes)
        types = operator.result_types([value.type for value in values], canonical)
        concrete = tuple((key, self._concrete(value)) for key, value in canonical)
        shapes = operator.result_types([value.concrete for value in values], concrete)
        bound = max((value.bound for value in values), default=1.0)
        places = (
            None if any(value.places is None for value in values) else max((v.places or 0 for v in values), default=0)
        )
        made = getattr(op, name)(*(value.made for value in values), **attributes)
        if len(types) > 1:
            which = self.random.randrange(len(types))
            for index in range(len(types)):
                if index != which and self.random.random() < 0.5:
                    self._take(field(made, index), types[index], shapes[index], bound, places)
            made, types, shapes = field(made, which), types[which:], shapes[which:]
        return Value(made, types[0], shapes[0].shape, bound, places)  # type: ignore[arg-type]

    def _take(self, made: Expression, type_: TensorType, shape: TensorType, bound: float, places: int | None) -> None:
        self.pool.append(Value(made, type_, shape.shape, bound, places))  # type: ignore[arg-type]

    def _concrete(self, value: Any) -> Any:
        if isinstance(value, SymbolicDim):
            return dims.evaluate(value, self.witness)
        return tuple(map(self._concrete, value)) if isinstance(value, tuple) else value

    def rounded(self, value: Value, bound: float, places: int | None) -> Value:
        """The value with its new bound; no longer exact if its grain is too fine."""
        bits = _BITS.get(value.type.dtype, 60)
        if places is None or bound * 2.0**places >= 2.0**bits:
            places = None
        return replace(value, bound=bound, places=places)

    def apply_view(self, name: str, x: Value, **attributes: Any) -> Value:
        return replace(self.apply(name, x, **attributes), bound=x.bound, places=x.places)

    def steps(self, count: int, depth: int) -> None:
        for _ in range(count):
            for _ in range(20):
                nests = depth < 3 and self.random.random() < 0.18
                kept = len(self.pool)
                try:
                    if nests:
                        self.random.choice(self.kinds.control)(self, depth + 1)
                    else:
                        self.random.choice(self.kinds.steps)(self)
                    break
                except (Dead, InferenceError, ZeroDivisionError):
                    del self.pool[kept:]

    def branch_value(self, depth: int, rank: int, dtype: DType, *bound: Value) -> tuple[Walk, Value]:
        """What an inner block gives: of this rank and element type."""
        walk = self.inner()
        walk.pool += bound
        walk.steps(self.random.randrange(3), depth)
        usable = [v for v in walk.pool[-8:] if v.type.rank == rank and v.type.dtype is dtype] or [
            v for v in walk.pool if v.type.rank == rank and v.type.dtype is dtype
        ]
        self.coarse |= walk.coarse
        if not usable:
            raise Dead
        return walk, self.random.choice(usable)

    def joined(self, made: Expression, values: Sequence[Value]) -> Value:
        first = values[0]
        shape = tuple(
            dim if all(v.type.shape[axis] == dim and self.is_mine(dim) for v in values) else UNKNOWN
            for axis, dim in enumerate(first.type.shape)
        )
        places = None if any(v.places is None for v in values) else max(v.places or 0 for v in values)
        bound = max(v.bound for v in values)
        return Value(made, TensorType(first.type.dtype, shape), first.shape, bound, places)

    def is_mine(self, dim: Any) -> bool:
        return not isinstance(dim, SymbolicDim) or set(dims.variables(dim)) <= set(self.witness)
