"""Numbers of the source language as operands: which element type they take.

`x * 2` multiplies by a 2 of the type of x. The builder asks where it knows the types of all operands; where it does not, the
number becomes a weak constant of the IR, and inference asks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...formats.dtypes import DType
from ...formats.messages.errors import InferenceError
from ...formats.primitive import Attributes
from ...formats.types import TensorType
from .. import ir
from ..operators import Operator

DEFAULT: dict[type, DType] = {float: DType.float32, int: DType.int64, bool: DType.bool}  # where no operand says more


def default_dtype(number: bool | int | float) -> DType:
    """NumPy's numbers, of which float64 is a float to Python, have types of their own."""
    return DEFAULT.get(type(number)) or DType.of(np.asarray(number).dtype)


def number_as(value: bool | int | float, dtype: DType) -> ir.Constant:
    """The number as a constant. Raises InferenceError for one that the element type does not hold."""
    if isinstance(value, float) and not dtype.is_float:
        raise InferenceError(f"expected a number that {dtype.name} can hold, got {value}")
    try:
        array = np.array(value, dtype.numpy)
    except OverflowError:
        raise InferenceError(f"expected a number that {dtype.name} can hold, got {value}") from None
    array.flags.writeable = False
    return ir.Constant(array)


def dtype_of_numbers(
    operator: Operator,
    inputs: Sequence[TensorType | None],
    numbers: Sequence[bool | int | float | None],
    attributes: Attributes,
) -> DType | None:
    """The element type of an operator's operands that are numbers: that of the first other operand with which the operator takes
    them all (`where` compares nothing with its condition). None where that is none: then each has its own default."""
    candidates = dict.fromkeys(
        type_.dtype for type_, number in zip(inputs, numbers, strict=True) if number is None and type_ is not None
    )
    for dtype in candidates:
        try:
            types = [
                type_ if number is None else number_as(number, dtype).type
                for type_, number in zip(inputs, numbers, strict=True)
            ]
            operator.result_types(types, attributes)  # type: ignore[arg-type]
            return dtype
        except InferenceError:
            continue
    try:
        defaults = [t if n is None else TensorType(default_dtype(n), ()) for t, n in zip(inputs, numbers, strict=True)]
        operator.result_types(defaults, attributes)  # type: ignore[arg-type]
    except InferenceError:
        return next(iter(candidates), None)  # whose message says more
    return None
