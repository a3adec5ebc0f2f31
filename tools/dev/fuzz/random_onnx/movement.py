"""Steps of random graphs: shapes, moves, indices, and what makes tensors of sizes."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from .elementwise import code_of
from .walk import ALL, MOVED, NUMBERS, Dead, Value, Walk, Ways, step


@step("Shape", "Size")
def _shape(w: Walk, op: str) -> None:
    x = w.tensor(MOVED)
    ends: Ways = {}
    if op == "Shape" and "start" in w.schema(op).attributes:
        ends = {name: w.one(None, -2, 1, 0, 9) for name in ("start", "end")}
    w.add(op, [x], **ends)


@step("Reshape")
def _reshape(w: Walk, op: str) -> None:
    x = w.tensor(MOVED)
    count, sizes = x.array.size, []
    left = count
    for _ in range(w.random.randrange(4)):
        divisors = [d for d in (1, 2, 3, 4, 5, 6, 8) if left and left % d == 0]
        if divisors:
            sizes.append(w.random.choice(divisors))
            left //= sizes[-1]
    sizes.append(left)
    if not count:
        sizes = list(x.shape)
        w.random.shuffle(sizes)
    elif w.chance(0.5):
        sizes[w.random.randrange(len(sizes))] = -1
    zero = None
    if "allowzero" in w.schema(op).attributes and not count:
        zero = 1
    if count:
        sizes = [0 if i < x.rank and x.shape[i] == size and w.chance(0.3) else size for i, size in enumerate(sizes)]
    w.add(op, [x, w.setting(sizes)], exact=True, allowzero=zero)


@step("Flatten")
def _flatten(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3, 4))
    w.add(op, [x], exact=True, axis=w.random.randrange(-x.rank, x.rank + 1) if w.chance(0.7) else None)


@step("Squeeze")
def _squeeze(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, fits=lambda shape: 1 in shape)
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    axes = w.random.sample(ones, w.random.randrange(1, len(ones) + 1))
    axes = [axis - x.rank if w.chance(0.3) else axis for axis in axes]
    if w.chance(0.2):  # of all axes: then none may be symbolic, since it may be 1
        x = w.put(x.array, constant=True)
        w.add(op, [x], exact=True)
    else:
        w.add(op, [x, w.setting(axes)], exact=True)


@step("Unsqueeze")
def _unsqueeze(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(0, 1, 2, 3))
    count = w.one(1, 1, 2)
    rank = x.rank + count
    axes = [axis - rank if w.chance(0.3) else axis for axis in w.random.sample(range(rank), count)]
    w.add(op, [x, w.setting(axes)], exact=True)


@step("Transpose")
def _transpose(w: Walk, op: str) -> None:
    x = w.tensor(MOVED)
    perm = w.random.sample(range(x.rank), x.rank)
    w.add(op, [x], exact=True, perm=perm if x.rank and w.chance(0.8) else None)


@step("Expand")
def _expand(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(0, 1, 2, 3))
    sizes = [w.one(1, size) if size != 1 else w.one(1, 3, 4) for size in x.shape]
    sizes = [2, *sizes] if w.chance(0.3) else sizes[w.random.randrange(len(sizes) + 1) :]
    w.add(op, [x, w.setting(sizes)], exact=True)


@step("Tile")
def _tile(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3))
    w.add(
        op,
        [x, w.setting([w.random.choice((1, 1, 2, 3, 0) if w.chance(0.1) else (1, 2, 3)) for _ in x.shape])],
        exact=True,
    )


@step("Concat")
def _concat(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3, 4))
    axis = w.axis(x.rank)
    place = axis % x.rank
    operands = [x]
    for _ in range(w.one(0, 1, 1, 2)):

        def fits(shape: tuple[int, ...]) -> bool:
            return len(shape) == x.rank and all(
                i == place or a == b for i, (a, b) in enumerate(zip(shape, x.shape, strict=True))
            )

        shape = tuple(w.one(1, 2, 3, 5) if i == place else size for i, size in enumerate(x.shape))
        operands.append(
            w.tensor(x.dtype, shape) if w.chance(0.5) else w.tensor(x.dtype, shape if w.fresh else None, fits=fits)
        )
    w.random.shuffle(operands)
    w.add(op, operands, exact=True, axis=axis)


@step("Split")
def _split(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3), fits=lambda shape: 0 not in shape)
    axis = w.axis(x.rank)
    size = x.shape[axis]
    if w.chance(0.5):
        first = w.random.randrange(size + 1)
        w.add(op, [x, w.setting([first, size - first])], 2, exact=True, axis=axis)
        return
    parts = w.random.choice([n for n in (1, 2, 3, 4) if n <= size])
    if "num_outputs" in w.schema(op).attributes:
        w.add(op, [x], parts, exact=True, axis=axis, num_outputs=parts)
    else:
        parts = next(n for n in (parts, 1) if size % n == 0)
        w.add(op, [x], parts, exact=True, axis=axis)


@step("Slice")
def _slice(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3, 4))
    axes = w.random.sample(range(x.rank), w.random.randrange(1, x.rank + 1))
    starts, ends, steps = [], [], []
    for axis in axes:
        size = x.shape[axis]
        stride = w.one(1, 1, 2, 3, -1, -2)
        near, far = w.random.randrange(-size - 2, size + 3), w.random.randrange(-size - 2, size + 3)
        starts.append(near)
        ends.append(w.random.choice((far, 2**31 - 1, 2**63 - 1) if stride > 0 else (far, -(2**31), -(2**63) + 1)))
        steps.append(stride)
    kind = w.one("int64", "int32") if all(-(2**31) <= end < 2**31 for end in ends) else "int64"
    with_steps = w.chance(0.6)
    if not with_steps:
        ends = [end if end > -(2**30) else 2 for end in ends]
    plain = axes == list(range(len(axes))) and not with_steps and w.chance(0.5)
    told = [axis - x.rank if w.chance(0.3) else axis for axis in axes]
    operands = [w.setting(starts, kind), w.setting(ends, kind), None if plain else w.setting(told, kind)]
    w.add(op, [x, *operands, w.setting(steps, kind) if with_steps else None], exact=True)


@step("Pad")
def _pad(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op), rank=(1, 2, 3), fits=lambda shape: 0 not in shape)
    mode = w.one(None, "constant", "reflect", "edge", "wrap")
    if mode == "wrap" and w.opset < 19:
        mode = "edge"
    most = [min(2, size - 1) if mode in ("reflect", "wrap") else 2 for size in x.shape] * 2
    pads = [w.random.randrange(limit + 1) for limit in most]
    if mode in (None, "constant") and w.chance(0.2):
        pads[0] = -1
    operands: list[Value | None] = [w.setting(pads)]
    if mode in (None, "constant") and w.chance(0.5):
        operands.append(w.setting(1 if x.dtype == "bool" else 2, x.dtype))
    if w.opset >= 18 and w.chance(0.3):
        axes = sorted(w.random.sample(range(x.rank), w.random.randrange(1, x.rank + 1)))
        both = [*axes, *(axis + x.rank for axis in axes)]
        operands = [w.setting([pads[i] for i in both]), *operands[1:], *[None] * (2 - len(operands)), w.setting(axes)]
    w.add(op, [x, *operands], exact=True, mode=mode)


def _indices(w: Walk, size: int, shape: tuple[int, ...]) -> Value:
    if not size:
        raise Dead("nothing to choose from")
    return w.tensor(w.one("int64", "int32"), shape, low=-size, high=size - 1)


@step("Gather")
def _gather(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3))
    axis = w.axis(x.rank)
    w.add(
        op,
        [x, _indices(w, x.shape[axis], w.shape((0, 1, 1, 2)))],
        exact=True,
        axis=axis if w.chance(0.8) or axis else None,
    )


@step("GatherElements")
def _gather_elements(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3))
    axis = w.axis(x.rank)
    shape = [w.random.randrange(1, size + 1) if size else 0 for size in x.shape]
    shape[axis] = w.one(1, 2, 5)
    w.add(op, [x, _indices(w, x.shape[axis], tuple(shape))], exact=True, axis=axis)


@step("GatherND")
def _gather_nd(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3, 4), fits=lambda shape: len(shape) > 0 and 0 not in shape)
    batch = w.one(0, 0, 1) if x.rank > 1 else 0
    depth = w.random.randrange(1, x.rank - batch + 1)
    lead = (*x.shape[:batch], *w.shape((0, 1) if not batch else (1,)))
    rows = np.stack([w.rng.integers(-size, size, lead) for size in x.shape[batch : batch + depth]], -1)
    w.add(op, [x, w.put(rows.astype(np.int64))], exact=True, batch_dims=batch if batch or w.chance(0.5) else None)


@step("ScatterElements", "Scatter")
def _scatter_elements(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3), fits=lambda shape: 0 not in shape)
    axis = w.axis(x.rank)
    place = axis % x.rank
    shape = [w.random.randrange(1, size + 1) for size in x.shape]
    size, count = x.shape[place], shape[place]
    reduction = None
    if op == "ScatterElements" and "reduction" in w.schema(op).attributes and x.dtype in NUMBERS:
        kinds = (None, "none", "add", "mul", "max", "min") if w.opset >= 18 else (None, "none", "add", "mul")
        reduction = w.random.choice(kinds)
    if reduction in (None, "none"):  # the order of updates of one place is not told
        order = np.argsort(w.rng.random([*shape[:place], size, *shape[place + 1 :]]), axis=place)
        indices = np.take(order, range(count), axis=place)
    else:
        indices = w.rng.integers(-size, size, shape)
    kind = w.one(np.int64, np.int32)
    w.add(
        op,
        [x, w.put(indices.astype(kind)), w.tensor(x.dtype, tuple(shape))],
        exact=True,
        axis=axis,
        reduction=reduction,
    )


@step("ScatterND")
def _scatter_nd(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3), fits=lambda shape: 0 not in shape)
    depth = w.random.randrange(1, x.rank + 1)
    places = int(np.prod(x.shape[:depth]))
    count = w.random.randrange(1, min(places, 5) + 1)
    reduction = None
    if "reduction" in w.schema(op).attributes and x.dtype in NUMBERS:
        reduction = w.one(None, "none", "add", "mul", *(("max", "min") if w.opset >= 18 else ()))
    flat = w.rng.permutation(places)[:count] if reduction in (None, "none") else w.rng.integers(0, places, count)
    rows = np.stack(np.unravel_index(flat, x.shape[:depth]), -1).astype(np.int64)
    updates = w.tensor(x.dtype, (count, *x.shape[depth:]))
    w.add(op, [x, w.put(rows), updates], exact=True, reduction=reduction)


@step("TensorScatter")
def _tensor_scatter(w: Walk, op: str) -> None:
    x = w.tensor(("float32", "float16", "int64"), w.one((2, 6, 3), (1, 2, 8, 4), (3, 5, 2)))
    rows = w.one(1, 2)
    update = (*x.shape[:-2], rows, x.shape[-1])
    starts = w.setting(w.rng.integers(0, x.shape[-2] - rows + 1, x.shape[0])) if w.chance(0.7) else None
    w.add(op, [x, w.tensor(x.dtype, update), starts], exact=True, mode=w.one(None, "linear", "circular"))


@step("Compress")
def _compress(w: Walk, op: str) -> None:
    x = w.tensor(MOVED, rank=(1, 2, 3), fits=lambda shape: 0 not in shape)
    axis = w.axis(x.rank) if w.chance(0.7) else None
    size = x.array.size if axis is None else x.shape[axis]
    w.add(op, [x, w.tensor("bool", (w.random.randrange(1, min(size, 9) + 1),))], exact=True, axis=axis)


@step("NonZero", "Unique")
def _nonzero(w: Walk, op: str) -> None:
    x = w.tensor(ALL if op == "NonZero" else w.allowed(op), rank=(1, 2, 3), exact=True)
    if op == "NonZero":
        w.add(op, [x])
        return
    axis = w.axis(x.rank) if w.chance(0.4) else None
    w.add(op, [x], w.one(1, 4), exact=True, axis=axis, sorted=w.one(None, 1))


@step("OneHot")
def _one_hot(w: Walk, op: str) -> None:
    depth = w.one(2, 4, 5)
    indices = w.tensor(("int64", "int32", "float32"), rank=(1, 2), exact=True, low=-depth, high=depth - 1)
    if indices.dtype == "float32":
        indices = w.tensor("int64", indices.shape, low=-depth, high=depth - 1)
    values = w.put(np.asarray([0.5, 2]).astype(w.one("float32", "int64", "int32")))
    axis = w.random.randrange(-indices.rank - 1, indices.rank + 1)
    w.add(op, [indices, w.setting(depth), values], exact=True, axis=axis)


@step("EyeLike")
def _eye(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op, "T1"), rank=2)
    to = w.one(None, code_of("float32"), code_of("int64"), code_of("bool"))
    w.add(op, [x], exact=True, k=w.one(None, -1, 1, 2), dtype=to)


@step("Trilu")
def _trilu(w: Walk, op: str) -> None:
    x = w.tensor(ALL, rank=(2, 3))
    k = w.setting(w.random.randrange(-3, 4)) if w.chance(0.6) else None
    w.add(op, [x, k], exact=True, upper=w.one(None, 0, 1))


@step("ConstantOfShape")
def _constant_of_shape(w: Walk, op: str) -> None:
    value = np.asarray([w.one(0, 1, 3)]).astype(w.random.choice(w.allowed(op, "T2")))
    sizes = w.setting(w.shape((0, 1, 2, 3)))
    w.add(op, [sizes], exact=True, value=numpy_helper.from_array(value) if w.chance(0.8) else None)


@step("Range")
def _range(w: Walk, op: str) -> None:
    kind = w.one("int64", "int32", "float32", "float64", "int16")
    start, step_ = (
        w.random.randrange(-3, 4),
        w.random.choice((1, 2, -1, 0.5) if kind.startswith("f") else (1, 2, -1, 3)),
    )
    ends = start, start + step_ * w.one(0, 1, 3, 5), step_
    w.add(op, [w.setting(each, kind) for each in ends], exact=True)


@step("TopK")
def _top_k(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op, among=NUMBERS), rank=(1, 2, 3), exact=True, fits=lambda shape: 0 not in shape)
    axis = w.axis(x.rank)
    k = w.setting([w.random.randrange(1, x.shape[axis] + 1)])
    w.add(op, [x, k], 2, exact=True, axis=axis, largest=w.one(None, 0, 1))


@step("ReverseSequence")
def _reverse_sequence(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op), rank=(2, 3), fits=lambda shape: 0 not in shape)
    time = w.one(0, 1)
    lengths = w.tensor("int64", (x.shape[1 - time],), low=1, high=x.shape[time])
    w.add(op, [x, lengths], exact=True, time_axis=time, batch_axis=1 - time)


@step("DepthToSpace", "SpaceToDepth")
def _blocks(w: Walk, op: str) -> None:
    block = w.one(1, 2, 3)
    n, c, h, width = (w.one(1, 2), w.one(1, 2, 3), w.one(1, 2, 3), w.one(1, 2))
    if op == "DepthToSpace":
        shape = n, c * block * block, h, width
        mode = w.one(None, "DCR", "CRD")
    else:
        shape, mode = (n, c, h * block, width * block), None
    w.add(op, [w.tensor(w.allowed(op), shape)], exact=True, blocksize=block, mode=mode)


@step("CenterCropPad")
def _center(w: Walk, op: str) -> None:
    x = w.tensor(("float32", "int64", "float64"), rank=(1, 2, 3), fits=lambda shape: 0 not in shape)
    axes = w.random.sample(range(x.rank), w.random.randrange(1, x.rank + 1))
    sizes = w.setting([w.one(1, 2, 5, 6) for _ in axes])
    w.add(op, [x, sizes], exact=True, axes=axes)


@step("Col2Im")
def _col2im(w: Walk, op: str) -> None:
    block, image = w.one(((2, 3), (4, 6)), ((3, 3), (5, 5)), ((2, 2), (3, 4)), ((1, 2), (3, 3)))
    strides = w.one((1, 1), (2, 2), (2, 1))
    pads = w.one((0, 0, 0, 0), (1, 0, 1, 0), (1, 1, 1, 1))
    counts = [(image[i] + pads[i] + pads[i + 2] - block[i]) // strides[i] + 1 for i in (0, 1)]
    x = w.tensor(("float32", "float64", "int32"), (w.one(1, 2), 2 * block[0] * block[1], counts[0] * counts[1]))
    w.add(op, [x, w.setting(image), w.setting(block)], exact=True, strides=strides, pads=pads)
