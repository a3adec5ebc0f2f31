"""`tvm.contrib.graph_runtime`: the graph executor, as it was called before 0.8."""

from .graph_executor import GraphModule, create, get_device

__all__ = ["GraphModule", "create", "get_device", "get_device_ctx"]

get_device_ctx = get_device
