"""The registered functions that TVM has by itself and scripts ask for: `tvm.get_global_func("tvm.graph_executor.create")`.

Imported when the first of them is asked for (`registry.provide`). What belongs to TVM's own compiler is not among them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...vm.device import device
from ...vm.threads import set_num_threads
from ..graphs.debugger import DebugExecutor
from ..graphs.executor import GraphExecutor
from ..graphs.factory import executor_of
from ..modules.registry import get_global_func, register_func
from . import module, params

# the codes of `runtime.GetDeviceAttr`
_ATTRIBUTES = {
    0: "exist",
    1: "max_threads_per_block",
    2: "warp_size",
    3: "max_shared_memory_per_block",
    4: "compute_version",
    5: "device_name",
    6: "max_clock_rate",
    7: "multi_processor_count",
    8: "max_thread_dimensions",
    11: "api_version",
    12: "driver_version",
    13: "l2_cache_size_bytes",
    14: "total_global_memory",
}


def _creating(kind: type[GraphExecutor]) -> Callable[..., GraphExecutor]:
    """What makes such an executor; devices are types and numbers in turn, of which the first one counts."""
    return lambda graph_json, library, *numbers: executor_of(kind, graph_json, library, device(*numbers[:2]))


def _device_attribute(kind: int, number: int, attribute: int) -> Any:
    """What a device says of itself; None for what it does not say."""
    found = getattr(device(kind, number), _ATTRIBUTES.get(attribute, ""), None)
    return int(found) if isinstance(found, bool) else found


def _save_pairs(*pairs: Any) -> bytearray:
    """The bytes of a parameter file of names and tensors in turn."""
    return params.save_param_dict(dict(zip(pairs[::2], pairs[1::2], strict=True)))


def _threads(affinity: int = 0, count: int = 0, *rest: Any) -> None:
    """How many threads kernels may use; where they run is the system's."""
    if count > 0:
        set_num_threads(count)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "runtime.GetDeviceAttr": _device_attribute,
    "runtime.LoadParams": params.load_param_dict,
    "runtime.ModuleLoadFromFile": module.load_module,
    "runtime.NumThreads": module.num_threads,
    "runtime.RuntimeEnabled": module.enabled,
    "runtime.SaveParams": params.save_param_dict,
    "runtime.SystemLib": module.system_lib,
    "runtime.config_threadpool": _threads,
    **dict.fromkeys(("tvm.graph_executor.create", "tvm.graph_runtime.create"), _creating(GraphExecutor)),
    **dict.fromkeys(("tvm.graph_executor_debug.create", "tvm.graph_runtime_debug.create"), _creating(DebugExecutor)),
    "tvm.relay._load_param_dict": params.load_param_dict,
    "tvm.relay._save_param_dict": _save_pairs,
}

for _name, _function in FUNCTIONS.items():
    if get_global_func(_name, allow_missing=True) is None:  # the user's own stay
        register_func(_name, _function)
