"""Steps of random programs: operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from .....compiler.builder.programs import constant, match_shape
from .....formats import dims
from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.types import UNKNOWN, TensorType
from .values import LARGEST, Dead, M, N, Value
from .walk import Walk

FLOATS = (DType.float32, DType.float32, DType.float32, DType.float64, DType.float16)


_UNARY = ("tanh", "sigmoid", "relu", "negative", "abs", "square", "silu", "sin", "floor")
_UNARY_EXACT = ("relu", "negative", "abs", "floor")
_BOUNDED = {"tanh": 1.0, "sigmoid": 1.0, "sin": 1.0, "softmax": 1.0}
_BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


def unary(w: Walk) -> Value:
    name = w.random.choice(_UNARY)
    x = w.pick(float_=True)
    value = w.apply(name, x)
    bound = _BOUNDED.get(name, min(x.bound, 1e9) ** 2 if name == "square" else x.bound)
    places = x.places if name in _UNARY_EXACT else None
    if name == "square" and x.places is not None:
        places = 2 * x.places
    return w.add(w.rounded(value, bound, places))


def chain(w: Walk) -> Value:
    """Elementwise work over what lies in another shape: chances to write in place."""
    value = w.random.choice((reshape, concat, slice_, split, unary))(w)
    if not value.is_float:
        raise Dead
    for _ in range(w.random.randrange(1, 4)):
        value = w.apply(w.random.choice(("sigmoid", "tanh")), value)
        value = replace(value, bound=1.0, places=None)
    return w.add(value)


def binary(w: Walk) -> Value:
    name = w.random.choice(_BINARY)
    x = w.pick()
    if x.type.dtype is DType.bool:
        name = w.random.choice(("logical_and", "logical_or", "logical_xor"))
    y = w.pick(dtype=x.type.dtype)
    x, y = (x, y) if w.random.random() < 0.5 else (y, x)
    return w.add(_combined(w, name, x, y))


def _combined(w: Walk, name: str, x: Value, y: Value) -> Value:
    exact = x.places is not None and y.places is not None
    if name == "multiply":
        bound, places = x.bound * y.bound, (x.places or 0) + (y.places or 0)
    else:
        bound, places = x.bound + y.bound, max(x.places or 0, y.places or 0)
    return w.rounded(w.apply(name, x, y), bound, places if exact else None)


def literal(w: Walk) -> Value:
    """With a Python number, whose type is that of the other operand."""
    x = w.pick(float_=True)
    number = w.random.choice((2, 1, 0.5, -1.5))
    made = x.made * number if w.random.random() < 0.5 else number + x.made
    bound = x.bound * 2 + 2
    return w.add(w.rounded(replace(x, made=made), bound, None if x.places is None else x.places + 1))


def where(w: Walk) -> Value:
    x = w.pick(float_=True)
    y = w.pick(dtype=x.type.dtype)
    condition = Value(w.exact_scalar(), TensorType(DType.bool, ()), (), 1.0, 0)
    value = _combined(w, "maximum", x, y)
    return w.add(replace(w.apply("where", condition, x, y), bound=value.bound, places=value.places))


def compare(w: Walk) -> Value:
    x = w.pick()
    y = w.pick(dtype=x.type.dtype)
    if not (x.is_exact and y.is_exact) or x.type.dtype is DType.bool:
        raise Dead
    value = w.apply(w.random.choice(("less", "greater_equal", "equal")), x, y)
    return w.add(replace(value, bound=1.0, places=0))


def cast(w: Walk) -> Value:
    x = w.pick()
    dtype = w.random.choice(FLOATS)
    value = w.apply("cast", x, dtype=dtype)
    return w.add(w.rounded(value, x.bound if x.type.dtype is not DType.uint8 else 255.0, x.places))


def to_integer(w: Walk) -> Value:
    x = w.pick(float_=True)
    if not x.is_exact:
        raise Dead
    return w.add(replace(w.apply("cast", x, dtype=w.random.choice((DType.int64, DType.int32))), places=0))


def reshape(w: Walk) -> Value:
    x = w.pick()
    count = int(np.prod(x.shape))
    known: list[tuple[Dim, ...]] = [(-1,)] if UNKNOWN not in x.type.shape or w.random.random() < 0.5 else []
    if UNKNOWN not in x.type.shape:
        total: Dim = 1
        for dim in x.type.shape:
            total = dims.multiply(total, dim)  # type: ignore[arg-type]
        known += [(total,), (1, total), (total, 1), x.type.shape[::-1]]  # type: ignore[list-item]
    known += _factorings(count, w.random)  # sizes that the run confirms
    known += [(shape[0], -1) for shape in known if shape and shape[0] not in (-1, 0)]
    if w.random.random() < 0.3:
        known += [(N, -1), (-1, M), (2, N, -1), (N * 2, -1)]
    return w.add(w.apply_view("reshape", x, shape=w.random.choice(known)))


def view(w: Walk) -> Value:
    x = w.pick()
    axis = w.random.randrange(x.type.rank + 1)
    if x.type.rank and w.random.random() < 0.4:
        axes = tuple(w.random.sample(range(x.type.rank), x.type.rank))
        return w.add(w.apply("permute_dims", x, axes=axes))
    if 1 in x.type.shape and w.random.random() < 0.5:
        return w.add(w.apply("squeeze", x, axes=(x.type.shape.index(1),)))
    return w.add(w.apply("expand_dims", x, axes=(axis,)))


def concat(w: Walk) -> Value:
    x = w.pick(least_rank=1)
    others = [v for v in w.pool if v.type.dtype is x.type.dtype and v.type.rank == x.type.rank]
    parts = [x, *(w.random.choice(others) for _ in range(w.random.randrange(1, 3)))]
    w.random.shuffle(parts)
    name = w.random.choice(("concat", "concat", "stack"))
    axis = w.random.randrange(x.type.rank)
    value = w.apply(name, *parts, axis=axis)
    return w.add(replace(value, bound=max(part.bound for part in parts)))


def slice_(w: Walk) -> Value:
    x = w.pick(least_rank=1)
    axis = w.random.randrange(x.type.rank)
    size = x.type.shape[axis]
    start: Any = w.random.choice((0, 0, 1, -1))
    ends: list[Any] = [1 << 40, 2, -1, N, M]
    if size is not UNKNOWN:
        ends += [dims.floordiv(size, 2), size]  # type: ignore[arg-type]
    end, step = w.random.choice(ends), w.random.choice((1, 1, 1, 2))
    return w.add(w.apply_view("slice", x, starts=(start,), ends=(end,), axes=(axis,), steps=(step,)))


def put_slice(w: Walk) -> Value:
    """Of loops' variables, too: chances to write in place from round to round."""
    x = w.pick(least_rank=1)
    axis, start = w.random.randrange(x.type.rank), w.random.choice((0, 0, 1))
    source = w.of_type(x.type)
    part = w.apply("slice", source, starts=(0,), ends=(w.random.choice((0, 1, 2)),), axes=(axis,))
    if start + part.shape[axis] > x.shape[axis]:
        raise Dead
    return w.add(w.apply("put_slice", x, part, start=start, axis=axis))


