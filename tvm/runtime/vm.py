"""The Relay VM's run-time half: `VirtualMachine`, over Treadle's; `executable.py` has what it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...formats.messages.errors import ArgumentError
from ...formats.types import Type
from ...vm.device import Device, cpu
from ...vm.observe.benchmark import Repeats
from ...vm.tensor import require_cpu
from .arguments import argument, in_order
from .container import ADT, wrapped
from .executable import Executable, VMExecutable
from .module import Module

__all__ = ["Executable", "VMExecutable", "VirtualMachine", "convert"]


class VirtualMachine:
    """Runs the functions of an executable. Inputs that are set stay for the calls that follow."""

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    def __init__(self, exe: Executable | Module, device: Any = None, memory_cfg: Any = None) -> None:
        """`memory_cfg` is "naive", "pooled", or a dict from device to one of them. Without a device, as before 0.7, `init` is
        told it. Raises ArgumentError, a TypeError."""
        if isinstance(exe, Module):
            exe = Executable(exe)
        if not isinstance(exe, Executable):
            raise ArgumentError(f"exe is expected to be the type of Executable, but received {type(exe)}")
        first = device[0] if isinstance(device, (list, tuple)) and device else device
        self._remote: Device | None = first if hasattr(first, "machine_class") else None
        if device is not None and self._remote is None:
            self.init(device)
        self._exec = exe
        self._machine = exe.make_machine(_memory(memory_cfg), self._remote)
        self._inputs: dict[str, Sequence[Any]] = {}
        self._signatures: dict[str, tuple[Sequence[str], Sequence[Type | None]]] = {}  # of functions that were called
        self._functions: dict[str, Callable[..., Any]] = {}  # that were called
        self._result: Any = _UNSET

    def init(self, device: Any = None, *, ctx: Any = None) -> None:
        """Says on which device, or devices, the machine runs: there is one. `ctx` is what `device` was called before 0.8. Raises
        ArgumentError, a TypeError."""
        device = ctx if device is None else device
        devices = list(device) if isinstance(device, (list, tuple)) else [device]
        if not devices or not all(isinstance(each, Device) for each in devices):
            raise ArgumentError("dev is expected to be Device or List[Device]")
        for each in devices:
            require_cpu(each, "VirtualMachine")

    @property
    def module(self) -> Module:
        """The machine as a module of functions: `module["invoke"]("main")`, …"""
        return Module(
            {
                "invoke": lambda name: self.invoke(name),
                "invoke_stateful": lambda name: self.invoke_stateful(name),
                "invoke_return_to_device": lambda name, *device: self.invoke(name),
                "get_output": lambda index: self.get_outputs()[index],
                "get_num_outputs": lambda: len(self.get_outputs()),
                "get_input_index": lambda name, function="main": self.get_input_index(name, function),
                "init": lambda *devices: None,
                "set_input": lambda name, *args: self.set_input(name, *args),
                "set_one_input": lambda name, tag, value: self.set_one_input(name, tag, value),
                "set_outputs": lambda name, *outputs: self._set_outputs(name, outputs),
                "load_late_bound_consts": self._exec.load_late_bound_consts,
            },
            "VirtualMachine",
        )

    mod = module  # as it was called before 0.8

    # ---- inputs ----

    def _signature(self, name: str) -> tuple[Sequence[str], Sequence[Type | None]]:
        known = self._signatures.get(name)
        if known is None:
            known = self._signatures[name] = self._exec.signature(name)
        return known

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Arguments for the calls that follow, by place or name. Raises ArgumentError."""
        self._inputs[func_name] = converted(func_name, *self._signature(func_name), args, kwargs)

    def _function(self, name: str) -> Callable[..., Any]:
        """A function of the program, which converts what the machine does not take as it is."""
        convert = functools.partial(converted, name, *self._signature(name))
        if hasattr(self._machine, "converting"):
            found: Callable[..., Any] = self._machine.converting(name, convert)
        else:
            call = self._machine[name]
            found = lambda *args: call(*convert(args))  # noqa: E731 (one of two)
        self._functions[name] = found
        return found

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """One argument, by place, by name, or by keyword. Raises ArgumentError."""
        if kwargs and not args and len(kwargs) == 1:
            ((tag, value),) = kwargs.items()
        elif len(args) == 2 and not kwargs:
            tag, value = args
        else:
            raise ArgumentError(f"set_one_input({func_name!r}, …): expected a place or name, and a value")
        names, types = self._signature(func_name)
        place = names.index(tag) if tag in names else tag
        if not isinstance(place, int) or not 0 <= place < len(names):
            raise ArgumentError(f"{func_name} has no parameter {tag!r}; it has {', '.join(names) or 'none'}")
        inputs = self._inputs[func_name] = list(self._inputs.get(func_name, [_UNSET] * len(names)))
        inputs[place] = argument(value, types[place])

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """The place of a parameter, -1 for a name that is none."""
        names, _ = self._signature(func_name)
        return names.index(input_name) if input_name in names else -1

    # ---- calls ----

    def _values(self, func_name: str) -> tuple[Any, ...]:
        """The inputs that are set. Raises ArgumentError where one is missing."""
        names, _ = self._signature(func_name)
        inputs = self._inputs.get(func_name, [_UNSET] * len(names))
        missing = [name for name, value in zip(names, inputs, strict=True) if value is _UNSET]
        if missing:
            raise ArgumentError(f"Input has not been set for function {func_name}: {', '.join(missing)}")
        values = self._inputs[func_name] = tuple(inputs)
        return values

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a function: with these arguments, which stay set, or with those that are. What a call gives is its own: another
        thread's may change what the machine keeps meanwhile."""
        if kwargs:
            args = converted(func_name, *self._signature(func_name), args, kwargs)
        values = args or self._inputs.get(func_name)
        if type(values) is not tuple:
            values = self._values(func_name)
        function = self._functions.get(func_name) or self._function(func_name)
        self._result = _UNSET
        result = self._result = wrapped(function(*values))
        self._inputs[func_name] = values
        return result

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Calls "main"."""
        return self.invoke("main", *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """As invoke; the result is for `get_outputs`."""
        self.invoke(func_name, *args, **kwargs)

    def get_outputs(self) -> list[Any]:
        """The fields of the last result, or the one. Raises ArgumentError before a call has succeeded."""
        if self._result is _UNSET:
            raise ArgumentError("get_outputs: there is no result; call invoke_stateful first")
        return list(self._result.fields) if isinstance(self._result, ADT) else [self._result]

    def invoke_with_outputs(
        self, func_name: str, input_args: Mapping[str, Any] | None = None, output_args: Sequence[Any] = ()
    ) -> None:
        """Calls a function; its results are put into these tensors. Raises ArgumentError for those that do not fit."""
        if input_args:
            self.set_input(func_name, **input_args)
        self.invoke(func_name)
        self._set_outputs(func_name, output_args)

    def _set_outputs(self, func_name: str, outputs: Sequence[Any]) -> None:
        results = self.get_outputs()
        if len(results) != len(outputs):
            raise ArgumentError(
                f"{func_name}: Number of outside output tensors should be equal to model outputs number: "
                f"{len(results)}, got {len(outputs)}"
            )
        for number, (result, output) in enumerate(zip(results, outputs, strict=True)):
            if result.dtype != output.dtype or tuple(result.shape) != tuple(output.shape):
                raise ArgumentError(
                    f"{func_name}: output {number} is {result.dtype}{list(result.shape)}, "
                    f"but the tensor for it is {output.dtype}{list(output.shape)}"
                )
        for result, output in zip(results, outputs, strict=True):
            result.copyto(output)

    def benchmark(
        self,
        device: Device,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> Any:
        """How long a call takes, in seconds: a BenchmarkResult. `end_to_end` converts the arguments in each call."""
        repeats = Repeats(
            number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown
        )
        names, _ = self._signature(func_name)
        if unknown := [name for name in kwargs if name not in names]:
            raise ArgumentError(f"{func_name}() got an unexpected keyword argument '{unknown[0]}'")
        self.set_input(func_name, *args, **kwargs)
        if self._remote is not None and not end_to_end:  # measured where it runs
            times = number, repeat, min_repeat_ms or 0, cooldown_interval_ms
            return self._machine.time_evaluator(func_name, device, *times)(*self._values(func_name))
        if end_to_end:
            device = cpu() if self._remote is not None else device
            whole = Module({"end_to_end": lambda: self.invoke(func_name, *args, **kwargs)}, "VirtualMachine")
            return whole.time_evaluator("end_to_end", device, **vars(repeats))()
        return self.module.time_evaluator("invoke", device, **vars(repeats))(func_name)


def converted(
    function: str,
    names: Sequence[str],
    types: Sequence[Type | None],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Any, ...]:
    """One value for each parameter, as the machine takes it. Raises ArgumentError."""
    return tuple(map(argument, in_order(function, names, args, kwargs), types))


def convert(args: Any) -> list[Any]:
    """Arguments as a machine takes them: NDArrays, and of nested lists ADTs. Raises ArgumentError."""
    return [argument(each, None) for each in (args if isinstance(args, (list, tuple)) else [args])]


_UNSET = object()


def _memory(memory_cfg: Any) -> Any:
    """TVM's ways to say which allocator, as Treadle's one."""
    numbers = {VirtualMachine.NAIVE_ALLOCATOR: "naive", VirtualMachine.POOLED_ALLOCATOR: "pooled"}
    if memory_cfg is None or isinstance(memory_cfg, str):
        return memory_cfg
    if not isinstance(memory_cfg, Mapping):
        raise ArgumentError(f"memory_cfg is expected be string or dictionary, but received {type(memory_cfg)}")
    named = {device: numbers.get(each, each) for device, each in memory_cfg.items()}
    return named.get(cpu(), next(iter(named.values()), None))
