"""`tvm.runtime.profiling`: reports, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...vm.device import Device
from ...vm.observe.profile import MetricCollector
from ...vm.observe.report import Count, Duration, Metric, Percent, Ratio, Report

__all__ = [
    "Count",
    "Device",
    "DeviceWrapper",
    "Duration",
    "MetricCollector",
    "Percent",
    "Ratio",
    "Report",
    "profile_function",
]


def DeviceWrapper(dev: Device) -> Device:
    """The device itself."""
    return dev


def profile_function(
    mod: Any, dev: Device, collectors: Sequence[MetricCollector], func_name: str | None = None, warmup_iters: int = 10
) -> Callable[..., dict[str, Metric]]:
    """A function that calls a module's function (its entry, by default) some times to warm up, and once while collectors measure:
    the metrics of that call."""
    function = mod.entry_func if func_name is None else mod[func_name]

    def profiled(*args: Any) -> dict[str, Metric]:
        for collector in collectors:
            collector.init([dev])
        for _ in range(warmup_iters):
            function(*args)
        started = [collector.start(dev) for collector in collectors]
        function(*args)
        found: dict[str, Metric] = {}
        for collector, token in zip(collectors, started, strict=True):
            found |= collector.stop(token)
        return found

    return profiled
