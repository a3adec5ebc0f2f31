"""`tvm.contrib.cuda_graph`: names that say that there is no CUDA here."""

from ..._lazy import lazy

__getattr__, __dir__ = lazy(__name__, "cuda_graph_executor")
