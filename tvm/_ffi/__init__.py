"""`tvm._ffi`: where older programs find the registry and the types of values."""

from .._lazy import lazy

_OTHERS = {"registry": "..runtime.registry"}

_NAMES = {
    "..runtime.registry": """
        get_global_func list_global_func_names register_extension register_func register_object remove_global_func
    """,
    "...formats.data_type": "DataType DataTypeCode",
}

__getattr__, __dir__ = lazy(__name__, "base runtime_ctypes", others=_OTHERS, names=_NAMES)