def split(w: Walk) -> Value:
    x = w.pick(least_rank=1)
    axis = w.random.randrange(x.type.rank)
    size = x.type.shape[axis]
    if size is UNKNOWN:
        raise Dead
    half = dims.floordiv(size, 2)  # type: ignore[arg-type]
    first = w.random.choice((half, 1, 0, size))
    sizes = (first, dims.add(size, dims.multiply(first, -1)))  # type: ignore[arg-type]
    return w.add(w.apply("split", x, axis=axis, sizes=sizes))


def pad(w: Walk) -> Value:
    x = w.pick(least_rank=1, float_=True)
    pads = tuple(w.random.choice((0, 0, 1, 2)) for _ in range(2 * x.type.rank))
    return w.add(w.apply_view("pad", x, pads=pads, value=0.5))


def spread(w: Walk) -> Value:
    x = w.pick()
    others = [v.type.shape for v in w.pool if v.type.rank >= x.type.rank and UNKNOWN not in v.type.shape]
    others += [(N, *x.type.shape)] if UNKNOWN not in x.type.shape else []
    if not others:
        raise Dead
    return w.add(w.apply_view("broadcast_to", x, shape=w.random.choice(others)))


def take(w: Walk) -> Value:
    x = w.pick(least_rank=1)
    axis = w.random.randrange(x.type.rank)
    numbers = np.array([w.random.randrange(-1, 2) for _ in range(w.random.randrange(4))], np.int64)
    indices = constant(numbers if len(numbers) != 1 else numbers[0])
    index = Value(indices, indices.type, np.shape(numbers) if len(numbers) != 1 else (), 1.0, 0)  # type: ignore[arg-type]
    return w.add(replace(w.apply("take", x, index, axis=axis), bound=x.bound, places=x.places))


def matched(w: Walk) -> Value:
    """The shape is checked when the program runs; unknown dimensions get names."""
    x = w.pick(least_rank=1)
    shape: list[Any] = [
        w.random.choice([dim, size, f"k{w.random.randrange(1000)}"]) if dim is UNKNOWN else
        w.random.choice([dim, dim, size])
        for dim, size in zip(x.type.shape, x.shape, strict=True)
    ]  # fmt: skip
    made = match_shape(x.made, shape)
    new: Any = tuple(dims.variable(dim) if isinstance(dim, str) else dim for dim in shape)
    w.witness = {**w.witness, **{d: s for d, s in zip(shape, x.shape, strict=True) if isinstance(d, str)}}
    return w.add(replace(x, made=made, type=TensorType(x.type.dtype, new)))


def made_of_sizes(w: Walk) -> Value:
    """Tensors whose shapes or elements are sizes."""
    known = [value.type.shape for value in w.pool if UNKNOWN not in value.type.shape]
    kind = w.random.randrange(3)
    if kind == 0:
        shape = w.random.choice(known)
        dtype = w.random.choice(FLOATS)
        return w.add(replace(w.apply("full", shape=shape, value=0.5, dtype=dtype), bound=0.5, places=1))
    if kind == 1:
        value = w.apply("arange", stop=w.random.choice((N, M, N * 2, 3)))
        return w.add(w.clipped(replace(value, bound=100.0, places=0)))
    value = w.apply("shape", w.pick())
    return w.add(replace(value, bound=100.0, places=0))


