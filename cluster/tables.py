"""Tables as batches: data frames of pandas and Polars, Arrow's tables, and files of Parquet, CSV and Arrow.

A table's columns are the arguments, by the parameters' names; of a function with one matrix, the columns are that matrix's, in
their order. Numbers become what the parameter takes, as far as their kind allows it: a file of text, or a data frame, has float64
where a model has float32. No library is imported that is not there already, but pyarrow, for its files.
"""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..formats.messages.errors import ArgumentError, DTypeError, FileError, FormatError, MissingPackageError
from ..formats.messages.names import near
from ..formats.types import TensorType

FILES = (".parquet", ".csv", ".arrow", ".feather", ".ipc", ".npy")  # that are read piece by piece


def is_of(value: object, module: str) -> bool:
    """Whether a value's class is of a library, which is not imported to find that out."""
    return any(kind.__module__.split(".")[: module.count(".") + 1] == module.split(".") for kind in type(value).__mro__)


def columns_of(value: Any) -> Mapping[str, Any] | None:
    """The columns of a table, by name, as arrays made on first use; None for any other object."""
    if is_of(value, "polars") and hasattr(value, "collect"):  # a query
        value = value.collect()
    if is_of(value, "pandas") and hasattr(value, "columns"):
        return _Columns(list(map(str, value.columns)), lambda at: value.iloc[:, at].to_numpy())
    if is_of(value, "polars") and hasattr(value, "columns"):
        return _Columns(list(value.columns), lambda at: value.to_series(at).to_numpy())
    if is_of(value, "pyarrow") and hasattr(value, "column_names"):
        return _Columns(list(value.column_names), lambda at: _of_arrow(value.column(at)))
    return None


def _of_arrow(column: Any) -> np.ndarray:
    return column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(zero_copy_only=False)


class _Columns(Mapping[str, Any]):
    def __init__(self, names: list[str], read: Callable[[int], Any]) -> None:
        self._places = {name: at for at, name in enumerate(names)}
        self._read = read

    def __getitem__(self, name: str) -> np.ndarray:
        array = np.asarray(self._read(self._places[name]))
        if array.dtype.hasobject and len(array) and all(isinstance(each, (np.ndarray, list, tuple)) for each in array):
            return np.stack([np.asarray(each) for each in array])  # a column of lists
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def arguments_of(columns: Mapping[str, Any], names: Sequence[str], types: Sequence[Any], what: str) -> tuple[Any, ...]:
    """The arrays for parameters of these names and types. Raises ArgumentError, DTypeError."""
    missing = [name for name in names if name not in columns]
    (type_, *others) = types
    if missing and not others and isinstance(type_, TensorType):
        if type_.rank == 2:
            parts = [_fitting(columns[name], name, type_.dtype.numpy, what) for name in columns]
            width = type_.shape[1]
            if isinstance(width, int) and sum(1 if part.ndim == 1 else part.shape[1] for part in parts) != width:
                raise ArgumentError(
                    f"{what} has the columns {', '.join(columns)}, and {names[0]!r} is a matrix {type_}: a table has the column "
                    f"{names[0]!r}, or {width} columns"
                )
            return (np.column_stack(parts),)
        if len(columns) == 1:  # whatever it is called
            return (_shaped(columns[next(iter(columns))], names[0], type_, what),)
    if missing:
        raise ArgumentError(
            f"{what} has no column {', '.join(map(repr, missing))}{near(missing[0], columns)}; it has "
            f"{', '.join(columns) or 'none'}"
        )
    return tuple(_shaped(columns[name], name, each, what) for name, each in zip(names, types, strict=True))


def _shaped(column: np.ndarray, name: str, type_: Any, what: str) -> np.ndarray:
    if type_.dtype.is_string:
        return np.asarray(column)
    array = _fitting(column, name, type_.dtype.numpy, what)
    return array[:, None] if array.ndim == 1 and type_.rank == 2 and type_.shape[1] == 1 else array


def _fitting(column: Any, name: str, dtype: np.dtype, what: str) -> np.ndarray:
    """A column's numbers, of the element type that the parameter takes."""
    array = np.asarray(column)
    if array.dtype.hasobject:  # numbers, some of which are missing
        try:
            array = np.array([np.nan if each is None else each for each in array.ravel()], np.float64).reshape(
                array.shape
            )
        except (TypeError, ValueError):
            raise DTypeError(
                f"{what}: column {name!r} has elements that are not numbers; the function takes {dtype}"
            ) from None
    if array.dtype == dtype:
        return array
    if array.dtype.kind in "US":
        try:
            return np.where(array == "", "nan", array).astype(dtype) if dtype.kind == "f" else array.astype(dtype)
        except ValueError as error:
            raise DTypeError(f"{what}: column {name!r}: {error}; the function takes {dtype}") from None
    with np.errstate(invalid="ignore", over="ignore"):
        made = array.astype(dtype) if array.dtype.kind in "fiub" else None
    is_exact = made is not None and (dtype.kind == "f" or bool((made.astype(array.dtype) == array).all()))
    if made is None or not is_exact:
        raise DTypeError(f"{what}: column {name!r} has elements of {array.dtype}, and {dtype} does not hold them all")
    return made


