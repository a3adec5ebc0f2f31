"""Treadle: a compiler and a virtual machine for tensor programs.

    executable = treadle.compile("model.onnx")          # or a module built with treadle.var, treadle.function, …
    executable.export_library("model.trdl")
    machine = treadle.VirtualMachine(treadle.load("model.trdl"))
    result = machine["main"](x).numpy()

Names are imported when they are first used: `import treadle` costs next to nothing, and a program that only looks
into a file never imports the compiler.
"""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

from . import formats, vm

if TYPE_CHECKING:
    from . import debug, text
    from .cluster.batches import map_batches
    from .compiler.batch import Batch
    from .compiler.builder.extension import onnx_operator, operator
    from .compiler.builder.programs import (
        Module,
        constant,
        data_type,
        for_loop,
        function,
        global_function,
        if_,
        import_,
        match_,
        match_shape,
        named,
        op,
        tuple_,
        var,
        while_loop,
    )
    from .compiler.driver import compile
    from .compiler.onnx.export.module import to_onnx
    from .compiler.passes.placed import after, before
    from .compiler.targets.emulated.backend import emulated
    from .decode.adapters import Adapter
    from .decode.engine import Engine
    from .decode.generation import generate
    from .decode.sampling import Sampler
    from .formats.dtypes import DType
    from .formats.executable import Executable, load
    from .formats.messages import errors
    from .formats.messages.errors import TreadleError
    from .formats.parameter_files import load_params, save_params
    from .formats.text.dis import dis
    from .formats.types import TensorType
    from .rpc.device import remote
    from .vm.device import Device, cpu
    from .vm.machine import CancelToken, VirtualMachine
    from .vm.observe.hooks import Event, InstrumentAction, Listener
    from .vm.tensor import Tensor
    from .vm.threads import get_num_threads, set_num_threads

vm.compiler_name = f"{__name__}.compiler.targets.cpu.toolchain.kernels"
vm.debugger_name = f"{__name__}.debug.recorder"
vm.targets = {"emulated": f"{__name__}.compiler.targets.emulated.backend"}
formats.library_writer = f"{__name__}.tvm.modules.kinds"
formats.precision_search = f"{__name__}.debug.precision"
formats.kernel_sources = f"{__name__}.compiler.targets.cpu.kernels.source"
formats.text_folders = f"{__name__}.text.folder"
formats.data_types = f"{__name__}.vm.data_types"

__version__ = "0.1.0"
formats.producer = f"treadle {__version__}"

_HOMES = {
    "Module": ".compiler.builder.programs",
    "constant": ".compiler.builder.programs",
    "data_type": ".compiler.builder.programs",
    "for_loop": ".compiler.builder.programs",
    "function": ".compiler.builder.programs",
    "global_function": ".compiler.builder.programs",
    "if_": ".compiler.builder.programs",
    "import_": ".compiler.builder.programs",
    "match_": ".compiler.builder.programs",
    "match_shape": ".compiler.builder.programs",
    "named": ".compiler.builder.programs",
    "op": ".compiler.builder.programs",
    "tuple_": ".compiler.builder.programs",
    "var": ".compiler.builder.programs",
    "while_loop": ".compiler.builder.programs",
    "Batch": ".compiler.batch",
    "compile": ".compiler.driver",
    "onnx_operator": ".compiler.builder.extension",
    "to_onnx": ".compiler.onnx.export.module",
    "operator": ".compiler.builder.extension",
    "after": ".compiler.passes.placed",
    "before": ".compiler.passes.placed",
    "debug": ".debug",
    "text": ".text",
    "emulated": ".compiler.targets.emulated.backend",
    "errors": ".errors",
    "dis": ".formats.text.dis",
    "DType": ".formats.dtypes",
    "TensorType": ".formats.types",
    "TreadleError": ".formats.messages.errors",
    "Executable": ".formats.executable",
    "load": ".formats.executable",
    "load_params": ".formats.parameter_files",
    "save_params": ".formats.parameter_files",
    "Device": ".vm.device",
    "cpu": ".vm.device",
    "Engine": ".decode.engine",
    "Adapter": ".decode.adapters",
    "Sampler": ".decode.sampling",
    "generate": ".decode.generation",
    "Event": ".vm.observe.hooks",
    "InstrumentAction": ".vm.observe.hooks",
    "Listener": ".vm.observe.hooks",
    "CancelToken": ".vm.machine",
    "VirtualMachine": ".vm.machine",
    "remote": ".rpc.device",
    "map_batches": ".cluster.batches",
    "Tensor": ".vm.tensor",
    "get_num_threads": ".vm.threads",
    "set_num_threads": ".vm.threads",
}

__all__ = [
    "Adapter",
    "Batch",
    "CancelToken",
    "DType",
    "Device",
    "Engine",
    "Event",
    "Executable",
    "InstrumentAction",
    "Listener",
    "Module",
    "Sampler",
    "Tensor",
    "TensorType",
    "TreadleError",
    "VirtualMachine",
    "__version__",
    "after",
    "before",
    "compile",
    "constant",
    "cpu",
    "data_type",
    "debug",
    "dis",
    "emulated",
    "errors",
    "for_loop",
    "function",
    "generate",
    "get_num_threads",
    "global_function",
    "if_",
    "import_",
    "load",
    "load_params",
    "map_batches",
    "match_",
    "match_shape",
    "named",
    "onnx_operator",
    "op",
    "operator",
    "remote",
    "save_params",
    "set_num_threads",
    "text",
    "to_onnx",
    "tuple_",
    "var",
    "while_loop",
]


if not TYPE_CHECKING:  # type checkers must refuse unknown names

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            from .formats.messages.errors import UnknownAttributeError

            raise UnknownAttributeError(f"module {__name__!r} has no attribute {name!r}", lambda: _instead_of(name))
        from .formats.messages.errors import naming

        with naming(f"the modules of {__name__}.{name}"):
            module = importlib.import_module(home, __name__)
        value = module if home == f".{name}" else getattr(module, name)
        globals()[name] = value
        return value


def _instead_of(name: str) -> str:
    """The end of a message about an unknown name here: where it is, or which is like it. Submodules are asked for here
    before they are imported."""
    from .formats.dtypes import DType
    from .formats.messages.elsewhere import elsewhere
    from .formats.messages.names import near

    if name in DType.__members__:
        return f"; element types are named as NumPy's are: {name!r}, or treadle.DType.{name}"
    if meant := elsewhere("treadle", name):
        return meant
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is None:
        for place in ("errors", "InstrumentAction", "debug", "op"):
            if name in dir(getattr(sys.modules[__name__], place)):
                return f"; there is {__name__}.{place}.{name}"
    return near(name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
