"""`tvm._ffi.base`: errors and text."""

import sys
from types import SimpleNamespace

from ..error import TVMError

__all__ = ["TVMError", "c_str", "py_str", "string_types"]

_LIB = SimpleNamespace(_name=sys.executable)  # TVM's library, whose work Python's interpreter does here

string_types = (str,)


def py_str(data: bytes) -> str:
    """The text of UTF-8."""
    return data.decode()


def c_str(text: str) -> bytes:
    """UTF-8 of text."""
    return text.encode()
