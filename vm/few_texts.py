"""Functions on texts that are host primitives alone, called with few short ones: done by the operators, from texts to texts.

The engine is given a number for each text, entries of tables that are made and removed again, and an operator costs it a trap:
for a handful of texts ten times the work. What is larger, or fails, is left to it: it knows a call's bounds, and where an error
is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

import numpy as np

from ..formats.bytecode import function_words, scan
from ..formats.isa import Role, with_role
from ..formats.strings import Texts, hold, is_few, to_texts
from ..formats.types import TensorType, TupleType
from . import library
from .image import Image
from .layout import PRIMITIVE
from .outputs import naming_results
from .tensor import tensor_of

_LONGEST = 1 << 10  # words of a function that is looked at: host primitives are few
_TABLE = 1 << 14  # elements of a constant that is kept as Python's objects
_MEMORY = with_role(Role.BUFFER) | {"frame_tensor", "kill"}  # instructions that only prepare memory
_OBJECT = np.dtype(object)

_Apply = Callable[..., list[np.ndarray]]
_Axis = tuple[int, int]  # of a value


class _UnfitError(Exception):
    """The engine's affair."""


def few_texts(image: Image, number: int) -> Callable[[Sequence[Any]], Any] | None:
    """`call(args)` gives what a function gives, None for arguments that are the engine's affair. None where all are."""
    try:
        return _Line(image, number)
    except (_UnfitError, KeyError):
        return None


class _Line:
    """The primitives of a function, one after the other. Values are numbered: parameters, constants, then results."""

    def __init__(self, image: Image, number: int) -> None:
        function = image.program.functions[number]
        if function.captured or function.length > _LONGEST:
            raise _UnfitError
        instructions = list(scan(function_words(image.program, function)))
        self._image = image
        self._parameters = [_parameter(type_) for type_ in function.type.params]
        self._places = [each.word("const") for each in instructions if each.operation.name == "load_const"]
        if any(image.arrays[place].size > _TABLE for place in self._places):
            raise _UnfitError
        self._constants: tuple[Any, list[np.ndarray]] = None, []  # the image's, and what operators are given of them
        self._steps: list[tuple[_Apply, list[int]]] = []
        self._equal: list[tuple[_Axis, _Axis | int]] = []  # sizes that the function compares
        self._result: list[int] = []
        self._named = naming_results(function)
        values = dict(enumerate(range(len(self._parameters))))  # in registers
        sizes: dict[int, _Axis] = {}
        constant = len(self._parameters)
        made = constant + len(self._places)
        for each in instructions:
            name = each.operation.name
            if name == "load_const":
                values[each.word("dst")] = constant
                constant += 1
            elif name == "shape_of":
                sizes.update({size: (values[each.word("tensor")], axis) for axis, size in enumerate(each.list("dst"))})
            elif name == "match_shape":
                for axis, size in enumerate(each.list("shape")):
                    self._equal.append(((values[each.word("tensor")], axis), size if size >= 0 else sizes[~size]))
            elif name in ("call", "call_host"):
                self._steps.append((self._operator(each.word("prim")), [values[at] for at in each.list("inputs")]))
                for register in each.list("outputs" if name == "call" else "dst"):
                    values[register] = made
                    made += 1
            elif name == "alloc_data" and each is instructions[-2] and isinstance(function.type.result, TupleType):
                self._result = [values[at] for at in each.list("fields")]
            elif name == "ret":
                self._result = self._result or [values[each.word("src")]]
            elif name not in _MEMORY:
                raise _UnfitError
        # what is handed on is the caller's, or the program's; what is there twice is shared
        is_own = min(self._result) >= len(self._parameters) + len(self._places)
        if not self._steps or not is_own or len(set(self._result)) < len(self._result):
            raise _UnfitError

    def _operator(self, number: int) -> _Apply:
        program = self._image.program
        if self._image.primitives[number, PRIMITIVE.KERNEL]:
            raise _UnfitError
        evaluator = library.target_of(program.target_of(number)).evaluator(program.primitives[number].definition)
        apply: _Apply | None = getattr(evaluator, "of_texts", None)
        if apply is None:
            raise _UnfitError
        return apply

    def __call__(self, args: Sequence[Any]) -> Any:
        """Raises what an operator raises."""
        # in a context of its own: whatever ends it, the holder of texts is as before
        return copy_context().run(self._done, args)

    def _done(self, args: Sequence[Any]) -> Any:
        hold(Texts())  # operators make numbers of many texts
        arrays, (made_of, constants) = self._image.arrays, self._constants
        if made_of is not arrays:
            constants = [_constant(arrays[place]) for place in self._places]
            self._constants = arrays, constants
        try:
            values = [*map(_given, args, self._parameters), *constants]
            made: list[np.ndarray] = []
            for apply, inputs in self._steps:
                for array in made:
                    _check(array)
                made = apply(*[values[at] for at in inputs])
                values += made
        except _UnfitError:
            return None
        for (at, axis), size in self._equal:
            if values[at].shape[axis] != (size if isinstance(size, int) else values[size[0]].shape[size[1]]):
                return None
        if self._named is None:
            return tensor_of(to_texts(values[self._result[0]]))
        return self._named([tensor_of(to_texts(values[at])) for at in self._result])


_Parameter = tuple[np.dtype, tuple[int, ...]]  # -1: any size


def _parameter(type_: Any) -> _Parameter:
    if not isinstance(type_, TensorType):
        raise _UnfitError
    dtype = _OBJECT if type_.dtype.is_string else type_.dtype.numpy
    return dtype, tuple(dim if isinstance(dim, int) else -1 for dim in type_.shape)


def _given(array: Any, parameter: _Parameter) -> np.ndarray:
    """An argument; a copy of texts, which nobody changes meanwhile."""
    dtype, shape = parameter
    if type(array) is not np.ndarray or array.dtype != dtype or array.ndim != len(shape):
        raise _UnfitError
    for size, wanted in zip(array.shape, shape):  # noqa: B905 (both have the rank)
        if wanted not in (-1, size):
            raise _UnfitError
    given: np.ndarray = array.copy() if dtype is _OBJECT else array
    _check(given)
    return given


def _check(array: np.ndarray) -> None:
    if not is_few(array):
        raise _UnfitError


def _constant(array: np.ndarray) -> np.ndarray:
    made = to_texts(array)
    made.flags.writeable = False
    return made
