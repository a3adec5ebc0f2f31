"""`tvm.runtime.module`: modules, and files that hold them."""

from ...vm.benchmark import BenchmarkResult
from ...vm.load_module import enabled, load_module, load_static_library, register_loader
from ...vm.module import Module, ModulePropertyMask
from ...vm.module_kinds import system_lib
from ...vm.threads import get_num_threads as num_threads

register_loader("VMExecutable", f"{__package__}.vm:load_executable")
register_loader("GraphExecutorFactory", f"{__package__.rpartition('.')[0]}.contrib.factory:load_factory")

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
