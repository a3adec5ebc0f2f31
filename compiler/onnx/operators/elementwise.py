"""Importers of elementwise operators."""

from __future__ import annotations

import numpy as np

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..table import ImporterFunction, importer
from ..tensors import element_type
from ..values import GraphBuilder, Imported, Value, scalar

# ONNX operators that are operators of ours under another name.
UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitwise_invert",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "HardSwish": "hard_swish",
    "IsNaN": "isnan",
    "Log": "log",
    "Mish": "mish",
    "Neg": "negative",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
BINARY = {
    "Add": "add",
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Div": "divide",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "multiply",
    "Or": "logical_or",
    "Sub": "subtract",
    "Xor": "logical_xor",
}
VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _unary(operator: str) -> ImporterFunction:
    def imported(g: GraphBuilder, x: Value) -> Value:
        return g.op(operator, x)

    return imported


def _binary(operator: str) -> ImporterFunction:
    def imported(g: GraphBuilder, a: Value, b: Value) -> Value:
        return g.broadcast(operator, a, b)

    return imported


def _binary_before_7(operator: str) -> ImporterFunction:
    def imported(g: GraphBuilder, a: Value, b: Value, *, broadcast: int = 0, axis: int | None = None) -> Value:
        """Before NumPy's rule: b's first axis was laid on a's axis `axis`."""
        if broadcast and axis is not None and b.rank:
            missing = a.rank - (axis % a.rank) - b.rank
            b = g.op("expand_dims", b, axes=tuple(range(b.rank, b.rank + missing))) if missing > 0 else b
        return g.broadcast(operator, a, b)

    return imported


def _variadic(operator: str) -> ImporterFunction:
    def imported(g: GraphBuilder, first: Value, *others: Value) -> Value:
        result = first
        for other in others:
            result = g.broadcast(operator, result, other)
        return result

    return imported


for _name, _operator in UNARY.items():
    importer(_name)(_unary(_operator))
for _name, _operator in BINARY.items():
    importer(_name)(_binary_before_7(_operator))
    importer(_name, since=7)(_binary(_operator))
for _name, _operator in VARIADIC.items():
    importer(_name)(_variadic(_operator))


@importer("Sign")
def _sign(g: GraphBuilder, x: Value) -> Value:
    """1 of what is not 0, where there is nothing below."""
    if x.dtype.is_integer and x.dtype.bounds[0] == 0:
        return g.op("cast", g.op("not_equal", x, g.constant(0, x.dtype)), dtype=x.dtype)
    return g.op("sign", x)


@importer("Mean")
def _mean(g: GraphBuilder, first: Value, *others: Value) -> Value:
    total = first
    for other in others:
        total = g.broadcast("add", total, other)
    return g.op("divide", total, g.constant(1 + len(others), first.dtype))


@importer("Pow")
def _pow(g: GraphBuilder, base: Value, exponent: Value, *, broadcast: int = 0, axis: int | None = None) -> Value:
    if axis is not None:
        return _binary_before_7("pow")(g, base, exponent, broadcast=broadcast, axis=axis)  # type: ignore[return-value]
    if base.dtype is exponent.dtype:
        return g.broadcast("pow", base, exponent)
    if base.dtype.is_float:
        return g.broadcast("pow", base, g.op("cast", exponent, dtype=base.dtype))
    wide = [g.op("cast", value, dtype=DType.float64) for value in (base, exponent)]
    return g.op("cast", g.broadcast("pow", *wide), dtype=base.dtype)


@importer("Mod")
def _mod(g: GraphBuilder, a: Value, b: Value, *, fmod: int = 0) -> Value:
    return g.broadcast("fmod" if fmod else "remainder", a, b)


@importer("BitShift")
def _bit_shift(g: GraphBuilder, x: Value, distance: Value, *, direction: str) -> Value:
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError(f"direction {direction!r} is not one of ONNX's")
    return g.broadcast("shift_left" if direction == "LEFT" else "shift_right", x, distance)


@importer("Where")
def _where(g: GraphBuilder, condition: Value, x: Value, y: Value) -> Value:
    return g.broadcast("where", condition, x, y)