# ---- files ----


def rows_in(path: Path) -> int | None:
    """How many rows a file says that it has. Raises FormatError, MissingPackageError."""
    if path.suffix != ".parquet":
        return None
    try:
        return int(_arrow("parquet").ParquetFile(path).metadata.num_rows)
    except ValueError as error:
        raise FormatError(f"cannot read {path}: {error}") from None


def pieces_of(path: Path, size: int) -> Iterator[Mapping[str, Any]]:
    """The columns of a file, piece by piece: a number of rows each, or the file's own row groups. Raises FileError,
    MissingPackageError."""
    try:
        if path.suffix == ".csv":
            yield from _csv(path, size)
            return
        is_parquet = path.suffix == ".parquet"
        for table in _arrow("parquet").ParquetFile(path).iter_batches(batch_size=size) if is_parquet else _ipc(path):
            columns = columns_of(table)
            assert columns is not None
            yield columns
    except OSError as error:
        raise FileError.of(error, f"cannot read {path}") from error
    except ValueError as error:  # of pyarrow, or of a text's encoding
        raise FormatError(f"cannot read {path}: {error}") from None


def _csv(path: Path, size: int) -> Iterator[Mapping[str, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        names = next(lines, [])
        while rows := list(itertools.islice(lines, size)):
            for number, row in enumerate(rows):
                if len(row) != len(names):
                    raise ArgumentError(
                        f"{path}: line {lines.line_num - len(rows) + number + 1} has {len(row)} values for {len(names)} columns"
                    )
            yield {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


def _ipc(path: Path) -> Iterator[Any]:
    ipc = _arrow("ipc")
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    with (ipc.open_file if is_file else ipc.open_stream)(str(path)) as reader:
        yield from (map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader)


def _arrow(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"pyarrow.{module}")
    except ModuleNotFoundError:
        raise MissingPackageError('files of Parquet and Arrow need pyarrow: pip install "treadle[tables]"') from None


class TableWriter:
    """Writes results as a table, which is there whole or not at all. A context."""

    def __init__(self, path: str | os.PathLike, names: Sequence[str]) -> None:
        """`names` are those of the results. Raises ArgumentError for a file of another kind."""
        self.path, self.rows = Path(path), 0
        if self.path.suffix not in (".parquet", ".csv", ".arrow", ".feather", ".ipc"):
            raise ArgumentError(f"{self.path}: expected a name that ends in .parquet, .arrow or .csv")
        if self.path.suffix != ".csv":
            _arrow("parquet")  # before anything is computed
        self._names = names
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        self._writer: Any = None
        self._file: Any = None

    def write(self, results: Sequence[np.ndarray]) -> None:
        """The next rows. Raises ArgumentError for results of which rows are not rows of a table."""
        for name, array in zip(self._names, results, strict=True):
            if not array.ndim or (self.path.suffix == ".csv" and array.ndim > 2):
                raise ArgumentError(f"result {name!r} of shape {list(array.shape)} is not a column of {self.path.name}")
        self.rows += len(results[0])
        if self.path.suffix == ".csv":
            self._write_csv(results)
        else:
            self._write_arrow(results)

    def _write_csv(self, results: Sequence[np.ndarray]) -> None:
        columns = [(name, array) for name, array in zip(self._names, results, strict=True)]
        flat = [
            (name if array.ndim == 1 else f"{name}_{at}", array if array.ndim == 1 else array[:, at])
            for name, array in columns
            for at in range(1 if array.ndim == 1 else array.shape[1])
        ]
        if self._writer is None:
            self._file = self._temporary.open("w", newline="", encoding="utf-8")
            self._writer = csv.writer(self._file)
            self._writer.writerow([name for name, _ in flat])
        self._writer.writerows(zip(*(array.tolist() for _, array in flat), strict=True))

    def _write_arrow(self, results: Sequence[np.ndarray]) -> None:
        pyarrow = __import__("pyarrow")
        batch = pyarrow.record_batch([_arrow_column(pyarrow, array) for array in results], names=list(self._names))
        if self._writer is None:
            if self.path.suffix == ".parquet":
                self._writer = _arrow("parquet").ParquetWriter(str(self._temporary), batch.schema)
            else:
                self._writer = _arrow("ipc").new_file(str(self._temporary), batch.schema)
        self._writer.write_batch(batch)

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        for each in (self._writer, self._file):
            if hasattr(each, "close"):
                each.close()
        if kind is None and self._writer is not None:
            os.replace(self._temporary, self.path)
        else:
            self._temporary.unlink(missing_ok=True)


def _arrow_column(pyarrow: Any, array: np.ndarray) -> Any:
    flat = np.ascontiguousarray(array).reshape(-1)
    column = pyarrow.array(flat)
    for size in reversed(array.shape[1:]):
        column = pyarrow.FixedSizeListArray.from_arrays(column, size)
    return column
