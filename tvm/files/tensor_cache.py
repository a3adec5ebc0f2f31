"""A folder of tensors by name, as TVM's tools for the web and for language models keep weights: `ndarray-cache.json` (newer:
`tensor-cache.json`) says where in which shard each lies.

A file says nothing that is not checked: shards have plain names in the folder, each once, and tensors lie within them
without sharing bytes, so that what is read takes no more memory than the files have bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np

from ...formats import limits
from ...formats.constants import from_bytes
from ...formats.container import named, open_mapped
from ...formats.dtypes import DType
from ...formats.messages.errors import FileError, FormatError
from ...formats.types import TensorType

INDEX = ("tensor-cache.json", "ndarray-cache.json")  # the names of the index, the newest first
SHARD_BYTES = 32 << 20  # of one shard, unless a tensor is larger
RAW, AS_BFLOAT16 = "raw", "f32-to-bf16"


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """float32 as the nearest bfloat16, ties to even, in 16 bits; a NaN stays one."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(array), bits >> 16 | 0x40, rounded).astype(np.uint16)


def of_bfloat16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 in 16 bits as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def index_of(folder: str | os.PathLike) -> Path:
    """The index in a folder. Raises FileError."""
    where = named(folder, "folder")
    for name in INDEX:
        if os.path.isfile(os.path.join(where, name)):
            return Path(where) / name
    raise FileError(f"{where}: there is no {' and no '.join(INDEX)}")


def load(folder: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors of a folder by name, and its metadata. Raises FileError, FormatError."""
    path = index_of(folder)
    try:
        index = json.loads(str(open_mapped(path)[1], "utf-8"))
    except OSError as error:
        raise FileError.of(error, f"{path} cannot be read") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: {error}") from None
    tensors: dict[str, np.ndarray] = {}
    shards: set[str] = set()
    for shard in _list(_object(index, str(path)), "records", str(path)):
        data, where = _shard(Path(folder), _object(shard, str(path))), f"{path}: {shard['dataPath']}"
        if shard["dataPath"] in shards:
            raise FormatError(f"{where}: there are two shards of this name")
        shards.add(shard["dataPath"])
        left = len(data)
        for record in _list(shard, "records", where):
            name, array = _tensor(_object(record, where), data, where)
            left -= record["nbytes"]
            if name in tensors:
                raise FormatError(f"{where}: there are two tensors {name!r}")
            if left < 0:
                raise FormatError(f"{where}: {name!r}: tensors have more bytes than the shard, which has {len(data)}")
            tensors[name] = array
    metadata = index.get("metadata", {})
    return tensors, metadata if isinstance(metadata, dict) else {}


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{where}: expected an object, got {type(value).__name__}")
    return value


def _list(record: dict[str, Any], key: str, where: str) -> list[Any]:
    if not isinstance(record.get(key), list):
        raise FormatError(f"{where}: expected a list of {key}")
    return record[key]


def _shard(folder: Path, shard: dict[str, Any]) -> memoryview:
    name = shard.get("dataPath")
    if not isinstance(name, str) or name in ("", ".", "..") or not _is_text(name) or set(name) & set("/\\:\0"):
        raise FormatError(f"{folder}: {name!r} is not the name of a file in this folder")
    if shard.get("format") != "raw-shard":
        raise FormatError(f"{folder / name}: expected the format raw-shard, got {shard.get('format')!r}")
    try:
        _, data = open_mapped(folder / name)  # it may be a link: caches of downloads are made of them
    except OSError as error:
        raise FileError.of(error, f"{folder / name} cannot be read") from None
    if shard.get("nbytes") != len(data):
        raise FormatError(f"{folder / name}: {shard.get('nbytes')!r} bytes are expected, it has {len(data)}")
    return data


def _is_text(name: str) -> bool:
    """Whether it is a text that a file can hold: JSON may have half a pair of surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _tensor(record: dict[str, Any], data: memoryview, where: str) -> tuple[str, np.ndarray]:
    name, shape, offset = record.get("name"), record.get("shape"), record.get("byteOffset")
    if not isinstance(name, str) or not _is_text(name):
        raise FormatError(f"{where}: {name!r} is not a name")
    place = f"{where}: {name!r}"
    sizes: list[Any] = shape if isinstance(shape, list) else [None]
    if len(sizes) > limits.RANK or not all(type(size) is int and 0 <= size <= limits.DIMENSION for size in sizes):
        raise FormatError(f"{place}: {shape!r} is not a shape")
    if str(record.get("dtype")) not in DType.__members__:
        raise FormatError(f"{place}: {record.get('dtype')!r} is not an element type")
    dtype = DType[str(record["dtype"])]
    is_short = record.get("format") == AS_BFLOAT16 and dtype is DType.float32
    if not is_short and record.get("format") not in (RAW, AS_BFLOAT16):
        raise FormatError(f"{place}: {record.get('format')!r} is not a format; expected {RAW} or {AS_BFLOAT16}")
    stored = TensorType(DType.uint16 if is_short else dtype, tuple(sizes))
    size = stored.nbytes
    if type(offset) is not int or not 0 <= offset <= len(data) - size or record.get("nbytes") != size:
        raise FormatError(f"{place}: {size} bytes at {offset!r} do not lie in a shard of {len(data)}")
    try:
        array = from_bytes(stored, data[offset : offset + size])
    except FormatError as error:
        raise type(error)(f"{place}: {error.message}") from None
    return name, of_bfloat16(array) if is_short else array.copy()


def save(
    tensors: Mapping[str, np.ndarray],
    folder: str | os.PathLike,
    metadata: Mapping[str, Any] | None = None,
    encode_format: str = AS_BFLOAT16,
    shard_bytes: int = SHARD_BYTES,
) -> int:
    """Writes tensors into a folder; the number of its shards. Raises FormatError, DTypeError, FileError."""
    if encode_format not in (RAW, AS_BFLOAT16):
        raise FormatError(f"encode_format={encode_format!r}: expected {RAW} or {AS_BFLOAT16}")
    where = Path(named(folder, "folder"))
    shards: list[tuple[bytearray, list[dict[str, Any]]]] = []
    for name, array in tensors.items():
        dtype = DType.of(array.dtype)
        is_short = encode_format == AS_BFLOAT16 and dtype.numpy == np.float32
        data = (to_bfloat16(array) if is_short else np.ascontiguousarray(array)).tobytes()
        if not shards or (shards[-1][0] and len(shards[-1][0]) + len(data) > shard_bytes):
            shards.append((bytearray(), []))
        held, records = shards[-1]
        format_ = AS_BFLOAT16 if is_short else RAW
        place = {"nbytes": len(data), "byteOffset": len(held)}
        records.append({"name": name, "shape": list(array.shape), "dtype": dtype.name, "format": format_, **place})
        held += data
    entries = []
    try:
        where.mkdir(parents=True, exist_ok=True)
        for number, (held, records) in enumerate(shards):
            path = f"params_shard_{number}.bin"
            (where / path).write_bytes(held)
            digest = md5(held, usedforsecurity=False).hexdigest()
            entries.append(
                {"dataPath": path, "format": "raw-shard", "nbytes": len(held), "records": records, "md5sum": digest}
            )
        index = {"metadata": dict(metadata or {}), "records": entries}
        (where / INDEX[-1]).write_text(json.dumps(index, indent=4), encoding="utf-8")
    except OSError as error:
        raise FileError.of(error, f"{os.fspath(folder)} cannot be written") from None
    return len(shards)
