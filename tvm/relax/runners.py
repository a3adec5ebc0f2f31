"""What `relax.VirtualMachine` asks of a machine, for each of the two: `params` by function, `call`, `saved`, `profile`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...formats.constants import aligned_copy
from ...formats.executable import Executable as Program
from ...formats.messages.errors import ArgumentError
from ...formats.types import Type
from ...vm import machine
from ...vm.budgets import Budget
from ...vm.device import Device
from ...vm.observe.hooks import Event, InstrumentAction, Listener
from ...vm.observe.report import Report, in_all, timed
from ...vm.tensor import Tensor
from ..files.relax_program import RelaxProgram
from ..machines.relax.machine import RelaxMachine
from ..modules.containers import Array
from ..runtime.arguments import argument
from ..runtime.container import given
from ..runtime.ndarray import NDArray
from .packed import called, reached, registered_name

# instructions by the names of the functions that do the same in Relax's machine, which reports call them by
_BUILTINS = {
    "alloc_closure": "vm.builtin.make_closure",
    "alloc_data": "vm.builtin.make_tuple",
    "alloc_storage": "vm.builtin.alloc_storage",
    **dict.fromkeys(("alloc_tensor", "alloc_dynamic", "storage_tensor"), "vm.builtin.alloc_tensor"),
    "device_copy": "vm.builtin.to_device",
    "make_shape": "vm.builtin.shape_to_tensor",
    "reshape": "vm.builtin.reshape",
}


class Compiled:
    """A program of Treadle's compiler."""

    def __init__(
        self,
        program: Program,
        memory: Any,
        device: Device | None = None,
        budget: Budget | None = None,
        given: Callable[[str], Callable[..., Any] | None] = lambda name: None,
    ) -> None:
        self._functions, bounds = reached(program, given), budget or Budget()
        if bounds.cancel is not None:
            raise ArgumentError("budget: a cancel token belongs to one call; see treadle.VirtualMachine.call")
        self._machine = machine.VirtualMachine(
            program,
            device,
            memory_cfg=memory,
            imports=called(program.program, self._functions),
            max_steps=bounds.max_steps,
            max_seconds=bounds.max_seconds,
            max_memory=bounds.max_memory,
            max_depth=bounds.max_depth,
            threads=bounds.threads,
        )
        self._types = {name: program.function(name).type.params for name in self._machine}
        self.params = {name: self._machine.get_function_params(name) for name in self._machine}
        self._inputs: dict[str, Sequence[Any]] = {}
        self._ending: Callable[[], Any] | None = None

    def function(self, name: str) -> Callable[..., Any]:
        """A function of the program, whose result is yet to be TVM's (`given`)."""
        return self._machine.converting(name, functools.partial(_converted, name, self.params[name], self._types[name]))

    def saved(self, name: str, values: Sequence[Any]) -> Callable[[], Any]:
        """A call with copies of these arguments, checked and converted now."""
        return self._machine.saved_call(name, *_converted(name, self.params[name], self._types[name], values))

    def set_instrument(self, instrument: Callable[..., Any] | None) -> None:
        if self._ending is not None:
            self._ending()
            self._ending = None
        if instrument is not None:
            listening = self._machine.listening(_Instrument(instrument, self._functions))
            listening.__enter__()
            self._ending = lambda: listening.__exit__(None, None, None)

    def set_input(self, name: str, values: Sequence[Any]) -> Callable[[], Any]:
        """A call with copies of these arguments, which `profile` takes too."""
        run = self._machine.saved_call(name, *_converted(name, self.params[name], self._types[name], values))
        self._inputs[name] = run.values or values  # at a server, where the copies are, it is sent others
        return run

    def profile(self, name: str, args: Sequence[Any] | None) -> Report:
        """What calls of this thread cost; with the inputs that are set where there are no `args`."""
        values = self._inputs[name] if args is None else args
        profiled = self._machine.profile(name, *_converted(name, self.params[name], self._types[name], values))
        named = profiled.renamed(_BUILTINS)
        return Report(named.calls, named.device_metrics, {**named.configuration, "Executor": "VM"})


def _converted(function: str, names: Sequence[str], types: Sequence[Type], args: Sequence[Any]) -> list[Any]:
    """Arguments as the machine takes them. Raises ArgumentError."""
    if len(args) != len(types):
        raise ArgumentError(
            f"Invoking function {function} expects {len(types)} arguments ({', '.join(names)}), "
            f"but {len(args)} arguments were provided."
        )
    return list(map(argument, args, types))


