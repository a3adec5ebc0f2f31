"""Writers of networks: convolutions, pooling, normalisations, products, attention, recurrent layers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....formats import dims
from ....formats.dtypes import DType
from ...operators.attention import part_of, permuted
from ...operators.recurrent import BLOCK
from ..operators.networks import REDUCTIONS, same_pads
from .graph import Graph, RefusedError, Tensor, constant
from .table import Ints, Results, Writer, clip, full, split, writer

# ---- reductions ----


def _reduction(operator: str) -> Writer:
    def write(g: Graph, x: Tensor, *, axes: Ints | None, keepdims: bool) -> Tensor:
        if axes == ():
            return g.along(operator, x, axes, keepdims=keepdims, noop_with_empty_axes=1)
        return g.along(operator, x, axes, keepdims=keepdims)

    return write


for _theirs, _ours in REDUCTIONS.items():
    if _theirs != "ReduceLogSum":
        writer(_ours)(_reduction(_theirs))
writer("any")(_reduction("ReduceMax"))
writer("all")(_reduction("ReduceMin"))


# ---- convolutions, products ----


def _window(g: Graph, x: Tensor, kernel: Sequence[int], zeros: bool, **window: Any) -> tuple[Tensor, dict[str, Any]]:
    """x, and the attributes of a window, without those that say nothing. Pads that depend on sizes are those of `auto_pad`, or
    are put around x if they are `zeros`."""
    pads, strides, dilations = (window[name] for name in ("pads", "strides", "dilations"))
    given = {name: list(value) for name, value in window.items() if value is not None and name != "pads"}
    if pads is None or not any(pads):
        return x, given
    if all(isinstance(pad, int) for pad in pads):
        return x, given | {"pads": list(pads)}
    ones = (1,) * len(kernel)
    for name in ("SAME_UPPER", "SAME_LOWER"):
        if same_pads(x.shape[2:], kernel, strides or ones, dilations or ones, name == "SAME_UPPER") == pads:
            return x, given | {"auto_pad": name}
    if not zeros:
        raise RefusedError("its pads depend on the sizes of the inputs: pad the input before it, by numbers")
    half = len(pads) // 2
    return g.node("Pad", x, g.numbers((0, 0, *pads[:half], 0, 0, *pads[half:]))), given


@writer("conv")
def _conv(g: Graph, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, groups: int, **window: Any) -> Tensor:
    x, given = _window(g, x, weight.shape[2:], True, **window)
    return g.node("Conv", x, weight, bias, group=groups, **given)


@writer("conv_transpose")
def _conv_transpose(
    g: Graph, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, groups: int, pads: Any, **window: Any
) -> Tensor:
    if pads is not None and not all(isinstance(pad, int) for pad in pads):
        raise RefusedError("its pads depend on the sizes of the inputs: cut the result behind it")
    given = {name: list(value) for name, value in {**window, "pads": pads}.items() if value is not None}
    return g.node("ConvTranspose", x, weight, bias, group=groups, **given)


@writer("conv_integer")
def _conv_integer(
    g: Graph,
    x: Tensor,
    weight: Tensor,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    *,
    groups: int,
    dtype: DType,
    **window: Any,
) -> Tensor:
    x, given = _window(g, x, weight.shape[2:], False, **window)
    zeros = (None if zero is None else _along_one(g, zero, which.rank, axis) for zero, which, axis in (
        (x_zero, x, None), (weight_zero, weight, 0)))  # fmt: skip
    return g.cast(g.node("ConvInteger", x, weight, *zeros, dtype=DType.int32, group=groups, **given), dtype)


@writer("matmul")
def _matmul(g: Graph, a: Tensor, b: Tensor, *, int8_rows: bool) -> Tensor:
    """ONNX does not say how exact a product is."""
    return g.node("MatMul", a, b)


@writer("matmul_integer")
def _matmul_integer(
    g: Graph, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    rows = None if a_zero is None else _along_one(g, a_zero, a.rank, a.rank - 2)
    columns = None if b_zero is None else _along_one(g, b_zero, b.rank, b.rank - 1)
    return g.node("MatMulInteger", a, b, rows, columns, dtype=DType.int32)


def _places(parameter: Tensor, rank: int) -> list[int]:
    """The axes of a tensor of that rank along which a parameter that broadcasts to it may differ."""
    sizes = (1,) * (rank - parameter.rank) + parameter.shape
    return [axis for axis, size in enumerate(sizes) if size != 1]


def _along_one(g: Graph, parameter: Tensor, rank: int, axis: int | None) -> Tensor:
    """A parameter as a number, or as a vector along that axis."""
    places = _places(parameter, rank)
    if places not in ([], [axis]):
        raise RefusedError(f"ONNX has its zero points along another axis than {parameter.type}")
    return g.reshaped(parameter, (-1,) if places else ())


@writer("quantize")
def _quantize(g: Graph, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    if (numbers := _along_an_axis(g, x, scale, zero)) is not None:
        axis, scales, zeros = numbers
        return g.node("QuantizeLinear", x, scales, zeros, dtype=zero.dtype, **axis)
    whole = g.node("Add", g.node("Round", g.node("Div", x, scale)), g.cast(zero, x.dtype))
    least, greatest = zero.dtype.bounds
    return g.cast(clip(g, dataclasses.replace(whole, type=x.type), min=least, max=greatest), zero.dtype)


@writer("dequantize")
def _dequantize(g: Graph, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    is_zero = zero.array is not None and not zero.array.any()
    numbers = _along_an_axis(g, x, scale, constant(0, zero.dtype) if is_zero else zero)
    if numbers is not None and (is_zero or zero.dtype is not DType.int32):
        axis, scales, zeros = numbers
        return g.node("DequantizeLinear", x, scales, None if is_zero else zeros, dtype=DType.float32, **axis)
    centred = g.node("Sub", *(g.cast(each, DType.int32) for each in (x, zero)))
    return g.node("Mul", g.cast(centred, DType.float32), scale)


def _along_an_axis(g: Graph, x: Tensor, scale: Tensor, zero: Tensor) -> tuple[dict[str, int], Tensor, Tensor] | None:
    """The axis, and both parameters as vectors along it, or as two numbers; None for what ONNX's operators do not take."""
    places = {*_places(scale, x.rank), *_places(zero, x.rank)}
    if not places:
        return {}, g.reshaped(scale, ()), g.reshaped(zero, ())
    counts = {
        each.shape[-1 - (x.rank - 1 - axis)] for axis in places for each in (scale, zero) if _places(each, x.rank)
    }
    if len(places) > 1 or len(counts) > 1 or not all(isinstance(each, int) for each in counts):
        return None
    vectors = [g.reshaped(each, (-1,)) for each in (scale, zero)]
    (axis,), (count,) = places, counts
    scales, zeros = (
        each if _places(of, x.rank) else _repeated(g, each, count)
        for each, of in zip(vectors, (scale, zero), strict=True)
    )
    return {"axis": axis}, scales, zeros


