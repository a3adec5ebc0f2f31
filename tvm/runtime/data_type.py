"""`tvm.DataType` and its codes."""

from ...formats.data_type import DataType, DataTypeCode

__all__ = ["DataType", "DataTypeCode"]