def reduction(w: Walk) -> Value:
    x = w.clipped(w.pick())
    name = w.random.choice(("sum", "mean", "max", "sum"))
    if x.type.dtype is DType.bool or (name in ("mean", "max") and (not x.is_float or 0 in x.shape)):
        raise Dead
    axes = tuple(axis for axis in range(x.type.rank) if w.random.random() < 0.6)
    value = w.apply(name, x, axes=axes or None, keepdims=w.random.random() < 0.3)
    bound, places = (x.bound, None) if name == "mean" else (x.bound * (256 if name == "sum" else 1), x.places)
    return w.add(w.clipped(w.rounded(value, bound, places)))


def rowwise(w: Walk) -> Value:
    x = w.clipped(w.pick(least_rank=1, float_=True))
    if w.random.random() < 0.7:
        value = w.apply("softmax", x, axis=w.random.randrange(x.type.rank))
        return w.add(replace(value, bound=1.0, places=None))
    return w.add(replace(w.apply("layer_normalization", x, epsilon=1.0), places=None))


def product(w: Walk) -> Value:
    x = w.clipped(w.pick(least_rank=2, float_=True))
    y = w.clipped(w.pick(least_rank=2, dtype=x.type.dtype))
    if x.type.dtype is DType.float16:
        raise Dead
    if w.random.random() < 0.5:
        y = w.apply("permute_dims", y, axes=(*range(y.type.rank - 2), y.type.rank - 1, y.type.rank - 2))
    value = w.apply("matmul", x, y)
    places = None if x.places is None or y.places is None else x.places + y.places
    return w.add(w.clipped(w.rounded(value, LARGEST * LARGEST * 64, places)))


def weights(w: Walk, *shape: int) -> Value:
    rng = np.random.default_rng(w.random.randrange(1 << 30))
    made = constant((rng.integers(-4, 5, shape) * 0.25).astype(np.float32))
    return Value(made, made.type, shape, 1.0, 2)  # type: ignore[arg-type]


def linear(w: Walk) -> Value:
    """A product with a matrix of the model."""
    x = w.clipped(w.pick(least_rank=1, dtype=DType.float32))
    depth = x.type.shape[-1]
    if not isinstance(depth, int):
        raise Dead
    columns = w.random.choice((1, 3, 8, 20))
    value = w.apply("matmul", x, weights(w, depth, columns))
    if w.random.random() < 0.5:
        value = _combined(w, "add", value, weights(w, columns))
    return w.add(w.clipped(replace(value, bound=LARGEST * 64, places=None)))


def image(w: Walk) -> Value:
    """A layer of a convolutional network."""
    images = [v for v in w.pool if v.type.rank == 4 and v.type.dtype is DType.float32]
    images = [v for v in images if isinstance(v.type.shape[1], int)]
    if not images:
        raise Dead
    x = w.clipped(w.random.choice(images))
    channels = x.shape[1]
    kind = w.random.randrange(5)
    if kind == 0:
        value = w.apply("max_pool", x, kernel=(2, 2), strides=(w.random.choice((1, 2)),) * 2)
    elif kind == 1:
        positive = replace(weights(w, channels), made=constant(np.full(channels, 1.5, np.float32)))
        parts = [weights(w, channels), weights(w, channels), weights(w, channels), positive]
        value = w.apply("batch_normalization", x, *parts)
    elif kind == 2:
        value = w.apply("mean", x, axes=(2, 3), keepdims=w.random.random() < 0.5)
    else:
        size, outputs = w.random.choice((1, 3)), w.random.choice((4, 16, 24))
        weight = weights(w, outputs, channels, size, size)
        bias = [weights(w, outputs)] if w.random.random() < 0.5 else []
        value = w.apply("conv", x, weight, *bias, pads=(size // 2,) * 4, strides=(w.random.choice((1, 1, 2)),) * 2)
    return w.add(w.clipped(replace(value, bound=LARGEST * 64, places=None)))


def _factorings(count: int, random: Random) -> list[tuple[int, ...]]:
    """Static shapes of that number of elements."""
    found: list[tuple[int, ...]] = [(count,), (1, count), (count, 1)]
    found += [(part, count // part) for part in (2, 3, 4, 8) if count and count % part == 0]
    found += [(2, part, count // (2 * part)) for part in (2, 4) if count and count % (2 * part) == 0]
    return found


STEPS: tuple[Callable[[Walk], Value], ...] = (
    *(unary, unary, chain, chain, chain, binary, binary, binary, literal, where, compare, cast, to_integer),
    *(
        reshape,
        reshape,
        reshape,
        view,
        concat,
        concat,
        slice_,
        put_slice,
        split,
        pad,
        spread,
        take,
        matched,
        made_of_sizes,
    ),
    *(reduction, rowwise, rowwise, product, linear, image, image),
)
