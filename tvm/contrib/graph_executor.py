"""`tvm.contrib.graph_executor`: a graph JSON that runs. What it stands on: `graphs/executor.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...formats.messages.errors import FormatError
from ...vm.device import REMOTE, Device
from ..graphs.executor import GraphExecutor
from ..graphs.factory import executor_of
from ..runtime.container import Map, ShapeTuple, String

__all__ = ["GraphModule", "create", "get_device", "get_device_ctx"]


def create(graph_json_str: str, libmod: Any, device: Any = None, *, ctx: Any = None) -> GraphModule:
    """A module that runs a graph, whose functions are those of `libmod`, on a device or several, which were called `ctx` before
    0.8. Raises FormatError for a text that is not a graph, UnknownFunctionError with all functions that are missing."""
    devices, _, _ = get_device(libmod, ctx if device is None else device)
    return GraphModule(executor_of(GraphExecutor, graph_json_str, libmod, devices[0]))


def get_device(libmod: Any, device: Device | Sequence[Device]) -> tuple[list[Device], int, list[int]]:
    """The devices, how many are remote, and type and number of each. Raises FormatError, a ValueError."""
    devices = [device] if isinstance(device, Device) else device
    if not isinstance(devices, (list, tuple)) or not devices or not all(isinstance(each, Device) for each in devices):
        raise FormatError("dev has to be the type of Device or a list of Device")
    remote = sum(each.device_type >= REMOTE for each in devices)
    if 0 < remote < len(devices):
        raise FormatError("Either all or none of the devices should be rpc.")
    return list(devices), remote, [number for each in devices for number in (each.device_type % REMOTE, each.device_id)]


get_device_ctx = get_device  # as it was called before 0.8


class _Forwarded:
    """A method that is a function of the object's `module`, which the object finds once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self._function
        found = vars(instance)[self._name] = instance.module[self._function.__name__]
        return found


def forwarding(kind: type, *names: str) -> Callable[[type], type]:
    """A decorator that gives a class those functions of its `module`, of which `kind` has the signatures and docstrings. A name
    may begin with an underscore that the function's has not."""

    def extended(cls: type) -> type:
        for name in names:
            method = _Forwarded(getattr(kind, name.removeprefix("_")))
            method.__set_name__(cls, name)
            setattr(cls, name, method)
        return cls

    return extended


@forwarding(
    GraphExecutor,
    *(
        "run",
        "set_input",
        "set_input_zero_copy",
        "set_output_zero_copy",
        "get_num_outputs",
        "get_num_inputs",
        "get_input",
    ),
    *("get_input_index", "get_output", "debug_get_output", "load_params", "benchmark"),
    *("_set_input", "_get_input", "_get_input_index", "_get_input_info", "_get_num_inputs", "_get_num_outputs"),
    *("_get_output", "_load_params", "_share_params"),
)
class GraphModule:
    """A graph executor by TVM's names. `module` is the executor; `self[name]` is one of its functions, which are methods too."""

    module: Any

    def __init__(self, module: Any) -> None:
        self.module = module

    def get_input_info(self) -> tuple[Map, Map]:
        """Shapes and element types of the inputs that are not weights, by their names."""
        shapes, dtypes = self.module["get_input_info"]()
        named = {String(name): ShapeTuple(shape) for name, shape in shapes.items()}
        return Map(named), Map({String(name): String(dtype) for name, dtype in dtypes.items()})

    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Has the weights that the file names lie where another module's lie."""
        self.module["share_params"](other.module, params_bytes)

    def __getitem__(self, key: str) -> Any:
        return self.module[key]
