"""Operators of the IR → nodes of ONNX: the importers' table, the other way round.

A writer takes the graph, the operator's inputs, then its attributes by their names, and gives the result, or a tuple of them.

    @writer("take")
    def _take(g: Graph, x: Tensor, indices: Tensor, *, axis: int) -> Tensor:

What ONNX has no operator for is written by several. `REFUSED` says of the others what to do.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Union

import numpy as np

from ....formats.dims import Dim, SymbolicDim
from ....formats.dtypes import DType
from ....formats.strings import to_texts
from ...operators.movement import space_axes
from ...operators.recurrent import BLOCK
from ..operators.elementwise import BINARY, UNARY
from ..operators.networks import REDUCTIONS, same_pads
from .graph import Graph, RefusedError, Tensor, constant

Results = Union[Tensor, tuple[Tensor, ...]]
Writer = Callable[..., Results]
Ints = tuple[int, ...]

WRITERS: dict[str, Writer] = {}

_ML = "ai.onnx.ml"


def writer(*names: str) -> Callable[[Writer], Writer]:
    def add(function: Writer) -> Writer:
        WRITERS.update(dict.fromkeys(names, function))
        return function

    return add


# ---- one node, with the same attributes ----

_RESULT = {"equal", "greater", "greater_equal", "less", "less_equal", "isnan", "isinf"}  # whose result is bool
_SAME = {
    **{ours: theirs for theirs, ours in (UNARY | BINARY).items()},
    "maximum": "Max",
    "minimum": "Min",
    "sign": "Sign",
    "isinf": "IsInf",
    "where": "Where",
    "pow": "Pow",
    "identity": "Identity",
    "hard_sigmoid": "HardSigmoid",
    "leaky_relu": "LeakyRelu",
    "elu": "Elu",
    "gelu": "Gelu",
    "softmax": "Softmax",
    "log_softmax": "LogSoftmax",
    "local_response_normalization": "LRN",
    "batch_normalization": "BatchNormalization",
    "instance_normalization": "InstanceNormalization",
    "determinant": "Det",
    "matmul": "MatMul",
    "take": "Gather",
    "take_along_axis": "GatherElements",
    "scatter_nd": "ScatterND",
    "put_along_axis": "ScatterElements",
    "concat": "Concat",
    "concat_texts": "StringConcat",
}


def _same(operator: str, is_bool: bool) -> Writer:
    def write(g: Graph, *inputs: Tensor, **attributes: Any) -> Tensor:
        dtype = DType.bool if is_bool else inputs[-1].dtype if operator == "Where" else inputs[0].dtype
        if attributes.get("reduction") == "none":  # older versions have no such attribute
            del attributes["reduction"]
        return g.node(operator, *inputs, dtype=dtype, **attributes)

    return write


for _ours, _theirs in _SAME.items():
    writer(_ours)(_same(_theirs, _ours in _RESULT))


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


# ---- elementwise ----


@writer("not_equal")
def _not_equal(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    return g.node("Not", g.node("Equal", a, b, dtype=DType.bool))


@writer("isfinite")
def _is_finite(g: Graph, x: Tensor) -> Tensor:
    either = (g.node(operator, x, dtype=DType.bool) for operator in ("IsNaN", "IsInf"))
    return g.node("Not", g.node("Or", *either))


@writer("square")
def _square(g: Graph, x: Tensor) -> Tensor:
    return g.node("Mul", x, x)


@writer("rsqrt")
def _rsqrt(g: Graph, x: Tensor) -> Tensor:
    return g.node("Reciprocal", g.node("Sqrt", x))


@writer("silu")
def _silu(g: Graph, x: Tensor) -> Tensor:
    if g.file.opset >= 24:
        return g.node("Swish", x)
    return g.node("Mul", x, g.node("Sigmoid", x))


@writer("expm1")
def _expm1(g: Graph, x: Tensor) -> Tensor:
    """tanh(x / 2) (exp(x) + 1): near 0, exp(x) - 1 has no digits left."""
    half = g.node("Tanh", g.node("Mul", x, g.constant(0.5, x)))
    return g.node("Mul", half, g.node("Add", g.node("Exp", x), g.constant(1, x)))


@writer("log1p")
def _log1p(g: Graph, x: Tensor) -> Tensor:
    """Near 0 by atanh(x / (2 + x)), half of it."""
    near = g.node("Less", g.node("Abs", x), g.constant(0.5, x), dtype=DType.bool)
    inside = g.node("Where", near, x, g.constant(0, x), dtype=x.dtype)
    half = g.node("Atanh", g.node("Div", inside, g.node("Add", inside, g.constant(2, x))))
    far = g.node("Log", g.node("Add", x, g.constant(1, x)))
    return g.node("Where", near, g.node("Add", half, half), far, dtype=x.dtype)


@writer("trunc")
def _trunc(g: Graph, x: Tensor) -> Tensor:
    below = g.node("Less", x, g.constant(0, x), dtype=DType.bool)
    return g.node("Where", below, g.node("Ceil", x), g.node("Floor", x), dtype=x.dtype)


@writer("fmod")
def _fmod(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    return g.node("Mod", a, b, fmod=1)


@writer("remainder")
def _remainder(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    """Of floats by fmod, which has the sign of a: ONNX's Mod with the sign of b is for integers."""
    if not a.dtype.is_float:
        return g.node("Mod", a, b)
    rest, zero = _fmod(g, a, b), g.constant(0, a)
    signs = (g.node("Less", each, zero, dtype=DType.bool) for each in (rest, b))
    apart = g.node("And", g.node("Xor", *signs), _not_equal(g, rest, zero))
    return g.node("Where", apart, g.node("Add", rest, b), rest, dtype=a.dtype)


