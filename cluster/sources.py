"""Where batches come from: arrays, memory maps, iterators, tables and their files, Ray Datasets, Dask arrays, as numbered batches
of bounded size.

What can be indexed is read batch by batch, when a worker has room for it. What can only be iterated gives pieces of any
number of rows, which are joined and cut; of it, one piece and one batch are in memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..formats.dtypes import DType
from ..formats.messages.calling import told
from ..formats.messages.errors import ArgumentError, MissingFileError
from .runner import Signature, row_count
from .tables import FILES, arguments_of, columns_of, is_of, pieces_of, rows_in

Arrays = tuple[np.ndarray, ...]

_SAMPLED = 256  # rows of a large array that its fingerprint is taken of
_WHOLE = 1 << 26  # bytes up to which it is taken of all: some 40 ms


@dataclass(frozen=True)
class Batch:
    """The batch of that number, from 0 on. `read` gives its arrays, one for each parameter, with `rows` rows each."""

    number: int
    rows: int
    read: Callable[[], Arrays]


class Source:
    """Batches of rows. `rows` is None where only the end tells, `fingerprint` where two sources cannot be told apart."""

    rows: int | None = None

    def batches(self, size: int) -> Iterator[Batch]:
        raise NotImplementedError

    def fingerprint(self) -> str | None:
        return None


def source_of(value: Any, signature: Signature) -> Source:
    """The source that a user has named. Raises ArgumentError for any other object."""
    if signature.of_texts is not None and isinstance(value, list):
        value = signature.arguments(value)
    if is_of(value, "ray.data") and hasattr(value, "iter_batches"):
        return Pieces(lambda size: value.iter_batches(batch_size=size, batch_format="numpy"), signature)
    if isinstance(value, (str, os.PathLike)):
        return _file(Path(value), signature)
    if isinstance(value, (tuple, Mapping)) or _is_indexable(value) or columns_of(value) is not None:
        arrays = signature.arguments(value)
        for name, array in zip(signature.names, arrays, strict=True):
            if not _is_indexable(array):
                raise ArgumentError(
                    f"the source of parameter {name!r} is a {type(array).__name__}; expected an array in a tuple or mapping"
                )
        return Rows(arrays, signature)
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return Pieces(lambda size: value, signature)
    raise ArgumentError(
        f"a source of type {type(value).__name__}; expected an array, a tuple or mapping of arrays, a table, an iterable "
        f"of such pieces, a Ray Dataset, a Dask array, or the path of a file {', '.join(FILES)}"
    )


def _file(path: Path, signature: Signature) -> Source:
    if path.suffix not in FILES:
        raise ArgumentError(f"the source {path}: expected a file {', '.join(FILES)}")
    if not path.is_file():
        raise MissingFileError(f"the source {path}: there is no such file")
    if path.suffix == ".npy":
        return Rows(signature.arguments(np.load(path, mmap_mode="r", allow_pickle=False)), signature)
    return TableFile(path, signature)


def _is_indexable(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__getitem__")


class Rows(Source):
    """Arrays, memory maps, and whatever else has a shape and gives rows for a slice."""

    def __init__(self, arrays: Iterable[Any], signature: Signature) -> None:
        arrays = tuple(arrays)
        self.rows = row_count(arrays, signature.names)
        self._whole = arrays
        self._arrays = tuple(_Blocks(array) if is_of(array, "dask") else array for array in arrays)
        self._signature = signature

    def batches(self, size: int) -> Iterator[Batch]:
        assert self.rows is not None
        for number, start in enumerate(range(0, self.rows, size)):
            end = min(start + size, self.rows)
            yield Batch(number, end - start, lambda start=start, end=end: self._read(start, end))  # type: ignore[misc]

    def _read(self, start: int, end: int) -> Arrays:
        return _checked([array[start:end] for array in self._arrays], self._signature)

    def fingerprint(self) -> str | None:
        digest = hashlib.sha256()
        for array in self._whole:
            digest.update(f"{array.dtype} {tuple(array.shape)} ".encode())
            if is_of(array, "dask"):
                digest.update(str(array.name).encode())  # Dask's own fingerprint of how it is computed
            else:
                digest.update(_sample(array))
        return digest.hexdigest()


def _sample(array: Any) -> bytes:
    """Of small arrays all bytes, of large ones some rows; of a memory map also when its file was last written."""
    rows = array.shape[0]
    whole = getattr(array, "nbytes", _WHOLE + 1) <= _WHOLE or rows <= _SAMPLED
    digest = hashlib.sha256()
    if array.dtype.hasobject:  # texts
        for each in array.tolist():
            digest.update(f"{len(str(each))} {each}".encode("utf-8", "surrogatepass"))
        return digest.digest()
    if isinstance(array, np.memmap) and array.filename is not None:
        status = os.stat(array.filename)
        digest.update(f"{status.st_size} {status.st_mtime_ns} ".encode())
    elif whole:
        digest.update(np.ascontiguousarray(array[:]).view(np.uint8).data if rows else b"")
        return digest.digest()
    for row in np.linspace(0, rows - 1, min(rows, _SAMPLED)).astype(int):
        digest.update(np.asarray(array[int(row) : int(row) + 1]).tobytes())
    return digest.digest()


class _Blocks:
    """A Dask array, whose chunks along the first dimension are computed once each while its rows are read in order."""

    def __init__(self, array: Any) -> None:
        self._array = array
        sizes = array.chunks[0]
        if any(size != size for size in sizes):  # NaN: Dask does not know
            raise ArgumentError("the chunks of the Dask array have unknown sizes; call its compute_chunk_sizes() first")
        ends = np.cumsum(sizes, dtype=int)
        self.shape, self.dtype = array.shape, array.dtype
        self._spans = [(int(end) - int(size), int(end)) for size, end in zip(sizes, ends, strict=True)]
        self._last: tuple[int, np.ndarray] | None = None

    def __getitem__(self, rows: slice) -> np.ndarray:
        parts = []
        for number, (start, end) in enumerate(self._spans):
            if start < rows.stop and rows.start < end:
                parts.append(self._block(number)[max(rows.start - start, 0) : rows.stop - start])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _block(self, number: int) -> np.ndarray:
        if self._last is None or self._last[0] != number:
            self._last = None  # two blocks are one too many
            self._last = number, np.asarray(self._array.blocks[number].compute())
        return self._last[1]


class Pieces(Source):
    """A source that can only be iterated. Each piece is an array, a tuple or a mapping of arrays, of any number of rows."""

    def __init__(self, pieces: Callable[[int], Iterable[Any]], signature: Signature) -> None:
        self._pieces, self._signature = pieces, signature

    def batches(self, size: int) -> Iterator[Batch]:
        kept: list[Arrays] = []  # pieces of the next batch
        number, rows = 0, 0
        for piece in self._pieces(size):
            arrays = _checked(self._signature.arguments(piece, "a piece of the source"), self._signature)
            start, end = 0, row_count(arrays, self._signature.names)
            while end - start >= size - rows:
                stop = start + size - rows
                yield _joined(number, [*kept, tuple(array[start:stop] for array in arrays)], size)
                number, kept, rows, start = number + 1, [], 0, stop
            if start < end:
                # a copy: the piece may be a buffer that its iterator fills again
                kept.append(tuple(array[start:].copy() for array in arrays))
                rows += end - start
        if rows:
            yield _joined(number, kept, rows)


class TableFile(Pieces):
    """A file of a table, which is read as far as workers need."""

    def __init__(self, path: Path, signature: Signature) -> None:
        super().__init__(lambda size: self._arguments(size), signature)
        self.path, self.rows = path, rows_in(path)

    def _arguments(self, size: int) -> Iterator[Arrays]:
        for columns in pieces_of(self.path, size):
            yield arguments_of(columns, self._signature.names, self._signature.type.params, str(self.path))

    def fingerprint(self) -> str | None:
        status = self.path.stat()
        return hashlib.sha256(f"{self.path.name} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()


def _joined(number: int, parts: list[Arrays], rows: int) -> Batch:
    arrays = tuple(np.concatenate(each) if len(each) > 1 else each[0].copy() for each in zip(*parts, strict=True))
    return Batch(number, rows, lambda: arrays)


def _as_bytes(column: np.ndarray, name: str) -> np.ndarray:
    """Texts as workers get them: in UTF-8, each in as many bytes as the longest. Raises ArgumentError."""
    values = column.tolist()
    if column.ndim != 1 or not all(isinstance(each, str) for each in values):
        wrong = next((each for each in values if not isinstance(each, str)), values)
        raise ArgumentError(f"the source of column {name!r}: expected texts, got {told(wrong)}")
    try:
        return np.array([each.encode() for each in values], np.bytes_)
    except UnicodeEncodeError as error:
        raise ArgumentError(f"the source of column {name!r}: {error}") from None


def _checked(values: Iterable[Any], signature: Signature) -> Arrays:
    """As arrays of elements that tensors have. Raises DTypeError, ArgumentError."""
    arrays = []
    for name, value in zip(signature.names, values, strict=False):
        array = np.asarray(value)
        if signature.of_texts is not None:
            arrays.append(_as_bytes(array, name))
            continue
        if array.dtype.hasobject or array.dtype.fields:
            raise ArgumentError(f"the source of parameter {name!r} has elements of {array.dtype}, which no tensor has")
        DType.of(array.dtype)
        arrays.append(array)
    return tuple(arrays)
