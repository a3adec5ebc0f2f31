"""Calls whose arguments are set before: arguments and results are kept by function; so are saved functions.

Arguments are copied, checked and converted once, when they are set; what is left for a call is the call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..formats import dims
from ..formats.messages.errors import ArgumentError, ShapeError
from ..formats.program import Function
from ..formats.types import TensorType
from .calls import Calls
from .in_process import InProcess


class SavedCall(InProcess, functools.partial):
    """A call of function `number` with the arguments `values`, which are copies, by a machine that `owner` belongs to."""

    instead = "save the call again, of another machine"

    owner: object
    function: str
    number: int  # of the function; at a server, of the saved call
    values: Sequence[Any]

    @classmethod
    def of(
        cls, run: Callable[[], Any], owner: object, function: str, number: int, values: Sequence[Any] = ()
    ) -> SavedCall:
        """A saved call of `run`."""
        made = cls(run)
        made.owner, made.function, made.number, made.values = owner, function, number, values
        return made


class Stateful:
    """The arguments and results that one machine keeps."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._functions: dict[int, Callable[..., Any]] = {}  # that were asked for, by number
        self._inputs: dict[str, Sequence[Any]] = {}
        self._runs: dict[str, Callable[[], Any]] = {}
        self._outputs: dict[str, Any] = {}

    def set_input(self, name: str, number: int, values: Sequence[Any]) -> None:
        """Keeps copies of arguments. Raises ArgumentError, DTypeError, ShapeError; then those of before stay."""
        kept = self._kept(number, values)
        self._inputs[name], self._runs[name] = kept, self._run(number, kept)

    def inputs(self, name: str) -> Sequence[Any] | None:
        """The arguments that are set for a function."""
        return self._inputs.get(name) if isinstance(name, str) else None

    def invoke(self, name: str, number: int) -> None:
        """Calls a function with the arguments that are set, and keeps its result. Raises ArgumentError where none are."""
        self._outputs.pop(name, None)  # a call that fails has no result
        run = self._runs.get(name)
        if run is None:
            run = self._function(number)
            if self._calls.image.program.functions[number].param_names:
                raise no_inputs(name)
        self._outputs[name] = run()

    def output(self, name: str) -> Any:
        """The result that is kept. Raises ArgumentError."""
        return output_of(self._outputs, name)

    def saved(self, name: str, number: int, values: Sequence[Any]) -> SavedCall:
        """A function without parameters that calls one with copies of these arguments."""
        kept = self._kept(number, values)
        return SavedCall.of(self._run(number, kept), self._calls, name, number, kept)

    def _kept(self, number: int, values: Sequence[Any]) -> list[Any]:
        kept = self._calls.keep(number, values)
        _check_dims(self._calls.image.program.functions[number], kept)
        return kept

    def _function(self, number: int) -> Callable[..., Any]:
        found = self._functions.get(number)
        if found is None:
            found = self._functions[number] = self._calls.callable(number)
        return found

    def _run(self, number: int, kept: Sequence[Any]) -> Callable[[], Any]:
        function, values = self._function(number), tuple(kept)
        return self._calls.saved_callable(number, values, function) or (lambda: function(*values))


def no_inputs(name: str) -> ArgumentError:
    """The error of a stateful call for which nothing was set."""
    return ArgumentError(f"{name}: no inputs are set; call set_input({name!r}, …) first")


def output_of(outputs: Mapping[str, Any], name: str) -> Any:
    """The result that is kept for a function. Raises ArgumentError."""
    if name not in outputs:
        raise ArgumentError(f"{name}: there is no output; call invoke_stateful({name!r}) first")
    return outputs[name]


def _check_dims(function: Function, values: Sequence[Any]) -> None:
    """Raises ShapeError where tensors disagree about a dimension that their types have a name for."""
    sizes: dict[str, int] = {}
    tensors = [
        (name, type_, value.shape)
        for name, type_, value in zip(function.param_names, function.type.params, values, strict=True)
        if isinstance(type_, TensorType)
    ]
    for _, type_, shape in tensors:
        for dim, size in zip(type_.shape, shape, strict=True):
            if dims.is_variable(dim):  # type: ignore[arg-type]
                sizes.setdefault(str(dim), size)
    for name, type_, shape in tensors:
        for dim, size in zip(type_.shape, shape, strict=True):
            if isinstance(dim, dims.SymbolicDim) and _disagrees(dim, size, sizes):
                got = ", ".join(map(str, shape))
                known = ", ".join(f"{each} = {sizes[each]}" for each in dims.variables(dim))
                raise ShapeError(f"{function.name}({name}): expected {type_} with {known}, got a tensor [{got}]")


def _disagrees(dim: dims.SymbolicDim, size: int, sizes: Mapping[str, int]) -> bool:
    try:
        return dims.evaluate(dim, sizes) != size
    except (KeyError, ZeroDivisionError):  # the call will see
        return False
