"""Transport between the process that asks for batches and its workers: arrays in shared memory, and small messages.

Nothing is pickled: a message is msgpack of numbers, names and places, so that neither side runs what the other has sent.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..formats.messages import errors
from ..formats.messages.errors import BudgetExceededError, ExecutionError, OutOfMemoryError, TreadleError

# Of an array: its type's name, its shape, and where in the memory it begins.
Place = tuple[str, tuple[int, ...], int]

_ALIGNMENT = 64  # bytes: the machine reads arrays where they lie, by vectors
_GROWTH = 1 << 16  # bytes; memory grows by multiples of that, and by a half at least


# ---- arrays ----


def places(arrays: Sequence[np.ndarray]) -> tuple[list[Place], int]:
    """Where arrays lie one after another, and how many bytes they take."""
    found: list[Place] = []
    end = 0
    for array in arrays:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        found.append((array.dtype.str, array.shape, start))  # its name would take NumPy some microseconds
        end = start + array.nbytes
    return found, end


def write(arrays: Sequence[np.ndarray], found: Sequence[Place], memory: Any) -> None:
    """Copies arrays to their places."""
    for array, (dtype, shape, start) in zip(arrays, found, strict=True):
        np.ndarray(shape, dtype, memory, start)[...] = array


def read(found: Sequence[Place], memory: Any) -> list[np.ndarray]:
    """The arrays at these places, not copied."""
    return [np.ndarray(tuple(shape), dtype, memory, start) for dtype, shape, start in found]


def end_of(found: Sequence[Place]) -> int:
    """The bytes up to the end of the last array."""
    return max((start + np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape, start in found), default=0)


def flatten(value: Any, arrays: list[np.ndarray]) -> Any:
    """The structure of a result: a number for each array, which is added to `arrays`, a list for each tuple."""
    if isinstance(value, tuple):
        return [flatten(each, arrays) for each in value]
    arrays.append(value)
    return len(arrays) - 1


def unflatten(structure: Any, arrays: Sequence[np.ndarray]) -> Any:
    """The inverse of `flatten`."""
    return arrays[structure] if isinstance(structure, int) else tuple(unflatten(each, arrays) for each in structure)


# ---- memory ----


class Memory:
    """Memory that two processes map, and that either may enlarge. It has no name: when both are gone, it is gone."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _anonymous() if descriptor is None else descriptor
        self._mapped: mmap.mmap | None = None

    def room(self, size: int) -> Any:
        """The memory, of that many bytes at least. Raises OutOfMemoryError."""
        if self._mapped is None or len(self._mapped) < size:
            try:
                there = os.fstat(self.descriptor).st_size
                if there < size:
                    there = -(-max(size, there + there // 2) // _GROWTH) * _GROWTH
                    self._grow(there)
                # what still reads the smaller mapping keeps it
                self._mapped = mmap.mmap(self.descriptor, there)
            except (OSError, ValueError, MemoryError) as error:
                raise OutOfMemoryError(
                    f"the system has no {size} bytes of shared memory for a batch ({error}); take smaller batches"
                ) from error
        return self._mapped

    def _grow(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):  # pages that are there: one that cannot be had later would be SIGBUS
            os.posix_fallocate(self.descriptor, 0, size)
        else:
            os.ftruncate(self.descriptor, size)

    def close(self) -> None:
        """Gives up the descriptor. Arrays that lie in the memory keep it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self._mapped, self.descriptor = None, -1


def _anonymous() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("treadle-batch", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile(prefix="treadle-batch") as file:  # without a name already
        return os.dup(file.fileno())


# ---- errors ----


def encode_error(error: BaseException) -> dict[str, Any]:
    """An error as a message; one that is none of ours as an ExecutionError that says its kind."""
    if isinstance(error, TreadleError):
        return {"kind": type(error).__name__, "text": str(error), "budget": getattr(error, "budget", None)}
    return {"kind": "ExecutionError", "text": f"{type(error).__name__}: {error}", "budget": None}


def decode_error(told: dict[str, Any]) -> TreadleError:
    """The error of a message, which is one of ours whatever the message says."""
    kind = getattr(errors, str(told.get("kind")), None)
    text = str(told.get("text"))
    if kind is BudgetExceededError:
        return BudgetExceededError(text, budget=str(told.get("budget")))
    try:
        if isinstance(kind, type) and issubclass(kind, TreadleError):
            return kind(text)
    except TypeError:  # one that is made of more than its text
        pass
    return ExecutionError(text)


def may_pass(error: TreadleError) -> bool:
    """Whether another try may go well: time and memory depend on what else a host does, all else on the batch alone."""
    return isinstance(error, OutOfMemoryError) or (isinstance(error, BudgetExceededError) and error.budget == "seconds")