def _repeated(g: Graph, vector: Tensor, count: int) -> Tensor:
    if vector.array is not None:
        return constant(np.broadcast_to(vector.array, (count,)), vector.dtype)
    return g.node("Expand", vector, g.constant([count]))


@writer("max_pool")
def _max_pool(g: Graph, x: Tensor, *, kernel: Ints, ceil_mode: bool, **window: Any) -> Tensor:
    x, given = _window(g, x, kernel, False, **window)
    return g.node("MaxPool", x, kernel_shape=list(kernel), ceil_mode=ceil_mode, **given)


@writer("average_pool")
def _average_pool(
    g: Graph, x: Tensor, *, kernel: Ints, ceil_mode: bool, count_include_pad: bool, **window: Any
) -> Tensor:
    x, given = _window(g, x, kernel, count_include_pad and not ceil_mode, **window)
    return g.node(
        "AveragePool",
        x,
        kernel_shape=list(kernel),
        **({"ceil_mode": 1} if ceil_mode else {}),
        count_include_pad=count_include_pad,
        **given,
    )


@writer("layer_normalization")
def _layer_normalization(
    g: Graph, x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None, *, axis: int, epsilon: float
) -> Tensor:
    return g.node("LayerNormalization", x, _ones(g, x, scale, axis), bias, axis=axis, epsilon=epsilon)


@writer("rms_normalization")
def _rms_normalization(g: Graph, x: Tensor, scale: Tensor | None = None, *, axis: int, epsilon: float) -> Tensor:
    return g.node("RMSNormalization", x, _ones(g, x, scale, axis), axis=axis, epsilon=epsilon)


def _ones(g: Graph, x: Tensor, scale: Tensor | None, axis: int) -> Tensor:
    """The scale, which ONNX does not leave out."""
    if scale is not None:
        return scale
    shape = x.shape[axis % x.rank :]
    return full(g, shape=shape, value=1.0, dtype=x.dtype)


