"""`tvm.contrib.tvmjs`: folders of tensors (`files/tensor_cache.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...formats.messages.errors import ArgumentError, FileError
from ...vm.device import Device
from ...vm.tensor import Tensor, require_cpu
from ..files import tensor_cache
from ..runtime.ndarray import NDArray

_convert_f32_to_bf16, _convert_bf16_to_f32 = tensor_cache.to_bfloat16, tensor_cache.of_bfloat16


def dump_ndarray_cache(
    params: Mapping[str, Any],
    cache_dir: str,
    encode_format: str = tensor_cache.AS_BFLOAT16,
    meta_data: Mapping[str, Any] | None = None,
    shard_cap_mb: int = 32,
    show_progress: bool = False,
    update_if_exists: bool = False,
) -> None:
    """Writes tensors into a folder; with `update_if_exists`, those that it has already stay unless `params` has others."""
    if not isinstance(params, Mapping):
        raise ArgumentError(f"dump_ndarray_cache: expected a mapping of tensors, got a {type(params).__name__}")
    given = {name: value.array if isinstance(value, Tensor) else np.asarray(value) for name, value in params.items()}
    if update_if_exists:
        try:
            before, metadata = tensor_cache.load(cache_dir)
        except FileError:
            before, metadata = {}, {}
        given, meta_data = {**before, **given}, {**metadata, **(meta_data or {})}
    tensor_cache.save(given, cache_dir, meta_data, encode_format, shard_cap_mb << 20)


def load_ndarray_cache(cachepath: str, device: Device) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """The tensors of a folder, or of the folder of an index, and its metadata. Raises FileError, FormatError."""
    require_cpu(device, "load_ndarray_cache")
    path = Path(cachepath)
    tensors, metadata = tensor_cache.load(path.parent if path.suffix == ".json" else path)
    return {name: NDArray(array) for name, array in tensors.items()}, metadata


dump_tensor_cache, load_tensor_cache = dump_ndarray_cache, load_ndarray_cache
