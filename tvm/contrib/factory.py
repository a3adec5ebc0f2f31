"""What `relay.build` gives: executors by name, and its three parts, by TVM's names."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from ..graphs.factory import GraphFactory
from ..runtime.ndarray import NDArray


class GraphExecutorFactoryModule(GraphFactory):
    """A compiled model for the graph executor."""

    tensor = NDArray

    @property
    def module(self) -> GraphExecutorFactoryModule:
        """What executors are made by."""
        return self

    @property
    def graph_json(self) -> str:
        """The graph as JSON."""
        return self.get_graph_json()

    @property
    def params(self) -> dict[str, NDArray]:
        """The weights, where they lie; none that are linked into the library."""
        return {} if self._is_linked else {name: NDArray(array) for name, array in self.arrays.items()}

    def __iter__(self) -> Iterator[Any]:
        """For `graph, lib, params = relay.build(…)`."""
        warnings.warn(
            "legacy graph executor behavior of producing json / lib / params will be removed in the next release. "
            "Please see documents of tvm.contrib.graph_executor.GraphModule for the new recommended usage.",
            DeprecationWarning,
            stacklevel=2,
        )
        return super().__iter__()
