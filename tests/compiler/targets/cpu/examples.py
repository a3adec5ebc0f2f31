"""Calls of every operator that has a template, of sizes drawn at random: small ones, empty ones, such as do not fill a vector,
and symbolic ones, of which inference can prove little."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from treadle.compiler.operators.paged import STORED
from treadle.compiler.operators.table import lookup
from treadle.compiler.targets.cpu.kernels.lower import TEMPLATES
from treadle.compiler.targets.cpu.operators.packing import NarrowGroups
from treadle.formats import dims
from treadle.formats.dims import Dim
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import InferenceError
from treadle.formats.primitive import PrimitiveDefinition
from treadle.formats.types import TensorType, tensor

from .harness import definition_of

Operands = tuple[list[TensorType], dict[str, Any]]  # the types of the parameters, and the attributes

_SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 15, 16, 17, 33, 66)
_FEW = (0, 1, 2, 2, 3, 3, 4, 5)


@dataclass
class Draw:
    """What a random number decides. `sizes` holds the values of the symbolic dimensions so far."""

    random: random.Random
    symbolic: float = 0.3  # of the dimensions
    sizes: dict[str, int] = field(default_factory=dict)
    ranges: dict[int, Dim] = field(default_factory=dict)  # of the elements of a parameter that holds indices
    given: dict[int, np.ndarray] = field(default_factory=dict)  # the elements of a parameter

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def dim(self, *choices: int) -> Dim:
        """A size, known or not."""
        size = self.random.choice(choices or _SIZES)
        return self.named(size) if self.random.random() < self.symbolic else size

    def few(self) -> Dim:
        return self.dim(*_FEW)

    def named(self, size: int) -> Dim:
        """A symbolic dimension of that size: a variable, perhaps an existing one."""
        equal = [name for name, value in self.sizes.items() if value == size]
        if equal and self.random.random() < 0.5:
            return dims.variable(self.random.choice(equal))
        name = f"s{len(self.sizes)}"
        self.sizes[name] = size
        return dims.variable(name)

    def bound(self) -> Dim:
        """A number that may be negative, also where nobody knows it before the call."""
        number = self.random.randint(-4, 6)
        if self.random.random() < self.symbolic:
            return dims.add(self.named(number + 5), -5)
        return number

    def shape(self, rank: int) -> tuple[Dim, ...]:
        """At most two of the axes are long."""
        long = set(self.random.sample(range(rank), min(rank, 2)))
        return tuple(self.dim() if axis in long else self.few() for axis in range(rank))

    def spatial(self, rank: int) -> tuple[Dim, ...]:
        return tuple(self.dim(1, 2, 5, 7, 14, 15, 18, 33) for _ in range(rank))

    def axis(self, rank: int) -> int:
        return self.random.randrange(-rank, rank)

    def window(self, rank: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.one(True, False):
            found["strides"] = tuple(self.one(1, 2, 3) for _ in range(rank))
        if self.one(True, False):
            found["dilations"] = tuple(self.one(1, 1, 2) for _ in range(rank))
        if self.one(True, False):
            found["pads"] = tuple(self.one(0, 1, 2) for _ in range(2 * rank))
        return found


_WITH_SPARE_LANES = frozenset(
    (
        "join_channels",
        "conv_blocked",
        "group_normalization_blocked",
        "conv_to_few",
        "conv_integer_blocked",
        "conv_int8_blocked",
        "conv_bfloat16_blocked",
        "conv_winograd",
        "conv_winograd_raw",
    )
)
_FLOATS = ("float32", "float32", "float64", "float16")
_ANY = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool")


def _f32(*shape: Dim) -> TensorType:
    return tensor("float32", shape)


def _reduction(d: Draw, name: str) -> Operands:
    rank = d.one(1, 2, 3, 4)
    dtype = "bool" if name in ("any", "all") else d.one(*_FLOATS[:2], "int32")
    if name in ("mean", "log_sum_exp", "l2_norm"):
        dtype = d.one(*_FLOATS)
    axes = d.one(None, tuple(d.random.sample(range(rank), d.random.randint(1, rank))))
    return [tensor(dtype, d.shape(rank))], {"axes": axes, "keepdims": d.one(True, False)}


def _of_axis(d: Draw, dtypes: Sequence[str], **attributes: Any) -> Operands:
    rank = d.one(1, 2, 3, 4)
    return [tensor(d.one(*dtypes), d.shape(rank))], {"axis": d.axis(rank), **attributes}


def _permute(d: Draw) -> Operands:
    rank = d.one(1, 2, 3, 4, 5)
    axes = tuple(d.random.sample(range(rank), rank))
    return [tensor(d.one(*_ANY), d.shape(rank))], {"axes": d.one(None, axes)}


def _depth_to_space(d: Draw) -> Operands:
    blocks = d.one((2,), (2, 2), (3, 2), (1, 2))
    channels = d.dim(0, 1, 4, 6, 8, 12, 13)
    return [_f32(d.few(), channels, *(d.few() for _ in blocks), *d.one((), (16,)))], {"blocks": blocks}


def _broadcast(d: Draw) -> Operands:
    shape = d.shape(d.one(1, 2, 3))
    whole = (*d.one((), (d.few(),)), *(d.dim() if dim == 1 else dim for dim in shape))
    return [tensor(d.one(*_ANY), shape)], {"shape": whole}


def _tile(d: Draw) -> Operands:
    rank = d.one(1, 2, 3)
    return [tensor(d.one(*_ANY), d.shape(rank))], {"repetitions": tuple(d.few() for _ in range(rank))}


def _concat(d: Draw) -> Operands:
    rank = d.one(1, 2, 3)
    shape, axis, dtype = d.shape(rank), d.axis(rank), d.one(*_ANY)
    parts = [tuple(d.dim() if i == axis % rank else dim for i, dim in enumerate(shape)) for _ in range(d.one(1, 2, 3))]
    return [tensor(dtype, part) for part in parts], {"axis": axis}


def _stack(d: Draw) -> Operands:
    rank = d.one(0, 1, 2)
    return [tensor(d.one(*_ANY), d.shape(rank))] * d.one(1, 2, 3), {"axis": d.axis(rank + 1)}


def _split(d: Draw) -> Operands:
    rank = d.one(1, 2, 3)
    shape, axis, sizes = d.shape(rank), d.axis(rank), tuple(d.dim() for _ in range(d.one(1, 2, 3)))
    total: Dim = 0
    for size in sizes:
        total = dims.add(total, size)
    whole = tuple(total if i == axis % rank else dim for i, dim in enumerate(shape))
    return [tensor(d.one(*_ANY), whole)], {"axis": axis, "sizes": sizes}


def _slice(d: Draw) -> Operands:
    rank = d.one(1, 2, 3)
    axes = tuple(d.random.sample(range(rank), d.random.randint(1, rank)))
    attributes = {
        "starts": tuple(d.one(d.few(), d.dim(), -1, -3, 0) for _ in axes),  # symbolic ones count from the front
        "ends": tuple(d.one(d.few(), d.dim(), -2, 1 << 40, -(1 << 40)) for _ in axes),
        "axes": axes,
        "steps": tuple(d.one(1, 1, 2, -1, -2, 7) for _ in axes),
    }
    return [tensor(d.one(*_ANY), d.shape(rank))], attributes


def _put_slice(d: Draw) -> Operands:
    rank, dtype = d.one(1, 2, 3), d.one(*_ANY)
    axis = d.axis(rank)
    part, start = list(d.shape(rank)), d.few()
    shape = list(part)
    shape[axis] = dims.add(dims.add(part[axis], start), d.few())
    return [tensor(dtype, shape), tensor(dtype, part)], {"start": start, "axis": axis}


def _arange(d: Draw) -> Operands:
    dtype = d.one("int64", "int32", "float32")
    return [], {"start": d.bound(), "stop": d.dim(), "step": d.one(1, 2, -1, -3), "dtype": dtype}


def _pool(d: Draw, name: str) -> Operands:
    rank = d.one(1, 2, 2, 3)
    shape = (d.few(), d.dim(1, 2, 5, 16, 33), *d.spatial(rank))
    kernel = tuple(d.one(1, 2, 3) for _ in range(rank))
    attributes = {"kernel": kernel, "ceil_mode": d.one(True, False), **d.window(rank)}
    if d.one(True, False):
        attributes["pads"] = tuple(d.one(0, 1, d.bound()) for _ in range(2 * rank))
    if name == "average_pool":
        attributes["count_include_pad"] = d.one(True, False)
    return [tensor(d.one("float32", "float32", "float64"), shape)], attributes


def _pad(d: Draw) -> Operands:
    rank = d.one(1, 2, 3)
    pads = tuple(d.one(0, 0, 1, 2, d.bound()) for _ in range(2 * rank))
    mode = d.one("constant", "constant", "edge", "reflect")
    return [tensor(d.one("float32", "int8", "int64"), d.shape(rank))], {"pads": pads, "mode": mode}


def _resize(d: Draw) -> Operands:
    rank = d.one(1, 2, 3)
    mode = d.one("nearest", "linear", "cubic")
    attributes = {"axis": d.axis(rank), "size": d.dim(), "mode": mode}
    attributes["scale"] = d.one(None, None, 0.5, 2.0)
    attributes["coordinates"] = d.one("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    return [tensor(d.one("float32", "float32", "float64"), d.shape(rank))], attributes


def _indices(d: Draw) -> str:
    return d.one("int32", "int64")


def _take(d: Draw) -> Operands:
    rank = d.one(1, 2, 3)
    shape, axis = d.shape(rank), d.axis(rank)
    d.ranges[1] = shape[axis]
    return [tensor(d.one(*_ANY), shape), tensor(_indices(d), d.shape(d.one(0, 1, 2)))], {"axis": axis}


def _along(d: Draw, puts: bool) -> Operands:
    rank = d.one(1, 2, 3)
    shape, axis = d.shape(rank), d.axis(rank)
    other = tuple(d.dim() if i == axis % rank else dim for i, dim in enumerate(shape))
    d.ranges[1] = shape[axis]
    dtype = d.one("float32", "int64", "uint8")
    types = [tensor(dtype, shape), tensor(_indices(d), other)]
    if not puts:
        return types, {"axis": axis}
    return [*types, tensor(dtype, other)], {"axis": axis, "reduction": d.one("none", "add", "max")}


def _nd(d: Draw, puts: bool) -> Operands:
    rank = d.one(1, 2, 3)
    shape, batch = d.shape(rank), 0 if puts else d.random.randrange(rank)
    depth = d.random.randint(1, rank - batch)
    d.ranges[1] = min((dim for dim in shape[batch : batch + depth] if isinstance(dim, int)), default=1)
    indices = (*shape[:batch], *d.shape(d.one(0, 1, 2)), depth)
    if not puts and len(indices) <= batch:
        indices = (*shape[:batch], 1, depth)
    dtype = d.one("float32", "int64", "uint8")
    types = [tensor(dtype, shape), tensor(_indices(d), indices)]
    if not puts:
        return types, {"batch_axes": batch}
    return [*types, tensor(dtype, (*indices[:-1], *shape[depth:]))], {"reduction": d.one("none", "add", "min")}


def _top_k(d: Draw) -> Operands:
    return _of_axis(d, ("float32", "float64", "int8", "int64"), k=d.dim(0, 1, 2, 5, 17), largest=d.one(True, False))


def _boxes(d: Draw) -> Operands:
    images, kinds, count = d.few(), d.few(), d.dim()
    d.ranges[2] = 5
    types = [_f32(images, count, 4), _f32(images, kinds, count), tensor("int64", ()), _f32(), _f32()]
    return types, {"room": d.dim(), "centred": d.one(True, False)}


def _regions(d: Draw) -> Operands:
    dtype, count, images = d.one("float32", "float64"), d.few(), d.few()
    d.ranges[2] = images
    types = [tensor(dtype, (images, d.few(), d.few(), d.dim())), tensor(dtype, (count, 4)), tensor("int64", (count,))]
    attributes = {
        "size": (d.one(1, 2, 3), d.one(0, 1, 2)),
        "samples": d.one(0, 2, -3),
        "mode": d.one("avg", "max", "max_of_places"),
    }
    return types, attributes | {"half_pixel": d.one(True, False)}


def _normalization(d: Draw, name: str) -> Operands:
    rank = d.one(2, 3, 4)
    shape, dtype = d.shape(rank), d.one("float32", "float64")
    if name in ("layer_normalization", "rms_normalization"):
        axis = d.axis(rank)
        others = [shape[axis % rank :]] * d.random.randint(0, 2 if name == "layer_normalization" else 1)
        return [tensor(dtype, each) for each in (shape, *others)], {"axis": axis}
    attributes: dict[str, Any] = {}
    if name == "group_normalization":
        attributes["groups"] = d.one(1, 2, 3, 4)
    if name == "local_response_normalization":
        return [tensor(dtype, shape)], {"size": d.one(1, 2, 3, 5)}
    count = 4 if name == "batch_normalization" else 2
    return [tensor(dtype, each) for each in (shape, *[shape[1:2]] * count)], attributes


def _blocks(channels: int) -> int:
    return -(-channels // 16)


def _group_blocked(d: Draw) -> Operands:
    groups, each = d.one(1, 2, 4, 5), d.one(1, 4, 8, 12, 16)
    vector = _f32(_blocks(groups * each), 1, 1, 16)
    x = _f32(d.few(), _blocks(groups * each), *d.spatial(2), 16)
    return [x, vector, vector], {"groups": groups, "channels": groups * each}


def _matmul(d: Draw, transposed: bool) -> Operands:
    batch, m, k, n = d.shape(d.one(0, 0, 1, 2)), d.dim(), d.dim(), d.dim()
    a, b = [m, k], [k, n]
    attributes: dict[str, Any] = {}
    if transposed:
        attributes = {"transpose_a": d.one(True, False), "transpose_b": d.one(True, False)}
        a, b = a[:: -1 if attributes["transpose_a"] else 1], b[:: -1 if attributes["transpose_b"] else 1]
    dtype = "float32" if transposed else d.one("float32", "float32", "float64", "int32", "float16")
    others = [tuple(d.one(dim, 1) for dim in batch), d.one((), batch)]
    shapes = [(*each, *matrix) for each, matrix in zip(d.one(others, others[::-1]), (a, b), strict=True)]
    if not transposed and d.random.random() < 0.2:
        shapes[d.one(0, 1)] = (k,)
    return [tensor(dtype, shape) for shape in shapes], attributes


def _packed(d: Draw) -> Operands:
    columns, depth = d.random.choice(_SIZES), d.dim()
    a = _f32(*d.shape(d.one(0, 1, 2)), depth)
    panels = tensor(d.one("float32", "float16", "bfloat16"), (_blocks(columns), depth, 16))
    return [a, panels], {"columns": columns}


def _integer_packed(d: Draw) -> Operands:
    columns, words = d.random.choice(_SIZES), d.dim()
    a = tensor("uint8", (*d.shape(d.one(0, 1, 2)), dims.multiply(4, words)))
    return [a, tensor("int8", (_blocks(columns), words, 16, 4))], {"columns": columns}


def _bfloat16_packed(d: Draw) -> Operands:
    columns, pairs = d.random.choice(_SIZES), d.dim()
    a = tensor("bfloat16", (*d.shape(d.one(0, 1, 2)), dims.multiply(2, pairs)))
    return [a, tensor("bfloat16", (_blocks(columns), pairs, 16, 2))], {"columns": columns}


def _int8_packed(d: Draw) -> Operands:
    columns, words = d.random.choice(_SIZES), d.random.choice(_SIZES) + 2
    a = tensor("uint8", (*d.shape(d.one(0, 1, 2)), 4 * words))
    return [a, tensor("int8", (_blocks(columns), words, 16, 4))], {"columns": columns}


def _dequantized(d: Draw) -> Operands:
    columns, bits, depth = d.one(1, 5, 16, 17, 66), d.one(4, 8), d.dim(1, 8, 16, 31, 32, 64)
    each = 32 // bits
    group = each * d.one(1, 2, 4)
    blocks, groups = _blocks(columns), dims.ceildiv(depth, group)
    types = [_f32(*d.shape(d.one(0, 1, 2)), depth), tensor("uint32", (blocks, dims.ceildiv(depth, each), 16))]
    types.append(_f32(blocks, groups, 16))
    if d.one(True, False):
        types.append(tensor("uint8", (blocks, groups, 16)))
    return types, {"columns": columns, "group": group, "bits": bits}


def _attention(d: Draw) -> Operands:
    batch, queries, keys = d.shape(d.one(0, 1, 2)), d.dim(), d.dim(0, 1, 5, 16, 17, 33, 300)
    depth, width = d.one(1, 8, 16, 17), d.one(1, 8, 16, 17, 40)
    attributes: dict[str, Any] = {"scale": 0.5, "bias_last": d.one(True, False), "nan_to_zero": d.one(True, False)}
    shared, logical = batch, {"q": (*batch, queries, depth)}
    if batch and d.one(True, False):  # heads that several queries share
        attributes["repeat"] = d.one(1, 2, 3)
        logical["q"] = (*batch[:-1], dims.multiply(batch[-1], attributes["repeat"]), queries, depth)
    logical |= {"k": (*shared, keys, depth), "v": (*shared, keys, width)}
    types = []
    for name, shape in logical.items():  # axes in any order, and parts of larger tensors
        order = [*d.random.sample(range(len(shape) - 1), len(shape) - 1), len(shape) - 1]
        stored = [shape[order.index(axis)] for axis in range(len(shape))]
        attributes[f"{name}_axes"] = tuple(d.one(axis, axis, axis - len(shape)) for axis in order)
        if d.random.random() < 0.3:
            count, place = d.one(2, 3), d.random.randrange(len(shape))
            stored.insert(place, count)
            attributes[f"{name}_part"] = (place, d.random.randrange(count))
        types.append(_f32(*stored))
    rank = len(batch) + 2
    attributes["result_axes"] = (*d.random.sample(range(rank - 1), rank - 1), rank - 1)
    if d.one(True, False):
        masks = [tuple(d.one(dim, 1) for dim in (*logical["q"][:-1], keys)) for _ in range(d.one(1, 2))]
        types.append(
            tensor("bool" if len(masks) > 1 else d.one("bool", "float32"), masks[0][d.random.randint(0, rank) :])
        )
        types += [_f32(*mask[d.random.randint(0, rank) :]) for mask in masks[1:]]
    return types, attributes


def _paged(d: Draw) -> Operands:
    """Texts of any lengths, most of which lie where they must."""
    depth, width, page, heads, repeat = d.one(16, 32), d.one(16, 48), d.one(16, 32), d.few(), d.one(1, 2, 3, 9)
    counts = [d.one(0, 1, 1, 2, 7, 18) for _ in range(d.one(0, 1, 2, 3))]
    pasts = [d.one(0, 1, 15, 16, 33, 250) for _ in counts]
    taken, pages = [-(-past // page) for past in pasts], d.one(1, 3)
    firsts, starts = (np.cumsum([0, *each])[:-1] for each in (counts, taken))
    beyond = d.random.random() < 0.1
    tables = [d.random.randrange(-beyond, pages + beyond) for _ in range(sum(taken))]
    d.given = {5: np.array([firsts, counts, pasts, starts], np.int64).T.reshape(-1, 4), 6: np.array(tables, np.int64)}
    logical = {"q": (1, dims.multiply(heads, repeat), d.dim(sum(counts)), depth)}
    logical |= {"k": (1, heads, logical["q"][2], depth), "v": (1, heads, logical["q"][2], width)}
    attributes: dict[str, Any] = {"scale": 0.25, "repeat": repeat, "window": d.one(0, 0, 1, 20)}
    types = []
    for name, shape in logical.items():
        attributes[f"{name}_axes"] = order = d.one((0, 1, 2, 3), (0, 2, 1, 3))
        types.append(_f32(*(shape[axis] for axis in order)))
    attributes["result_axes"] = d.one((0, 1, 2, 3), (0, 2, 1, 3))
    count, dtype = d.dim(pages), DType.of(d.one("float32", "float16", "bfloat16", "uint8", "uint8"))
    types += [TensorType(dtype, (count, heads, page // 16, depth, 16)), TensorType(dtype, (count, heads, page, width))]
    if STORED[dtype].facts:
        random = np.random.default_rng(d.random.randrange(100))
        for number in (1, 2, 3, 4):
            shape = [dims.evaluate(dim, d.sizes) for dim in types[number].shape]
            rows = np.moveaxis(random.normal(size=shape).astype("f"), 3, -1)
            codes = np.moveaxis(lookup("quantize_rows").evaluate([rows])[0].view(np.uint32), -1, 3)
            d.given[number] = np.ascontiguousarray(codes).view(np.uint8)
            ends = d.given[number].shape[3:]
            types[number] = TensorType(dtype, (*types[number].shape[:3], *ends))
    return [*types, tensor("int64", (d.dim(len(counts)), 4)), tensor("int64", (d.dim(len(tables)),))], attributes


def _rotary(d: Draw) -> Operands:
    shape, depth = d.shape(d.one(1, 2, 3)), d.one(2, 6, 16, 34)
    angles = tuple(d.one(dim, 1) for dim in shape)
    return [_f32(*each, depth) for each in (shape, angles, angles)], {}


def _image(d: Draw, channels: int, rank: int) -> TensorType:
    return _f32(d.few(), _blocks(channels), *d.spatial(rank), 16)


def _pack(d: Draw, unpacks: bool) -> Operands:
    dtype, rank, last = d.one("float32", "uint8"), d.one(1, 2, 3), d.one(True, False)
    channels = d.random.choice(_SIZES)
    if unpacks:
        shape = (d.few(), _blocks(channels), *d.spatial(rank), 16)
        return [tensor(dtype, shape)], {"channels": channels, "last": last}
    spatial, several = d.spatial(rank), d.dim()
    return [tensor(dtype, (d.few(), *spatial, several) if last else (d.few(), several, *spatial))], {"last": last}


def _col2im(d: Draw) -> Operands:
    rank = d.one(1, 2)
    kernel = tuple(d.one(1, 2, 3) for _ in range(rank))
    room = int(np.prod(kernel))
    attributes = {"kernel": kernel, "shape": tuple(d.dim(0, 1, 5, 17, 35) for _ in range(rank))}
    attributes |= {name: value for name, value in d.window(rank).items() if name != "pads"}
    attributes["starts"] = tuple(d.one(0, 1, 2) for _ in range(rank))
    return [_f32(d.few(), d.dim(room, 2 * room, 0, room + 1), *d.spatial(rank))], attributes


def _join(d: Draw) -> Operands:
    channels = tuple(d.one(1, 5, 16, 20, 32) for _ in range(d.one(1, 2, 3)))
    images, spatial, dtype = d.few(), d.spatial(2), d.one("float32", "uint8")
    count = d.random.randint(1, sum(channels))
    attributes = {"channels": channels, "count": count, "start": d.random.randint(0, sum(channels) - count)}
    attributes[d.one("turns", "apart")] = d.one(1, 2, 4)
    return [tensor(dtype, (images, _blocks(each), *spatial, 16)) for each in channels], attributes


def _conv(d: Draw) -> Operands:
    rank, groups, dtype = d.one(1, 2, 3), d.one(1, 1, 2, 3), d.one("float32", "float64")
    each, outputs = d.dim(0, 1, 3, 5), d.dim(0, 1, 4, 6)
    channels = d.one(dims.multiply(groups, each), d.dim(2, 3, 4, 6))
    x = tensor(dtype, (d.few(), channels, *d.spatial(rank)))
    weight = tensor(
        dtype, (d.one(dims.multiply(groups, outputs), outputs), each, *(d.one(1, 2, 3) for _ in range(rank)))
    )
    bias = [tensor(dtype, weight.shape[:1])] * d.one(0, 1)
    return [x, weight, *bias], {"groups": groups, **d.window(rank)}


def _bias(d: Draw, blocks: Dim, rank: int) -> list[TensorType]:
    return [_f32(blocks, *[1] * rank, 16)] * d.one(0, 1)


def _kernel(d: Draw, rank: int) -> tuple[int, ...]:
    return tuple(d.one(1, 2, 3, 3) for _ in range(rank))


def _conv_blocked(d: Draw) -> Operands:
    rank, groups, channels, blocks = d.one(1, 2, 2, 3), d.one(1, 1, 2), d.one(3, 16, 20), d.one(1, 2, 3)
    attributes = {"groups": groups, "channels": channels, **d.window(rank)}
    into, out, image = _blocks(channels), groups * blocks, groups * _blocks(channels)
    narrow = NarrowGroups.of(d.one(2, 3, 5), d.one(3, 8, 20), d.one(1, 5, 12, 16))
    if narrow is not None and d.random.random() < 0.4:
        attributes |= {"groups": narrow.count, "channels": narrow.channels, "outputs": narrow.outputs}
        into, out, image = narrow.width, narrow.blocks, narrow.image_blocks
    x = _f32(d.few(), image, *d.spatial(rank), 16)
    return [x, _f32(out, into, *_kernel(d, rank), 16, 16), *_bias(d, out, rank)], attributes


def _conv_planar(d: Draw) -> Operands:
    rank, channels, blocks = d.one(1, 2, 2, 3), d.one(1, 3), d.one(1, 2)
    x = _f32(d.few(), channels, *d.spatial(rank))
    return [x, _f32(blocks, channels, *_kernel(d, rank), 16), *_bias(d, blocks, rank)], d.window(rank)


def _conv_to_few(d: Draw) -> Operands:
    rank, channels = d.one(1, 2, 3), d.one(3, 16, 20)
    weight = _f32(d.one(1, 3, 4), _blocks(channels), *_kernel(d, rank), 16)
    return [_image(d, channels, rank), weight, *_bias(d, 1, rank)], {"channels": channels, **d.window(rank)}


def _conv_integer(d: Draw) -> Operands:
    rank, groups, channels, blocks = d.one(1, 2), d.one(1, 2), d.one(1, 2), d.one(1, 2)
    x = tensor("uint8", (d.few(), groups * channels, *d.spatial(rank), 16))
    weight = tensor("int8", (groups * blocks, channels, *_kernel(d, rank), d.one(1, 4), 16, 4))
    start = [tensor("int32", (groups * blocks, *[1] * rank, 16))] * d.one(0, 1)
    return [x, weight, *start], {"groups": groups, **d.window(rank)}


def _conv_int8(d: Draw) -> Operands:
    (x, weight, *_), attributes = _conv_integer(d)
    return [x, weight, _f32(x.shape[0], 2), _f32(weight.shape[0], 3, 16)], attributes


def _ranges(d: Draw) -> Operands:
    channels = d.one(1, 3, 16, 20)
    return [_f32(d.few(), _blocks(channels), *d.spatial(d.one(1, 2, 3)), 16)], {"channels": channels}


def _quantize_image(d: Draw) -> Operands:
    rank = d.one(1, 2)
    x = _f32(d.few(), d.one(1, 2), *d.spatial(rank), 16)
    return [x, _f32(x.shape[0], 2)], {"pads": tuple(d.one(0, 1, 2) for _ in range(2 * rank))}


def _conv_bfloat16(d: Draw) -> Operands:
    rank, groups, channels, blocks = d.one(1, 2), d.one(1, 2), d.one(1, 3, 16, 20, 27), d.one(1, 2)
    into, words = _blocks(channels), min(-(-channels // 2), 8)
    x = tensor("bfloat16", (d.few(), groups * into, *d.spatial(rank), 16))
    weight = tensor("bfloat16", (groups * blocks, into, *_kernel(d, rank), words, 16, 2))
    start = [_f32(groups * blocks, *[1] * rank, 16)] * d.one(0, 1)
    return [x, weight, *start], {"groups": groups, "channels": channels, **d.window(rank)}


def _depthwise(d: Draw) -> Operands:
    rank, blocks = d.one(1, 2, 2), d.one(1, 2)
    x = tensor(d.one("float32", "uint8"), (d.few(), blocks, *d.spatial(rank), 16))
    weight = _f32(blocks, d.one(1, 1, 2, 4), *_kernel(d, rank), 16)
    return [x, weight, *_bias(d, blocks, rank)], d.window(rank)


def _recurrent(d: Draw, name: str) -> Operands:
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[name]
    direction = d.one("forward", "reverse", "bidirectional")
    directions, steps, batch, hidden = (
        1 + (direction == "bidirectional"),
        d.dim(0, 1, 3),
        d.dim(0, 1, 2, 5),
        d.one(1, 16, 21),
    )
    state = _f32(directions, batch, hidden)
    types = [_f32(steps, batch, directions, gates, hidden), _f32(directions, _blocks(hidden), hidden, gates, 16), state]
    types += {"rnn": [], "gru": [_f32(directions, hidden)], "lstm": [state]}[name]
    if d.one(True, False):
        types += [_f32(directions, 3, hidden)] if name == "lstm" else []
        types.append(tensor(_indices(d), (batch,)))
        d.ranges[len(types) - 1] = dims.add(steps, 2)  # lengths, negative ones and longer ones, too
    return types, {"direction": direction}


def _winograd(d: Draw, raw: bool) -> Operands:
    channels, blocks = d.one(3, 16, 20), d.one(1, 2)
    weight = (
        _f32(blocks, _blocks(channels), 3, 3, 16, 16) if raw else _f32(blocks, *d.one((4, 4), (6, 6)), channels, 16)
    )
    attributes = {"channels": channels, "pads": tuple(d.one(0, 1) for _ in range(4))}
    return [_image(d, channels, 2), weight, *_bias(d, blocks, 2)], attributes


def _trees(d: Draw) -> Operands:
    """Tables of any numbers: trees that lie in the table, and others."""
    dtype, targets, count = d.one("float32", "float64"), d.one(1, 2, 5), d.one(1, 3)
    words = 4 if dtype == "float32" else 8
    leaves = tensor(dtype, (d.one(0, 0, 4), targets))
    types = [
        tensor(dtype, (d.dim(0, 1, 9), d.one(1, 5))),
        tensor("int32", (40, words)),
        tensor("int32", (count, 8)),
        leaves,
    ]
    d.ranges[2] = 4
    attributes = {
        "targets": targets,
        "aggregate": d.one("sum", "average", "min", "max"),
        "nan_as_least": d.one(False, True),
    }
    return types, attributes


def _text_counts(d: Draw) -> Operands:
    """Tables of any numbers."""
    size, slots, nodes = d.dim(0, 1, 20), d.one(1, 4), d.one(1, 6)
    shapes = [(d.one(1, 4), 256), (slots, 4), (d.one(0, 3),), (slots, 4), (nodes,)]
    dtypes = ("int32", "int32", "uint8", "int32", "int32")
    types = [tensor("uint8", (size,)), tensor("int64", (d.dim(0, 1, 2),))]
    types += [tensor(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=True)]
    d.ranges[1], d.ranges[2], d.ranges[6] = size, 9, 3
    return types, {"width": 3, "least": d.one(1, 2), "most": d.one(1, 3), "skips": d.one(0, 1)}


def _coupled(d: Draw) -> Operands:
    classes = d.one(2, 3, 5)
    return [_f32(d.dim(0, 1, 9), classes * (classes - 1) // 2)], {"classes": classes}


OPERANDS: dict[str, Callable[[Draw], Operands]] = {
    "permute_dims": _permute,
    "depth_to_space": _depth_to_space,
    "broadcast_to": _broadcast,
    "tile": _tile,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "slice": _slice,
    "put_slice": _put_slice,
    "arange": _arange,
    "pad": _pad,
    "resize": _resize,
    "take": _take,
    "take_along_axis": lambda d: _along(d, puts=False),
    "put_along_axis": lambda d: _along(d, puts=True),
    "gather_nd": lambda d: _nd(d, puts=False),
    "scatter_nd": lambda d: _nd(d, puts=True),
    **{
        name: lambda d: _of_axis(d, ("float32", "int32", "float64"), exclusive=d.one(True, False))
        for name in ("cumulative_sum", "cumulative_prod")
    },
    "top_k": _top_k,
    "best_boxes": _boxes,
    "counted_boxes": lambda d: ([tensor("int64", (d.few(), d.few(), d.few()))], {"count": d.dim()}),
    "counted_nonzero": lambda d: ([tensor(d.one(*_ANY), d.shape(d.one(1, 2, 3)))], {"count": d.dim()}),
    "roi_align": _regions,
    "tree_ensemble": _trees,
    "count_text_ngrams": _text_counts,
    "coupled_probabilities": _coupled,
    **{name: lambda d: _of_axis(d, _ANY[:-1], keepdims=d.one(True, False)) for name in ("argmax", "argmin")},
    **{name: lambda d: _of_axis(d, _FLOATS) for name in ("softmax", "log_softmax")},
    "group_normalization_blocked": _group_blocked,
    "matmul": lambda d: _matmul(d, transposed=False),
    "matmul_transposed": lambda d: _matmul(d, transposed=True),
    "matmul_packed": _packed,
    "matmul_integer_packed": _integer_packed,
    "matmul_bfloat16_packed": _bfloat16_packed,
    "matmul_int8_packed": _int8_packed,
    "quantize_rows": lambda d: ([_f32(*d.shape(d.one(0, 1, 2)), d.dim())], {}),
    "matmul_dequantized": _dequantized,
    "attention": _attention,
    "paged_attention": _paged,
    "rotary": _rotary,
    "pack_channels": lambda d: _pack(d, unpacks=False),
    "unpack_channels": lambda d: _pack(d, unpacks=True),
    "col2im": _col2im,
    "join_channels": _join,
    "conv": _conv,
    "conv_blocked": _conv_blocked,
    "conv_planar": _conv_planar,
    "conv_to_few": _conv_to_few,
    "conv_integer_blocked": _conv_integer,
    "conv_int8_blocked": _conv_int8,
    "image_ranges": _ranges,
    "image_facts": lambda d: ([_f32(d.few(), d.one(1, 2, 5), 2)], {}),
    "quantize_image": _quantize_image,
    "conv_bfloat16_blocked": _conv_bfloat16,
    "conv_depthwise": _depthwise,
    "conv_winograd": lambda d: _winograd(d, raw=False),
    "conv_winograd_raw": lambda d: _winograd(d, raw=True),
}
for _name in TEMPLATES:
    if _name.endswith("_pool"):
        OPERANDS[_name] = lambda d, name=_name: _pool(d, name)
    elif _name.endswith("_normalization"):
        OPERANDS[_name] = lambda d, name=_name: _normalization(d, name)
    elif _name in ("rnn", "gru", "lstm"):
        OPERANDS[_name] = lambda d, name=_name: _recurrent(d, name)
    elif _name not in OPERANDS:
        OPERANDS[_name] = lambda d, name=_name: _reduction(d, name)


@dataclass(frozen=True)
class Example:
    """A definition of one operator, the values of its variables, and arrays for its parameters."""

    name: str
    definition: PrimitiveDefinition
    sizes: dict[str, int]
    arrays: list[np.ndarray]

    @property
    def is_exact(self) -> bool:
        """Whether the reference tells every element: not lanes after the last channel of an image, nor of strange weights."""
        return self.name.split()[0] not in _WITH_SPARE_LANES


def examples(operator: str, first: int, count: int, symbolic: float = 0.3) -> Iterator[Example]:
    """So many examples of an operator, always the same ones, from a number on. Sizes that cannot be are left out."""
    seed, found = first, 0
    while found < count:
        example = _example(operator, seed, symbolic)
        seed += 1
        if example is not None:
            found += 1
            yield example


def _example(operator: str, seed: int, symbolic: float) -> Example | None:
    draw = Draw(random.Random(f"{operator} {seed}"), symbolic)
    types, attributes = OPERANDS[operator](draw)
    try:
        definition = definition_of(operator, types, **attributes)
        shapes = [tuple(dims.evaluate(dim, draw.sizes) for dim in type_.shape) for type_ in definition.values]
    except (InferenceError, ZeroDivisionError):
        return None
    if any(dim < 0 for shape in shapes for dim in shape):
        return None
    sizes = {name: draw.sizes[name] for name in definition.variables}
    arrays = [
        _array(draw, number, type_, shape) for number, (type_, shape) in enumerate(zip(types, shapes, strict=False))
    ]
    return Example(f"{operator} {seed}", definition, sizes, arrays)


def _array(draw: Draw, number: int, type_: TensorType, shape: tuple[int, ...]) -> np.ndarray:
    random_ = np.random.default_rng(draw.random.randrange(1 << 30))
    if number in draw.given:
        return draw.given[number]
    if number in draw.ranges:  # indices, most of them in range
        length = dims.evaluate(draw.ranges[number], draw.sizes)
        beyond = draw.random.random() < 0.2
        return random_.integers(-length - beyond, max(length, 1 - length) + beyond, shape).astype(type_.dtype.numpy)
    if type_.dtype.is_float:
        return abs(random_.standard_normal(shape)).astype(type_.dtype.numpy)
    if type_.dtype.is_integer:
        return random_.integers(0, 100, shape).astype(type_.dtype.numpy)
    return random_.random(shape) < 0.5
