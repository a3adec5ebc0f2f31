"""`tvm.contrib`: the graph executor, its debugger, and utilities."""

from .._lazy import lazy

_MODULES = {
    "cc": ".cc",
    "cuda_graph": ".cuda_graph",
    "download": ".download",
    "debugger": ".debugger",
    "graph_executor": ".graph_executor",
    "graph_runtime": ".graph_runtime",
    "tar": ".tar",
    "tvmjs": ".tvmjs",
    "util": ".utils",
    "utils": ".utils",
}

__getattr__, __dir__ = lazy(__name__, _MODULES, {})
