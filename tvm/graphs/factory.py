"""What a compiled model is for the graph executor: its graph, its weights p0, p1, …, and executors of both.

factory = GraphFactory(executable)
executor = factory["default"](cpu())
graph_json, library, params = factory
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ...formats.codec import Buffer
from ...formats.container import named
from ...formats.executable import Executable
from ...formats.messages.errors import ArgumentError, FormatError, UnknownFunctionError
from ...vm.device import Device, cpu
from ..files.graph_json import Graph, parse_graph
from ..modules.kinds import ExecutableModule, KernelModule
from ..modules.module import EXECUTABLE, Module
from ..modules.registry import PackedFunc
from ..runtime.ndarray import NDArray
from .debugger import DebugExecutor
from .executor import Find, GraphExecutor
from .graph_weights import GraphWeights
from .names import graph_names
from .of_program import graph_of

_Executor = TypeVar("_Executor", bound=GraphExecutor)


class GraphFactory(Module):
    """Makes executors of one function of an executable.

    Saved, it is the executable, and without weights the graph and the executable's primitives.
    """

    type_key = "GraphExecutorFactory"

    def __init__(
        self,
        executable: Executable,
        name: str = "default",
        *,
        graph: Graph | None = None,
        params: Mapping[str, np.ndarray] | None = None,
        is_linked: bool = False,
    ) -> None:
        """`name` is what `factory[name]` makes an executor by. A `graph` of the executable's primitives is taken in place of
        that of its main, with these weights. Where `is_linked`, the weights are the library's, and none are handed out. Raises
        ArgumentError for an executable whose main is not a graph (`graph_of`)."""
        super().__init__()
        self.libmod_name, self._is_linked = name, is_linked
        self._is_given = graph is not None
        self._graph = graph
        self._params = dict(params or {})
        self._weights: GraphWeights | None = None
        self._text = ""
        self.import_module(KernelModule(executable) if self._is_given else ExecutableModule(executable))
        _ = self.graph  # what is not a graph is refused now

    @property
    def executable(self) -> Executable:
        """What has the primitives."""
        return self.imported_modules[0].executable  # type: ignore[attr-defined]

    # ---- its parts ----

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            self._graph, self._params, places = graph_of(self.executable)
            self._weights = GraphWeights(self.executable.weights, places)
        return self._graph

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The weights, by their names in the graph. Raises ChecksumError where their file is damaged."""
        _ = self.graph
        self.executable.check_constants()
        return self._params

    @property
    def graph_json_str(self) -> str:
        """The graph as JSON."""
        if not self._text:
            primitives = self.executable.program.primitives
            names = dict(zip((each.name for each in primitives), graph_names(primitives), strict=True))
            nodes = tuple(
                replace(node, function=names.get(node.function or "", node.function)) for node in self.graph.nodes
            )
            self._text = replace(self.graph, nodes=nodes).as_text()
        return self._text

    graph_json = graph_json_str

    def get_graph_json(self) -> str:
        return self.graph_json_str

    get_executor_config = get_graph_json

    @property
    def params(self) -> dict[str, NDArray]:
        """The weights, where they lie; none that are linked into the library."""
        return {} if self._is_linked else {name: NDArray(array) for name, array in self.arrays.items()}

    def get_graph_params(self) -> dict[str, NDArray]:
        """The weights, copied; none that are linked into the library."""
        return {name: NDArray(tensor.numpy()) for name, tensor in self.params.items()}

    get_params = get_graph_params

    @property
    def module(self) -> GraphFactory:
        """What executors are made by."""
        return self

    def get_lib(self) -> Module:
        """What has the graph's functions."""
        linked = [self.arrays[f"p{number}"] for number in range(len(self.arrays))] if self._is_linked else []
        library = KernelModule(self.executable, linked)
        library.graph_weights = self._weights
        return library

    @property
    def lib(self) -> Module:
        """What has the graph's functions."""
        return self.get_lib()

    def remove_params(self) -> GraphFactory:
        """The same without weights: who uses it loads them. Itself where they are linked in."""
        if self._is_linked:
            return self
        return type(self)(self.executable, self.libmod_name, graph=self.graph)

    def __iter__(self) -> Iterator[Any]:
        """For `graph, lib, params = factory`."""
        warnings.warn(
            "legacy graph executor behavior of producing json / lib / params will be removed in the next release. "
            "Please see documents of tvm.contrib.graph_executor.GraphModule for the new recommended usage.",
            DeprecationWarning,
            stacklevel=2,
        )
        return iter((self.get_graph_json(), self.get_lib(), self.get_params()))

    def export_library(self, file_name: str | os.PathLike, *args: Any, **kwargs: Any) -> Any:
        """As other modules; with the suffix .trdl the executable alone, which knows its graph and weights."""
        is_alone = named(file_name, "export_library: file_name").endswith(EXECUTABLE) and not self._is_given
        exported = self.imported_modules[0].export_library if is_alone else super().export_library
        return exported(file_name, *args, **kwargs)

    def pieces(self) -> list[Buffer] | None:
        header: dict[str, Any] = {"name": self.libmod_name, "graph": self.graph_json_str if self._is_given else None}
        header |= {"linked": True} if self._is_linked else {}
        return [json.dumps(header).encode()]

    @classmethod
    def load(cls, data: memoryview) -> GraphFactory:
        """The factory that `pieces` gave; what it imports comes after. Raises FormatError."""
        try:
            header = json.loads(bytes(data))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"a graph executor factory that cannot be read: {error}") from None
        name, text = (header.get("name"), header.get("graph")) if isinstance(header, dict) else (None, None)
        if not isinstance(name, str) or not (text is None or isinstance(text, str)):
            raise FormatError("a graph executor factory has a name and perhaps a graph; this has not")
        made = cls.__new__(cls)
        Module.__init__(made)
        made.libmod_name, made._text, made._is_given = name, text or "", text is not None
        made._is_linked = header.get("linked") is True
        made._graph, made._params, made._weights = None if text is None else parse_graph(text), {}, None
        return made

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
        return {"find": self._find_function, "params": self.arrays, "tensor": NDArray, "weights": self._weights}

    def _find_function(self, name: str) -> Callable[..., Any] | None:
        return _uncrossed(self.imported_function(name))

    def function_names(self) -> list[str]:
        return [self.libmod_name, *_FUNCTIONS]

    def find(self, name: str) -> Callable[..., Any] | None:
        if name == self.libmod_name:
            return PackedFunc(self.create)
        return getattr(self, name) if name in _FUNCTIONS else super().find(name)


