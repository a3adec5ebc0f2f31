"""Operators of the IR → nodes of ONNX: the importers' table, the other way round.

A writer takes the graph, the operator's inputs, then its attributes by their names, and gives the result, or a tuple of them.

    @writer("take")
    def _take(g: Graph, x: Tensor, indices: Tensor, *, axis: int) -> Tensor:

What ONNX has no operator for is written by several. `REFUSED` says of the others what to do.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, Union

import numpy as np

from ....formats.dims import Dim, SymbolicDim
from ....formats.dtypes import DType
from ..operators.elementwise import BINARY, UNARY
from .graph import Graph, RefusedError, Tensor, tensor_proto

Results = Union[Tensor, tuple[Tensor, ...]]
Writer = Callable[..., Results]
Ints = tuple[int, ...]

WRITERS: dict[str, Writer] = {}

_ML = "ai.onnx.ml"


_Function = TypeVar("_Function", bound=Writer)


def writer(*names: str) -> Callable[[_Function], _Function]:
    def add(function: _Function) -> _Function:
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
    **dict.fromkeys(("identity", "breakpoint"), "Identity"),
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
def clip(g: Graph, x: Tensor, *, min: float | None, max: float | None) -> Tensor:
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


@writer("full")
def full(g: Graph, *, shape: tuple[Dim, ...], value: float, dtype: DType) -> Tensor:
    filled = tensor_proto("", np.full(1, value).astype(dtype.numpy))
    return g.node("ConstantOfShape", g.numbers(shape), dtype=dtype, value=filled)


@writer("split")
def split(g: Graph, x: Tensor, *, axis: int, sizes: tuple[Dim, ...]) -> tuple[Tensor, ...]:
    if g.file.opset < 13:
        return g.nodes_of("Split", x, count=len(sizes), axis=axis, split=[_integer(size) for size in sizes])
    return g.nodes_of("Split", x, g.numbers(sizes), count=len(sizes), axis=axis)


def _integer(size: Dim) -> int:
    if isinstance(size, SymbolicDim):
        raise RefusedError(f"the size {size}, in ONNX before opset 13: to_onnx(…, opset=13) or higher")
    return size


REFUSED = {
    "solve": "ONNX has no linear systems: multiply by an inverse that is a constant",
    "col2im": "write it by put_along_axis with reduction='add', as treadle.compile does with ONNX's Col2Im",
    "lexicographic_order": "ONNX orders rows by Unique alone",
    "tokenize_texts": "ONNX's Tokenizer is onnxruntime's own: split the texts, or prepare them outside",
    "hash_texts": "ONNX has no hash: prepare the texts outside",
    "tree_ensemble": "export the fitted model itself (skl2onnx, onnxmltools), of which ONNX has the trees",
    "paged_attention": "ONNX has no pages: export the decoder itself, whose function of many texts Treadle makes",
    "coupled_probabilities": "export the fitted model itself (skl2onnx), of which ONNX has the machine",
}
