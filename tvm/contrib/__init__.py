"""`tvm.contrib`: the graph executor, its debugger, and utilities."""

from .._lazy import lazy

_OWN = "cc cuda_graph dlpack download debugger graph_executor tar target tvmjs utils"

_OTHERS = {"factory": "..graphs.factory", "graph_runtime": ".graph_executor", "util": ".utils"}

_ABSENT = {
    **dict.fromkeys(("clang", "cublas", "cudnn", "hexagon", "nvcc", "rocm", "xcode"), "everything runs on the CPU"),
    "ndk": "executables run where Python and the package are",
    "pipeline_executor": "machines share kernels and threads; several calls may run at once",
    "relay_viz": "treadle dis and treadle info show programs",
}

__getattr__, __dir__ = lazy(__name__, _OWN, others=_OTHERS, absent=_ABSENT)
