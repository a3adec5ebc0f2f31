"""`VirtualMachineProfiler`: the Relay VM's machine, whose calls can be measured."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ...formats.bytecode import function_words, scan
from ...formats.program import Program
from ...vm.observe.report import COUNT, DURATION, NAME, PERCENT, SHAPES, Count, Duration, Metric, Percent
from ..graphs.names import VM_PREFIX
from .profiling import MetricCollector, Report
from .vm import VirtualMachine, converted

# Treadle's instructions → the Relay VM's. One that makes a tensor and its memory stands for two; the second takes no time.
_INSTRUCTIONS = {
    "alloc_tensor": ("VM::AllocStorage", "VM::AllocTensor"),
    "alloc_dynamic": ("VM::AllocStorage", "VM::AllocTensorReg"),
    "alloc_storage": ("VM::AllocStorage",),
    "storage_tensor": ("VM::AllocTensorReg",),
    "make_shape": ("VM::AllocTensorReg",),
    "reshape": ("VM::ReshapeTensor",),
    "device_copy": ("VM::DeviceCopy",),
    "alloc_data": ("VM::AllocADT",),
    "alloc_closure": ("VM::AllocClosure",),
}


def enabled() -> bool:
    """Whether programs can be profiled: always."""
    return True


class VirtualMachineProfiler(VirtualMachine):
    """A machine that also says what a call's time went to. Any machine could: the name is TVM's."""

    def profile(
        self, *args: Any, func_name: str = "main", collectors: Sequence[MetricCollector] | None = None, **kwargs: Any
    ) -> Report:
        """Calls a function to warm up, then once to measure it: with these arguments, or those that are set."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        inputs = converted(func_name, *self._signature(func_name), self._values(func_name))
        found = self._machine.profile_with(tuple(collectors or ()), func_name, *inputs)
        program = self._exec.program.program
        allocating = _allocating(program)
        names = {primitive.name for primitive in program.primitives}
        calls = [row for call in found.calls for row in _relay_rows(call, names, allocating)]
        return Report(calls, found.device_metrics, found.configuration)

    def get_stat(self, sort_by_time: bool = True) -> str:
        """Nothing any more. Use `profile`."""
        warnings.warn("get_stat has been removed, use profile instead", DeprecationWarning, stacklevel=2)
        return ""


def _allocating(program: Program) -> set[str]:
    """The primitives that allocate their results themselves: the host's."""
    calls = [each for function in program.functions for each in scan(function_words(program, function))]
    return {program.primitives[each.word("prim")].name for each in calls if each.operation.name == "call_host"}


def _relay_rows(call: dict[str, Metric], primitives: set[str], allocating: set[str]) -> list[dict[str, Metric]]:
    """A row of ours as the Relay VM would have it."""
    name = str(call[NAME])
    if name in primitives:
        row: dict[str, Metric] = {**call, NAME: VM_PREFIX + name}
        own = ("VM::AllocStorage", "VM::AllocTensorReg") if name in allocating else ()
        return [*(_without_time(call, each) for each in own), row]
    first, *rest = _INSTRUCTIONS.get(name, (name,))
    return [{**call, NAME: first}, *(_without_time(call, each) for each in rest)]


def _without_time(call: dict[str, Metric], name: str) -> dict[str, Metric]:
    kept = {key: value for key, value in call.items() if key not in (SHAPES, "Hash")}
    return {
        **kept,
        NAME: name,
        DURATION: Duration(0.0),
        PERCENT: Percent(0.0),
        COUNT: call.get(COUNT, Count(1)),
        SHAPES: "",
    }