GraphExecutorFactoryModule = GraphFactory


_FUNCTIONS = ("debug_create", "cuda_graph_create", "get_graph_json", "get_graph_params", "remove_params")


def _one(devices: Sequence[Device]) -> Device:
    return devices[0] if devices else cpu()


def executor_of(kind: type[_Executor], graph: str, library: Any, device: Device) -> _Executor:
    """An executor of a graph whose functions are a library's: an executable, a module, or whatever has functions by name. Weights
    are set where it has them. Raises what GraphExecutor raises, and ChecksumError where a file's weights are damaged."""
    modules = library.with_imports() if isinstance(library, Module) else [library]
    executables = (each if isinstance(each, Executable) else getattr(each, "executable", None) for each in modules)
    executable = next((each for each in executables if isinstance(each, Executable)), None)
    kernels, find = next((each for each in modules if isinstance(each, KernelModule)), None), _find_in(library)
    params: Mapping[str, np.ndarray] = {}
    if kernels is not None:
        kernels.executable.check_constants()
        params = {f"p{number}": array for number, array in enumerate(kernels.executable.program.constants)}
    elif (given := find("get_graph_params")) is not None:
        params = {name: tensor.array for name, tensor in given().items()}
    weights = None if kernels is None else kernels.graph_weights
    return kind(graph, executable, device, find=find, params=params, weights=weights, tensor=NDArray)


def _find_in(module: Any) -> Find:
    """Finds the functions that a graph calls by name: those of a module or of those that it imports, or of whatever has functions
    by name. A graph may be a file's: nothing registered is looked at; `system_lib()` is a module of what is."""

    def look(name: str) -> Any:
        try:
            if isinstance(module, Module):
                return module.get_function(name, query_imports=True)
            if hasattr(module, "__getitem__") and not isinstance(module, Executable):
                return module[name]
        except (AttributeError, KeyError):  # it has no such function
            pass
        return None

    return lambda name: _uncrossed(look(name))


def _uncrossed(function: Any) -> Any:
    """A function whose tensors cross no border on the way."""
    return function.function if isinstance(function, PackedFunc) else function
