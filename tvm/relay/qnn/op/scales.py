"""To and from integers: q stands for (q - zero point) · scale. Scales are float32, zero points int32, one for all or one for each
place along an axis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from .....compiler.builder.programs import Expression, constant, op
from .....formats.dtypes import DType
from .....formats.messages.errors import InferenceError
from ...op.table import Tensor, axis_of, operator, rank_of, type_of
from ...ty import dtype_name

_NARROW = (DType.int8, DType.uint8, DType.int16, DType.uint16)  # which Treadle's operators quantize float32 to
CODES = {"disable": 0, "int8": 1, "uint8": 2, "int32": 3}  # what `out_dtype` of simulated operators is at run time


@dataclass(frozen=True)
class RequantizeConfig:
    """How `requantize` rounds where its call does not say: "UPWARD" rounds halves up, "TONEAREST" away from zero. In which type
    TVM computes; Treadle computes in float64, which holds all that these give."""

    rounding: str = "UPWARD"
    compute_dtype: str = "int64"


_CONFIG: ContextVar[RequantizeConfig] = ContextVar("requantize_config")


def current_requantize_config() -> RequantizeConfig:
    """That of the innermost `with requantize_config(…)`."""
    return _CONFIG.get(RequantizeConfig())


@contextmanager
def requantize_config(**options: str) -> Iterator[RequantizeConfig]:
    """Within this, programs are built with these `rounding` and `compute_dtype`. Raises TypeError for another option."""
    token = _CONFIG.set(RequantizeConfig(**options))
    try:
        yield current_requantize_config()
    finally:
        _CONFIG.reset(token)


# ---- for the bodies ----


def is_zero(zero: Expression) -> bool:
    """Whether the zero points are known to be 0."""
    array = getattr(zero.atom, "value", None)
    return array is not None and not array.any()


def along(parameter: Expression, x: Expression, axis: int) -> Expression:
    """Scales or zero points as they broadcast with x: one for all, or one for each place along an axis."""
    if rank_of(parameter) == 0 or type_of(parameter).shape == (1,):
        return op.reshape(parameter, shape=(1,) * min(rank_of(x), 1))
    if rank_of(parameter) != 1:
        raise InferenceError(
            f"expected one scale or zero point, or one for each place of an axis, got {parameter.type}"
        )
    behind = rank_of(x) - axis_of(x, axis) - 1
    return op.expand_dims(parameter, axes=list(range(1, behind + 1))) if behind else parameter


def cast(x: Expression, dtype: DType) -> Expression:
    return x if type_of(x).dtype is dtype else op.cast(x, dtype=dtype)


def kept_in(x: Expression, dtype: DType) -> Expression:
    """Whole numbers as integers of a type: the least or greatest one in the place of what is beyond."""
    least, greatest = dtype.bounds
    return op.cast(op.clip(x, min=least, max=greatest), dtype=dtype)


def quantized(x: Expression, scale: Expression, zero: Expression, axis: int, dtype: DType) -> Expression:
    """x / scale, rounded to even, plus the zero point, kept in the range of the integers."""
    scale, zero = along(scale, x, axis), along(zero, x, axis)
    if type_of(x).dtype is DType.float32 and dtype in _NARROW:
        return op.quantize(x, scale, cast(zero, dtype))
    whole = op.round(op.divide(cast(x, DType.float64), cast(scale, DType.float64)))
    return kept_in(op.add(whole, cast(zero, DType.float64)), dtype)


def dequantized(x: Expression, scale: Expression, zero: Expression, axis: int) -> Expression:
    """(x - zero point) · scale, as float32."""
    scale, zero, own = along(scale, x, axis), along(zero, x, axis), type_of(x).dtype
    if own in (*_NARROW, DType.int32):
        return op.dequantize(x, scale, cast(zero, own))
    return op.multiply(op.subtract(cast(x, DType.float32), cast(zero, DType.float32)), scale)


def rescaled(
    x: Expression,
    scale: Expression,
    zero: Expression,
    output_scale: Expression,
    output_zero: Expression,
    axis: int,
    rounding: str,
) -> Expression:
    """What x stands for, in units of another scale: whole numbers in float64. Raises InferenceError for another rounding."""
    x = op.subtract(cast(x, DType.float64), cast(along(zero, x, axis), DType.float64))
    ratio = op.divide(cast(along(scale, x, axis), DType.float64), cast(along(output_scale, x, axis), DType.float64))
    exact, half = op.multiply(x, ratio), constant(0.5, "float64")
    if rounding == "UPWARD":
        whole = op.floor(op.add(exact, half))
    elif rounding == "TONEAREST":
        whole = op.multiply(op.sign(exact), op.floor(op.add(op.abs(exact), half)))
    else:
        raise InferenceError(f"rounding {rounding!r}: expected UPWARD or TONEAREST")
    return op.add(whole, cast(along(output_zero, x, axis), DType.float64))


# ---- the operators ----


@operator("qnn.quantize")
def quantize(
    data: Tensor, output_scale: Tensor, output_zero_point: Tensor, axis: int = -1, out_dtype: str = "int8"
) -> Expression:
    """Real numbers as integers."""
    return quantized(data, output_scale, output_zero_point, axis, DType[dtype_name(out_dtype)])


@operator("qnn.dequantize")
def dequantize(
    data: Tensor, input_scale: Tensor, input_zero_point: Tensor, axis: int = -1, out_dtype: str = "float32"
) -> Expression:
    """The real numbers that integers stand for."""
    return cast(dequantized(data, input_scale, input_zero_point, axis), DType[dtype_name(out_dtype)])


@operator("qnn.requantize")
def requantize(
    data: Tensor,
    input_scale: Tensor,
    input_zero_point: Tensor,
    output_scale: Tensor,
    output_zero_point: Tensor,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
) -> Expression:
    """Integers of one scale and zero point as those of another."""
    rounding = current_requantize_config().rounding if rounding == "None" else rounding
    whole = rescaled(data, input_scale, input_zero_point, output_scale, output_zero_point, axis, rounding)
    return kept_in(whole, DType[dtype_name(out_dtype)])


def _selected(code: Any, of_codes: dict[str, float]) -> Expression:
    """A float32 by the code of a type: a name, or a tensor known only at run time."""
    if isinstance(code, str):
        return constant(of_codes.get(code, 0.0), "float32")
    selected = constant(0.0, "float32")
    for name, value in of_codes.items():
        selected = op.where(op.equal(code, constant(CODES[name], "int32")), constant(value, "float32"), selected)
    return selected


def _unless_disabled(code: Any, changed: Expression, data: Expression) -> Expression:
    if isinstance(code, str):
        return data if code == "disable" else changed
    return op.where(op.equal(code, constant(CODES["disable"], "int32")), data, changed)


@operator("qnn.simulated_quantize")
def simulated_quantize(
    data: Tensor, output_scale: Tensor, output_zero_point: Tensor, axis: int = -1, out_dtype: Any = "int8"
) -> Expression:
    """`quantize` whose integers are float32; `out_dtype` is a name, or an int32 of TVM's codes (0: data as it is)."""
    scale, zero = along(output_scale, data, axis), cast(along(output_zero_point, data, axis), DType.float32)
    least, greatest = (
        _selected(out_dtype, {name: float(DType[name].bounds[end]) for name in CODES if name != "disable"})
        for end in (0, 1)
    )
    whole = op.add(op.round(op.divide(data, scale)), zero)
    return _unless_disabled(out_dtype, op.minimum(op.maximum(whole, least), greatest), data)


@operator("qnn.simulated_dequantize")
def simulated_dequantize(
    data: Tensor, input_scale: Tensor, input_zero_point: Tensor, axis: int = -1, in_dtype: Any = "int8"
) -> Expression:
    """`dequantize` of integers that are float32; `in_dtype` is a name, or an int32 of TVM's codes (0: data as it is)."""
    scale, zero = along(input_scale, data, axis), cast(along(input_zero_point, data, axis), DType.float32)
    return _unless_disabled(in_dtype, op.multiply(op.subtract(data, zero), scale), data)