@writer("group_normalization")
def _group_normalization(g: Graph, x: Tensor, scale: Tensor, bias: Tensor, *, groups: int, epsilon: float) -> Tensor:
    return g.node("GroupNormalization", x, scale, bias, num_groups=groups, epsilon=epsilon)


def _arg(g: Graph, x: Tensor, *, operator: str, **attributes: Any) -> Tensor:
    if not attributes["select_last_index"]:
        del attributes["select_last_index"]
    return g.node(operator, x, dtype=DType.int64, **attributes)


writer("argmax")(functools.partial(_arg, operator="ArgMax"))
writer("argmin")(functools.partial(_arg, operator="ArgMin"))


@writer("attention")
def _attention(
    g: Graph,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    scale: float,
    masked: float,
    bias_last: bool,
    nan_to_zero: bool,
    repeat: int,
    result_axes: Ints | None,
    **views: Any,
) -> Tensor:
    """By products and a softmax."""
    shapes = [
        permuted(part_of(x.shape, views[f"{n}_part"]), views[f"{n}_axes"])
        for n, x in zip("qkv", (q, k, v), strict=True)
    ]
    queries, keys, values = (
        _seen(g, x, views[f"{n}_part"], views[f"{n}_axes"]) for n, x in zip("qkv", (q, k, v), strict=True)
    )
    rank = len(shapes[0])
    if repeat > 1:
        keys, values = (
            _repeated_heads(g, x, shape, repeat) for x, shape in zip((keys, values), shapes[1:], strict=True)
        )
    turned = g.transposed(keys, (*range(rank - 2), rank - 1, rank - 2))
    scores = g.node("MatMul", queries, turned)
    scores = g.node("Mul", scores, g.constant(scale, q)) if scale != 1 else scores
    added = [bias] if bias is not None else []
    if mask is not None and mask.dtype is not DType.bool:
        added.append(mask)
        mask = None
    for each in () if bias_last else added:
        scores = g.node("Add", scores, each)
    if mask is not None:
        scores = g.node("Where", mask, scores, g.constant(masked, q), dtype=q.dtype)
    for each in added if bias_last else ():
        scores = g.node("Add", scores, each)
    weights = g.node("Softmax", scores, axis=-1)
    if nan_to_zero:
        missing = g.node("IsNaN", weights, dtype=DType.bool)
        weights = g.node("Where", missing, g.constant(0, q), weights, dtype=q.dtype)
    made = g.node("MatMul", weights, values)
    return made if result_axes is None else g.transposed(made, result_axes)


def _seen(g: Graph, x: Tensor, part: Ints | None, axes: Ints | None) -> Tensor:
    x = x if part is None else g.node("Gather", x, g.constant(part[1]), axis=part[0])
    return x if axes is None else g.transposed(x, axes)


