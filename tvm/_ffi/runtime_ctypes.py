"""`tvm._ffi.runtime_ctypes`: element types, devices, and the codes of arguments."""

from enum import IntEnum

from ...formats.data_type import DataType, DataTypeCode
from ...vm.device import Device

__all__ = ["ArgTypeCode", "DataType", "DataTypeCode", "Device", "TVMByteArray"]

TVMByteArray = bytearray  # bytes that functions take and give


class ArgTypeCode(IntEnum):
    """The codes that TVM gives the kinds of a function's arguments."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    NULL = 4
    DATA_TYPE = 5
    DLDEVICE = 6
    DLTENSOR_HANDLE = 7
    OBJECT_HANDLE = 8
    MODULE_HANDLE = 9
    PACKED_FUNC_HANDLE = 10
    STR = 11
    BYTES = 12
    NDARRAY_HANDLE = 13
    OBJECT_RVALUE_REF_ARG = 14
