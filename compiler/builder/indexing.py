"""`x[...]` of an expression, as NumPy indexes: integers, slices, `...`, None and one tensor of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...formats.limits import DIMENSION
from ...formats.messages.errors import InferenceError, SubscriptError
from ...formats.types import TensorType
from . import checks as check
from .array_methods import ArrayMethods


def indexed(value: ArrayMethods, parts: list[Any]) -> Any:
    """NumPy's indexing by integers, slices of static bounds, `...`, None, and one tensor of integers among slices."""
    dots = [at for at, part in enumerate(parts) if part is ...]  # not by ==, which makes an operator of expressions
    if len(dots) > 1:
        raise InferenceError("an index has one ... at most")
    for at in dots:
        used = sum(part is not None for part in parts) - 1
        parts[at : at + 1] = [slice(None)] * max(0, value._rank("an index with ...") - used)
    places = [at for at, part in enumerate(parts) if isinstance(part, ArrayMethods)]
    if places and (len(places) > 1 or any(isinstance(part, int) or part is None for part in parts)):
        raise InferenceError("a tensor as an index stands alone or among slices; see op.take and op.gather_nd")
    basic = tuple(slice(None) if isinstance(part, ArrayMethods) else part for part in parts if part is not None)
    if any(part != slice(None) for part in basic):
        value = _subscript(value, basic)
    if places:
        return value._operator("take", value, parts[places[0]], axis=places[0])
    kept = [part for part in parts if not isinstance(part, int)]
    new = [at for at, part in enumerate(kept) if part is None]
    return value._operator("expand_dims", value, axes=new) if new else value


def _subscript(value: ArrayMethods, index: tuple) -> ArrayMethods:
    """NumPy's basic indexing by integers and slices of static bounds."""
    for axis, part in enumerate(index):
        _check_index(value, axis, part)
    taken = [axis for axis, part in enumerate(index) if isinstance(part, int) and not _is_sized(value, axis)]
    if taken:  # checked when the program runs: a slice would be empty where there is no such element
        rest = [slice(None) if axis in taken else part for axis, part in enumerate(index)]
        for axis in reversed(taken):
            value = value._operator("take", value, np.asarray(index[axis], np.int64), axis=axis)
            del rest[axis]
        return _subscript(value, tuple(rest)) if rest else value
    parts = [slice(part, part + 1 if part != -1 else None) if isinstance(part, int) else part for part in index]
    backward = [(part.step or 1) < 0 for part in parts]
    first, last = [DIMENSION if back else 0 for back in backward], [-DIMENSION if b else DIMENSION for b in backward]
    result = value._operator(
        "slice",
        value,
        starts=[default if part.start is None else part.start for part, default in zip(parts, first, strict=True)],
        ends=[default if part.stop is None else part.stop for part, default in zip(parts, last, strict=True)],
        steps=[part.step or 1 for part in parts],
    )
    squeezed = [axis for axis, part in enumerate(index) if isinstance(part, int)]
    return result._operator("squeeze", result, axes=squeezed) if squeezed else result


def _check_index(value: ArrayMethods, axis: int, part: Any) -> None:
    """Raises InferenceError for an unsupported index, SubscriptError for an axis or element out of range."""
    bounds = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
    for bound in bounds:
        if (bound is None and not isinstance(part, slice)) or (bound is not None and type(bound) is not int):
            raise InferenceError(
                f"{value.name}: a tensor is indexed by integers and slices, not by {check.told(bound)}; see op.take"
            )
    if isinstance(part, slice) and part.step == 0:
        raise InferenceError(f"{value.name}: axis {axis}: the step of a slice is 0")
    if not isinstance(value.type, TensorType):
        return
    if axis >= value.type.rank:
        raise SubscriptError(f"{value.name}: there is no axis {axis}: it is {value.type}")
    size = value.type.shape[axis]
    if isinstance(part, int) and isinstance(size, int) and not -size <= part < size:
        raise SubscriptError(
            f"{value.name}: index {part} is out of range for axis {axis} of {size} elements: it is {value.type}"
        )


def _is_sized(value: ArrayMethods, axis: int) -> bool:
    """Whether the length of an axis is known now, so that an integer index can be checked now."""
    return isinstance(value.type, TensorType) and axis < value.type.rank and isinstance(value.type.shape[axis], int)