@importer("IsInf")
def _is_inf(g: GraphBuilder, x: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    infinite = g.op("isinf", x)
    zero = g.constant(0, x.dtype)
    if not detect_negative:
        infinite = g.op("logical_and", infinite, g.op("greater", x, zero))
    if not detect_positive:
        infinite = g.op("logical_and", infinite, g.op("less", x, zero))
    return infinite


@importer("Cast")
def _cast(g: GraphBuilder, x: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    return converted(g, x, element_type(to), bool(saturate), round_mode)


def converted(g: GraphBuilder, x: Value, dtype: DType, saturate: bool = True, round_mode: str = "up") -> Value:
    """x in another element type, as ONNX's Cast has it: what is beyond a float of 8 bits becomes its greatest value where that
    `saturate`s, powers of two are rounded by `round_mode`, and of integers of fewer than 8 bits the lowest ones are kept."""
    if x.dtype.is_string or dtype.is_string:
        return _of_texts(g, x, dtype, saturate, round_mode)
    if x.dtype.is_float and dtype.is_integer and not dtype.is_numpys:
        x = g.op("cast", x, dtype=DType.int32)
    if dtype.format is None or dtype.itemsize > 1 or x.dtype is dtype:
        return g.op("cast", x, dtype=dtype)
    if x.dtype.is_integer or x.dtype.bounds[1] < dtype.bounds[1]:
        x = g.op("cast", x, dtype=DType.float32)
    if saturate:
        least, greatest = dtype.bounds
        x = g.op("clip", x, min=least, max=greatest)
    if dtype is DType.float8_e8m0fnu:
        x = _power_of_two(g, x, round_mode)
    return g.op("cast", x, dtype=dtype)


def _of_texts(g: GraphBuilder, x: Value, dtype: DType, saturate: bool, round_mode: str) -> Value:
    """Numbers as texts, or texts as numbers; types that NumPy lacks by way of those in which they are computed."""
    if x.dtype is dtype:
        return x
    if dtype.is_string:
        return g.op("print_numbers", x)
    if dtype is DType.bool:
        number = g.op("read_numbers", x, dtype=DType.float64)
        return g.op("not_equal", number, g.constant(0, DType.float64))
    if dtype.is_numpys:
        return g.op("read_numbers", x, dtype=dtype)
    return converted(g, g.op("read_numbers", x, dtype=dtype.computed), dtype, saturate, round_mode)


def _power_of_two(g: GraphBuilder, x: Value, round_mode: str) -> Value:
    """x rounded to a power of two: of the nearest one, itself, its half or its double."""
    if round_mode not in ("up", "down", "nearest"):
        raise ModelError(f"round_mode {round_mode!r} is not one of ONNX's")
    nearest = g.op("cast", g.op("cast", x, dtype=DType.float8_e8m0fnu), dtype=x.dtype)
    if round_mode == "nearest":
        return nearest
    operator, factor = ("less", 2.0) if round_mode == "up" else ("greater", 0.5)
    other = g.op("multiply", nearest, g.constant(factor, x.dtype))
    return g.op("where", g.op(operator, nearest, x), other, nearest)


@importer("BitCast")
def _bit_cast(g: GraphBuilder, x: Value, *, to: int) -> Value:
    dtype = element_type(to)
    if DType.bool in (x.dtype, dtype):  # a truth value is a byte of 0 or 1
        x = g.op("cast", x, dtype=DType.uint8) if x.dtype is DType.bool else x
        return g.op("cast" if dtype is DType.bool else "bitcast", x, dtype=dtype)
    return g.op("bitcast", x, dtype=dtype)


@importer("CastLike")
def _cast_like(g: GraphBuilder, x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    return converted(g, x, like.dtype, bool(saturate), round_mode)


@importer("Identity")
def _identity(g: GraphBuilder, x: Imported) -> Imported:
    return x


# ---- activations ----


@importer("LeakyRelu")
def _leaky_relu(g: GraphBuilder, x: Value, *, alpha: float = 0.01) -> Value:
    return g.op("leaky_relu", x, alpha=alpha)


@importer("Elu")
def _elu(g: GraphBuilder, x: Value, *, alpha: float = 1.0) -> Value:
    return g.op("elu", x, alpha=alpha)


@importer("Selu")
def _selu(
    g: GraphBuilder, x: Value, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Value:
    return g.op("multiply", g.op("elu", x, alpha=alpha), g.constant(gamma, x.dtype))


@importer("Celu")
def _celu(g: GraphBuilder, x: Value, *, alpha: float = 1.0) -> Value:
    """Not by the function that older schemas give it: its constants are of one element, and so were a single number's result."""
    factor = g.constant(alpha, x.dtype)
    return g.op("multiply", g.op("elu", g.op("divide", x, factor), alpha=1.0), factor)


@importer("Shrink")
def _shrink(g: GraphBuilder, x: Value, *, lambd: float = 0.5, bias: float = 0.0) -> Value:
    """Integers, too, are compared with and shifted by the unrounded numbers, and then truncated."""
    wide = x if x.dtype.is_float else g.op("cast", x, dtype=DType.float64)
    above = g.op("subtract", wide, g.constant(bias, wide.dtype))
    below = g.op("add", wide, g.constant(bias, wide.dtype))
    result = g.op("where", g.op("greater", wide, g.constant(lambd, wide.dtype)), above, g.constant(0, wide.dtype))
    result = g.op("where", g.op("less", wide, g.constant(-lambd, wide.dtype)), below, result)
    return result if wide is x else g.op("cast", result, dtype=x.dtype)


@importer("HardSigmoid")
def _hard_sigmoid(g: GraphBuilder, x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    return g.op("hard_sigmoid", x, alpha=alpha, beta=beta)


@importer("Gelu")
def _gelu(g: GraphBuilder, x: Value, *, approximate: str = "none") -> Value:
    return g.op("gelu", x, approximate=approximate)


@importer("Swish")
def swish(g: GraphBuilder, x: Value, *, alpha: float = 1.0) -> Value:
    if alpha == 1:
        return g.op("silu", x)
    return g.op("multiply", x, g.op("sigmoid", g.op("multiply", x, g.constant(alpha, x.dtype))))


@importer("ThresholdedRelu")
def _thresholded_relu(g: GraphBuilder, x: Value, *, alpha: float = 1.0) -> Value:
    return g.op("where", g.op("greater", x, g.constant(alpha, x.dtype)), x, g.constant(0, x.dtype))


@importer("PRelu", since=7)
def _prelu(g: GraphBuilder, x: Value, slope: Value) -> Value:
    return g.broadcast("where", g.op("less", x, g.constant(0, x.dtype)), g.broadcast("multiply", slope, x), x)


@importer("PRelu")
def _prelu_before_7(g: GraphBuilder, x: Value, slope: Value) -> Value:
    """The slopes, one or one a channel, lay on axis 1."""
    if slope.shape != (1,):
        slope = g.op("expand_dims", slope, axes=tuple(range(1, x.rank - 1)))
    result = _prelu(g, x, slope)
    assert isinstance(result, Value)
    return result


@importer("Clip", since=11)
def _clip(g: GraphBuilder, x: Value, minimum: Value | None = None, maximum: Value | None = None) -> Value:
    bounds = {"min": minimum, "max": maximum}
    arrays = {name: value.constant for name, value in bounds.items() if value is not None}
    known = {name: scalar(array, name) for name, array in arrays.items() if array is not None}
    if len(known) == len(arrays):
        return g.op("clip", x, **known)
    # the upper bound comes last: where the bounds cross, it wins
    result = x if minimum is None else g.broadcast("maximum", x, minimum)
    return result if maximum is None else g.broadcast("minimum", result, maximum)


@importer("Clip")
def _clip_before_11(
    g: GraphBuilder,
    x: Value,
    *,
    min: float = float(np.finfo(np.float32).min),
    max: float = float(np.finfo(np.float32).max),
) -> Value:
    return g.op("clip", x, min=min, max=max)
