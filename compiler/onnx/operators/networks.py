"""Importers of matrix products, convolutions, pooling, normalisations, softmax and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....formats import dims
from ....formats.dims import Dim, SymbolicDim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...operators.shapes import axis_of, maximum
from ...operators.windows import axes as windows_along
from .. import sizes_of_run as run_time
from ..images.max_places import places_of_greatest
from ..sizes_of_run import is_known
from ..table import importer
from ..values import GraphBuilder, UnsupportedError, Value
from .shapes import integers_of

Ints = tuple[int, ...]

# ---- matrix products ----


@importer("MatMul")
def _matmul(g: GraphBuilder, a: Value, b: Value) -> Value:
    return product(g, a, b)


def product(g: GraphBuilder, a: Value, b: Value, *others: Value, operator: str = "matmul", **attributes: Any) -> Value:
    """The matrix product, or another `operator` like it. Sizes that should be equal are checked when the program runs if they
    may differ."""
    if a.rank and b.rank:
        inner = b.rank - 2 if b.rank > 1 else 0
        if isinstance(b.shape[inner], int):
            a = along(g, a, a.rank - 1, b.shape[inner])
        b = along(g, b, inner, a.shape[-1])
    if a.rank > 2 and b.rank > 2:
        a, b = g.aligned([a, b], slice(None, -2))
    return g.op(operator, a, b, *others, **attributes)


def along(g: GraphBuilder, x: Value, axis: int, size: Dim) -> Value:
    """x as a tensor of that size along the axis; a run checks what is not known."""
    return g.checked(x, (*x.shape[:axis], size, *x.shape[axis + 1 :]))


@importer("Gemm")
def gemm(
    g: GraphBuilder,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 0,
) -> Value:
    a = g.op("permute_dims", a, axes=(1, 0)) if transA else a
    b = g.op("permute_dims", b, axes=(1, 0)) if transB else b
    result = product(g, a, b)
    if alpha != 1:
        result = g.op("multiply", result, _scalar(g, alpha, result.dtype))
    if c is None or beta == 0:
        return result
    if beta != 1:
        c = g.op("multiply", c, _scalar(g, beta, c.dtype))
    return g.broadcast("add", result, c)


def _scalar(g: GraphBuilder, value: float, dtype: DType) -> Value:
    if not dtype.is_float and value != int(value):
        raise UnsupportedError(f"the factor {value} of integers")
    return g.constant(value, dtype)


# ---- convolution, pooling ----


def same_pads(
    spatial: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], upper: bool
) -> tuple[Dim, ...]:
    """Pads for ⌈length / stride⌉ windows along each axis; of an odd number the larger half at the end, or the beginning."""
    begins, ends = [], []
    for length, size, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        windows = dims.ceildiv(length, stride)
        covered = dims.add(dims.multiply(dims.add(windows, -1), stride), (size - 1) * dilation + 1)
        total = maximum(dims.add(covered, dims.multiply(length, -1)), 0)
        small = dims.floordiv(total, 2)
        large = dims.add(total, dims.multiply(small, -1))
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    return (*begins, *ends)


def _pads(
    x: Value, auto_pad: str, pads: Ints | None, kernel: Sequence[int], strides: Ints | None, dilations: Ints | None
) -> tuple[Dim, ...] | None:
    """The pads that `auto_pad` and `pads` say together."""
    if auto_pad in ("NOTSET", ""):
        return pads
    if auto_pad == "VALID":
        return None
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"auto_pad {auto_pad!r} is not one of ONNX's")
    _check_window(x, kernel_shape=kernel, strides=strides, dilations=dilations)
    ones = (1,) * len(kernel)
    return same_pads(x.shape[2:], kernel, strides or ones, dilations or ones, auto_pad == "SAME_UPPER")


def _check_window(x: Value, **lists: Sequence[int] | None) -> None:
    """Each list has one element for each spatial axis of x, and no sizes or steps below 1."""
    for name, values in lists.items():
        if values is not None and (
            len(values) != x.rank - 2 or (min(values, default=1) < 1 and name != "output_padding")
        ):
            raise ModelError(f"{name} {list(values)} does not suit {x.type}")


def _kernel(weight: Value, kernel_shape: Ints | None) -> Ints:
    spatial = weight.shape[2:]
    if any(isinstance(dim, SymbolicDim) for dim in spatial):
        raise UnsupportedError("the size of its kernel depends on the sizes of the inputs")
    if kernel_shape is not None and kernel_shape != spatial:
        raise ModelError(f"kernel_shape {list(kernel_shape)} is not that of the weights, {weight.type}")
    return spatial  # type: ignore[return-value]


def convolved(
    g: GraphBuilder,
    operator: str,
    x: Value,
    weight: Value,
    *others: Value,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Value:
    """A convolution by that operator, with the attributes that ONNX's have."""
    kernel = _kernel(weight, kernel_shape)
    around = _pads(x, auto_pad, pads, kernel, strides, dilations)
    x = along(g, x, 1, dims.multiply(weight.shape[1], group))
    return g.op(operator, x, weight, *others, strides=strides, pads=around, dilations=dilations, groups=group)


