"""`relay.nn`: activations, shapes, normalisation; convolutions and pooling have files of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats import dims, types
from ....formats.dtypes import DType
from ....formats.messages.errors import InferenceError
from ..._lazy import lazy
from ..expr import TupleGetItem
from .absent import NN
from .convolution import (  # noqa: F401
    batch_matmul,
    conv1d,
    conv1d_transpose,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    dense,
    matmul,
)
from .dynamic import enlarged, sizes_of
from .image import resized
from .layouts import transformed
from .loss import cross_entropy, cross_entropy_with_logits, nll_loss  # noqa: F401
from .pooling import (  # noqa: F401
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    global_avg_pool1d,
    global_avg_pool2d,
    global_avg_pool3d,
    global_max_pool1d,
    global_max_pool2d,
    global_max_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from .reduce import axes_of
from .sampling import correlation, deformable_conv2d  # noqa: F401  (TVM has them here too)
from .sparse import sparse_add, sparse_dense, sparse_transpose  # noqa: F401
from .table import Tensor, axis_of, behind, like, minus, operator, pair, rank_of, shape_of, type_of
from .tensor import fast_exp, fast_tanh, filled  # noqa: F401  (TVM has some of them here too)

# ---- activations ----


@operator("nn.relu")
def relu(data: Tensor) -> Expression:
    """The greater of x and 0."""
    return op.relu(data) if type_of(data).dtype.is_float else op.maximum(data, like(data, 0))


@operator("nn.leaky_relu")
def leaky_relu(data: Tensor, alpha: float = 0.01) -> Expression:
    """x, of negative ones alpha x."""
    return op.leaky_relu(data, alpha=float(alpha))


def _channel(data: Expression, vector: Expression, axis: int) -> Expression:
    """A vector along an axis of `data`."""
    behind = rank_of(data) - axis_of(data, axis) - 1
    return op.expand_dims(vector, axes=list(range(1, behind + 1))) if behind else vector


@operator("nn.prelu")
def prelu(data: Tensor, alpha: Tensor, axis: int = 1) -> Expression:
    """x, of negative ones alpha x; an alpha for each channel."""
    slope = _channel(data, alpha, axis)
    return op.where(op.less(data, like(data, 0)), op.multiply(data, slope), data)


def _softmax(name: str, ours: str, summary: str) -> Callable[..., Any]:
    @operator(f"nn.{name}", summary=summary)
    def apply(data: Tensor, axis: int = -1) -> Expression:
        return getattr(op, ours)(data, axis=int(axis))

    return apply


softmax = _softmax("softmax", "softmax", "exp x / the sum of exp x along an axis.")
fast_softmax = _softmax("fast_softmax", "softmax", "`softmax`.")
log_softmax = _softmax("log_softmax", "log_softmax", "The logarithm of softmax.")

# ---- shapes ----


@operator("nn.batch_flatten")
def batch_flatten(data: Tensor) -> Expression:
    """All axes but the first as one."""
    data, shape = shape_of(data)
    return op.reshape(data, shape=(shape[0], dims.product(shape[1:])))


@operator("nn.bias_add")
def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Expression:
    """A number added to each channel."""
    return op.add(data, _channel(data, bias, axis))


@operator("nn.pad")
def pad(data: Tensor, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant") -> Expression:
    """Elements around the tensor: (before, after) for each axis."""
    if pad_mode not in ("constant", "edge", "reflect"):
        raise InferenceError(f"pad_mode {pad_mode!r}; there are constant, edge and reflect")
    if isinstance(pad_width, Expression):
        width = getattr(pad_width.atom, "value", None)
        if width is None:
            return _padded_by(data, pad_width, pad_value, pad_mode)
        pad_width = width
    sides = [(int(each), int(each)) if np.ndim(each) == 0 else (int(each[0]), int(each[1])) for each in pad_width]
    data, sides = _cut(data, sides)
    pads = [before for before, _ in sides] + [after for _, after in sides]
    value = getattr(pad_value.atom, "value", None) if isinstance(pad_value, Expression) else pad_value
    if value is None:
        assert isinstance(pad_value, Expression)
        ones = op.pad(_truths(data), pads=pads, value=False)
        return op.where(ones, op.pad(data, pads=pads), op.cast(pad_value, dtype=type_of(data).dtype))
    number = np.asarray(value).item()
    kind = type_of(data).dtype
    number = float(number) if kind.is_float else bool(number) if kind is DType.bool else int(number)
    return op.pad(data, pads=pads, mode=pad_mode, value=number)


def _cut(data: Expression, sides: list[tuple[int, int]]) -> tuple[Expression, list[tuple[int, int]]]:
    """The tensor without what negative widths take from its sides, and the other widths."""
    axes = [axis for axis, side in enumerate(sides) if min(side) < 0]
    if axes:
        cut = [[max(-width, 0) for width in sides[axis]] for axis in axes]
        data, shape = shape_of(data)
        starts, ends = [before for before, _ in cut], []
        for axis, (before, after) in zip(axes, cut, strict=True):
            length = shape[axis]
            if isinstance(length, int) and before + after > length:
                raise InferenceError(f"widths {sides[axis]} take more from axis {axis} than {length} elements")
            ends.append(minus(length, after))
        data = op.slice(data, starts=starts, ends=ends, axes=axes, steps=[1] * len(axes))
    return data, [(max(before, 0), max(after, 0)) for before, after in sides]


def _truths(data: Expression) -> Expression:
    """Truths in the shape of `data`."""
    return filled(data, programs.constant(True))


def _padded_by(data: Expression, width: Expression, value: Any, mode: str) -> Expression:
    """Padding whose widths a run computes."""
    waits, sizes = sizes_of(op.reshape(op.permute_dims(width), shape=(2 * rank_of(data),)))
    known = getattr(value.atom, "value", None) if isinstance(value, Expression) else value
    if known is None:
        inside = behind("pad", _truths(data), waits, pads=sizes, value=False)
        return op.where(inside, behind("pad", data, waits, pads=sizes), op.cast(value, dtype=type_of(data).dtype))
    number = np.asarray(known).item()
    number = float(number) if type_of(data).dtype.is_float else int(number)
    return behind("pad", data, waits, pads=sizes, mode=mode, value=number)


@operator("nn.mirror_pad")
def mirror_pad(data: Tensor, pad_width: Any, mode: str = "SYMMETRIC") -> Expression:
    """Elements mirrored at the edges, with (SYMMETRIC) or without (REFLECT) the edge itself."""
    if mode == "REFLECT":
        pads = [int(before) for before, _ in pad_width] + [int(after) for _, after in pad_width]
        return op.pad(data, pads=pads, mode="reflect")
    for axis, (before, after) in enumerate(pad_width):
        length = type_of(data).shape[axis]
        if before or after:
            if not isinstance(length, int):
                raise NotImplementedError("nn.mirror_pad: SYMMETRIC needs a shape that is known")
            places = np.pad(np.arange(length), (int(before), int(after)), mode="symmetric")
            data = op.take(data, programs.constant(places), axis=axis)
    return data


@operator("nn.dilate")
def dilate(data: Tensor, strides: Any, dilation_value: float = 0.0) -> Expression:
    """Elements apart, with a value between them."""
    data, shape = shape_of(data)
    whole = type_of(data).dtype
    value = float(dilation_value) if whole.is_float else int(dilation_value)
    for axis, step in enumerate(pair(strides, len(shape))):
        if step > 1:
            pads = [0] * (2 * len(shape) + 2)
            pads[len(shape) + 1 + axis + 1] = step - 1
            size = minus(dims.multiply(shape[axis], step), step - 1)
            now = type_of(data).shape
            data = op.pad(op.expand_dims(data, axes=(axis + 1,)), pads=pads, value=value)
            data = op.reshape(data, shape=(*now[:axis], dims.multiply(shape[axis], step), *now[axis + 1 :]))
            data = op.slice(data, starts=(0,), ends=(size,), axes=(axis,), steps=(1,))
    return data


@operator("nn.depth_to_space")
def depth_to_space(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Expression:
    """Blocks of channels side by side in space."""
    data = transformed(data, layout, "NCHW")
    if mode == "DCR":
        result = op.depth_to_space(data, blocks=(block_size, block_size))
    else:
        data, (n, c, h, w) = shape_of(data)
        channels = dims.floordiv(c, block_size * block_size)
        parts = op.reshape(data, shape=(n, channels, block_size, block_size, h, w))
        parts = op.permute_dims(parts, axes=(0, 1, 4, 2, 5, 3))
        result = op.reshape(parts, shape=(n, channels, dims.multiply(h, block_size), dims.multiply(w, block_size)))
    return transformed(result, "NCHW", layout)


@operator("nn.space_to_depth")
def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Expression:
    """Neighbours in space as channels."""
    data, (n, c, h, w) = shape_of(transformed(data, layout, "NCHW"))
    high, wide = dims.floordiv(h, block_size), dims.floordiv(w, block_size)
    parts = op.reshape(data, shape=(n, c, high, block_size, wide, block_size))
    parts = op.permute_dims(parts, axes=(0, 3, 5, 1, 2, 4))
    result = op.reshape(parts, shape=(n, dims.multiply(c, block_size * block_size), high, wide))
    return transformed(result, "NCHW", layout)


@operator("nn.space_to_batch_nd")
def space_to_batch_nd(data: Tensor, block_shape: Any, paddings: Any, pad_value: float = 0) -> Expression:
    """Blocks of space, padded, as batches."""
    blocks = pair(block_shape, 1)
    rest = rank_of(data) - len(blocks) - 1
    before = [0, *(int(a) for a, _ in paddings), *[0] * rest]
    after = [0, *(int(b) for _, b in paddings), *[0] * rest]
    data, shape = shape_of(op.pad(data, pads=before + after, value=pad_value))
    form: list[Any] = [shape[0]]
    for dim, block in zip(shape[1:], blocks):  # noqa: B905
        form += [dims.floordiv(dim, block), block]
    form += shape[len(blocks) + 1 :]
    count = len(blocks)
    inner, outer = [2 * place + 2 for place in range(count)], [2 * place + 1 for place in range(count)]
    parts = op.permute_dims(op.reshape(data, shape=form), axes=[*inner, 0, *outer, *range(2 * count + 1, len(form))])
    sizes = [dims.floordiv(dim, block) for dim, block in zip(shape[1:], blocks)]  # noqa: B905
    return op.reshape(parts, shape=(dims.product([*blocks, shape[0]]), *sizes, *shape[count + 1 :]))


@operator("nn.batch_to_space_nd")
def batch_to_space_nd(data: Tensor, block_shape: Any, crops: Any) -> Expression:
    """Batches as blocks of space, cropped."""
    blocks = pair(block_shape, 1)
    data, shape = shape_of(data)
    count = len(blocks)
    batch = dims.floordiv(shape[0], int(np.prod(blocks)))
    parts = op.reshape(data, shape=(*blocks, batch, *shape[1:]))
    order = [count]
    for place in range(count):
        order += [count + 1 + place, place]
    parts = op.permute_dims(parts, axes=[*order, *range(2 * count + 1, len(shape) + count)])
    sizes = [dims.multiply(dim, block) for dim, block in zip(shape[1:], blocks)]  # noqa: B905
    whole = op.reshape(parts, shape=(batch, *sizes, *shape[count + 1 :]))
    starts = [int(a) for a, _ in crops]
    ends = [minus(size, int(b)) for size, (_, b) in zip(sizes, crops, strict=True)]
    return op.slice(whole, starts=starts, ends=ends, axes=list(range(1, count + 1)), steps=[1] * count)


@operator("nn.upsampling")
def upsampling(
    data: Tensor,
    scale_h: Any = 1,
    scale_w: Any = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Expression:
    """An image enlarged by the two scales."""
    data = transformed(data, layout, "NCHW")
    waits, sizes = enlarged(data, (2, 3), (scale_h, scale_w))
    mode = "align_corners" if align_corners else "asymmetric"
    if method != "nearest_neighbor" and not align_corners:
        mode = "half_pixel"
    names = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}
    return transformed(resized(data, sizes, names[method], mode, "", -0.5, False, waits), "NCHW", layout)


@operator("nn.upsampling3d")
def upsampling3d(
    data: Tensor,
    scale_d: Any = 1,
    scale_h: Any = 1,
    scale_w: Any = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Expression:
    """A volume enlarged by the three scales."""
    data = transformed(data, layout, "NCDHW")
    waits, sizes = enlarged(data, (2, 3, 4), (scale_d, scale_h, scale_w))
    nearest = method == "nearest_neighbor"
    mode = "asymmetric" if nearest else coordinate_transformation_mode
    found = resized(data, sizes, "nearest_neighbor" if nearest else "linear", mode, "", -0.5, False, waits)
    return transformed(found, "NCDHW", layout)


# ---- normalisation ----


def _scaled(x: Expression, gamma: Expression, beta: Expression, axis: int, scale: bool, center: bool) -> Expression:
    x = op.multiply(x, _channel(x, gamma, axis)) if scale else x
    return op.add(x, _channel(x, beta, axis)) if center else x


@operator("nn.batch_norm", results=3)
def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expression:
    """Channels normalised by the mean and variance given, which are results too."""
    if axis_of(data, axis) == 1 and scale and center:
        result = op.batch_normalization(data, gamma, beta, moving_mean, moving_var, epsilon=float(epsilon))
    else:
        spread = op.rsqrt(op.add(moving_var, like(moving_var, epsilon)))
        factor = op.multiply(gamma, spread) if scale else spread
        offset = op.negative(op.multiply(moving_mean, factor))
        offset = op.add(beta, offset) if center else offset
        result = op.add(op.multiply(data, _channel(data, factor, axis)), _channel(data, offset, axis))
    return programs.tuple_(result, moving_mean, moving_var)


def _normalised(data: Expression, axes: Sequence[int], epsilon: float) -> Expression:
    middle = op.mean(data, axes=axes, keepdims=True)
    away = op.subtract(data, middle)
    spread = op.mean(op.square(away), axes=axes, keepdims=True)
    return op.multiply(away, op.rsqrt(op.add(spread, like(data, epsilon))))


def _norm(name: str, default: int, summary: str) -> Callable[..., Any]:
    """Over the axis `default` the operator of Treadle's, `<name>alization`, where scale and center are wanted."""

    @operator(f"nn.{name}", summary=summary)
    def norm(
        data: Tensor,
        gamma: Tensor,
        beta: Tensor,
        axis: int = default,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
    ) -> Expression:
        along, is_layer = axis_of(data, axis), default == -1
        if along == axis_of(data, default) and scale and center:
            own = {"axis": int(axis)} if is_layer else {}
            return getattr(op, f"{name}alization")(data, gamma, beta, **own, epsilon=float(epsilon))
        axes = [along] if is_layer else [each for each in range(1, rank_of(data)) if each != along]
        return _scaled(_normalised(data, axes, epsilon), gamma, beta, along, scale, center)

    return norm


