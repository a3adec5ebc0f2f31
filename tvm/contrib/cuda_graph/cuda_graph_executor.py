"""`tvm.contrib.cuda_graph.cuda_graph_executor`: there is no CUDA device here, and both names say so."""

from __future__ import annotations

from typing import Any, NoReturn

from ....formats.messages.errors import ArgumentError

_REASON = "there is no CUDA device here; use tvm.contrib.graph_executor, which allocates nothing in a run either"


def create(graph_json_str: str, libmod: Any, device: Any) -> NoReturn:
    """Raises ArgumentError."""
    raise ArgumentError(f"cuda_graph_executor.create: {_REASON}")


class GraphModuleCudaGraph:
    """Raises ArgumentError."""

    def __init__(self, module: Any) -> None:
        raise ArgumentError(f"GraphModuleCudaGraph: {_REASON}")