@writer("floor_divide")
def _floor_divide(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_integer and a.dtype.bounds[0] == 0:
        return g.node("Div", a, b)
    whole = g.node("Div", g.node("Sub", a, _remainder(g, a, b)), b)
    return g.node("Round", whole) if a.dtype.is_float else whole


def _shift(g: Graph, x: Tensor, distance: Tensor, *, direction: str) -> Tensor:
    """ONNX shifts unsigned integers alone: of a negative one, the bits that are not set are shifted to the right."""
    if x.dtype.bounds[0] == 0:
        return g.node("BitShift", x, distance, direction=direction)
    unsigned = DType.of(f"u{x.dtype.name}")
    if direction == "LEFT":
        return g.cast(_shift(g, g.cast(x, unsigned), g.cast(distance, unsigned), direction=direction), x.dtype)
    below = g.node("Less", x, g.constant(0, x), dtype=DType.bool)
    bits = g.node("Where", below, g.node("BitwiseNot", x), x, dtype=x.dtype)
    made = g.cast(_shift(g, g.cast(bits, unsigned), g.cast(distance, unsigned), direction=direction), x.dtype)
    return g.node("Where", below, g.node("BitwiseNot", made), made, dtype=x.dtype)


writer("shift_left")(functools.partial(_shift, direction="LEFT"))
writer("shift_right")(functools.partial(_shift, direction="RIGHT"))


@writer("clip")
def _clip(g: Graph, x: Tensor, *, min: float | None, max: float | None) -> Tensor:
    least, greatest = x.dtype.bounds

    def bound(value: float | None) -> Tensor | None:
        inside = value is None or not x.dtype.is_integer or math.isinf(value)
        if value is None or (math.isinf(value) and (not x.dtype.is_float or not x.dtype.is_numpys)):
            return None if value is None else g.constant(least if value < 0 else greatest, x)
        return g.constant(value if inside else sorted((least, value, greatest))[1], x)

    return g.node("Clip", x, bound(min), bound(max))


@writer("cast")
def _cast(g: Graph, x: Tensor, *, dtype: DType) -> Tensor:
    if x.dtype is dtype:
        return x
    saturates = {} if dtype.format is None or dtype.itemsize > 1 or dtype is DType.float8_e8m0fnu else {"saturate": 0}
    rounds = {"round_mode": "nearest"} if dtype is DType.float8_e8m0fnu else {}
    return g.node("Cast", x, dtype=dtype, to=dtype.value.onnx, **saturates, **rounds)


@writer("print_numbers")
def _print_numbers(g: Graph, x: Tensor) -> Tensor:
    return g.cast(x, DType.string)


@writer("read_numbers")
def _read_numbers(g: Graph, x: Tensor, *, dtype: DType) -> Tensor:
    return g.cast(x, dtype)


@writer("bitcast")
def _bitcast(g: Graph, x: Tensor, *, dtype: DType) -> Tensor:
    return g.node("BitCast", x, dtype=dtype, to=dtype.value.onnx)


# ---- networks ----


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
    return g.cast(_clip(g, dataclasses.replace(whole, type=x.type), min=least, max=greatest), zero.dtype)


@writer("dequantize")
def _dequantize(g: Graph, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    is_zero = zero.array is not None and not zero.array.any()
    numbers = _along_an_axis(g, x, scale, constant(0, zero.dtype) if is_zero else zero)
    if numbers is not None and (is_zero or zero.dtype is not DType.int32):
        axis, scales, zeros = numbers
        return g.node("DequantizeLinear", x, scales, None if is_zero else zeros, dtype=DType.float32, **axis)
    centred = g.node("Sub", *(g.cast(each, DType.int32) for each in (x, zero)))
    return g.node("Mul", g.cast(centred, DType.float32), scale)


def _along_an_axis(
    g: Graph, x: Tensor, scale: Tensor, zero: Tensor
) -> tuple[dict[str, int], Tensor, Tensor] | None:
    """The axis, and both parameters as vectors along it, or as two numbers; None for what ONNX's operators do not take."""
    places = {*_places(scale, x.rank), *_places(zero, x.rank)}
    if not places:
        return {}, g.reshaped(scale, ()), g.reshaped(zero, ())
    counts = {each.shape[-1 - (x.rank - 1 - axis)] for axis in places for each in (scale, zero) if _places(each, x.rank)}
    if len(places) > 1 or len(counts) > 1 or not all(isinstance(each, int) for each in counts):
        return None
    vectors = [g.reshaped(each, (-1,)) for each in (scale, zero)]
    (axis,), (count,) = places, counts
    return {"axis": axis}, *(_repeated(g, each, count) if not _places(of, x.rank) else each
            for each, of in zip(vectors, (scale, zero), strict=True))  # fmt: skip


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
    return _full(g, shape=shape, value=1.0, dtype=x.dtype)


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
    queries, keys, values = (_seen(g, x, views[f"{n}_part"], views[f"{n}_axes"]) for n, x in zip("qkv", (q, k, v), strict=True))
    rank = q.rank - (views["q_part"] is not None)
    if repeat > 1:
        keys, values = (_repeated_heads(g, x, part, rank, repeat) for x, part in ((keys, k), (values, v)))
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


def _repeated_heads(g: Graph, x: Tensor, of: Tensor, rank: int, repeat: int) -> Tensor:
    """Each matrix as often as neighbours share it: those of the last axis before matrices."""
    heads = next((dim for dim in of.shape[-3:-2]), None)
    if not isinstance(heads, int):
        raise RefusedError("the number of its heads depends on the sizes of the inputs")
    return g.node("Gather", x, g.constant(np.arange(heads * repeat) // repeat), axis=rank - 3)


@writer("rotary")
def _rotary(g: Graph, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    first, second = _split(g, x, axis=x.rank - 1, sizes=(half, half))
    turned = g.node("Concat", g.node("Neg", second), first, axis=-1)
    return g.node("Add", g.node("Mul", x, cosine), g.node("Mul", turned, sine))


# ---- recurrent layers ----


def _recurrent(name: str, gates: int) -> Writer:
    def write(g: Graph, projected: Tensor, packed: Tensor, *inputs: Tensor, direction: str, clip: float | None, activations: str,
              reset_after: bool = False) -> Results:  # fmt: skip
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
        if flat.made is not None and flat.made[0].operator == "matmul" and (matrix := flat.made[1][1]).array is not None:
            parted = g.reshaped(matrix, (matrix.shape[0], directions, columns))
            if bias is None or bias.shape == (directions * columns,):
                return flat.made[1][0], g.transposed(parted, (1, 2, 0)), bias
    whole = directions * columns
    identity = np.eye(whole, dtype=projected.dtype.numpy).reshape(directions, columns, whole)
    return g.reshaped(projected, (steps, batch, whole)), constant(identity, projected.dtype), None


def _biases(
    g: Graph, own: Tensor | None, last: Tensor | None, directions: int, gates: int, units: int, dtype: DType
) -> Tensor | None:
    """[directions, 2 · gates · hidden]: those of the inputs, then those of the state, of which only a GRU's last gate has some."""
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


# ---- shapes ----


@writer("reshape")
def _reshape(g: Graph, x: Tensor, *, shape: tuple[Dim, ...]) -> Tensor:
    return g.reshaped(x, shape)


@writer("expand_dims")
def _expand_dims(g: Graph, x: Tensor, *, axes: Ints) -> Tensor:
    return g.along("Unsqueeze", x, axes)


@writer("squeeze")
def _squeeze(g: Graph, x: Tensor, *, axes: Ints) -> Tensor:
    return g.along("Squeeze", x, axes) if axes else g.node("Identity", x)


@writer("permute_dims")
def _permute_dims(g: Graph, x: Tensor, *, axes: Ints | None) -> Tensor:
    return g.node("Transpose", x, perm=None if axes is None else [axis % x.rank for axis in axes] or None)


@writer("depth_to_space")
def _depth_to_space(g: Graph, x: Tensor, *, blocks: Ints) -> Tensor:
    if x.rank == 4 and len(set(blocks)) == 1 and len(blocks) == 2:
        return g.node("DepthToSpace", x, blocksize=blocks[0])
    result = g.types[0].shape
    parted = g.reshaped(x, (x.shape[0], *blocks, result[1], *x.shape[2:]))
    return g.reshaped(g.transposed(parted, space_axes(x.rank, len(blocks))), result)


@writer("broadcast_to")
def _broadcast_to(g: Graph, x: Tensor, *, shape: tuple[Dim, ...]) -> Tensor:
    return g.node("Expand", x, g.numbers(shape))


@writer("tile")
def _tile(g: Graph, x: Tensor, *, repetitions: tuple[Dim, ...]) -> Tensor:
    missing = len(repetitions) - x.rank
    x = g.along("Unsqueeze", x, range(missing)) if missing > 0 else x
    return g.node("Tile", x, g.numbers((1,) * -missing + tuple(repetitions)))


@writer("stack")
def _stack(g: Graph, *tensors: Tensor, axis: int) -> Tensor:
    return g.node("Concat", *(g.along("Unsqueeze", each, [axis]) for each in tensors), axis=axis)


@writer("split")
def _split(g: Graph, x: Tensor, *, axis: int, sizes: tuple[Dim, ...]) -> tuple[Tensor, ...]:
    if g.file.opset < 13:
        return g.nodes_of("Split", x, count=len(sizes), axis=axis, split=[_integer(size) for size in sizes])
    return g.nodes_of("Split", x, g.numbers(sizes), count=len(sizes), axis=axis)


def _integer(size: Dim) -> int:
    if isinstance(size, SymbolicDim):
        raise RefusedError(f"the size {size}, in ONNX before opset 13: to_onnx(…, opset=13) or higher")
    return size


@writer("slice")
def _slice(
    g: Graph, x: Tensor, *, starts: tuple[Dim, ...], ends: tuple[Dim, ...], axes: Ints | None, steps: Ints | None
) -> Tensor:
    if not starts:
        return g.node("Identity", x)
    along = range(len(starts)) if axes is None else axes
    paces = None if steps is None else g.constant(list(steps))
    return g.node("Slice", x, g.numbers(starts), g.numbers(ends), g.constant(list(along)), paces)


@writer("pad")
def _pad(g: Graph, x: Tensor, *, pads: tuple[Dim, ...], mode: str, value: float) -> Tensor:
    filled = g.constant(value, x) if mode == "constant" and value else None
    return g.node("Pad", x, g.numbers(pads), filled, mode=mode)


@writer("full")
def _full(g: Graph, *, shape: tuple[Dim, ...], value: float, dtype: DType) -> Tensor:
    from .graph import tensor_proto

    filled = tensor_proto("", np.full(1, value).astype(dtype.numpy))
    return g.node("ConstantOfShape", g.numbers(shape), dtype=dtype, value=filled)


@writer("constant")
def _constant(g: Graph, *, value: float, dtype: DType) -> Tensor:
    return constant(value, dtype)


_RANGES = {DType.int16, DType.int32, DType.int64, DType.float32, DType.float64}  # ONNX's Range


@writer("arange")
def _arange(g: Graph, *, start: Dim, stop: Dim, step: int, dtype: DType) -> Tensor:
    own = dtype if dtype in _RANGES and dtype.is_integer else DType.int64
    made = g.node("Range", *(g.scalar(each, own) for each in (start, stop, step)), dtype=own)
    return g.cast(made, dtype)


@writer("shape_tensor")
def _shape_tensor(g: Graph, *, dims: tuple[Dim, ...]) -> Tensor:
    return g.numbers(dims)


@writer("shape")
def _shape(g: Graph, x: Tensor) -> Tensor:
    return g.node("Shape", x, dtype=DType.int64)


@writer("nonzero", "counted_nonzero")
def _nonzero(g: Graph, x: Tensor, *, count: Dim | None = None) -> Tensor:
    return g.node("NonZero", x, dtype=DType.int64)


@writer("extent")
def _extent(g: Graph, count: Tensor) -> Tensor:
    return _falses(g, g.node("Max", g.reshaped(g.cast(count, DType.int64), (1,)), g.constant([0])))


@writer("extents")
def _extents(g: Graph, numbers: Tensor) -> Tensor:
    return _falses(g, g.node("Concat", g.constant([0]), g.cast(numbers, DType.int64), axis=0))


def _falses(g: Graph, shape: Tensor) -> Tensor:
    from .graph import tensor_proto

    return g.node("ConstantOfShape", shape, dtype=DType.bool, value=tensor_proto("", np.zeros(1, np.bool_)))


# ---- places ----


def _running(operator: str) -> Writer:
    def write(g: Graph, x: Tensor, *, axis: int, exclusive: bool, reverse: bool) -> Tensor:
        return g.node(operator, x, g.constant(axis), exclusive=exclusive, reverse=reverse)

    return write


writer("cumulative_sum")(_running("CumSum"))
writer("cumulative_prod")(_running("CumProd"))


@writer("top_k")
def _top_k(g: Graph, x: Tensor, *, k: Dim, axis: int, largest: bool, sorted: bool) -> tuple[Tensor, ...]:
    values, places = g.nodes_of("TopK", x, g.number(k), count=2, axis=axis, largest=largest, sorted=sorted)
    return values, places


@writer("gather_nd")
def _gather_nd(g: Graph, x: Tensor, indices: Tensor, *, batch_axes: int) -> Tensor:
    return g.node("GatherND", x, indices, **({"batch_dims": batch_axes} if batch_axes else {}))


# ---- images ----


@writer("resize")
def _resize(
    g: Graph,
    x: Tensor,
    *,
    axis: int,
    size: Dim,
    mode: str,
    scale: float | None,
    coordinates: str,
    rounding: str,
    cubic: float,
    exclude_outside: bool,
) -> Tensor:
    scales, sizes = None, None
    if scale is None:
        sizes = g.numbers(g.types[0].shape)
    else:
        factors = np.ones(x.rank)
        factors[axis % x.rank] = scale
        scales = g.constant(factors, DType.float32)
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = rounding
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": cubic, "exclude_outside": exclude_outside}
    none = g.constant([], DType.float32)
    return g.node("Resize", x, none if g.file.opset < 13 else None, none if scales is None and g.file.opset < 13 else scales,
                  sizes, **attributes)  # fmt: skip


@writer("listed_boxes", "counted_boxes")
def _listed_boxes(g: Graph, best: Tensor, *, count: Dim | None = None) -> Tensor:
    """One node with the operator before it."""
    if best.made is None or best.made[0].operator != "best_boxes":
        raise RefusedError("the boxes are not those of best_boxes at hand")
    call, (boxes, scores, *numbers) = best.made
    attributes = dict(call.attributes)
    numbers = [g.reshaped(each, (1,)) for each in numbers]
    numbers[0] = g.cast(numbers[0], DType.int64)
    centred = int(attributes.get("centred", False))
    return g.node("NonMaxSuppression", boxes, scores, *numbers, dtype=DType.int64, center_point_box=centred)


@writer("best_boxes")
def _best_boxes(g: Graph, *inputs: Tensor, **attributes: Any) -> Tensor:
    return Tensor(g.types[0])  # the next operator writes both


@writer("roi_align")
def _roi_align(
    g: Graph, x: Tensor, rois: Tensor, images: Tensor, *, size: Ints, samples: int, scale: float, half_pixel: bool, mode: str
) -> Tensor:
    if mode == "max_of_places":
        raise RefusedError("ONNX has the greatest of weighted neighbours, not of places: mode='max', or resize and reduce")
    made = g.node(
        "RoiAlign",
        g.transposed(x, (0, 3, 1, 2)),
        rois,
        g.cast(images, DType.int64),
        dtype=x.dtype,
        output_height=size[0],
        output_width=size[1],
        sampling_ratio=samples,
        spatial_scale=scale,
        coordinate_transformation_mode="half_pixel" if half_pixel else "output_half_pixel",
        mode=mode,
    )
    return g.transposed(made, (0, 2, 3, 1))


@writer("max_of_regions")
def _max_of_regions(g: Graph, x: Tensor, rois: Tensor, *, size: Ints, scale: float) -> Tensor:
    return g.node("MaxRoiPool", x, rois, pooled_shape=list(size), spatial_scale=scale)


@writer("decode_image")
def _decode_image(g: Graph, encoded: Tensor, *, pixel_format: str) -> Tensor:
    return g.node("ImageDecoder", encoded, pixel_format=pixel_format)


# ---- texts, tables ----


@writer("split_texts")
def _split_texts(g: Graph, x: Tensor, *, delimiter: str, most: int | None) -> tuple[Tensor, ...]:
    limit = {} if most is None else {"maxsplit": most}
    parts, counts = g.nodes_of("StringSplit", x, count=2, delimiter=delimiter, **limit)
    return parts, counts


@writer("match_texts")
def _match_texts(g: Graph, x: Tensor, *, expression: str) -> Tensor:
    return g.node("RegexFullMatch", x, dtype=DType.bool, pattern=expression)


@writer("normalize_texts")
def _normalize_texts(g: Graph, x: Tensor, stopwords: Tensor, *, case: str, is_case_sensitive: bool) -> Tensor:
    if stopwords.array is None:
        raise RefusedError("ONNX takes no stop words that a run computes: make them a constant")
    return g.node(
        "StringNormalizer",
        x,
        case_change_action=case.upper(),
        is_case_sensitive=is_case_sensitive,
        stopwords=to_texts(stopwords.array).ravel().tolist() or None,
    )


@writer("count_ngrams")
def _count_ngrams(
    g: Graph, x: Tensor, pool: Tensor, places: Tensor, *, begins: Ints, least: int, most: int, skips: int, columns: int
) -> Tensor:
    if pool.array is None or places.array is None or columns != int(places.array.max()) + 1:
        raise RefusedError("ONNX takes no n-grams that a run computes: make them constants")
    texts = pool.dtype.is_string
    tokens = {"pool_strings": to_texts(pool.array).tolist()} if texts else {"pool_int64s": pool.array.tolist()}
    return g.node(
        "TfIdfVectorizer",
        x,
        dtype=DType.float32,
        mode="TF",
        ngram_counts=list(begins),
        ngram_indexes=places.array.tolist(),
        min_gram_length=least,
        max_gram_length=most,
        max_skip_count=skips,
        **tokens,
    )


@writer("look_up")
def _look_up(g: Graph, x: Tensor, keys: Tensor, values: Tensor, default: Tensor) -> Tensor:
    from .graph import tensor_proto

    if keys.array is None or values.array is None or default.array is None:
        raise RefusedError("ONNX takes no table that a run computes: make keys, values and default constants")
    return g.node(
        "LabelEncoder",
        x,
        domain=_ML,
        dtype=values.dtype,
        keys_tensor=tensor_proto("keys", keys.array),
        values_tensor=tensor_proto("values", values.array),
        default_tensor=tensor_proto("default", default.array.reshape(1)),
    )


@writer("call_seed")
def _call_seed(g: Graph, *, place: int) -> Tensor:
    """64 random bits, of two numbers below 2**32."""
    drawn = g.node("RandomUniform", dtype=DType.float64, shape=[2], high=2.0**32, **{"low": 0.0})
    halves = _split(g, g.cast(g.node("Floor", drawn), DType.uint64), axis=0, sizes=(1, 1))
    high, low = (g.along("Squeeze", each, [0]) for each in halves)
    return g.node("BitwiseOr", g.node("BitShift", high, g.constant(32, DType.uint64), direction="LEFT"), low)


REFUSED = {
    "solve": "ONNX has no linear systems: multiply by an inverse that is a constant",
    "col2im": "write it by put_along_axis with reduction='add', as treadle.compile does with ONNX's Col2Im",
    "lexicographic_order": "ONNX orders rows by Unique alone",
    "tokenize_texts": "ONNX's Tokenizer is onnxruntime's own: split the texts, or prepare them outside",
    "hash_texts": "ONNX has no hash: prepare the texts outside",
    "tree_ensemble": "export the fitted model itself (skl2onnx, onnxmltools), of which ONNX has the trees",
    "coupled_probabilities": "export the fitted model itself (skl2onnx), of which ONNX has the machine",
}