class _Instrument(Listener):
    """Tells a function of calls of primitives, of host operators and of functions; what it is handed can be called."""

    operations = frozenset({"call", "call_host", "call_import", "invoke"})

    def __init__(self, instrument: Callable[..., Any], functions: Mapping[str, Callable[..., Any]]) -> None:
        self._instrument, self._functions = instrument, functions

    def before(self, event: Event) -> InstrumentAction | None:
        kind = event.operation.name
        function = _Function(event, self._functions)
        tensors = [NDArray(event.tensor(register)) for register in self._inputs(event)]
        outputs = [NDArray(event.tensor(register)) for register in event.registers("outputs")] if kind == "call" else []
        for output in outputs:
            output.array[...] = 0
        action = self._instrument(function, function.__name__, True, None, *tensors, *outputs)
        if action != InstrumentAction.SKIP_RUN or kind != "call":
            return InstrumentAction.NO_OP
        for register, output in zip(event.registers("outputs"), outputs, strict=True):
            event.set_tensor(register, output.array)
        return InstrumentAction.SKIP_RUN

    def after(self, event: Event) -> None:
        if event.operation.name == "invoke":
            return  # it has only begun
        function = _Function(event, self._functions)
        if event.imported is not None:
            tensors = [NDArray(event.tensor(register)) for register in self._tensors(event, "args")]
            results = [NDArray(event.tensor(register)) for register in self._tensors(event, "dst")]
            self._instrument(function, function.__name__, False, results[0] if results else None, *tensors)
            return
        tensors = [NDArray(event.tensor(register)) for register in event.tensors]
        count = len(event.tensors) - len(event.registers("inputs"))
        results = tensors[len(tensors) - count :]
        self._instrument(function, function.__name__, False, results[0] if count == 1 else Array(results), *tensors)

    def _inputs(self, event: Event) -> list[int]:
        return self._tensors(event, "inputs" if event.operation.has("inputs") else "args")

    @staticmethod
    def _tensors(event: Event, field: str) -> list[int]:
        """The registers of a field that hold tensors."""
        found = []
        for register in event.registers(field):
            try:
                event.describe(register)
            except ArgumentError:  # a tuple, a data value, a closure
                continue
            found.append(register)
        return found


class _Function:
    """What a call calls. Of a primitive it can be called: with inputs, then arrays for its outputs; of an imported function, as
    that is."""

    def __init__(self, event: Event, functions: Mapping[str, Callable[..., Any]]) -> None:
        primitive = event.primitive
        self._definition = None if primitive is None else primitive.definition
        self._sizes = event.sizes if event.operation.name == "call" else ()
        self._imported = None if event.imported is None else functions[event.imported]
        name = str(event.callee) if event.imported is None else registered_name(event.imported)
        self.__name__ = name if primitive is None else primitive.name

    def __call__(self, *args: Any) -> Any:
        if self._imported is not None:
            return self._imported(*args)
        if self._definition is None:
            raise ArgumentError(f"{self.__name__}: a function of the program is called by the machine")
        from ...compiler.ir.evaluate import evaluate_definition

        arrays = [value.array if isinstance(value, Tensor) else np.asarray(value) for value in args]
        count = len(self._definition.params)
        results = evaluate_definition(self._definition, arrays[:count], self._sizes)
        for target, result in zip(arrays[count:], results, strict=False):
            target[...] = result
        return given(Tensor(results[0]) if len(results) == 1 else tuple(map(Tensor, results)))


class Built:
    """A program of `ExecBuilder`, or of a file of TVM's."""

    def __init__(
        self,
        program: RelaxProgram,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._machine = RelaxMachine(program, functions, budget)
        self.params = {function.name: function.params for function in program.own()}
        self._inputs: dict[str, Callable[[], Any]] = {}

    def function(self, name: str) -> Callable[..., Any]:
        """A function of the program."""
        call = self._machine.call
        return lambda *args: call(name, args)

    def saved(self, name: str, values: Sequence[Any]) -> Callable[[], Any]:
        """A call with copies of these arguments."""
        return functools.partial(self._machine.call, name, [_copied(value) for value in values])

    def set_instrument(self, instrument: Callable[..., Any] | None) -> None:
        self._machine.instrument = instrument

    def set_input(self, name: str, values: Sequence[Any]) -> Callable[[], Any]:
        """A call with copies of these arguments, which `profile` takes too."""
        run = self._inputs[name] = self.saved(name, values)
        return run

    def profile(self, name: str, args: Sequence[Any] | None) -> Report:
        """Calls of this thread with a tensor among their arguments make rows."""
        call = self._inputs[name] if args is None else functools.partial(self._machine.call, name, args)
        call()
        rows: list[tuple[str, float, str]] = []
        started: list[float] = []

        def watch(function: Any, symbol: str, before_run: bool, result: Any, *args: Any) -> None:
            if before_run:
                started.append(time.perf_counter())
                return
            seconds = time.perf_counter() - started.pop()
            shapes = [f"{arg.array.dtype}[{', '.join(map(str, arg.shape))}]" for arg in args if isinstance(arg, Tensor)]
            if shapes:
                rows.append((symbol, seconds, ", ".join(shapes)))

        with self._machine.watching(watch):
            start = time.perf_counter()
            call()
            total = time.perf_counter() - start
        calls = [timed(symbol, seconds, total, shapes) for symbol, seconds, shapes in rows]
        return Report(calls, in_all(total), {"Executor": "VM"})


def _copied(value: Any) -> Any:
    if isinstance(value, (Tensor, np.ndarray)):
        return NDArray(aligned_copy(np.asarray(value)))
    return Array(map(_copied, value)) if type(value) is Array else value