instance_norm = _norm("instance_norm", 1, "Each channel of each image normalised by its own mean and variance.")
layer_norm = _norm("layer_norm", -1, "Normalised by mean and variance along an axis.")


@operator("nn.group_norm")
def group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expression:
    """Groups of channels normalised by their own mean and variance."""
    if axis_of(data, axis) != 1 or not (scale and center):
        data, shape = shape_of(data)
        along = axis_of(data, axis)
        form = [*shape[:along], num_groups, dims.floordiv(shape[along], num_groups), *shape[along + 1 :]]
        axes = [each for each in range(1, len(form)) if each != along]
        result = op.reshape(_normalised(op.reshape(data, shape=form), axes, epsilon), shape=shape)
        return _scaled(result, gamma, beta, along, scale, center)
    return op.group_normalization(data, gamma, beta, groups=int(num_groups), epsilon=float(epsilon))


@operator("nn.lrn")
def lrn(
    data: Tensor, size: int = 5, axis: int = 1, bias: float = 2, alpha: float = 1e-5, beta: float = 0.75
) -> Expression:
    """Normalised by neighbouring channels."""
    along = axis_of(data, axis)
    order = list(range(rank_of(data)))
    order[1], order[along] = order[along], order[1]
    x = op.permute_dims(data, axes=order) if along != 1 else data
    x = op.local_response_normalization(x, size=int(size), alpha=float(alpha), beta=float(beta), bias=float(bias))
    return op.permute_dims(x, axes=order) if along != 1 else x


