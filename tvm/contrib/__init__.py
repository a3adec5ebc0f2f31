"""`tvm.contrib`: the graph executor, its debugger, and utilities."""

from .._lazy import lazy

_MODULES = {
    "cc": ".cc",
    "cuda_graph": ".cuda_graph",
    "dlpack": ".dlpack",
    "download": ".download",
    "debugger": ".debugger",
    "graph_executor": ".graph_executor",
    "graph_runtime": ".graph_runtime",
    "tar": ".tar",
    "tvmjs": ".tvmjs",
    "util": ".utils",
    "utils": ".utils",
}

_ABSENT = {
    **dict.fromkeys(("clang", "cublas", "cudnn", "hexagon", "nvcc", "rocm", "xcode"), "everything runs on the CPU"),
    "ndk": "executables run where Python and the package are",
    "pipeline_executor": "machines share kernels and threads; several calls may run at once",
    "relay_viz": "treadle dis and treadle info show programs",
}

__getattr__, __dir__ = lazy(__name__, _MODULES, {}, _ABSENT)
