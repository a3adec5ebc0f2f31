"""`tvm._ffi.base`: errors and text."""

from ..error import TVMError

__all__ = ["TVMError", "c_str", "py_str", "string_types"]

string_types = (str,)


def py_str(data: bytes) -> str:
    """The text of UTF-8."""
    return data.decode()


def c_str(text: str) -> bytes:
    """UTF-8 of text."""
    return text.encode()