@operator("nn.l2_normalize")
def l2_normalize(data: Tensor, eps: float, axis: Any = None) -> Expression:
    """x / the root of the sum of squares, which is not below eps."""
    squares = op.sum_of_squares(data, axes=axes_of(data, axis), keepdims=True)
    return op.divide(data, op.sqrt(op.maximum(squares, like(data, eps))))


@operator("nn.dropout", results=2)
def dropout_raw(data: Tensor, rate: float = 0.5) -> Expression:
    """`data`, and a mask of ones: nothing is dropped when a model is run."""
    return programs.tuple_(data, op.add(op.subtract(data, data), like(data, 1)))


def dropout(data: Any, rate: float = 0.5) -> TupleGetItem:
    """`data`: nothing is dropped when a model is run."""
    return dropout_raw(data, rate)[0]


dropout_raw.__name__ = "dropout_raw"

# ---- losses ----


@operator("nn.fifo_buffer")
def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Expression:
    """The buffer with `data` appended, and as much dropped from its front."""
    along = axis_of(buffer, axis)
    joined = op.concat(buffer, data, axis=along)
    count: Any = type_of(buffer).shape[along]
    if count is types.UNKNOWN:
        raise NotImplementedError("nn.fifo_buffer: the buffer's length must be known")
    return op.slice(joined, starts=(dims.multiply(count, -1),), ends=(1 << 40,), axes=(along,), steps=(1,))


__getattr__, __dir__ = lazy(__name__, absent=NN)
