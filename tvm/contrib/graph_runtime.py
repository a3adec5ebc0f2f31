"""`tvm.contrib.graph_runtime`: the graph executor, as it was called before 0.8, when devices were contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...vm.device import Device
from . import graph_executor
from .graph_executor import GraphModule, get_device

__all__ = ["GraphModule", "create", "get_device", "get_device_ctx"]

get_device_ctx = get_device


def create(graph_json_str: str, libmod: Any, ctx: Device | Sequence[Device]) -> GraphModule:
    """`graph_executor.create`."""
    return graph_executor.create(graph_json_str, libmod, ctx)
