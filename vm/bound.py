"""A call that is bound once and made many times: where its tensors lie is settled before, and nothing is looked at again.

run = bind(calls, number, arguments, results)
run()          # reads the arrays `arguments`, writes into the arrays `results`
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..formats.dtypes import DType
from ..formats.messages.errors import ArgumentError
from ..formats.program import Function
from ..formats.types import TensorType, TupleType, Type
from .calls import Calls
from .in_process import InProcess
from .memory import pinned
from .python_layout import method, python_layout

_COPIED_BYTES = 1 << 20  # that the engine copies at most: other threads wait for some 50 µs meanwhile


class _BoundCall(InProcess, functools.partial):
    """The result of `bind`."""

    instead = "bind the call again"


def bind(
    calls: Calls, number: int, arguments: Sequence[np.ndarray], results: Sequence[np.ndarray] | None = None
) -> Callable[[], Any]:
    """A call of function `number` with these arrays, which stay alive and where they are as long as it does. Without
    `results`, it returns new ones.

    Arrays must be C-contiguous, aligned, and of the very types of the function, which are static. Raises ArgumentError for a
    function that may keep an argument, and, with `results`, for one whose results cannot be made in given memory.
    """
    image = calls.image
    function = image.program.functions[number]
    if len(arguments) != len(function.param_names):
        raise ArgumentError(
            f"{function.name}: a bound call needs an array for each of its parameters "
            f"({', '.join(function.param_names) or 'none'}), got {len(arguments)}"
        )
    words = np.zeros((max(1, len(arguments)), 2), np.int64)
    for row, array, type_, name, escapes in zip(
        words, arguments, function.type.params, function.param_names, image.escaping[number], strict=True
    ):
        _check(f"{function.name}({name})", array, type_)
        if escapes:
            raise ArgumentError(
                f"{function.name}({name}): a bound call cannot hand an argument on; copy it in the program"
            )
        row[:] = array.ctypes.data, image.types.find(type_)  # type: ignore[arg-type]
    places = np.zeros((0 if results is None else len(results) + 1, 2), np.int64)
    if results is not None:
        types = results_of(function, len(results))
        offsets = image.result_places(number)
        if len(offsets) != len(results):
            raise _not_apart(function)
        for index, (array, type_) in enumerate(zip(results, types, strict=True)):
            _check(f"{function.name}: result {index}", array, type_)
        order = sorted(range(len(results)), key=offsets.__getitem__)
        for place, index in zip(places, order, strict=False):
            place[:] = offsets[index], results[index].ctypes.data
        places[-1] = -1, 0
    everything = [*arguments, *(results or ())]
    kept = (words, places, everything, [pinned(array) for array in everything])
    at = places.ctypes.data if results else 0
    return _BoundCall(calls.bound_callable(number), words.ctypes.data, at, kept)


def bind_copies(targets: Sequence[np.ndarray]) -> Callable[[tuple], Any] | None:
    """`copies(values)`: copies the elements of a tuple's arrays or tensors, one for each of `targets`, and gives None; or gives
    the tuple, and copies nothing, unless each is of its target's shape and element type, in C order, and apart from it.

    The copies keep the targets alive; other threads wait meanwhile. None where there is too much to copy for that, or the engine
    cannot read this Python's arrays.
    """
    layout, size = python_layout(), sum(array.nbytes for array in targets)
    if not layout.works or size > _COPIED_BYTES or any(array.dtype.hasobject for array in targets):
        return None
    pairs = [word for array in targets for word in (id(array), array.nbytes)]
    words = np.array([layout.address, len(targets), *pairs], np.int64)
    return method("copy_arrays", (words, *targets))


def results_of(function: Function, count: int) -> Sequence[Type]:
    """The types of a function's results, for which `count` tensors are given. Raises ArgumentError."""
    result = function.type.result
    types = result.fields if isinstance(result, TupleType) else (result,)
    if len(types) != count:
        raise _not_apart(function)
    return types


def _not_apart(function: Function) -> ArgumentError:
    result = function.type.result
    count = len(result.fields) if isinstance(result, TupleType) else 1
    return ArgumentError(f"{function.name}: the function does not make its {count} results as separate tensors")


def check_type(place: str, dtype: DType, shape: tuple[int, ...], type_: object, fits: bool = True) -> None:
    """Raises ArgumentError for a tensor that a bound call cannot read or write, as one of another type."""
    if not isinstance(type_, TensorType) or not type_.is_static:
        fixed = "; treadle.compile(…, shapes={name: sizes}) fixes sizes" if isinstance(type_, TensorType) else ""
        raise ArgumentError(f"{place}: a bound call needs tensors of static types, this is {type_}{fixed}")
    if not fits or dtype is not type_.dtype or shape != type_.shape:
        raise ArgumentError(f"{place}: expected {type_} in C order, got {dtype.name}[{', '.join(map(str, shape))}]")


def _check(place: str, array: np.ndarray, type_: object) -> None:
    flags = array.flags
    fits = flags.c_contiguous and flags.aligned and array.dtype.isnative
    check_type(place, DType.of(array.dtype), array.shape, type_, fits)
