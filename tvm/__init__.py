"""TVM's names for what Treadle does: `import treadle.tvm as tvm`. What they need is in `files`, `graphs`, `machines`, `modules`.

docs/tvm.md says for each name what it is here, and where it differs. Nothing is imported before it is used; one row below is all
that a new name needs. What TVM has and Treadle leaves out is named too, with what does its job.
"""

from ._lazy import lazy

__version__ = "0.14.0"  # the release of TVM whose names these are

# modules of its own
_OWN = "_ffi contrib error instrument ir relax relay rpc runtime script support target te testing tir transform"

# other attributes → the module that each is
_OTHERS = {
    "container": ".runtime.container",
    "expr": ".tir",
    "module": ".runtime.module",
    "ndarray": ".runtime.ndarray",
    "parser": ".relay.parser",
    "nd": ".runtime.ndarray",
}

# module → what of it stands here too
_NAMES = {
    ".error": "TVMError",
    ".ir": "IRModule",
    ".ir.json_text": "load_json save_json",
    ".relax.build_module": "compile",
    ".runtime.ndarray": """
        TVMContext cl context cpu cuda device ext_dev gpu hexagon metal mtl opencl rocm vpi vulkan webgpu
    """,
    "..formats.data_type": "DataType DataTypeCode",
    ".modules.containers": "Object",
    ".modules.registry": "Function",
    ".runtime.object_generic": "const convert",
    ".runtime.registry": "get_global_func register_extension register_func register_object",
    ".te": "size_var var",
}

_KERNELS = "Treadle's compiler makes the kernels itself, out of operators; a function of your own is handed over by register_func"
_TUNING = "kernels need no tuning, and no logs of it: their templates choose by a model of the CPU"
_ABSENT = {
    **dict.fromkeys(("arith", "generic", "lower", "schedule", "tag_scope", "topi"), _KERNELS),
    **dict.fromkeys(("compute", "create_schedule", "extern", "placeholder", "reduce_axis", "thread_axis"), _KERNELS),
    **dict.fromkeys(("auto_scheduler", "autotvm", "meta_schedule"), _TUNING),
    "build": "TE schedules and TIR are not read; relay.build and relax.build, or treadle.compile, take whole programs",
    "dlight": _KERNELS,
    "driver": "the command treadle does what tvmc does: `treadle compile`, `run`, `profile`; `treadle --help` lists all",
    "micro": "there are no microcontrollers; executables run where Python and the package are",
}

__getattr__, __dir__ = lazy(__name__, _OWN, others=_OTHERS, names=_NAMES, absent=_ABSENT)
