"""TVM's names for what Treadle does: `import treadle.tvm as tvm`. A face: what it stands on lives in `vm`, `formats`, `compiler`.

docs/tvm.md says for each name what it is here, and where it differs. Nothing is imported before it is used; one row below is all
that a new name needs.
"""

from ._lazy import lazy

__version__ = "0.14.0"  # the release of TVM whose names these are

# attribute → the module that it is
_MODULES = {
    "_ffi": "._ffi",
    "container": ".runtime.container",
    "contrib": ".contrib",
    "error": ".error",
    "ir": ".ir",
    "nd": ".runtime.ndarray",
    "relax": ".relax",
    "relay": ".relay",
    "rpc": ".rpc",
    "runtime": ".runtime",
    "support": ".support",
    "target": ".target",
    "te": ".te",
    "testing": ".testing",
    "tir": ".tir",
    "transform": ".transform",
}

# module → what of it stands here too
_NAMES = {
    ".error": ("TVMError",),
    ".ir": ("IRModule",),
    ".relay.build_module": ("build",),
    ".runtime.container": (),
    ".runtime.ndarray": (
        "cl",
        "cpu",
        "cuda",
        "device",
        "ext_dev",
        "gpu",
        "hexagon",
        "metal",
        "mtl",
        "opencl",
        "rocm",
        "vpi",
        "vulkan",
        "webgpu",
    ),
    ".runtime.data_type": ("DataType", "DataTypeCode"),
    ".runtime.object": ("Object",),
    ".runtime.registry": ("get_global_func", "register_extension", "register_func", "register_object"),
}

__getattr__, __dir__ = lazy(__name__, _MODULES, _NAMES)
