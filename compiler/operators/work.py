"""How much arithmetic operators do: additions and multiplications, counted by their definitions from types of known shapes.

A multiplication and its addition are two. An elementary function (exp, tanh …) counts as one, like every elementwise operator.
Terms that padding makes zero count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Union

from ...formats.types import TensorType
from .shapes import integer
from .table import Fusion, Operator


class Work(NamedTuple):
    """Operations that are done, and those that the plain definition asks for, of which a fast algorithm does less."""

    done: int
    defined: int


Types = Sequence[TensorType]
Count = Union[int, Work]


def elements(type_: TensorType) -> int:
    """How many a tensor has. Its shape is known."""
    return math.prod(type_.shape)  # type: ignore[arg-type]


def work_of(operator: Operator, inputs: Types, results: Types, attributes: dict[str, Any]) -> Work:
    """Of one call. All dimensions are known, in types and attributes; every attribute is given."""
    count = operator.work(inputs, results, **attributes) if operator.work else _by_fusion(operator, inputs, results)
    return count if isinstance(count, Work) else Work(count, count)


def _by_fusion(operator: Operator, inputs: Types, results: Types) -> int:
    """The work of most operators: one operation per element."""
    if operator.fusion is Fusion.ELEMENTWISE and any(type_.dtype.is_float for type_ in inputs):
        return elements(results[0])
    return elements(inputs[0]) if operator.fusion is Fusion.REDUCTION else 0


def each_input(operations: int) -> Any:
    """So many operations for each element of the first input."""
    return lambda inputs, results, **attributes: operations * elements(inputs[0])


def no_arithmetic(inputs: Types, results: Types, **attributes: Any) -> int:
    """Of operators that only copy or look."""
    return 0


def of_product(inputs: Types, results: Types, transpose_a: bool = False, **attributes: Any) -> int:
    """A matrix product."""
    a = inputs[0].shape
    depth = a[-2] if transpose_a and len(a) > 1 else a[-1]
    return 2 * elements(results[0]) * integer(depth)


def of_convolution(inputs: Types, results: Types, **attributes: Any) -> int:
    """Weights [M, C / groups, *window]."""
    return 2 * elements(results[0]) * math.prod(inputs[1].shape[1:])  # type: ignore[arg-type]


def of_transposed_convolution(inputs: Types, results: Types, **attributes: Any) -> int:
    """Weights [C, M / groups, *window], which every element of the image meets."""
    return 2 * elements(inputs[0]) * math.prod(inputs[1].shape[1:])  # type: ignore[arg-type]


def of_blocked_convolution(inputs: Types, results: Types, channels: int | None = None, **attributes: Any) -> int:
    """Weights [blocks, C or blocks of it, *window, 16 …]; `channels` of a group where the last block has less than 16."""
    shape = inputs[1].shape
    depth = shape[1] if channels is None else channels
    window = shape[2 : results[0].rank - 1]
    return 2 * elements(results[0]) * depth * math.prod(window)  # type: ignore[operator,arg-type]


def of_integer_convolution(inputs: Types, results: Types, **attributes: Any) -> int:
    """Weights [blocks, blocks of C, *window, words, 16, 4]."""
    _, blocks, *window, words, _, word = inputs[1].shape
    return 2 * elements(results[0]) * blocks * words * word * math.prod(window)  # type: ignore[operator,arg-type]


def of_convolution_to_few(inputs: Types, results: Types, channels: int, **attributes: Any) -> int:
    """Weights [M, blocks of C, *window, 16]; the result is a block, whatever M is."""
    outputs, _, *window, block = inputs[1].shape
    return 2 * elements(results[0]) // block * outputs * channels * math.prod(window)  # type: ignore[operator,arg-type]


def of_pooling(inputs: Types, results: Types, kernel: Sequence[int], **attributes: Any) -> int:
    """One operation an element under each window."""
    return elements(results[0]) * math.prod(kernel)


def of_recurrence(inputs: Types, results: Types, **attributes: Any) -> int:
    """The state times the weights of all gates, at every step; and what the gates do to it."""
    return elements(inputs[0]) * (2 * integer(inputs[2].shape[-1]) + 4)
