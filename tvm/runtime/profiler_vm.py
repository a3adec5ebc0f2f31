"""`VirtualMachineProfiler`: the Relay VM's machine, whose calls can be measured."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from .profiling import MetricCollector, Report
from .vm import VirtualMachine


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
        inputs = self._values(func_name)
        return self._machine.profile_with(tuple(collectors or ()), func_name, *inputs)

    def get_stat(self, sort_by_time: bool = True) -> str:
        """Nothing any more. Use `profile`."""
        warnings.warn("get_stat has been removed, use profile instead", DeprecationWarning, stacklevel=2)
        return ""