def _repeated_heads(g: Graph, x: Tensor, shape: Sequence[Any], repeat: int) -> Tensor:
    """Each matrix as often as neighbours share it: those of the last axis before matrices."""
    heads, rank = shape[-3], len(shape)
    if not isinstance(heads, int):
        raise RefusedError("the number of its heads depends on the sizes of the inputs")
    return g.node("Gather", x, g.constant(np.arange(heads * repeat) // repeat), axis=rank - 3)


@writer("rotary")
def _rotary(g: Graph, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    first, second = split(g, x, axis=x.rank - 1, sizes=(half, half))
    turned = g.node("Concat", g.node("Neg", second), first, axis=-1)
    return g.node("Add", g.node("Mul", x, cosine), g.node("Mul", turned, sine))


@writer("linear_attention")
def _linear_attention(g: Graph, *inputs: Tensor, scale: float, delta: bool) -> Results:
    """q, k, v, state, decay and beta; ONNX's has the heads of a token in one row, and the logarithm of decay."""
    if len(inputs) > 6:
        raise RefusedError(
            "ONNX has no texts one after another: export the decoder itself, of whose texts Treadle makes this"
        )
    q, k, v, state, decay, beta = inputs
    heads = q.shape[2]
    if not isinstance(heads, int) or scale == 0:
        raise RefusedError(f"ONNX wants a number of heads, and a scale that is not 0; got {heads} and {scale}")
    rows = [g.reshaped(each, (*each.shape[:2], dims.multiply(*each.shape[2:]))) for each in (q, k, v, decay, beta)]
    rows[3] = g.node("Log", rows[3])
    rule = "gated_delta" if delta else "gated"
    given = (*rows[:3], state, rows[3], rows[4] if delta else None)
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": heads, "scale": scale, "update_rule": rule}
    result, last = g.nodes_of("LinearAttention", *given, count=2, **attributes)
    return g.reshaped(result, v.shape), last


# ---- recurrent layers ----


def _recurrent(name: str, gates: int) -> Writer:
    def write(g: Graph, projected: Tensor, packed: Tensor, *inputs: Tensor, direction: str, clip: float | None, activations: str,
              reset_after: bool = False, int8_rows: bool = False) -> Results:  # fmt: skip
        states = 2 if name == "LSTM" else 1
        own, given = inputs[:states], list(inputs[states:])
        directions, units = packed.shape[0], packed.shape[2]
        bias = given.pop(0) if name == "GRU" else None
        peephole = given.pop(0) if name == "LSTM" and given else None
        lengths = g.cast(given.pop(), DType.int32) if given else None
        x, weight, own_bias = _projection(g, projected, gates)
        biases = _biases(g, own_bias, bias, directions, gates, units, x.dtype)
        if peephole is not None:
            peephole = g.reshaped(peephole, (directions, 3 * units))
        attributes = {"direction": direction, "hidden_size": units}
        names = [each.capitalize() for each in activations.split(" ")] * directions
        attributes["activations"] = names
        if clip is not None:
            attributes["clip"] = clip
        if name == "GRU":
            attributes["linear_before_reset"] = int(reset_after)
        tensors = (x, weight, _unpacked(g, packed, gates), biases, lengths, *own, *([peephole] if states == 2 else []))
        return g.nodes_of(name, *tensors, count=1 + states, **attributes)

    return write


def _projection(g: Graph, projected: Tensor, gates: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """x, weights [directions, gates · hidden, features], and biases as one row: those that the importer's product is made of, or
    the product itself and weights that keep it."""
    steps, batch, directions, _, units = projected.shape
    columns = gates * units
    flat, bias = projected, None
    if flat.made is not None and flat.made[0].operator == "reshape":
        flat = flat.made[1][0]
        if flat.made is not None and flat.made[0].operator == "add" and flat.made[1][1].array is not None:
            flat, bias = flat.made[1]
        if (
            flat.made is not None
            and flat.made[0].operator == "matmul"
            and (matrix := flat.made[1][1]).array is not None
        ):
            parted = g.reshaped(matrix, (matrix.shape[0], directions, columns))
            if bias is None or bias.shape == (directions * columns,):
                return flat.made[1][0], g.transposed(parted, (1, 2, 0)), bias
    whole = directions * columns
    identity = np.eye(whole, dtype=projected.dtype.numpy).reshape(directions, columns, whole)
    return g.reshaped(projected, (steps, batch, whole)), constant(identity, projected.dtype), None


def _biases(
    g: Graph, own: Tensor | None, last: Tensor | None, directions: int, gates: int, units: int, dtype: DType
) -> Tensor | None:
    """[directions, 2 · gates · hidden]: of the inputs, then of the state, of which only a GRU's last gate has some."""
    if own is None and last is None:
        return None
    zeros = constant(np.zeros((directions, gates * units)), dtype)
    first = zeros if own is None else g.reshaped(own, (directions, gates * units))
    if last is None:
        second = zeros
    elif last.array is not None:
        second = constant(np.concatenate([np.zeros((directions, (gates - 1) * units)), last.array], 1), dtype)
    else:
        second = g.node("Concat", constant(np.zeros((directions, (gates - 1) * units)), dtype), last, axis=1)
    if first.array is not None and second.array is not None:
        return constant(np.concatenate([first.array, second.array], 1), dtype)
    return g.node("Concat", first, second, axis=1)


def _unpacked(g: Graph, packed: Tensor, gates: int) -> Tensor:
    """Recurrent weights [directions, gates · hidden, hidden], of what `operators/recurrent.py` describes."""
    directions, blocks, units, _, _ = packed.shape
    turned = g.transposed(packed, (0, 3, 1, 4, 2))
    parted = g.reshaped(turned, (directions, gates, blocks * BLOCK, units))
    if parted.array is not None:
        cut = constant(parted.array[:, :, :units], packed.dtype)
    else:
        cut = g.node("Slice", parted, g.constant([0]), g.constant([units]), g.constant([2]))
    return g.reshaped(cut, (directions, gates * units, units))


for _theirs, _gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
    writer(_theirs.lower())(_recurrent(_theirs, _gates))
