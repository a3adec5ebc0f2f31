"""Steps of random programs (`modules.py`) whose sizes are computed: from other sizes, or from the elements of tensors.

A size that elements say gets a name by the check of a tensor made for it. What uses the name is made behind that check: it comes
out of a tuple with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .....compiler.builder.programs import (
    Expression,
    constant,
    field,
    function,
    if_,
    match_shape,
    op,
    tuple_,
    var,
    while_loop,
)
from .....formats import dims
from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.types import UNKNOWN, TensorType
from .values import Dead, M, N, Value
from .walk import Walk

_END = 1 << 40


def number(walk: Walk) -> tuple[Expression, int]:
    """A scalar that a run computes, and what it is in the witness, or may be."""
    values = [value for value in walk.pool if value.is_exact]
    if not values:
        raise Dead
    value = walk.random.choice(values)
    whole = op.remainder(op.cast(value.made, dtype="int64"), 5)
    total = op.sum(whole) if value.type.rank else whole
    if walk.random.random() < 0.3:
        return op.remainder(total, 4), 2
    size = walk.random.randrange(5)
    return op.remainder(total, 1) + size, size


def size_of(walk: Walk, name: Dim) -> Dim:
    """An expression over a dimension."""
    other: Dim = walk.random.choice((N, M, 1, 2, 3))
    return walk.random.choice(
        (
            name,
            name,
            dims.add(name, 1),
            dims.multiply(name, 2),
            dims.add(name, -1),
            dims.floordiv(name, 2),
            dims.add(other, dims.multiply(name, -1)),
            dims.minimum(name, other),
            dims.maximum(dims.add(name, -1), 0),
            dims.multiply(name, other),
        )
    )


def of_values(walk: Walk) -> Value:
    """Something whose size elements say."""
    made, size = number(walk)
    name = f"v{walk.random.randrange(10**6)}"
    checked = match_shape(op.extent(made), (name,))
    outer, walk.witness = walk.witness, {**walk.witness, name: size}
    try:
        value = sized(walk, size_of(walk, dims.variable(name)))
    except Exception:
        walk.witness = outer
        raise
    parts = (checked, value.made) if walk.random.random() < 0.8 else (checked, value.made, checked)
    return walk.add(replace(value, made=field(tuple_(*parts), 1)))


def of_sizes(walk: Walk) -> Value:
    """Something whose size is computed from others."""
    return walk.add(sized(walk, size_of(walk, walk.random.choice((N, M)))))


def sized(walk: Walk, size: Dim) -> Value:
    """A tensor that is made with a size."""
    return walk.random.choice(_SIZED)(walk, size)


def _slice(walk: Walk, size: Dim) -> Value:
    x = walk.pick(least_rank=1)
    axis = walk.random.randrange(x.type.rank)
    bounds: list[Any] = [size, size, dims.multiply(size, -1), 0, -1, 1, 2, N, dims.multiply(N, -1)]
    step = walk.random.choice((1, 1, 1, 2, -1, -2))
    start, end = walk.random.choice(bounds), walk.random.choice((*bounds, _END if step > 0 else -_END))
    return walk.apply_view("slice", x, starts=(start,), ends=(end,), axes=(axis,), steps=(step,))


def _pad(walk: Walk, size: Dim) -> Value:
    x = walk.pick(least_rank=1, float_=True)
    pads = tuple(walk.random.choice((0, 0, 1, size)) for _ in range(2 * x.type.rank))
    return walk.apply_view("pad", x, pads=pads, value=0.5)


def _full(walk: Walk, size: Dim) -> Value:
    shape = walk.random.choice(((size,), (size, 8), (2, size), (N, size), (size, size)))
    value = walk.apply("full", shape=shape, value=0.5, dtype=DType.float32)
    return replace(value, bound=0.5, places=1)


def _arange(walk: Walk, size: Dim) -> Value:
    start = walk.random.choice((0, 0, 1, M))
    value = walk.apply("arange", start=start, stop=size, step=walk.random.choice((1, 1, 2)))
    return walk.clipped(replace(value, bound=100.0, places=0))


def _tile(walk: Walk, size: Dim) -> Value:
    x = walk.pick(least_rank=1)
    repetitions: list[Dim] = [1] * x.type.rank
    repetitions[walk.random.randrange(x.type.rank)] = size
    return walk.apply_view("tile", x, repetitions=tuple(repetitions))


def _split(walk: Walk, size: Dim) -> Value:
    x = walk.pick(least_rank=1)
    axis = walk.random.randrange(x.type.rank)
    length = x.type.shape[axis]
    if length is UNKNOWN:
        raise Dead
    sizes = [size, dims.add(length, dims.multiply(size, -1))]  # type: ignore[arg-type]
    walk.random.shuffle(sizes)
    return walk.apply_view("split", x, axis=axis, sizes=tuple(sizes))


def _spread(walk: Walk, size: Dim) -> Value:
    x = walk.pick()
    if UNKNOWN in x.type.shape:
        raise Dead
    return walk.apply_view("broadcast_to", x, shape=(size, *x.type.shape))


def _reshape(walk: Walk, size: Dim) -> Value:
    return walk.apply_view("reshape", walk.pick(), shape=walk.random.choice(((size, -1), (-1, size), (1, size, -1))))


def _take(walk: Walk, size: Dim) -> Value:
    x = walk.pick(least_rank=1)
    sizes = {axis: dim for axis, dim in enumerate(x.type.shape) if isinstance(dim, int) and dim > 0}
    if not sizes:
        raise Dead
    axis = walk.random.choice(list(sizes))
    places = walk.apply("arange", stop=size)
    places = replace(places, made=op.remainder(places.made, sizes[axis]))
    return replace(walk.apply("take", x, places, axis=axis), bound=x.bound, places=x.places)


_SIZED = (_slice, _slice, _slice, _pad, _full, _arange, _tile, _split, _spread, _reshape, _take)


# ---- places of elements ----


def places(walk: Walk) -> Value:
    """Operators that look for places, or go by them."""
    return walk.random.choice((_best, _running, _top, _along))(walk)


def _exact(walk: Walk) -> Value:
    x = walk.pick(least_rank=1)
    if not x.is_exact or x.type.dtype is DType.bool:
        raise Dead
    return x


def _best(walk: Walk) -> Value:
    x = _exact(walk)
    axis = walk.random.randrange(x.type.rank)
    name = walk.random.choice(("argmax", "argmin"))
    value = walk.apply(name, x, axis=axis, keepdims=walk.random.random() < 0.5)
    return walk.add(walk.clipped(replace(value, bound=100.0, places=0)))


def _running(walk: Walk) -> Value:
    x = walk.clipped(_exact(walk))
    if x.type.dtype is DType.uint8:
        raise Dead
    value = walk.apply("cumulative_sum", x, axis=walk.random.randrange(x.type.rank))
    return walk.add(walk.clipped(walk.rounded(value, x.bound * 256, x.places)))


def _top(walk: Walk) -> Value:
    x = _exact(walk)
    axes = [axis for axis, dim in enumerate(x.type.shape) if isinstance(dim, int) and dim > 0]
    if not axes:
        raise Dead
    axis = walk.random.choice(axes)
    k = walk.random.randrange(1, min(x.shape[axis], 4) + 1)
    value = walk.apply("top_k", x, k=k, axis=axis)
    return walk.add(walk.clipped(replace(value, bound=max(x.bound, 100.0), places=x.places or 0)))


def _along(walk: Walk) -> Value:
    x = walk.pick(least_rank=1)
    axis = walk.random.randrange(x.type.rank)
    length = x.type.shape[axis]
    if not isinstance(length, int) or not length:
        raise Dead
    index = walk.apply("argmax", x, axis=axis, keepdims=True)
    if x.is_exact and x.type.dtype is not DType.bool:
        return walk.add(replace(walk.apply("take_along_axis", x, index, axis=axis), bound=x.bound, places=x.places))
    raise Dead


# ---- control ----


def until(walk: Walk, depth: int) -> Value:
    """A loop that goes on until a tensor is large enough."""
    start = walk.clipped(walk.pick(float_=True, least_rank=1))
    row = start.type.shape[1:]
    if UNKNOWN in row:
        raise Dead
    type_ = TensorType(start.type.dtype, (UNKNOWN, *row))
    one = op.full(shape=(1, *row), value=0.5, dtype=start.type.dtype)
    least: Any = walk.random.choice((2, 5, op.take(op.shape(start.made), constant(0)) + 2))
    inner = walk.inner()

    def more(a: Expression) -> Expression:
        inner.pool.append(Value(a, type_, start.shape))
        inner.steps(walk.random.randrange(2), depth)
        grown = inner.clipped(inner.of_type(type_))
        return op.concat(a, *([grown.made] if walk.random.random() < 0.3 else []), one, axis=0)

    looped = while_loop(lambda a: op.take(op.shape(a), constant(0)) < least, more, [start.made])
    walk.coarse |= inner.coarse
    return walk.add(Value(field(looped, 0), type_, start.shape))


def nested(walk: Walk, depth: int) -> Value:
    """Tuples of tuples, chosen by a branch, handed through a function, and taken apart."""
    parts = [walk.pick() for _ in range(3)]
    others = [next((v for v in reversed(walk.pool) if v.type == p.type), p) for p in parts]
    walk.random.shuffle(others) if len({p.type for p in parts}) == 1 else None
    a, b = (tuple_(x[0].made, tuple_(x[1].made, tuple_(x[2].made, x[0].made))) for x in (parts, others))
    chosen = if_(walk.exact_scalar(), a, b)
    kind = walk.random.randrange(3)
    if kind == 1:
        again = function([p := var("p", parts[0].type)], tuple_(tuple_(p, chosen), p))
        chosen = field(field(again(parts[0].made), 0), 1)
    which = walk.random.randrange(4)
    made = (
        field(chosen, 0)
        if not which
        else field(field(chosen, 1), 0)
        if which == 1
        else field(field(field(chosen, 1), 1), which - 2)
    )
    index = (0, 1, 2, 0)[which]
    pair = (parts[index], others[index])
    places = None if any(v.places is None for v in pair) else max(v.places or 0 for v in pair)
    return walk.add(replace(parts[index], made=made, bound=max(v.bound for v in pair), places=places))


def returned(walk: Walk, depth: int) -> Value:
    """A function that a function gives, of what both take and what lies around them."""
    a, b = walk.clipped(walk.pick(float_=True)), walk.clipped(walk.pick(float_=True))
    p, q = var("p", a.type), var("q", b.type)
    inner = walk.inner()
    inner.pool += [Value(p, a.type, a.shape), Value(q, b.type, b.shape)]
    inner.steps(walk.random.randrange(1, 4), depth)
    walk.coarse |= inner.coarse
    result = inner.clipped(inner.pick(float_=True))
    if not all(map(walk.is_mine, result.type.shape)):
        raise Dead
    made: Any = function([p], function([q], result.made))
    if walk.random.random() < 0.4:
        call = function([r := var("r", b.type)], made(a.made)(r))
        made = if_(walk.exact_scalar(), made(a.made), call)(b.made)
    else:
        made = made(a.made)(b.made)
    return walk.add(replace(result, made=made, places=None))


STEPS = (of_values, of_values, of_sizes, places)
CONTROL = (until, nested, returned)
