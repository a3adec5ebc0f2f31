"""Relay's language of new shapes: 0 keeps a dimension, -1 takes what is left, -2 keeps all that follow, -3 merges two,
-4 parts one."""

from __future__ import annotations

from collections.abc import Sequence

from ....formats import dims
from ....formats.dims import Dim
from ....formats.messages.errors import InferenceError


def new_shape(shape: Sequence[Dim], wanted: Sequence[Dim], allow_zero: bool = False) -> tuple[Dim, ...]:
    """The dimensions that `wanted` stands for. Raises InferenceError for what does not fit."""
    result: list[Dim] = []
    at, codes = 0, iter(wanted)

    def take() -> Dim:
        nonlocal at
        if at >= len(shape):
            raise InferenceError(f"newshape {list(wanted)} asks for more dimensions than the {len(shape)} of data")
        at += 1
        return shape[at - 1]

    for code in codes:
        if code == 0 and not allow_zero:
            result.append(take())
        elif code == -1:
            result.append(-1)
            at += 1
        elif code == -2:
            result += shape[at:]
            at = len(shape)
        elif code == -3:
            result.append(dims.multiply(take(), take()))
        elif code == -4:
            result += _parted(take(), [next(codes, 0), next(codes, 0)])
        elif isinstance(code, int) and code < -4:
            raise InferenceError(f"newshape {list(wanted)}: there is no meaning of {code}")
        else:
            result.append(code)
            at += 1
    return with_rest(shape, result)


def _parted(dim: Dim, parts: list[Dim]) -> list[Dim]:
    if parts.count(-1) == 1:
        other = parts[1 - parts.index(-1)]
        parts[parts.index(-1)] = dims.floordiv(dim, other)
    return parts


def with_rest(shape: Sequence[Dim], wanted: Sequence[Dim]) -> tuple[Dim, ...]:
    """-1, once, is what is left."""
    result = list(wanted)
    if result.count(-1) > 1:
        raise InferenceError(f"newshape {result}: only one -1 can be found out")
    if -1 in result:
        rest = dims.product(dim for dim in result if dim != -1)
        result[result.index(-1)] = dims.floordiv(dims.product(shape), rest) if rest != 0 else 0
    return tuple(result)


def reverse_shape(shape: Sequence[Dim], wanted: Sequence[Dim]) -> tuple[Dim, ...]:
    """The same, matched from the end."""
    if any(code in (-2, -4) for code in wanted):
        found = _without_minus_four(wanted)
        return tuple(reversed(new_shape(shape[::-1], found)))
    return tuple(reversed(new_shape(shape[::-1], tuple(wanted)[::-1])))


def _without_minus_four(wanted: Sequence[Dim]) -> list[Dim]:
    """The codes from the end to the front; -4 stays in front of its two numbers, which change places."""
    groups: list[list[Dim]] = []
    codes = iter(wanted)
    for code in codes:
        groups.append([-4, *reversed([next(codes, 0), next(codes, 0)])] if code == -4 else [code])
    return [code for group in reversed(groups) for code in group]