@importer("Conv", attributes_of=convolved)
def convolution(g: GraphBuilder, x: Value, weight: Value, bias: Value | None = None, **window: Any) -> Value:
    return convolved(g, "conv", x, weight, *_biases(g, bias, weight.shape[0]), **window)


def _biases(g: GraphBuilder, bias: Value | None, channels: Dim) -> list[Value]:
    """The bias, if there is one, of as many elements as there are channels; a run checks what is not known."""
    if bias is None:
        return []
    return [along(g, bias, 0, channels) if bias.rank == 1 else bias]


@importer("ConvTranspose")
def _conv_transpose(
    g: GraphBuilder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Value:
    kernel = _kernel(weight, kernel_shape)
    x = along(g, x, 1, weight.shape[0])
    around: tuple[Dim, ...] | None = pads
    if output_shape is not None or auto_pad.startswith("SAME"):
        around, output_padding = _transposed_pads(x, kernel, strides, dilations, output_padding, output_shape, auto_pad)
    return g.op(
        "conv_transpose",
        x,
        weight,
        *_biases(g, bias, dims.multiply(weight.shape[1], group)),
        strides=strides,
        pads=around,
        dilations=dilations,
        groups=group,
        output_padding=output_padding,
    )


def _transposed_pads(
    x: Value,
    kernel: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    output_padding: Ints | None,
    output_shape: Ints | None,
    auto_pad: str,
) -> tuple[tuple[Dim, ...], Ints]:
    """The pads and the output padding that leave `output_shape` (for SAME: length · stride) of the result."""
    _check_window(x, kernel_shape=kernel, strides=strides, dilations=dilations, output_padding=output_padding)
    if output_shape is not None and len(output_shape) < len(kernel):
        raise ModelError(f"output_shape {list(output_shape)} does not suit {x.type}")
    ones = (1,) * len(kernel)
    begins, ends, extras = [], [], []
    for axis, (length, size) in enumerate(zip(x.shape[2:], kernel, strict=True)):
        stride, dilation = (strides or ones)[axis], (dilations or ones)[axis]
        extra = output_padding[axis] if output_padding else 0
        whole = dims.add(dims.multiply(dims.add(length, -1), stride), extra + (size - 1) * dilation + 1)
        wanted = dims.multiply(length, stride) if output_shape is None else output_shape[-len(kernel) :][axis]
        surplus = dims.add(whole, dims.multiply(wanted, -1))
        if isinstance(surplus, int) and surplus < 0:
            extra, surplus = extra - surplus, 0
        small = dims.floordiv(maximum(surplus, 0), 2)
        large = dims.add(maximum(surplus, 0), dims.multiply(small, -1))
        begins.append(small if auto_pad == "SAME_UPPER" else large)
        ends.append(large if auto_pad == "SAME_UPPER" else small)
        extras.append(extra)
    return (*begins, *ends), tuple(extras)


class _Window(NamedTuple):
    """A pooling window, as operators take it."""

    kernel: Ints
    strides: Ints | None
    pads: tuple[Dim, ...] | None
    dilations: Ints | None


def _window(
    x: Value,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> _Window:
    return _Window(kernel_shape, strides, _pads(x, auto_pad, pads, kernel_shape, strides, dilations), dilations)


@importer("MaxPool", attributes_of=_window)
def max_pool(
    g: GraphBuilder, x: Value, *, ceil_mode: int = 0, storage_order: int = 0, **window: Any
) -> Value | tuple[Value, ...]:
    size = _window(x, **window)
    pooled = g.op("max_pool", x, **size._asdict(), ceil_mode=bool(ceil_mode))
    if g.output_count == 1:
        return pooled
    return pooled, places_of_greatest(g, x, pooled.shape[2:], *size, by_columns=bool(storage_order))


@importer("AveragePool", attributes_of=_window)
def average_pool(g: GraphBuilder, x: Value, *, ceil_mode: int = 0, count_include_pad: int = 0, **window: Any) -> Value:
    counts = {"ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}
    return g.op("average_pool", x, **_window(x, **window)._asdict(), **counts)


@importer("GlobalAveragePool")
def global_average_pool(g: GraphBuilder, x: Value) -> Value:
    return g.op("mean", x, axes=tuple(range(2, x.rank)), keepdims=True)


@importer("GlobalMaxPool")
def _global_max_pool(g: GraphBuilder, x: Value) -> Value:
    return g.op("max", x, axes=tuple(range(2, x.rank)), keepdims=True)


@importer("LpPool", since=2, attributes_of=_window)
def _lp_pool(g: GraphBuilder, x: Value, *, ceil_mode: int = 0, p: int = 2, **window: Any) -> Value:
    """The p-th root of a window's sum of p-th powers; what lies outside the image counts as 0."""
    size = _window(x, **window)
    if ceil_mode:
        size = size._replace(pads=_reached(x, size))
    magnitudes = g.op("abs", x)
    powers = magnitudes if p == 1 else g.op("pow", magnitudes, g.constant(p, x.dtype))
    means = g.op("average_pool", powers, **size._asdict(), count_include_pad=True)
    sums = g.op("multiply", means, g.constant(math.prod(size.kernel), x.dtype))
    return sums if p == 1 else g.op("pow", sums, g.constant(1 / p, x.dtype))


def _reached(x: Value, size: _Window) -> tuple[Dim, ...]:
    """Pads that a last window does not stick out of, which may begin after the last full one."""
    _check_window(x, kernel_shape=size.kernel, strides=size.strides, dilations=size.dilations)
    windows, ends = windows_along(*size), []
    for window, length in zip(windows, x.shape[2:], strict=True):
        last = dims.multiply(dims.add(window.count(length, ceil_mode=True), -1), window.stride)  # type: ignore[arg-type]
        reach = dims.add(last, window.extent)  # type: ignore[arg-type]
        ends.append(maximum(dims.add(reach, dims.multiply(dims.add(length, window.begin), -1)), window.end))
    return (*(window.begin for window in windows), *ends)


@importer("GlobalLpPool")
def _global_lp_pool(g: GraphBuilder, x: Value, *, p: int = 2) -> Value:
    axes = tuple(range(2, x.rank))
    if p in (1, 2):
        return g.op("l1_norm" if p == 1 else "l2_norm", x, axes=axes, keepdims=True)
    powers = g.op("pow", g.op("abs", x), g.constant(p, x.dtype))
    return g.op("pow", g.op("sum", powers, axes=axes, keepdims=True), g.constant(1 / p, x.dtype))


# ---- normalisation ----


def _by_channel(g: GraphBuilder, x: Value, *parameters: Value) -> list[Value]:
    """x, and parameters of as many elements as it has channels: where that is not known, a run checks."""
    if x.rank < 2 or any(parameter.rank != 1 for parameter in parameters):
        return [x, *parameters]  # the operator's inference says what is wrong
    counts = [x.shape[1], *(parameter.shape[0] for parameter in parameters)]
    count = next((each for each in counts if isinstance(each, int)), counts[0])
    x = g.checked(x, (x.shape[0], count, *x.shape[2:]))
    return [x, *(g.checked(parameter, (count,)) for parameter in parameters)]


@importer("BatchNormalization", since=7)
def _batch_normalization(
    g: GraphBuilder,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Value | tuple[Value, ...]:
    if g.output_count > 1 and not training_mode:
        raise UnsupportedError("batch normalisation in training mode, before opset 14")
    if not spatial:
        raise UnsupportedError("batch normalisation of each element (spatial = 0)")
    parameters = [
        g.op("cast", v, dtype=x.dtype) if v.dtype is not x.dtype else v for v in (scale, bias, mean, variance)
    ]
    if not training_mode:
        return g.op("batch_normalization", *_by_channel(g, x, *parameters), epsilon=epsilon)
    own = _moments(g, x)
    own_parameters = [*parameters[:2], *(g.op("cast", value, dtype=x.dtype) for value in own)]
    made = g.op("batch_normalization", x, *own_parameters, epsilon=epsilon)
    running = []
    for before, now in zip((mean, variance), own, strict=True):
        kept = g.op("multiply", before, g.constant(momentum, before.dtype))
        added = g.op("multiply", g.op("cast", now, dtype=before.dtype), g.constant(1 - momentum, before.dtype))
        running.append(g.op("add", kept, added))
    return (made, *running)[: g.output_count]


def _moments(g: GraphBuilder, x: Value) -> tuple[Value, Value]:
    """Mean and variance of each channel, in float32 at least."""
    axes = (0, *range(2, x.rank))
    wide = x if x.dtype.itemsize >= 4 else g.op("cast", x, dtype=DType.float32)
    mean = g.op("mean", wide, axes=axes, keepdims=True)
    variance = g.op("mean", g.op("square", g.op("subtract", wide, mean)), axes=axes)
    return g.op("reshape", mean, shape=(x.shape[1],)), variance


@importer("BatchNormalization")
def _batch_normalization_before_7(
    g: GraphBuilder,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
) -> Value:
    """is_test was 0 by default, but a graph with one output is for inference."""
    return _batch_normalization(g, x, scale, bias, mean, variance, epsilon=epsilon, spatial=spatial)  # type: ignore[return-value]


@importer("LayerNormalization")
def layer_normalization(
    g: GraphBuilder,
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, ...]:
    inputs = [value for value in (scale, bias) if value is not None]
    if all(value.shape == x.shape[axis_of(axis, x.rank) :] for value in inputs):
        result = g.op("layer_normalization", x, *inputs, axis=axis, epsilon=epsilon)
    else:
        result = g.broadcast("multiply", g.op("layer_normalization", x, axis=axis, epsilon=epsilon), scale)
        result = result if bias is None else g.broadcast("add", result, bias)
    if g.output_count == 1:
        return (result,)
    return (result, *statistics(g, x, axis=axis, epsilon=epsilon, stash_type=stash_type))[: g.output_count]


def statistics(
    g: GraphBuilder, x: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, centred: bool = True
) -> tuple[Value, Value]:
    """The mean that a normalisation subtracts, if it is `centred`, and what it multiplies by then."""
    axes = tuple(range(axis_of(axis, x.rank), x.rank))
    wide = x if x.dtype is DType.float32 or not stash_type else g.op("cast", x, dtype=DType.float32)
    mean = g.op("mean", wide, axes=axes, keepdims=True)
    distance = g.op("subtract", wide, mean) if centred else wide
    variance = g.op("mean", g.op("square", distance), axes=axes, keepdims=True)
    return mean, g.op("rsqrt", g.op("add", variance, g.constant(epsilon, wide.dtype)))


@importer("RMSNormalization")
def rms_normalization(
    g: GraphBuilder, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    if scale.shape == x.shape[axis_of(axis, x.rank) :]:
        return g.op("rms_normalization", x, scale, axis=axis, epsilon=epsilon)
    return g.broadcast("multiply", g.op("rms_normalization", x, axis=axis, epsilon=epsilon), scale)


@importer("InstanceNormalization")
def _instance_normalization(g: GraphBuilder, x: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5) -> Value:
    return g.op("instance_normalization", *_by_channel(g, x, scale, bias), epsilon=epsilon)


@importer("GroupNormalization", since=21)
def _group_normalization(
    g: GraphBuilder,
    x: Value,
    scale: Value,
    bias: Value,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    return g.op("group_normalization", *_by_channel(g, x, scale, bias), groups=num_groups, epsilon=epsilon)


@importer("MeanVarianceNormalization")
def _mean_variance_normalization(g: GraphBuilder, x: Value, *, axes: tuple[int, ...] = (0, 2, 3)) -> Value:
    """In float32 at least: the function that the schema gives mixes it with constants of float32."""
    wide = g.op("cast", x, dtype=DType.float32) if x.dtype.itemsize < DType.float32.itemsize else x
    centred = g.op("subtract", wide, g.op("mean", wide, axes=axes, keepdims=True))
    variance = g.op("mean", g.op("multiply", centred, centred), axes=axes, keepdims=True)
    deviation = g.op("add", g.op("sqrt", variance), g.constant(1e-9, wide.dtype))
    result = g.op("divide", centred, deviation)
    return result if wide is x else g.op("cast", result, dtype=x.dtype)


@importer("LRN")
def _lrn(g: GraphBuilder, x: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Value:
    return g.op("local_response_normalization", x, size=size, alpha=alpha, beta=beta, bias=bias)


# ---- softmax ----


@importer("Softmax", since=13)
def softmax(g: GraphBuilder, x: Value, *, axis: int = -1) -> Value:
    return g.op("softmax", x, axis=axis)


@importer("LogSoftmax", since=13)
def _log_softmax(g: GraphBuilder, x: Value, *, axis: int = -1) -> Value:
    return g.op("log_softmax", x, axis=axis)


@importer("Softmax")
def softmax_before_13(g: GraphBuilder, x: Value, *, axis: int = 1) -> Value:
    return _over_flat(g, x, axis, softmax)


@importer("LogSoftmax")
def _log_softmax_before_13(g: GraphBuilder, x: Value, *, axis: int = 1) -> Value:
    return _over_flat(g, x, axis, _log_softmax)


@importer("Hardmax", since=13)
def _hardmax(g: GraphBuilder, x: Value, *, axis: int = -1) -> Value:
    """1 at the first of the greatest elements along the axis, 0 elsewhere."""
    along = axis_of(axis, x.rank)
    length = x.shape[along]
    if length == 0:
        return x
    places = g.op("arange", stop=length)
    places = g.op("expand_dims", places, axes=tuple(range(1, x.rank - along)))
    return g.op(
        "cast", g.op("equal", g.op("argmax", _not_empty(g, x, along), axis=along, keepdims=True), places), dtype=x.dtype
    )


@importer("Hardmax")
def _hardmax_before_13(g: GraphBuilder, x: Value, *, axis: int = 1) -> Value:
    return _over_flat(g, x, axis, _hardmax)


def _not_empty(g: GraphBuilder, x: Value, axis: int) -> Value:
    """x, with one element along an axis that has none: an axis of a size known only at run time may."""
    length = x.shape[axis]
    missing = maximum(dims.add(1, dims.multiply(length, -1)), 0)
    if missing == 0:
        return x
    ends = [0 if place != axis else missing for place in range(x.rank)]
    return g.op("pad", x, pads=(*(0,) * x.rank, *ends), mode="constant", value=0)


@importer("LpNormalization")
def _lp_normalization(g: GraphBuilder, x: Value, *, axis: int = -1, p: int = 2) -> Value:
    norm = g.op("l1_norm" if p == 1 else "l2_norm", x, axes=(axis,), keepdims=True)
    zero = g.constant(0, x.dtype)
    return g.op("where", g.op("equal", norm, zero), zero, g.op("divide", x, norm))


def _over_flat(g: GraphBuilder, x: Value, axis: int, along: Callable[..., Value]) -> Value:
    """Below opset 13 the input counted as a matrix: its rows are all elements from `axis` on."""
    first = axis_of(axis, x.rank)
    if all(dim == 1 for dim in x.shape[first + 1 :]):
        return along(g, x, axis=first)
    matrix = g.op("reshape", x, shape=(dims.product(x.shape[:first]), dims.product(x.shape[first:])))
    return g.op("reshape", along(g, matrix, axis=1), shape=x.shape)


# ---- reductions ----

REDUCTIONS = {
    "ReduceL1": "l1_norm",
    "ReduceL2": "l2_norm",
    "ReduceLogSum": "sum",  # and its logarithm
    "ReduceLogSumExp": "log_sum_exp",
    "ReduceMax": "max",
    "ReduceMean": "mean",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceSum": "sum",
    "ReduceSumSquare": "sum_of_squares",
}
_OF_BOOLS = {"max": "any", "min": "all"}
# Norms, axis by axis: what is done to the elements first, the reduction, and what is done to its result.
_IN_STEPS = {
    "l1_norm": ("abs", "sum", ""),
    "l2_norm": ("square", "sum", "sqrt"),
    "sum_of_squares": ("square", "sum", ""),
}


def _reduced(g: GraphBuilder, operator: str, x: Value, axes: Ints | Value | None, keepdims: int) -> Value:
    operator = _OF_BOOLS.get(operator, operator) if x.dtype is DType.bool else operator
    if not isinstance(axes, Value):
        return g.op(operator, x, axes=axes, keepdims=bool(keepdims))
    before, step, behind = _IN_STEPS.get(operator, ("", operator, ""))
    narrow = before and x.dtype.is_float and x.dtype.itemsize < 4
    made = g.op("cast", x, dtype=DType.float32) if narrow else x  # squares need more room than their root
    made = g.op(before, made) if before else made
    made = run_time.reduced(g, made, axes, bool(keepdims), lambda x, axis: g.op(step, x, axes=(axis,), keepdims=True))
    made = g.op(behind, made) if behind else made
    return g.op("cast", made, dtype=x.dtype) if narrow else made


_OF_FLOATS = {"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"}  # computed in float64 of integers, then cut


def _register_reduction(name: str, operator: str) -> None:
    def reduced(g: GraphBuilder, x: Value, axes: Ints | Value | None, keepdims: int) -> Value:
        wide = name in _OF_FLOATS and x.dtype.is_integer
        result = _reduced(g, operator, g.op("cast", x, dtype=DType.float64) if wide else x, axes, keepdims)
        result = g.op("log", result) if name == "ReduceLogSum" else result
        return g.op("cast", result, dtype=x.dtype) if wide else result

    def imported(
        g: GraphBuilder, x: Value, axes: Value | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Value:
        chosen: Ints | Value | None
        if axes is None or is_known(axes) or len(g.known_elements(axes, "axes")) == x.rank:
            chosen = (integers_of(axes, "axes") if is_known(axes) else None) or None
            if chosen is None and noop_with_empty_axes and (axes is None or axes.shape == (0,)):
                chosen = ()
        else:
            chosen = axes
        return reduced(g, x, chosen, keepdims)

    def with_attribute(g: GraphBuilder, x: Value, *, axes: Ints | None = None, keepdims: int = 1) -> Value:
        return reduced(g, x, axes, keepdims)

    importer(name)(with_attribute)
    importer(name, since=13 if name == "ReduceSum" else 18)(imported)


for _name, _operator in REDUCTIONS.items():
    _register_reduction(_name, _operator)


def _register_index(name: str, operator: str) -> None:
    @importer(name)
    def imported(g: GraphBuilder, x: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
        return g.op(operator, x, axis=axis, keepdims=bool(keepdims), select_last_index=bool(select_last_index))


_register_index("ArgMax", "argmax")
_register_index("ArgMin", "argmin")
