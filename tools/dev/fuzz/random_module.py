"""Random programs as the builder makes them, with values that the reference evaluator and the machine must agree on.

Each block is a random walk over a pool of values: a step applies an operator, a branch, a loop, a closure, a function of the
module or a pattern match to values of the pool. Static and symbolic sizes are mixed: of each value the walk knows the type that
inference gives, and its shape for one choice of the sizes, the witness, so that it may ask for static sizes which only a run can
confirm. For other sizes such a program fails, and must fail in the machine too.

A value is exact when all arithmetic behind it is (small multiples of powers of two): then two evaluations give the same bits,
and conditions may look at it. Of all others the greatest magnitude is bounded, so that rounding errors stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from ....compiler import ir
from ....compiler.builder.programs import (
    Expression,
    Module,
    constant,
    data_type,
    expression,
    field,
    for_loop,
    function,
    global_function,
    if_,
    match_,
    match_shape,
    op,
    tuple_,
    var,
    while_loop,
)
from ....compiler.ir.unify import bind_dims, substituted
from ....compiler.operators import TABLE
from ....formats import dims
from ....formats.dims import Dim, SymbolicDim
from ....formats.dtypes import DType
from ....formats.messages.errors import InferenceError
from ....formats.types import UNKNOWN, FunctionType, TensorType
from . import random_sizes
from .random_values import INT, LARGEST, Dead, M, N, Value

Rows = data_type("Rows = Empty | One(float32[?, 8]) | Two(float32[?, 8], float32[2, 8])")
Chain = data_type("Chain[a] = End | Link(a, Chain[a])")

FLOATS = (DType.float32, DType.float32, DType.float32, DType.float64, DType.float16)
SIZES: tuple[Dim, ...] = (N, N, M, N * 2, N + 1, M * N, 0, 1, 2, 3, 4, 8, 8)
MOST_ELEMENTS = 4096  # of a value in the witness
_BITS = {DType.float16: 10, DType.float32: 22, DType.float64: 50}  # of an exact float's magnitude over its grain
_ROWS = TensorType(DType.float32, (UNKNOWN, 8))
_PAIR = TensorType(DType.float32, (2, 8))


@dataclass(frozen=True)
class Callee:
    """A function that may be called: what it takes, and what it gives."""

    made: Expression
    params: tuple[TensorType, ...]
    result: Value  # in terms of the parameters' dimensions
    counted: bool = False  # the first argument is a number of rounds


@dataclass(frozen=True)
class Sample:
    """A program, and what its "main" can be called with."""

    module: ir.Module
    params: tuple[TensorType, ...]
    witness: Mapping[str, int]
    exact: tuple[bool, ...]  # by result: the same bits are due
    coarse: bool  # float16 takes part

    def arguments(self, sizes: Mapping[str, int], rng: np.random.Generator) -> list[np.ndarray]:
        """Arrays for these sizes."""
        return [_array(type_, sizes, rng) for type_ in self.params]

    def sizes(self, random: Random) -> Iterator[dict[str, int]]:
        """The witness, then other sizes."""
        yield dict(self.witness)
        while True:
            yield {name: random.choice((0, 1, 1, 2, 3, 5, 17)) for name in self.witness}


def _array(type_: TensorType, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    shape = _evaluated(type_.shape, sizes)
    if type_.dtype.is_float:
        return np.array(rng.integers(-8, 9, shape) * 0.5, type_.dtype.numpy)
    return np.array(rng.integers(0, 2 if type_.dtype is DType.bool else 8, shape), type_.dtype.numpy)


def _evaluated(shape: Sequence[Any], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dims.evaluate(dim, sizes) if isinstance(dim, SymbolicDim) else int(dim) for dim in shape)


def random_module(random: Random, length: int = 10) -> Sample:
    """A program of a few functions, each of up to `length` steps or so."""
    functions: dict[str, Any] = {}
    callees: list[Callee] = []
    for number in range(random.choice((0, 0, 1, 1, 2))):
        name = f"helper_{number}"
        make = random.choice((_helper, _helper, _recursion))
        callees.append(make(random, name, functions, callees, length // 2))
    witness = {"n": random.choice((1, 2, 2, 3, 4)), "m": random.choice((1, 2, 3, 8))}
    types = [TensorType(random.choice(FLOATS[:4]), _random_shape(random)) for _ in range(random.randrange(1, 4))]
    types += [
        TensorType(DType.float32, (N, 8)),
        TensorType(DType.float32, (random.choice((M, 2)), 8)),
        INT,
        TensorType(random.choice((DType.int32, DType.int64, DType.bool, DType.uint8)), (M,)),
    ]
    if random.random() < 0.25:
        types.append(TensorType(DType.float32, (random.choice((1, 2, N)), random.choice((3, 16, 20)), 5, 6)))
    if random.random() < 0.15:  # then n stands alone nowhere, and is solved for
        solved = {"n": random.choice((N * 2, N + 1, N * 2 + 1))}
        types = [TensorType(t.dtype, tuple(dims.substitute(dim, solved) for dim in t.shape)) for t in types]  # type: ignore[arg-type]
    walk = Walk(random, witness, callees)
    variables = walk.parameters(types, "x", exact=True)
    walk.steps(random.randrange(2, length + 1), depth=0)
    results = [walk.pick() for _ in range(random.randrange(1, 4))]
    made: list[Any] = [value.made for value in results]
    exact = [value.is_exact for value in results]
    if random.random() < 0.15:
        made.append(tuple_(made[0], walk.pick().made))
        exact.append(False)
    body = made[0] if len(made) == 1 and random.random() < 0.8 else tuple_(*made)
    declared = results[0].type if body is made[0] and random.random() < 0.2 else None
    functions["main"] = function(variables, body, result_type=declared)
    coarse = any(type_.dtype is DType.float16 for type_ in types) or walk.coarse
    module = Module(functions, data_types=(Rows, Chain))
    return Sample(module, tuple(types), witness, tuple(exact), coarse)


def _random_shape(random: Random) -> tuple[Dim, ...]:
    shape = tuple(random.choice(SIZES) for _ in range(random.choice((0, 1, 1, 2, 2, 2, 3))))
    alone = {str(dim) for dim in shape if isinstance(dim, SymbolicDim) and dims.is_variable(dim)}
    return shape if len(shape) < 2 or alone or all(isinstance(dim, int) for dim in shape) else (N, M)


def _helper(random: Random, name: str, functions: dict[str, Any], callees: list[Callee], length: int) -> Callee:
    """A function whose parameters have sizes of their own; its result may be declared."""
    types = [TensorType(DType.float32, _random_shape(random)) for _ in range(random.randrange(1, 3))]
    types = [TensorType(DType.float32, (N, M)), *types] if random.random() < 0.7 else [_ROWS, *types]
    witness = {"n": random.choice((1, 2, 3)), "m": random.choice((1, 2, 8))}
    if any({"n", "m"} & _free(type_) - _bound(types) for type_ in types):
        types = [TensorType(DType.float32, (N, M))]
    walk = Walk(random, witness, callees)
    variables = walk.parameters(types, "y")
    walk.steps(random.randrange(1, length + 1), depth=1)
    result = walk.clipped(walk.pick(float_=True))
    declared = result.type if random.random() < 0.5 else None
    if declared and random.random() < 0.3:
        declared = TensorType(declared.dtype, (UNKNOWN,) * declared.rank)
    functions[name] = function(variables, result.made, result_type=declared)
    known = FunctionType(tuple(types), declared) if declared and random.random() < 0.7 else None
    result = replace(result, type=declared or result.type)
    return Callee(global_function(name, known), tuple(types), result)


def _free(type_: TensorType) -> set[str]:
    return {name for dim in type_.shape if isinstance(dim, SymbolicDim) for name in dims.variables(dim)}


def _bound(types: Sequence[TensorType]) -> set[str]:
    return {
        str(dim) for type_ in types for dim in type_.shape if isinstance(dim, SymbolicDim) and dims.is_variable(dim)
    }


def _recursion(random: Random, name: str, functions: dict[str, Any], callees: list[Callee], length: int) -> Callee:
    """A function that calls itself some rounds, at its end or not; the tensor may grow."""
    grows = random.random() < 0.4
    param = TensorType(DType.float32, (UNKNOWN, 8) if grows else random.choice(((N, 8), (2, 8), (N, M))))
    walk = Walk(random, {"n": 2, "m": 8}, callees)
    count, x = walk.parameters([INT, param], "z")
    walk.steps(random.randrange(1, length + 1), depth=2)
    after = walk.of_type(param)
    if grows:
        after = walk.apply("concat", after, walk.of_type(param), axis=0)
    after = walk.clipped(after)
    again = global_function(name)(count - 1, after.made)
    if random.random() < 0.4:
        again = op.tanh(again)
    declared = param if grows or random.random() < 0.5 else None
    functions[name] = function([count, x], if_(count <= 0, x, again), result_type=declared)
    result = Value(x, param, (2, 8))
    return Callee(global_function(name), (INT, param), result, counted=True)


_UNARY = ("tanh", "sigmoid", "relu", "negative", "abs", "square", "silu", "sin", "floor")
_UNARY_EXACT = ("relu", "negative", "abs", "floor")
_BOUNDED = {"tanh": 1.0, "sigmoid": 1.0, "sin": 1.0, "softmax": 1.0}
_BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


class Walk:
    """Makes the values of one block."""

    def __init__(self, random: Random, witness: Mapping[str, int], callees: Sequence[Callee]) -> None:
        self.random, self.witness = random, witness
        self.callees = list(callees)
        self.pool: list[Value] = []
        self.coarse = False

    def inner(self) -> Walk:
        """The walk of a block in this one."""
        walk = Walk(self.random, self.witness, self.callees)
        walk.pool = list(self.pool)
        return walk

    def parameters(self, types: Sequence[TensorType], letter: str, exact: bool = False) -> list[Expression]:
        variables = [var(f"{letter}{number}", type_) for number, type_ in enumerate(types)]
        for variable, type_ in zip(variables, types, strict=True):
            shape = _evaluated([2 if dim is UNKNOWN else dim for dim in type_.shape], self.witness)
            self.pool.append(Value(variable, type_, shape, LARGEST, 1 if exact else None))
        return variables

    # ---- the pool ----

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
        shape = _evaluated(type_.shape, self.witness)
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

    # ---- operators ----

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

    def unary(self) -> Value:
        name = self.random.choice(_UNARY)
        x = self.pick(float_=True)
        value = self.apply(name, x)
        bound = _BOUNDED.get(name, min(x.bound, 1e9) ** 2 if name == "square" else x.bound)
        places = x.places if name in _UNARY_EXACT else None
        if name == "square" and x.places is not None:
            places = 2 * x.places
        return self.add(self.rounded(value, bound, places))

    def chain(self) -> Value:
        """Elementwise work over what lies in another shape: chances to write in place."""
        value = self.random.choice((self.reshape, self.concat, self.slice, self.split, self.unary))()
        if not value.is_float:
            raise Dead
        for _ in range(self.random.randrange(1, 4)):
            value = self.apply(self.random.choice(("sigmoid", "tanh")), value)
            value = replace(value, bound=1.0, places=None)
        return self.add(value)

    def binary(self) -> Value:
        name = self.random.choice(_BINARY)
        x = self.pick()
        if x.type.dtype is DType.bool:
            name = self.random.choice(("logical_and", "logical_or", "logical_xor"))
        y = self.pick(dtype=x.type.dtype)
        x, y = (x, y) if self.random.random() < 0.5 else (y, x)
        return self.add(self._combined(name, x, y))

    def _combined(self, name: str, x: Value, y: Value) -> Value:
        exact = x.places is not None and y.places is not None
        if name == "multiply":
            bound, places = x.bound * y.bound, (x.places or 0) + (y.places or 0)
        else:
            bound, places = x.bound + y.bound, max(x.places or 0, y.places or 0)
        return self.rounded(self.apply(name, x, y), bound, places if exact else None)

    def literal(self) -> Value:
        """With a Python number, whose type is that of the other operand."""
        x = self.pick(float_=True)
        number = self.random.choice((2, 1, 0.5, -1.5))
        made = x.made * number if self.random.random() < 0.5 else number + x.made
        bound = x.bound * 2 + 2
        return self.add(self.rounded(replace(x, made=made), bound, None if x.places is None else x.places + 1))

    def where(self) -> Value:
        x = self.pick(float_=True)
        y = self.pick(dtype=x.type.dtype)
        condition = Value(self.exact_scalar(), TensorType(DType.bool, ()), (), 1.0, 0)
        value = self._combined("maximum", x, y)
        return self.add(replace(self.apply("where", condition, x, y), bound=value.bound, places=value.places))

    def compare(self) -> Value:
        x = self.pick()
        y = self.pick(dtype=x.type.dtype)
        if not (x.is_exact and y.is_exact) or x.type.dtype is DType.bool:
            raise Dead
        value = self.apply(self.random.choice(("less", "greater_equal", "equal")), x, y)
        return self.add(replace(value, bound=1.0, places=0))

    def cast(self) -> Value:
        x = self.pick()
        dtype = self.random.choice(FLOATS)
        value = self.apply("cast", x, dtype=dtype)
        return self.add(self.rounded(value, x.bound if x.type.dtype is not DType.uint8 else 255.0, x.places))

    def to_integer(self) -> Value:
        x = self.pick(float_=True)
        if not x.is_exact:
            raise Dead
        return self.add(replace(self.apply("cast", x, dtype=self.random.choice((DType.int64, DType.int32))), places=0))

    # ---- shapes ----

    def reshape(self) -> Value:
        x = self.pick()
        count = int(np.prod(x.shape))
        known: list[tuple[Dim, ...]] = [(-1,)] if UNKNOWN not in x.type.shape or self.random.random() < 0.5 else []
        if UNKNOWN not in x.type.shape:
            total: Dim = 1
            for dim in x.type.shape:
                total = dims.multiply(total, dim)  # type: ignore[arg-type]
            known += [(total,), (1, total), (total, 1), x.type.shape[::-1]]  # type: ignore[list-item]
        known += _factorings(count, self.random)  # sizes that the run confirms
        known += [(shape[0], -1) for shape in known if shape and shape[0] not in (-1, 0)]
        if self.random.random() < 0.3:
            known += [(N, -1), (-1, M), (2, N, -1), (N * 2, -1)]
        return self.add(self.apply_view("reshape", x, shape=self.random.choice(known)))

    def apply_view(self, name: str, x: Value, **attributes: Any) -> Value:
        return replace(self.apply(name, x, **attributes), bound=x.bound, places=x.places)

    def view(self) -> Value:
        x = self.pick()
        axis = self.random.randrange(x.type.rank + 1)
        if x.type.rank and self.random.random() < 0.4:
            axes = tuple(self.random.sample(range(x.type.rank), x.type.rank))
            return self.add(self.apply("permute_dims", x, axes=axes))
        if 1 in x.type.shape and self.random.random() < 0.5:
            return self.add(self.apply("squeeze", x, axes=(x.type.shape.index(1),)))
        return self.add(self.apply("expand_dims", x, axes=(axis,)))

    def concat(self) -> Value:
        x = self.pick(least_rank=1)
        others = [v for v in self.pool if v.type.dtype is x.type.dtype and v.type.rank == x.type.rank]
        parts = [x, *(self.random.choice(others) for _ in range(self.random.randrange(1, 3)))]
        self.random.shuffle(parts)
        name = self.random.choice(("concat", "concat", "stack"))
        axis = self.random.randrange(x.type.rank)
        value = self.apply(name, *parts, axis=axis)
        return self.add(replace(value, bound=max(part.bound for part in parts)))

    def slice(self) -> Value:
        x = self.pick(least_rank=1)
        axis = self.random.randrange(x.type.rank)
        size = x.type.shape[axis]
        start: Any = self.random.choice((0, 0, 1, -1))
        ends: list[Any] = [1 << 40, 2, -1, N, M]
        if size is not UNKNOWN:
            ends += [dims.floordiv(size, 2), size]  # type: ignore[arg-type]
        end, step = self.random.choice(ends), self.random.choice((1, 1, 1, 2))
        return self.add(self.apply_view("slice", x, starts=(start,), ends=(end,), axes=(axis,), steps=(step,)))

    def split(self) -> Value:
        x = self.pick(least_rank=1)
        axis = self.random.randrange(x.type.rank)
        size = x.type.shape[axis]
        if size is UNKNOWN:
            raise Dead
        half = dims.floordiv(size, 2)  # type: ignore[arg-type]
        first = self.random.choice((half, 1, 0, size))
        sizes = (first, dims.add(size, dims.multiply(first, -1)))  # type: ignore[arg-type]
        return self.add(self.apply("split", x, axis=axis, sizes=sizes))

    def pad(self) -> Value:
        x = self.pick(least_rank=1, float_=True)
        pads = tuple(self.random.choice((0, 0, 1, 2)) for _ in range(2 * x.type.rank))
        return self.add(self.apply_view("pad", x, pads=pads, value=0.5))

    def spread(self) -> Value:
        x = self.pick()
        others = [v.type.shape for v in self.pool if v.type.rank >= x.type.rank and UNKNOWN not in v.type.shape]
        others += [(N, *x.type.shape)] if UNKNOWN not in x.type.shape else []
        if not others:
            raise Dead
        return self.add(self.apply_view("broadcast_to", x, shape=self.random.choice(others)))

    def take(self) -> Value:
        x = self.pick(least_rank=1)
        axis = self.random.randrange(x.type.rank)
        numbers = np.array([self.random.randrange(-1, 2) for _ in range(self.random.randrange(4))], np.int64)
        indices = constant(numbers if len(numbers) != 1 else numbers[0])
        index = Value(indices, indices.type, np.shape(numbers) if len(numbers) != 1 else (), 1.0, 0)  # type: ignore[arg-type]
        return self.add(replace(self.apply("take", x, index, axis=axis), bound=x.bound, places=x.places))

    def matched(self) -> Value:
        """The shape is checked when the program runs; unknown dimensions get names."""
        x = self.pick(least_rank=1)
        shape: list[Any] = [
            self.random.choice([dim, size, f"k{self.random.randrange(1000)}"]) if dim is UNKNOWN else
            self.random.choice([dim, dim, size])
            for dim, size in zip(x.type.shape, x.shape, strict=True)
        ]  # fmt: skip
        made = match_shape(x.made, shape)
        new: Any = tuple(dims.variable(dim) if isinstance(dim, str) else dim for dim in shape)
        self.witness = {**self.witness, **{d: s for d, s in zip(shape, x.shape, strict=True) if isinstance(d, str)}}
        return self.add(replace(x, made=made, type=TensorType(x.type.dtype, new)))

    def made_of_sizes(self) -> Value:
        """Tensors whose shapes or elements are sizes."""
        known = [value.type.shape for value in self.pool if UNKNOWN not in value.type.shape]
        kind = self.random.randrange(3)
        if kind == 0:
            shape = self.random.choice(known)
            dtype = self.random.choice(FLOATS)
            return self.add(replace(self.apply("full", shape=shape, value=0.5, dtype=dtype), bound=0.5, places=1))
        if kind == 1:
            value = self.apply("arange", stop=self.random.choice((N, M, N * 2, 3)))
            return self.add(self.clipped(replace(value, bound=100.0, places=0)))
        value = self.apply("shape", self.pick())
        return self.add(replace(value, bound=100.0, places=0))

    # ---- kernels with anchors ----

    def reduction(self) -> Value:
        x = self.clipped(self.pick())
        name = self.random.choice(("sum", "mean", "max", "sum"))
        if x.type.dtype is DType.bool or (name in ("mean", "max") and (not x.is_float or 0 in x.shape)):
            raise Dead
        axes = tuple(axis for axis in range(x.type.rank) if self.random.random() < 0.6)
        value = self.apply(name, x, axes=axes or None, keepdims=self.random.random() < 0.3)
        bound, places = (x.bound, None) if name == "mean" else (x.bound * (256 if name == "sum" else 1), x.places)
        return self.add(self.clipped(self.rounded(value, bound, places)))

    def rowwise(self) -> Value:
        x = self.clipped(self.pick(least_rank=1, float_=True))
        if self.random.random() < 0.7:
            value = self.apply("softmax", x, axis=self.random.randrange(x.type.rank))
            return self.add(replace(value, bound=1.0, places=None))
        return self.add(replace(self.apply("layer_normalization", x, epsilon=1.0), places=None))

    def product(self) -> Value:
        x = self.clipped(self.pick(least_rank=2, float_=True))
        y = self.clipped(self.pick(least_rank=2, dtype=x.type.dtype))
        if x.type.dtype is DType.float16:
            raise Dead
        if self.random.random() < 0.5:
            y = self.apply("permute_dims", y, axes=(*range(y.type.rank - 2), y.type.rank - 1, y.type.rank - 2))
        value = self.apply("matmul", x, y)
        places = None if x.places is None or y.places is None else x.places + y.places
        return self.add(self.clipped(self.rounded(value, LARGEST * LARGEST * 64, places)))

    def weights(self, *shape: int) -> Value:
        rng = np.random.default_rng(self.random.randrange(1 << 30))
        made = constant((rng.integers(-4, 5, shape) * 0.25).astype(np.float32))
        return Value(made, made.type, shape, 1.0, 2)  # type: ignore[arg-type]

    def linear(self) -> Value:
        """A product with a matrix of the model."""
        x = self.clipped(self.pick(least_rank=1, dtype=DType.float32))
        depth = x.type.shape[-1]
        if not isinstance(depth, int):
            raise Dead
        columns = self.random.choice((1, 3, 8, 20))
        value = self.apply("matmul", x, self.weights(depth, columns))
        if self.random.random() < 0.5:
            value = self._combined("add", value, self.weights(columns))
        return self.add(self.clipped(replace(value, bound=LARGEST * 64, places=None)))

    def image(self) -> Value:
        """A layer of a convolutional network."""
        images = [v for v in self.pool if v.type.rank == 4 and v.type.dtype is DType.float32]
        images = [v for v in images if isinstance(v.type.shape[1], int)]
        if not images:
            raise Dead
        x = self.clipped(self.random.choice(images))
        channels = x.shape[1]
        kind = self.random.randrange(5)
        if kind == 0:
            value = self.apply("max_pool", x, kernel=(2, 2), strides=(self.random.choice((1, 2)),) * 2)
        elif kind == 1:
            positive = replace(self.weights(channels), made=constant(np.full(channels, 1.5, np.float32)))
            parts = [self.weights(channels), self.weights(channels), self.weights(channels), positive]
            value = self.apply("batch_normalization", x, *parts)
        elif kind == 2:
            value = self.apply("mean", x, axes=(2, 3), keepdims=self.random.random() < 0.5)
        else:
            size, outputs = self.random.choice((1, 3)), self.random.choice((4, 16, 24))
            weight = self.weights(outputs, channels, size, size)
            bias = [self.weights(outputs)] if self.random.random() < 0.5 else []
            value = self.apply(
                "conv", x, weight, *bias, pads=(size // 2,) * 4, strides=(self.random.choice((1, 1, 2)),) * 2
            )
        return self.add(self.clipped(replace(value, bound=LARGEST * 64, places=None)))

    # ---- control ----

    def steps(self, count: int, depth: int) -> None:
        for _ in range(count):
            for _ in range(20):
                step = self.random.choice(_CONTROL if depth < 3 and self.random.random() < 0.18 else _STEPS)
                kept = len(self.pool)
                try:
                    step(self, depth + 1) if step in _CONTROL else step(self)  # type: ignore[operator]
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

    def _joined(self, made: Expression, values: Sequence[Value]) -> Value:
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

    def branch(self, depth: int) -> Value:
        model = self.pick()
        condition = self.exact_scalar()
        rank, dtype = model.type.rank, model.type.dtype
        branches = [self.branch_value(depth, rank, dtype)[1] for _ in range(2)]
        value = self._joined(if_(condition, branches[0].made, branches[1].made), branches)
        if self.random.random() < 0.3:  # two values come out of the branches
            second = [self.pick(), self.pick()]
            if second[0].type.dtype is second[1].type.dtype and second[0].type.rank == second[1].type.rank:
                both = if_(condition, *((a.made, b.made) for a, b in zip(branches, second, strict=True)))
                self.add(self._joined(field(both, 1), second))
                value = replace(value, made=field(both, 0))
        return self.add(value)

    def loop(self, depth: int) -> Value:
        """One or two variables; one may grow."""
        start, other = self.clipped(self.pick(float_=True, least_rank=1)), self.clipped(self.pick(float_=True))
        grows = self.random.random() < 0.35
        rounds: Any = self.random.randrange(4)
        type_ = TensorType(start.type.dtype, (UNKNOWN, *start.type.shape[1:])) if grows else start.type
        both = self.random.random() < 0.4
        walk = self.inner()

        def step(i: Expression, a: Expression, b: Expression | None = None) -> list[Expression]:
            mine = Value(a, type_, start.shape)
            walk.pool += [Value(i, INT, (), 4.0, 0), mine]
            if b is not None:
                walk.pool.append(Value(b, other.type, other.shape))
            walk.steps(self.random.randrange(1, 4), depth)
            after = walk.of_type(type_)
            if grows:
                after = walk.apply("concat", after, self.random.choice((mine, start, walk.of_type(type_))), axis=0)
            results = [walk.clipped(after).made]
            return results if b is None else [*results, walk.clipped(walk.of_type(other.type)).made]

        initial = [start.made, other.made][: 1 + both]
        if self.random.random() < 0.6:
            body: Any = (lambda i, a, b: tuple_(*step(i, a, b))) if both else (lambda i, a: step(i, a)[0])
            looped, first = for_loop(rounds, body, initial), 0
        else:
            test: Any = (lambda i, a, b: i < rounds) if both else (lambda i, a: i < rounds)
            body = (lambda i, a, b: (i + 1, *step(i, a, b))) if both else (lambda i, a: (i + 1, *step(i, a)))
            looped, first = while_loop(test, body, [constant(0), *initial]), 1
        self.coarse |= walk.coarse
        if both:
            self.add(Value(field(looped, first + 1), other.type, other.shape))
        return self.add(Value(field(looped, first), type_, start.shape))

    def closure(self, depth: int) -> Value:
        """A function value: called at once, chosen by a branch, or kept for later steps."""
        args = [self.clipped(self.pick()) for _ in range(self.random.randrange(1, 3))]
        types = [arg.type for arg in args]
        walk = self.inner()
        params = walk.parameters([TensorType(t.dtype, (UNKNOWN,) * t.rank) for t in types], "p")
        params = [var(f"p{number}", type_) for number, type_ in enumerate(types)]
        del walk.pool[-len(args) :]
        walk.pool += [
            Value(p, a.type, a.shape, LARGEST, None if a.is_float else 0) for p, a in zip(params, args, strict=True)
        ]
        walk.steps(self.random.randrange(1, 4), depth)
        self.coarse |= walk.coarse
        result = walk.clipped(walk.pick(float_=True))
        if not all(map(self.is_mine, result.type.shape)):
            raise Dead
        made: Expression = function(params, result.made)
        kind = self.random.randrange(4)
        if kind == 0:
            made = if_(
                self.exact_scalar(), made, function(params2 := [var("q", t) for t in types], _alike(result, params2))
            )
        elif kind == 1:
            made = field(tuple_(made, args[0].made), 0)
        value = replace(result, made=made(*(arg.made for arg in args)), places=None)
        if kind == 2:  # called twice
            self.add(replace(value, made=made(*(arg.made for arg in args))))
        return self.add(value)

    def call(self, depth: int) -> Value:
        callee = self.random.choice(self.callees) if self.callees else None
        if callee is None:
            raise Dead
        args = [self._argument(param) for param in callee.params]
        if callee.counted:
            args[0] = Value(expression(self.random.randrange(4)), INT, (), 4.0, 0)
        for arg, param in zip(args, callee.params, strict=True):
            if any(
                isinstance(d, int) and a is not UNKNOWN and a != d
                for a, d in zip(arg.type.shape, param.shape, strict=True)
            ):
                raise Dead
        values = bind_dims(callee.params, [arg.type for arg in args])
        sizes = bind_dims(callee.params, [arg.concrete for arg in args])
        for arg, param in zip(args, callee.params, strict=True):
            for came, wanted, size in zip(arg.type.shape, param.shape, arg.shape, strict=True):
                if isinstance(wanted, SymbolicDim):
                    if dims.evaluate(wanted, sizes) != size:  # type: ignore[arg-type]
                        raise Dead
                    wanted = substituted(TensorType(DType.bool, (wanted,)), values).shape[0]  # type: ignore[union-attr]
                if UNKNOWN not in (came, wanted) and came != wanted:
                    raise Dead
        type_ = substituted(callee.result.type, values)
        shape = substituted(callee.result.type, sizes)
        assert isinstance(type_, TensorType)
        assert isinstance(shape, TensorType)
        known = tuple(2 if dim is UNKNOWN else dim for dim in shape.shape)
        made = callee.made(*(arg.made for arg in args))
        if self.random.random() < 0.2:
            made = made * 2 - made  # the builder may not know the type
        return self.add(Value(made, type_, known))  # type: ignore[arg-type]

    def _argument(self, param: TensorType) -> Value:
        usable = [v for v in self.pool if v.type.dtype is param.dtype and v.type.rank == param.rank]
        if not usable:
            raise Dead
        return self.clipped(self.random.choice(usable))

    def rows(self, depth: int) -> Value:
        """A data value made by a branch, and taken apart."""
        rows = [v for v in self.pool if v.type.dtype is DType.float32 and v.type.rank == 2 and v.type.shape[1] == 8]
        if not rows:
            raise Dead
        rows = [self.clipped(value) for value in rows]
        one = Rows.One(self.random.choice(rows).made)
        two = Rows.Two(self.random.choice(rows).made, self.of_type(_PAIR).made)
        data = if_(self.exact_scalar(), self.random.choice((one, two)), self.random.choice((Rows.Empty(), two)))
        results: list[Value] = []

        def clause(*bound: Expression) -> Expression:
            values = [Value(e, t, (2, 8)) for e, t in zip(bound, (_ROWS, _PAIR), strict=False)]
            _, value = self.branch_value(depth, 2, DType.float32, *values)
            results.append(value)
            return value.made

        made = match_(data, {Rows.Empty: clause(), Rows.One: lambda a: clause(a), Rows.Two: lambda a, b: clause(a, b)})
        return self.add(replace(self._joined(made, results), places=None))

    def chain_of(self, depth: int) -> Value:
        """A list of tensors of one type, its first element taken out again."""
        first = self.pick()
        again = self.of_type(first.type)
        data = Chain.Link(first.made, Chain.Link(again.made, Chain.End()))
        name = ir.Var("first")
        pattern = ir.ConstructorPattern("Link", (ir.Bind(name), ir.Wildcard()))
        made = match_(data, [(pattern, Expression(atom=name)), (ir.Wildcard(), again.made)])
        shape = tuple(UNKNOWN if isinstance(dim, SymbolicDim) else dim for dim in first.type.shape)
        return self.add(replace(first, made=made, type=TensorType(first.type.dtype, shape)))

    def found(self, depth: int) -> Value:
        """A tensor as long as what is found in another."""
        x = self.pick(least_rank=1)
        if not x.is_exact:
            raise Dead
        value = self.apply("nonzero", x)
        count = 2
        return self.add(
            replace(
                value, shape=(value.shape[0] if value.shape[0] is not UNKNOWN else count, count), bound=100.0, places=0
            )
        )


def _alike(result: Value, params: Sequence[Expression]) -> Expression:
    """Another value of the type of `result`, in its place."""
    return result.made if not params else op.tanh(result.made)


def _factorings(count: int, random: Random) -> list[tuple[int, ...]]:
    """Static shapes of so many elements."""
    found: list[tuple[int, ...]] = [(count,), (1, count), (count, 1)]
    found += [(part, count // part) for part in (2, 3, 4, 8) if count and count % part == 0]
    found += [(2, part, count // (2 * part)) for part in (2, 4) if count and count % (2 * part) == 0]
    return found


_STEPS: tuple[Callable[[Walk], Value], ...] = (
    Walk.unary,
    Walk.unary,
    Walk.chain,
    Walk.chain,
    Walk.chain,
    Walk.binary,
    Walk.binary,
    Walk.binary,
    Walk.literal,
    Walk.where,
    Walk.compare,
    Walk.cast,
    Walk.to_integer,
    Walk.reshape,
    Walk.reshape,
    Walk.reshape,
    Walk.view,
    Walk.concat,
    Walk.concat,
    Walk.slice,
    Walk.split,
    Walk.pad,
    Walk.spread,
    Walk.take,
    Walk.matched,
    Walk.made_of_sizes,
    Walk.reduction,
    Walk.rowwise,
    Walk.rowwise,
    Walk.product,
    Walk.linear,
    Walk.image,
    Walk.image,
    *random_sizes.STEPS,
)
_CONTROL: tuple[Callable[[Walk, int], Value], ...] = (
    Walk.branch,
    Walk.branch,
    Walk.loop,
    Walk.loop,
    Walk.closure,
    Walk.call,
    Walk.call,
    Walk.rows,
    Walk.chain_of,
    Walk.found,
    *random_sizes.CONTROL,
)
