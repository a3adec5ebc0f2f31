"""Random programs as the builder makes them, with values that the reference evaluator and the machine must agree on.

Each block is a random walk over a pool of values: a step applies an operator, a branch, a loop, a closure, a function of the
module or a pattern match to values of the pool. Static and symbolic sizes are mixed: of each value the walk knows the type that
inference gives, and its shape for one choice of the sizes, the witness, so that it may ask for static sizes that only
running it can confirm. For other sizes such a program fails, and must fail in the machine too.

A value is exact when all arithmetic behind it is (small multiples of powers of two): then two evaluations give the same bits,
and conditions may look at it. Of all others the greatest magnitude is bounded, so that rounding errors stay small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from .....compiler import ir
from .....compiler.builder.programs import Module, function, global_function, if_, op, tuple_
from .....formats import dims
from .....formats.dims import Dim, SymbolicDim
from .....formats.dtypes import DType
from .....formats.types import UNKNOWN, FunctionType, TensorType
from . import control, sizes, steps
from .control import Chain, Rows
from .steps import FLOATS
from .values import INT, M, N, Value
from .walk import Callee, Kinds, Walk, evaluated

SIZES: tuple[Dim, ...] = (N, N, M, N * 2, N + 1, M * N, 0, 1, 2, 3, 4, 8, 8)
_KINDS = Kinds((*steps.STEPS, *sizes.STEPS), (*control.CONTROL, *sizes.CONTROL))
_ROWS = TensorType(DType.float32, (UNKNOWN, 8))


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
    shape = evaluated(type_.shape, sizes)
    if type_.dtype.is_float:
        return np.array(rng.integers(-8, 9, shape) * 0.5, type_.dtype.numpy)
    return np.array(rng.integers(0, 2 if type_.dtype is DType.bool else 8, shape), type_.dtype.numpy)


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
    walk = Walk(random, witness, callees, _KINDS)
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
    walk = Walk(random, witness, callees, _KINDS)
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
    walk = Walk(random, {"n": 2, "m": 8}, callees, _KINDS)
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
