"""Files of low-rank adapters: PEFT's folders, and .onnx_adapter files, a FlatBuffer (onnxruntime's adapter_schema.fbs):

Adapter: format_version, adapter_version, model_version, parameters: [Parameter]
Parameter: name, dims: [int64], data_type, raw_data: [uint8]
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..formats.container import foreign_bytes
from ..formats.dtypes import DType
from ..formats.messages.errors import DTypeError, FormatError
from ..formats.parameter_files import load_params

Pair = tuple[np.ndarray, np.ndarray]  # A float32[inputs, rank], B float32[rank, outputs]

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_CONFIG_BYTES = 1 << 20
_FILE_BYTES = 1 << 33
_KEY = re.compile(r"(?:base_model\.model\.)?([^\0]+)\.lora_([AB])(?:\.\w+)?\.weight")
_NOT_TAKEN = ("use_dora", "use_qalora", "modules_to_save", "trainable_token_indices", "lora_bias", "layer_replication")
_FLOATS = ("float32", "float16", "bfloat16")
_MAGIC = b"TORT"  # at byte 4


def read(path: Path) -> dict[str, Pair]:
    """The pairs of an adapter, by the names of modules. Raises MissingFileError, FileError, FormatError."""
    if os.path.isfile(path):
        return {
            name: (both["A"], both["B"]) for name, both in _paired(path, _parameters(_bytes(path, _FILE_BYTES), path))
        }
    config = _config(path / _CONFIG)
    pairs: dict[str, Pair] = {}
    for name, both in _paired(path / _WEIGHTS, load_params(path / _WEIGHTS)):
        scale = _scale(config, name, len(both["A"]))
        pairs[name] = both["A"].T, both["B"].T * np.float32(scale)
    return pairs


def _paired(path: Path, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Modules and their two arrays, in float32. Raises FormatError."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for key, array in arrays.items():
        matched = _KEY.fullmatch(key)
        if matched is None:
            raise FormatError(
                f"{path}: {key[:100]!r} is not of a linear module; expected ….lora_A.weight or ….lora_B.weight"
            )
        if array.ndim != 2 or array.dtype.name not in _FLOATS:
            raise FormatError(f"{path}: {key[:100]!r} is {array.dtype}{list(array.shape)}; expected float[_, _]")
        found.setdefault(matched[1], {})[matched[2]] = array.astype(np.float32)
    for name, both in found.items():
        if len(both) != 2:
            raise FormatError(f"{path}: {name[:100]!r} has only lora_{next(iter(both))}")
        yield name, both


def _bytes(path: Path, most: int) -> bytes:
    return foreign_bytes(path, most, FormatError, f"PEFT's save_pretrained writes it beside {_WEIGHTS}")


# ---- PEFT's folders ----


def _config(path: Path) -> Mapping[str, Any]:
    """Raises MissingFileError, FileError, FormatError."""
    try:
        config = json.loads(_bytes(path, _CONFIG_BYTES))
    except (ValueError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise FormatError(f"{path}: expected an object with peft_type LORA")
    strange = [name for name in _NOT_TAKEN if config.get(name)] + ["bias"] * (config.get("bias", "none") != "none")
    if strange:
        raise FormatError(
            f"{path}: {strange[0]} is {str(config[strange[0]])[:100]}; adapters that do more than A and B are not taken"
        )
    return config


def _scale(config: Mapping[str, Any], name: str, rank: int) -> float:
    """What PEFT multiplies B by. Raises FormatError."""
    patterns = config.get("alpha_pattern")
    alphas = patterns if isinstance(patterns, dict) else {}
    named = [value for key, value in alphas.items() if name == key or name.endswith(f".{key}")]
    alpha = named[0] if named else config.get("lora_alpha", rank)
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not abs(alpha) < 1e6 or not rank:
        raise FormatError(
            f"{_CONFIG}: lora_alpha of {name[:100]!r} is {str(alpha)[:40]}, its rank {rank}; expected numbers"
        )
    return float(alpha / (rank**0.5 if config.get("use_rslora") else rank))


# ---- .onnx_adapter ----


def _parameters(data: bytes, path: Path) -> dict[str, np.ndarray]:
    """Raises FormatError."""
    if data[4:8] != _MAGIC:
        raise FormatError(
            f"{path} is not an .onnx_adapter file; expected {_MAGIC!r} at byte 4, or a folder that PEFT wrote"
        )
    try:
        arrays: dict[str, np.ndarray] = {}
        left = len(data)  # of what parameters may take together: several may name the same bytes
        reader = _Reader(data)
        start, count = reader.vector(reader.field(reader.offset(0), 3), 4)
        for number in range(count):
            table = reader.offset(start + 4 * number)
            name_at, name_size = reader.vector(reader.field(table, 0), 1)
            dims_at, rank = reader.vector(reader.field(table, 1), 8)
            raw_at, size = reader.vector(reader.field(table, 3), 1)
            dtype = DType.from_onnx(reader.number("<i", reader.field(table, 2))).numpy
            shape = [reader.number("<q", dims_at + 8 * axis) for axis in range(min(rank, 9))]
            left -= size + name_size
            if (
                dtype.name not in _FLOATS
                or left < 0
                or min(shape, default=0) < 0
                or math.prod(shape) * dtype.itemsize != size
            ):
                raise ValueError
            name = data[name_at : name_at + name_size].decode()
            arrays[name] = np.frombuffer(data, dtype, math.prod(shape), raw_at).reshape(shape)
        return arrays
    except (ValueError, DTypeError, UnicodeDecodeError):
        raise FormatError(f"{path} is a damaged .onnx_adapter file") from None


class _Reader:
    """Reads a FlatBuffer (https://flatbuffers.dev/internals). Raises ValueError for places that are not in it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, form: str, at: int) -> int:
        if not 0 <= at <= len(self._data) - struct.calcsize(form):
            raise ValueError
        (found,) = struct.unpack_from(form, self._data, at)
        return int(found)

    def offset(self, at: int) -> int:
        """The place that an offset at a place says."""
        return at + self.number("<I", at)

    def field(self, table: int, number: int) -> int:
        """The place of a table's field."""
        sizes = table - self.number("<i", table)
        at = 4 + 2 * number
        inside = self.number("<H", sizes + at) if at < self.number("<H", sizes) else 0
        if not inside:
            raise ValueError
        return table + inside

    def vector(self, at: int, size: int) -> tuple[int, int]:
        """Where the elements of a vector of these sizes begin, and how many there are."""
        start = self.offset(at)
        count = self.number("<I", start)
        if count * size > len(self._data) - start - 4:
            raise ValueError
        return start + 4, count
