"""TVM's parameter files, as tensors of TVM's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...formats import param_dict
from ...formats.messages.errors import ArgumentError
from .ndarray import NDArray, Tensor


def _arrays(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.array if isinstance(value, Tensor) else value for name, value in params.items()}


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """The bytes of a parameter file; values are tensors or arrays. Raises FormatError."""
    return param_dict.save_param_dict(_arrays(params))


def save_param_dict_to_file(params: Mapping[str, Any], path: str | os.PathLike) -> None:
    """Writes a parameter file. Raises FormatError, FileError."""
    param_dict.save_param_dict_to_file(_arrays(params), path)


def load_param_dict(param_bytes: bytes | bytearray | memoryview | str) -> dict[str, NDArray]:
    """The parameters in a file's bytes. Raises FormatError."""
    if isinstance(param_bytes, str):
        param_bytes = param_bytes.encode("latin-1", "replace")  # as Python 2 had bytes
    if not isinstance(param_bytes, (bytes, bytearray, memoryview)):
        raise ArgumentError(f"load_param_dict: expected bytes, got a {type(param_bytes).__name__}")
    return {name: NDArray(array) for name, array in param_dict.load_param_dict(param_bytes).items()}


def load_param_dict_from_file(path: str | os.PathLike) -> dict[str, NDArray]:
    """The parameters of a file. Raises FormatError, FileError."""
    return {name: NDArray(array) for name, array in param_dict.load_param_dict_from_file(path).items()}
