"""Tensors that the machine gives out: a thin face of an array, whose memory nobody else writes to."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..formats.dtypes import DType
from .device import Device, cpu


class Tensor:
    """A tensor on a device. `numpy()` and DLPack share its memory; it stays alive as long as any of them."""

    __slots__ = ("_array",)

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def numpy(self) -> np.ndarray:
        """The elements, not copied. Read-only where the program still uses them: constants, parts of data values."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._array if dtype is None else self._array.astype(dtype, copy=False)
        return array.copy() if copy and array is self._array else array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack

    @property
    def dtype(self) -> DType:
        return DType.of(self._array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._array.size

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    @property
    def device(self) -> Device:
        return cpu()

    def item(self) -> Any:
        """The one element, as a Python number. Raises ValueError when there are more."""
        return self._array.item()

    def __float__(self) -> float:
        return float(self._array.item())

    def __int__(self) -> int:
        return int(self._array.item())

    def __bool__(self) -> bool:
        return bool(self._array.item())

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        body = np.array2string(self._array, separator=", ", prefix="Tensor(", threshold=100)
        return f"Tensor({body}, dtype={self.dtype.name}, device={self.device!r})"
