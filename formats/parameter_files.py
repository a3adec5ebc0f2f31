"""Files of parameters, tensors by name: TVM's (`param_dict.py`), NumPy's .npz and safetensors.

Whatever a file says of sizes is compared with the bytes that it has before memory is taken; nothing in one is executed.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .container import named, open_ending, save
from .data_type import bfloat16
from .messages.calling import public
from .messages.errors import ArgumentError, FileError, FormatError, LimitError
from .messages.file_kinds import HEAD_BYTES, kind_of, told
from .param_dict import load_param_dict_from_file, save_param_dict_to_file

Parameters = dict[str, np.ndarray]

_MOST_DEFLATED = 1032  # bytes that one byte of deflate's can stand for, RFC 1951
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # so that the same parameters give the same bytes


class _Kind(NamedTuple):
    read: Callable[[str | os.PathLike], Parameters]
    write: Callable[[Mapping[str, Any], str | os.PathLike], None]


@public
def load_params(path: str | os.PathLike) -> Parameters:
    """The parameters in a .params, .npz or .safetensors file. Raises FormatError, FileError."""
    return _kind(named(path, "load_params: path")).read(path)


@public
def save_params(params: Mapping[str, Any], path: str | os.PathLike) -> None:
    """Writes a .params, .npz or .safetensors file, which is there whole or not at all. Raises FormatError, FileError."""
    if not isinstance(params, Mapping):
        raise ArgumentError(
            f"save_params: params: expected a mapping of names to arrays, got a {type(params).__name__}"
        )
    _kind(named(path, "save_params: path")).write(params, path)


def _kind(path: str) -> _Kind:
    suffix = Path(path).suffix
    if suffix not in _KINDS:
        raise FormatError(f"{path!r}: parameters are in files that end in {', '.join(_KINDS)}{_found(path)}")
    return _KINDS[suffix]


def _found(path: str | os.PathLike, but: str = "") -> str:
    """The kind of a file, as the end of a message; "" if it cannot be read, and for the expected kind."""
    try:
        with _opened(path) as file:
            head = file.read(HEAD_BYTES)
    except (OSError, FormatError):
        return ""
    kind = kind_of(head)
    return "" if but and (kind is None or kind.name == but) else f"; {told(head)}"


# ---- NumPy's ----


def _read_npz(path: str | os.PathLike) -> Parameters:
    try:
        with _opened(path) as file:
            return _read_zip(file, os.fspath(path))
    except OSError as error:
        raise FileError.of(error, f"cannot read {os.fspath(path)!r}", os.fspath(path)) from error


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A regular file, open. Raises FormatError for a device or a pipe, which may never end, and OSError."""
    with open(named(path), "rb", opener=open_ending) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FormatError(f"{os.fspath(path)} is not a regular file")
        yield file


def _read_zip(file: BinaryIO, path: str) -> Parameters:
    try:
        with zipfile.ZipFile(file) as archive:
            return _members(archive, os.fstat(file.fileno()).st_size)
    except FormatError as error:
        raise type(error)(f"{path}: {error.message}") from None
    except Exception as error:  # headers are read as Python's text, members are damaged in many ways
        raise FormatError(f"{path} is not a readable .npz file: {error}{_found(path, 'npz')}") from None


def _members(archive: zipfile.ZipFile, size: int) -> Parameters:
    if sum(info.compress_size for info in archive.infolist()) > size:
        raise LimitError("its members lie over each other")
    found: Parameters = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in found:
            raise FormatError(f"two parameters are called {name!r}")
        if info.file_size > _MOST_DEFLATED * info.compress_size:
            raise LimitError(f"parameter {name!r}: {info.compress_size} bytes cannot stand for {info.file_size}")
        with archive.open(info) as member:
            found[name] = _read_npy(member, info.file_size, name)
    return found


def _read_npy(member: Any, size: int, name: str) -> np.ndarray:
    version = np.lib.format.read_magic(member)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise FormatError(f"parameter {name!r}: version {version} of the .npy format is not for plain arrays")
    shape, is_fortran, dtype = read(member)
    expected = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or dtype.kind not in "biufc":
        raise FormatError(f"parameter {name!r}: expected an array of numbers, got one of {dtype}")
    if size - member.tell() != expected:
        raise FormatError(
            f"parameter {name!r}: {dtype}{list(shape)} has {expected} bytes, {size - member.tell()} are there"
        )
    flat = np.frombuffer(bytearray(member.read(expected)), dtype)
    array = flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _write_npz(params: Mapping[str, Any], path: str | os.PathLike) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for name, array in _arrays(params).items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _ZIP_DATE), member.getbuffer())
    save(path, [data.getbuffer()])


# ---- safetensors ----


def _read_safetensors(path: str | os.PathLike) -> Parameters:
    package = _safetensors()
    with contextlib.suppress(FormatError):
        bfloat16()  # NumPy has it once the package that makes it is imported
    try:
        with _opened(path):  # the package would wait for a pipe
            return dict(package.load_file(os.fspath(path)))
    except FormatError:
        raise
    except OSError as error:
        raise FileError.of(error, f"cannot read {os.fspath(path)!r}", os.fspath(path)) from error
    except Exception as error:  # the package has errors of its own, and KeyErrors for element types that NumPy lacks
        raise FormatError(
            f"{os.fspath(path)} is not a readable .safetensors file: {error}{_found(path, 'safetensors')}"
        ) from None


def _write_safetensors(params: Mapping[str, Any], path: str | os.PathLike) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in _arrays(params, "bfloat16").items()}
    shaped = {name: array.reshape(np.shape(params[name])) for name, array in arrays.items()}
    package = _safetensors()
    try:
        data = package.save(shaped)
    except Exception as error:
        raise FormatError(f"safetensors cannot hold these parameters: {error}") from None
    save(path, [data])


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise FormatError(
            'files of safetensors need the package safetensors: pip install "treadle[safetensors]", or use .npz'
        ) from None
    return safetensors.numpy


def _arrays(params: Mapping[str, Any], besides: str = "") -> Parameters:
    """The parameters as arrays of numbers, or of a type `besides`, in this machine's byte order. Raises FormatError."""
    found = {}
    for name, value in params.items():
        array = np.asarray(value)
        if not isinstance(name, str):
            raise FormatError(f"a parameter's name must be a string, got {name!r}")
        if array.dtype.kind not in "biufc" and array.dtype.name != besides:
            raise FormatError(f"parameter {name!r}: expected an array of numbers, got one of {array.dtype}")
        found[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return found


_KINDS = {
    ".params": _Kind(load_param_dict_from_file, save_param_dict_to_file),
    ".npz": _Kind(_read_npz, _write_npz),
    ".safetensors": _Kind(_read_safetensors, _write_safetensors),
}
