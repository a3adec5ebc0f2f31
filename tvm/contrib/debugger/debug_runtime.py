"""`tvm.contrib.debugger.debug_runtime`: the debug executor, as it was called before 0.8, when devices were contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....vm.device import Device
from . import debug_executor
from .debug_executor import GraphModuleDebug

__all__ = ["GraphModuleDebug", "create"]


def create(
    graph_json_str: str, libmod: Any, ctx: Device | Sequence[Device], dump_root: str | None = None
) -> GraphModuleDebug:
    """`debug_executor.create`."""
    return debug_executor.create(graph_json_str, libmod, ctx, dump_root)
