"""`tvm.runtime.module`: modules, and files that hold them."""

from ...vm.observe.benchmark import BenchmarkResult
from ...vm.threads import get_num_threads as num_threads
from ..modules.kinds import system_lib
from ..modules.load import enabled, load_module, load_static_library
from ..modules.module import Module, ModulePropertyMask
from ..modules.registry import register_loader

load = load_module  # as it was called before 0.7

__all__ = [
    "BenchmarkResult",
    "Module",
    "ModulePropertyMask",
    "enabled",
    "load",
    "load_module",
    "load_static_library",
    "num_threads",
    "register_loader",
    "system_lib",
]
