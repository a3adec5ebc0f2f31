"""Steps of random programs: branches, loops, functions and data values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .....compiler import ir
from .....compiler.builder.programs import (
    Expression,
    constant,
    data_type,
    expression,
    field,
    for_loop,
    function,
    if_,
    match_,
    op,
    tuple_,
    var,
    while_loop,
)
from .....compiler.ir.unify import bind_dims, substituted
from .....formats import dims
from .....formats.dims import SymbolicDim
from .....formats.dtypes import DType
from .....formats.types import UNKNOWN, TensorType
from .values import INT, LARGEST, Dead, Value
from .walk import Walk

Rows = data_type("Rows = Empty | One(float32[?, 8]) | Two(float32[?, 8], float32[2, 8])")
Chain = data_type("Chain[a] = End | Link(a, Chain[a])")

_ROWS = TensorType(DType.float32, (UNKNOWN, 8))
_PAIR = TensorType(DType.float32, (2, 8))


def branch(w: Walk, depth: int) -> Value:
    model = w.pick()
    condition = w.exact_scalar()
    rank, dtype = model.type.rank, model.type.dtype
    branches = [w.branch_value(depth, rank, dtype)[1] for _ in range(2)]
    value = w.joined(if_(condition, branches[0].made, branches[1].made), branches)
    if w.random.random() < 0.3:  # two values come out of the branches
        second = [w.pick(), w.pick()]
        if second[0].type.dtype is second[1].type.dtype and second[0].type.rank == second[1].type.rank:
            both = if_(condition, *((a.made, b.made) for a, b in zip(branches, second, strict=True)))
            w.add(w.joined(field(both, 1), second))
            value = replace(value, made=field(both, 0))
    return w.add(value)


def loop(w: Walk, depth: int) -> Value:
    """One or two variables; one may grow."""
    start, other = w.clipped(w.pick(float_=True, least_rank=1)), w.clipped(w.pick(float_=True))
    grows = w.random.random() < 0.35
    rounds: Any = w.random.randrange(4)
    type_ = TensorType(start.type.dtype, (UNKNOWN, *start.type.shape[1:])) if grows else start.type
    both = w.random.random() < 0.4
    walk = w.inner()

    def step(i: Expression, a: Expression, b: Expression | None = None) -> list[Expression]:
        mine = Value(a, type_, start.shape)
        walk.pool += [Value(i, INT, (), 4.0, 0), mine]
        if b is not None:
            walk.pool.append(Value(b, other.type, other.shape))
        walk.steps(w.random.randrange(1, 4), depth)
        after = walk.of_type(type_)
        if grows:
            after = walk.apply("concat", after, w.random.choice((mine, start, walk.of_type(type_))), axis=0)
        results = [walk.clipped(after).made]
        return results if b is None else [*results, walk.clipped(walk.of_type(other.type)).made]

    initial = [start.made, other.made][: 1 + both]
    if w.random.random() < 0.6:
        body: Any = (lambda i, a, b: tuple_(*step(i, a, b))) if both else (lambda i, a: step(i, a)[0])
        looped, first = for_loop(rounds, body, initial), 0
    else:
        test: Any = (lambda i, a, b: i < rounds) if both else (lambda i, a: i < rounds)
        body = (lambda i, a, b: (i + 1, *step(i, a, b))) if both else (lambda i, a: (i + 1, *step(i, a)))
        looped, first = while_loop(test, body, [constant(0), *initial]), 1
    w.coarse |= walk.coarse
    if both:
        w.add(Value(field(looped, first + 1), other.type, other.shape))
    return w.add(Value(field(looped, first), type_, start.shape))


def closure(w: Walk, depth: int) -> Value:
    """A function value: called at once, chosen by a branch, or kept for later steps."""
    args = [w.clipped(w.pick()) for _ in range(w.random.randrange(1, 3))]
    types = [arg.type for arg in args]
    walk = w.inner()
    params = walk.parameters([TensorType(t.dtype, (UNKNOWN,) * t.rank) for t in types], "p")
    params = [var(f"p{number}", type_) for number, type_ in enumerate(types)]
    del walk.pool[-len(args) :]
    walk.pool += [
        Value(p, a.type, a.shape, LARGEST, None if a.is_float else 0) for p, a in zip(params, args, strict=True)
    ]
    walk.steps(w.random.randrange(1, 4), depth)
    w.coarse |= walk.coarse
    result = walk.clipped(walk.pick(float_=True))
    if not all(map(w.is_mine, result.type.shape)):
        raise Dead
    made: Expression = function(params, result.made)
    kind = w.random.randrange(4)
    if kind == 0:
        made = if_(w.exact_scalar(), made, function(params2 := [var("q", t) for t in types], _alike(result, params2)))
    elif kind == 1:
        made = field(tuple_(made, args[0].made), 0)
    value = replace(result, made=made(*(arg.made for arg in args)), places=None)
    if kind == 2:  # called twice
        w.add(replace(value, made=made(*(arg.made for arg in args))))
    return w.add(value)


def call(w: Walk, depth: int) -> Value:
    callee = w.random.choice(w.callees) if w.callees else None
    if callee is None:
        raise Dead
    args = [_argument(w, param) for param in callee.params]
    if callee.counted:
        args[0] = Value(expression(w.random.randrange(4)), INT, (), 4.0, 0)
    for arg, param in zip(args, callee.params, strict=True):
        if any(
            isinstance(d, int) and a is not UNKNOWN and a != d for a, d in zip(arg.type.shape, param.shape, strict=True)
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
    if w.random.random() < 0.2:
        made = made * 2 - made  # the builder may not know the type
    return w.add(Value(made, type_, known))  # type: ignore[arg-type]


def _argument(w: Walk, param: TensorType) -> Value:
    usable = [v for v in w.pool if v.type.dtype is param.dtype and v.type.rank == param.rank]
    if not usable:
        raise Dead
    return w.clipped(w.random.choice(usable))


def rows(w: Walk, depth: int) -> Value:
    """A data value made by a branch, and taken apart."""
    rows = [v for v in w.pool if v.type.dtype is DType.float32 and v.type.rank == 2 and v.type.shape[1] == 8]
    if not rows:
        raise Dead
    rows = [w.clipped(value) for value in rows]
    one = Rows.One(w.random.choice(rows).made)
    two = Rows.Two(w.random.choice(rows).made, w.of_type(_PAIR).made)
    data = if_(w.exact_scalar(), w.random.choice((one, two)), w.random.choice((Rows.Empty(), two)))
    results: list[Value] = []

    def clause(*bound: Expression) -> Expression:
        values = [Value(e, t, (2, 8)) for e, t in zip(bound, (_ROWS, _PAIR), strict=False)]
        _, value = w.branch_value(depth, 2, DType.float32, *values)
        results.append(value)
        return value.made

    made = match_(data, {Rows.Empty: clause(), Rows.One: lambda a: clause(a), Rows.Two: lambda a, b: clause(a, b)})
    return w.add(replace(w.joined(made, results), places=None))


def chain_of(w: Walk, depth: int) -> Value:
    """A list of tensors of one type, its first element taken out again."""
    first = w.pick()
    again = w.of_type(first.type)
    data = Chain.Link(first.made, Chain.Link(again.made, Chain.End()))
    name = ir.Var("first")
    pattern = ir.ConstructorPattern("Link", (ir.Bind(name), ir.Wildcard()))
    made = match_(data, [(pattern, Expression(atom=name)), (ir.Wildcard(), again.made)])
    shape = tuple(UNKNOWN if isinstance(dim, SymbolicDim) else dim for dim in first.type.shape)
    return w.add(replace(first, made=made, type=TensorType(first.type.dtype, shape)))


def found(w: Walk, depth: int) -> Value:
    """A tensor as long as what is found in another."""
    x = w.pick(least_rank=1)
    if not x.is_exact:
        raise Dead
    value = w.apply("nonzero", x)
    count = 2
    return w.add(
        replace(value, shape=(value.shape[0] if value.shape[0] is not UNKNOWN else count, count), bound=100.0, places=0)
    )


def _alike(result: Value, params: Sequence[Expression]) -> Expression:
    """Another value of the type of `result`, in its place."""
    return result.made if not params else op.tanh(result.made)


CONTROL: tuple[Callable[[Walk, int], Value], ...] = (
    *(branch, branch, loop, loop, closure),
    *(call, call, rows, chain_of, found),
)
