"""`tvm.contrib.graph_executor`: a graph JSON that runs. What it stands on: `graphs/executor.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...formats.messages.errors import FormatError
from ...vm.device import REMOTE, Device
from ...vm.observe.benchmark import BenchmarkResult
from ..graphs.executor import GraphExecutor
from ..graphs.factory import executable_of, find_function, weights_of
from ..runtime.container import Map, ShapeTuple, String
from ..runtime.ndarray import NDArray

__all__ = ["GraphModule", "create", "get_device"]


def create(graph_json_str: str, libmod: Any, device: Device | Sequence[Device]) -> GraphModule:
    """A module that runs a graph, whose functions are those of `libmod`. Raises FormatError for a text that is not a graph,
    UnknownFunctionError with all functions that are missing."""
    devices, _, _ = get_device(libmod, device)
    executor = GraphExecutor(
        graph_json_str,
        executable_of(libmod),
        devices[0],
        find=find_function(libmod),
        weights=weights_of(libmod),
        tensor=NDArray,
    )
    return GraphModule(executor)


def get_device(libmod: Any, device: Device | Sequence[Device]) -> tuple[list[Device], int, list[int]]:
    """The devices, how many are remote, and type and number of each. Raises FormatError, a ValueError."""
    devices = [device] if isinstance(device, Device) else device
    if not isinstance(devices, (list, tuple)) or not devices or not all(isinstance(each, Device) for each in devices):
        raise FormatError("dev has to be the type of Device or a list of Device")
    remote = sum(each.device_type >= REMOTE for each in devices)
    if 0 < remote < len(devices):
        raise FormatError("Either all or none of the devices should be rpc.")
    return list(devices), remote, [number for each in devices for number in (each.device_type % REMOTE, each.device_id)]


class GraphModule:
    """A graph executor by TVM's names. `module` is the executor; `self[name]` is one of its functions."""

    module: Any

    def __init__(self, module: Any) -> None:
        self.module = module
        self._run = module["run"]

    def set_input(self, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Copies values into inputs."""
        self.module["set_input"](key, value, **params)

    def set_input_zero_copy(self, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Has inputs lie where the values lie."""
        self.module["set_input_zero_copy"](key, value, **params)

    def set_output_zero_copy(self, key: int | str, value: Any) -> None:
        """Has an output be made where the value lies."""
        self.module["set_output_zero_copy"](key, value)

    def run(self, **input_dict: Any) -> None:
        """Computes the outputs."""
        self._run(**input_dict)

    def get_num_outputs(self) -> int:
        return self.module["get_num_outputs"]()

    def get_num_inputs(self) -> int:
        """How many inputs there are, weights included."""
        return self.module["get_num_inputs"]()

    def get_input(self, index: int | str, out: Any = None) -> Any:
        """An input as it lies there, or copied into `out`."""
        return self.module["get_input"](index, out)

    def get_input_index(self, name: str) -> int:
        """-1 for an unknown name."""
        return self.module["get_input_index"](name)

    def get_input_info(self) -> tuple[Map, Map]:
        """Shapes and element types of the inputs that are not weights, by their names."""
        shapes, dtypes = self.module["get_input_info"]()
        named = {String(name): ShapeTuple(shape) for name, shape in shapes.items()}
        return Map(named), Map({String(name): String(dtype) for name, dtype in dtypes.items()})

    def get_output(self, index: int | str, out: Any = None) -> Any:
        """An output as it lies there, or copied into `out`."""
        return self.module["get_output"](index, out)

    def debug_get_output(self, node: int | str, out: Any = None) -> Any:
        """What a node gave: of the debug executor alone."""
        return self.module["debug_get_output"](node, out)

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Copies the weights of a parameter file."""
        self.module["load_params"](params_bytes)

    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Has the weights that the file names lie where another module's lie."""
        self.module["share_params"](other.module, params_bytes)

    def __getitem__(self, key: str) -> Any:
        return self.module[key]

    def benchmark(
        self,
        device: Device,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: float | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """How long a run takes; `end_to_end`, with the inputs copied in and the outputs out each time."""
        times = limit_zero_time_iterations, end_to_end, cooldown_interval_ms, repeats_to_cooldown
        return self.module["benchmark"](device, func_name, repeat, number, min_repeat_ms, *times, **kwargs)
