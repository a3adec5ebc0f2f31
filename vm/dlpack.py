"""Arrays over memory that another library handed over by DLPack, of any strides.

NumPy gives arrays that cannot be written to for tensors of DLPack before 1.0, which says nothing of that; its users write.
https://dmlc.github.io/dlpack/latest/python_spec.html
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..formats.messages.errors import ArgumentError

_CPU = (1, 0)
_OLD = b"dltensor"  # the name of a capsule of DLPack before 1.0


class _Producer:
    """Hands a capsule to NumPy."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU


class _Writeable:
    """The memory of an array, which it keeps, for others to write to."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def import_dlpack(value: Any) -> np.ndarray:
    """An array over the memory of a tensor, or of a capsule that one has made. Raises ArgumentError."""
    is_capsule = type(value).__name__ == "PyCapsule"
    if not is_capsule and not hasattr(value, "__dlpack__"):
        raise ArgumentError(f"from_dlpack: Required attribute __dlpack__ not found: got a {type(value).__name__}")
    device = _CPU if is_capsule else tuple(map(int, value.__dlpack_device__()))
    if device[0] != _CPU[0]:
        raise ArgumentError(f"from_dlpack: expected a tensor on the CPU, got one on DLPack's device {device}")
    capsule = value if is_capsule else _capsule(value)
    is_old = bool(ctypes.pythonapi.PyCapsule_IsValid(ctypes.py_object(capsule), _OLD))
    try:
        array = np.from_dlpack(_Producer(capsule))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(f"from_dlpack: NumPy cannot take this tensor: {error}") from error
    return np.asarray(_Writeable(array)) if is_old and not array.flags.writeable else array


def _capsule(value: Any) -> Any:
    try:
        return value.__dlpack__(max_version=(1, 0))
    except TypeError:  # a library older than the argument
        return value.__dlpack__()
    except BufferError as error:
        raise ArgumentError(f"from_dlpack: {error}") from error
