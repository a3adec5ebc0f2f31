"""What a compiled model is for the graph executor: its graph, its weights p0, p1, …, and executors of both.

factory = GraphFactory(executable)
executor = factory["default"](cpu())
graph_json, library, params = factory
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..formats.errors import ArgumentError, UnknownFunctionError
from ..formats.executable import Executable
from .device import Device, cpu
from .graph_debugger import DebugExecutor
from .graph_executor import Find, GraphExecutor
from .graph_of_program import graph_of
from .registry import get_global_func
from .tensor import Tensor


class GraphFactory:
    """Makes executors of one function of an executable. Raises ArgumentError for one that is no graph (`graph_of`)."""

    type_key = "GraphExecutorFactory"

    def __init__(
        self,
        executable: Executable,
        name: str = "default",
        *,
        tensor: Callable[[np.ndarray], Tensor] = Tensor,
        params: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """`name` is what `factory[name]` makes an executor by. `params` takes the place of the executable's weights."""
        self.executable, self.libmod_name, self._tensor = executable, name, tensor
        self.graph, own = graph_of(executable)
        self.params = dict(own if params is None else params)
        self._text = ""

    # ---- its parts ----

    @property
    def graph_json_str(self) -> str:
        """The graph as JSON."""
        self._text = self._text or self.graph.as_text()
        return self._text

    def get_graph_json(self) -> str:
        return self.graph_json_str

    get_executor_config = get_graph_json

    def get_graph_params(self) -> dict[str, Tensor]:
        """The weights, copied, by their names in the graph."""
        return {name: self._tensor(array.copy()) for name, array in self.params.items()}

    get_params = get_graph_params

    def get_lib(self) -> Any:
        """What has the graph's functions."""
        return self

    def remove_params(self) -> GraphFactory:
        """The same without weights: who uses it loads them."""
        return GraphFactory(self.executable, self.libmod_name, tensor=self._tensor, params={})

    def __iter__(self) -> Iterator[Any]:
        """For `graph, lib, params = factory`."""
        return iter((self.get_graph_json(), self.get_lib(), self.get_params()))

    # ---- executors ----

    def create(self, *devices: Device) -> GraphExecutor:
        """An executor, with the weights set. Raises what GraphExecutor raises."""
        return GraphExecutor(self.graph, self.executable, _one(devices), **self._options())

    def debug_create(self, name: str, *devices: Device) -> DebugExecutor:
        """One that runs node by node."""
        if name != self.libmod_name:
            raise UnknownFunctionError(f"debug_create: there is no {name!r}, but {self.libmod_name!r}")
        return DebugExecutor(self.graph, self.executable, _one(devices), **self._options())

    def cuda_graph_create(self, *devices: Device) -> Any:
        raise ArgumentError(
            "cuda_graph_create: there is no CUDA device here; the executor of the CPU has nothing to capture"
        )

    def _options(self) -> dict[str, Any]:
        return {"find": find_function(None), "params": self.params, "tensor": self._tensor}

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """`factory["default"](cpu())`, and its methods by TVM's names. Raises UnknownFunctionError."""
        return self.get_function(name)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        if name == self.libmod_name:
            return self.create
        if name in _FUNCTIONS:
            return getattr(self, name)
        known = ", ".join((self.libmod_name, *_FUNCTIONS))
        raise UnknownFunctionError(f"Module has no function {name!r}; it has {known}")


_FUNCTIONS = ("debug_create", "cuda_graph_create", "get_graph_json", "get_graph_params", "remove_params")


def _one(devices: Sequence[Device]) -> Device:
    return devices[0] if devices else cpu()


def executable_of(module: Any) -> Executable | None:
    """The executable that a module has, or is."""
    if isinstance(module, Executable):
        return module
    found = getattr(module, "executable", None)
    return found if isinstance(found, Executable) else None


def find_function(module: Any) -> Find:
    """Finds functions by name: those of a module, or whatever has functions by name, then those that are registered."""

    def find(name: str) -> Callable[..., Any] | None:
        for get in (getattr(module, "get_function", None), getattr(module, "__getitem__", None)):
            if get is None or isinstance(module, Executable):
                continue
            try:
                return get(name)
            except (AttributeError, KeyError, ValueError):  # it has no such function
                continue
        registered = get_global_func(name, allow_missing=True)
        return None if registered is None else registered

    return find
