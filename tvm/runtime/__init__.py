"""`tvm.runtime`: objects, devices, tensors, functions, modules, parameter files and reports."""

from typing import Any

from .._lazy import lazy
from ..modules import registry

_OWN = "container executor module ndarray object_generic object_path params profiler_vm profiling vm"

_OTHERS = {
    "data_type": "...formats.data_type",
    "object": "..modules.containers",
    "packed_func": "..modules.registry",
    "relax_vm": "..relax.vm",
}

_NAMES = {
    ".container": "ShapeTuple String",
    "...formats.data_type": "DataType DataTypeCode",
    ".module": "Module enabled load_module load_static_library num_threads system_lib",
    ".ndarray": """
        Device NDArray TVMContext cl context cpu cuda device ext_dev gpu metal mtl opencl rocm vpi vulkan
    """,
    "..modules.containers": "Object",
    ".object_generic": "ObjectGeneric ObjectTypes const convert convert_to_object",
    ".object_path": "ObjectPath ObjectPathPair",
    "..modules.registry": "PackedFunc",
    ".params": "load_param_dict load_param_dict_from_file save_param_dict save_param_dict_to_file",
    ".profiling": "Report",
    ".registry": "get_global_func list_global_func_names register_func remove_global_func",
}

__getattr__, __dir__ = lazy(__name__, _OWN, others=_OTHERS, names=_NAMES)


def _global_functions() -> None:
    from . import global_functions  # noqa: F401


def _testing_functions() -> None:
    from ..testing import functions  # noqa: F401


def _load_executable(data: memoryview, trust_native: bool) -> Any:
    from .executable import load_executable

    return load_executable(data, trust_native)


for _prefix in ("runtime.", "tvm.graph_", "tvm.relay._"):
    registry.provide(_prefix, _global_functions)
registry.provide("testing.", _testing_functions)
registry.register_loader("VMExecutable", _load_executable)
