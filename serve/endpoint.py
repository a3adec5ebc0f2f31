"""One function of one version of a model, as clients call it: tensors by name in, tensors by name out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..formats import dims
from ..formats.executable import Executable
from ..formats.messages.errors import ExecutionError
from ..formats.ports import Port, inputs_of, outputs_of
from ..formats.program import Function
from ..formats.types import TensorType, TupleType, Type
from ..vm.budgets import CancelToken
from ..vm.machine import VirtualMachine
from ..vm.tensor import Tensor
from .branches import Sides, flow_of, guarded
from .config import ModelConfig
from .datatypes import NAMES, element_type
from .errors import BadRequestError, DeadlineError
from .statistics import Statistics

SHORT_SECONDS = (
    300e-6  # of a call that is made where its request is read: about what handing it to a thread and back costs
)
SMALL = 4  # a dimension that is shorter may be computed by other kernels' paths: those of vectors, and of few rows
_KNOWN_SHAPES = 256  # whose times an endpoint remembers
_WEIGHT, _MOST = 0.25, 4.0  # of a call in what calls usually take; times what they take, as which one counts at most


class Endpoint:
    """A function that takes tensors and gives tensors."""

    def __init__(
        self, machine: VirtualMachine, executable: Executable, function: Function, config: ModelConfig
    ) -> None:
        self.function = function.name
        self.inputs, self.outputs = inputs_of(function), outputs_of(function)
        self._executable, self._machine, self._config = executable, machine, config
        self._merging = machine  # that makes the calls of merged requests
        self._call = machine[function.name]
        self._by_name = {port.name: number for number, port in enumerate(self.inputs)}
        self._outputs = frozenset(port.name for port in self.outputs)
        self._accepted: set[tuple] = set()  # element types and shapes of inputs that were found right
        self._gives_tuple = isinstance(function.type.result, TupleType)
        self._is_bounded = config.max_steps is None and config.max_memory is None
        self.flow = flow_of(executable.program, function)
        self.is_straight = self.flow.is_straight
        self.statistics: Statistics | None = None  # from when it is served
        self.least_rows = 1  # of a call; with fewer, the last one is repeated
        self.least_small_rows = 1  # the same, where another dimension that is open is shorter than `SMALL`
        self._open = [
            (number, axis)
            for number, port in enumerate(self.inputs)
            for axis, size in enumerate(port.shape or ())
            if axis and not isinstance(size, int)
        ]
        self._usual: dict[tuple, float] = {}  # shapes → seconds that a call takes

    # ---- requests ----

    def arguments(self, tensors: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The tensors in the order of the parameters. Raises BadRequestError: a name is missing or unknown, an element type or
        shape is another."""
        known = self._by_name
        if unknown := [name for name in tensors if name not in known]:
            raise BadRequestError(f"no input {unknown[0]!r}; the model has {_listed(self.inputs)}")
        if len(tensors) < len(known):
            missing = next(name for name in known if name not in tensors)
            raise BadRequestError(f"input {missing!r} is missing; the model has {_listed(self.inputs)}")
        values = [tensors[name] for name in known]
        layout = tuple([(array.dtype, array.shape) for array in values])
        if layout not in self._accepted:
            sizes: dict[str, int] = {}
            for port, array in zip(self.inputs, values, strict=True):
                _check(port, array, sizes)
            if len(self._accepted) >= _KNOWN_SHAPES:
                self._accepted.clear()
            self._accepted.add(layout)
        return values

    def check_outputs(self, names: Sequence[str]) -> None:
        """Raises BadRequestError for a name that no output has."""
        for name in names:
            if name not in self._outputs:
                raise BadRequestError(f"no output {name!r}; the model has {_listed(self.outputs)}")

    # ---- calls ----

    def is_short(self, arguments: Sequence[np.ndarray]) -> bool:
        """Whether a call with such arguments takes next to no time, whatever their elements are: straight-line code, and calls
        with these shapes are usually short."""
        if not (self.is_straight and self._is_bounded):
            return False
        return self._usual.get(tuple([array.shape for array in arguments]), 1.0) < SHORT_SECONDS

    def run_short(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """A call that `is_short`, with no bounds to look at."""
        start = time.perf_counter()
        filled = self._filled(arguments)
        result = self._call(*filled)
        self._count(arguments, time.perf_counter() - start)
        return self._arrays(result, arguments, filled)

    def run(
        self, arguments: Sequence[np.ndarray], deadline: float | None = None, cancel: CancelToken | None = None
    ) -> list[np.ndarray]:
        """The outputs. `deadline` is a time of `time.monotonic`. Raises what the call raises, DeadlineError."""
        return self._run(self._machine, arguments, deadline, cancel)

    def run_merged(
        self, arguments: Sequence[np.ndarray], deadline: float | None = None, gathering: float = 0.0
    ) -> list[np.ndarray]:
        """The outputs of a call for several requests, whose rows it took `gathering` seconds to put together. Raises what `run`
        raises, and ExecutionError where the call comes to code that was not tried, or gives another number of rows."""
        outputs = self._run(self._merging, arguments, deadline, None, gathering)
        if any(len(array) != len(arguments[0]) for array in outputs):
            raise ExecutionError(f"{self.function}: the results of a merged call have another number of rows")
        return outputs

    def guard(self, sides: Sides) -> None:
        """From now on, merged calls end where they take a side of a branch that `sides` has not seen."""
        found = guarded(self._executable.program, self.flow.branches, sides.taken)
        if found is not None:
            executable = Executable(found)
            memory, threads = self._config.max_memory, self._config.threads
            self._merging = VirtualMachine(executable, max_memory=memory, threads=threads)

    def watching(self, sides: Sides) -> contextlib.AbstractContextManager[None]:
        """Within this, `sides` sees the branches that calls take."""
        return self._machine.listening(sides) if self.flow.branches else contextlib.nullcontext()

    def _run(
        self,
        machine: VirtualMachine,
        arguments: Sequence[np.ndarray],
        deadline: float | None,
        cancel: CancelToken | None,
        gathering: float = 0.0,
    ) -> list[np.ndarray]:
        seconds, config = self._config.max_seconds, self._config
        if deadline is not None:
            seconds = min(seconds, deadline - time.monotonic())
            if seconds <= 0:
                raise DeadlineError("the deadline was over before the call began")
        start, filled = time.perf_counter(), self._filled(arguments)
        result = machine.call(
            self.function,
            filled,
            max_seconds=seconds,
            max_steps=config.max_steps,
            max_memory=config.max_memory,
            cancel=cancel,
        )
        self._count(arguments, time.perf_counter() - start, gathering)
        return self._arrays(result, arguments, filled)

    def _filled(self, arguments: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The arguments, or with rows enough that each result has the bits that it has among more."""
        least, small = self.least_rows, self.least_small_rows
        if least == small == 1:
            return arguments
        if small != least and any(arguments[number].shape[axis] < SMALL for number, axis in self._open):
            least = small
        rows = len(arguments[0])
        if not 0 < rows < least:
            return arguments
        return [np.concatenate([array, np.repeat(array[-1:], least - rows, 0)]) for array in arguments]

    def _count(self, arguments: Sequence[np.ndarray], seconds: float, gathering: float = 0.0) -> None:
        self._note(arguments, seconds)
        if self.statistics is not None:
            self.statistics.called(gathering, seconds, rows_in(arguments))

    def _note(self, arguments: Sequence[np.ndarray], seconds: float) -> None:
        """Updates the usual time of a call; an outlier says little, so no call counts for more than a few."""
        shapes, usual = tuple([array.shape for array in arguments]), self._usual
        known = usual.get(shapes)
        if known is None:
            if len(usual) >= _KNOWN_SHAPES:
                usual.clear()
            usual[shapes] = seconds
        else:
            usual[shapes] = known + _WEIGHT * (min(seconds, _MOST * known) - known)

    def _arrays(self, result: Any, arguments: Sequence[np.ndarray], filled: Sequence[np.ndarray]) -> list[np.ndarray]:
        parts: Sequence[Tensor] = result if self._gives_tuple else (result,)
        if filled is arguments:
            return [part.array for part in parts]
        return [part.array[: len(arguments[0])] for part in parts]


def rows_in(arguments: Sequence[np.ndarray]) -> int:
    """How many inferences the protocol counts in a call: the size of its first dimension."""
    return arguments[0].shape[0] if arguments and arguments[0].ndim else 1


def endpoints(machine: VirtualMachine, executable: Executable, config: ModelConfig) -> dict[str, Endpoint]:
    """By name, the functions that clients can call."""
    return {
        function.name: Endpoint(machine, executable, function, config)
        for function in executable.program.functions
        if not function.captured and _takes_tensors(function)
    }


def _takes_tensors(function: Function) -> bool:
    result = function.type.result
    results: Sequence[Type] = result.fields if isinstance(result, TupleType) else (result,)
    return all(isinstance(each, TensorType) for each in (*function.type.params, *results))


def _check(port: Port, array: np.ndarray, sizes: dict[str, int]) -> None:
    type_ = port.type
    assert isinstance(type_, TensorType)
    shape = array.shape
    if element_type(array) is not type_.dtype or len(shape) != type_.rank:
        _refuse(port, array)
    for dim, size in zip(type_.shape, shape, strict=True):
        if isinstance(dim, int):
            if dim != size:
                _refuse(port, array)
        elif dims.is_variable(dim) and sizes.setdefault(str(dim), size) != size:  # type: ignore[arg-type]
            raise BadRequestError(f"input {port.name!r}: {dim} is {size} here, and {sizes[str(dim)]} in another input")


def _refuse(port: Port, array: np.ndarray) -> None:
    assert isinstance(port.type, TensorType)
    expected = f"{NAMES[port.type.dtype]} {_shape(port.type.shape)}"
    raise BadRequestError(
        f"input {port.name!r}: expected {expected}, got {NAMES[element_type(array)]} {_shape(array.shape)}"
    )


def _shape(shape: Sequence[object]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _listed(ports: Sequence[Port]) -> str:
    return ", ".join(repr(port.name) for port in ports) or "none"
