"""`tvm.runtime.executor`: what TVM runs programs with that were compiled ahead of time. Here that is the graph executor."""

from __future__ import annotations

from ..contrib.graph_executor import GraphModule

__all__ = ["AotModule"]


class AotModule(GraphModule):
    """`AotModule(lib["default"](device))`: all programs are compiled ahead of time."""
