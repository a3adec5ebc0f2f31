"""Tables as sources, and `treadle map`. Of libraries that are not there, stand-ins of the same interface are read."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import Module, function, op, var
from treadle.cluster.runner import Signature
from treadle.cluster.sources import source_of
from treadle.formats.messages.errors import ArgumentError, DTypeError, FileError, MissingFileError, TreadleError
from treadle.tools.cli import main

X, Y = var("x", ("n",)), var("y", ("n", 2))
BY_NAME = treadle.compile(Module(main=function([X, Y], X + op.sum(Y, axes=(1,)))), progress=False)
MATRIX = treadle.compile(Module(main=function([var("m", ("n", 3))], lambda m: m * 2)), progress=False)
COLUMNS = {"b": [1.5, 2.5, 3.5], "x": [1, 2, 3], "y": [[1, 2], [3, 4], [5, 6]]}
NUMBERS = {"a": [1.5, 2.5, 3.5], "b": [1, 2, 3], "c": [0, 1, 0]}


def frame(library: str, columns: dict[str, Any]) -> Any:
    """A table of a library, or a stand-in for it."""
    module = pytest.importorskip(library) if not library.startswith("like ") else None
    if library == "pandas":
        return module.DataFrame({name: list(each) for name, each in columns.items()})
    if library == "polars":
        return module.DataFrame(columns)
    if library == "pyarrow":
        return module.table(columns)
    arrays = {name: _objects(each) for name, each in columns.items()}
    members: dict[str, Any] = {
        "like pandas": {
            "columns": list(arrays),
            "iloc": _Places(lambda at: _Array(list(arrays.values())[at])),
            "__iter__": lambda self: iter(arrays),
        },
        "like polars": {
            "columns": list(arrays),
            "to_series": lambda self, at: _Array(list(arrays.values())[at]),
        },
        "like pyarrow": {
            "column_names": list(arrays),
            "column": lambda self, at: _Array(list(arrays.values())[at]),
        },
    }[library]
    return type("Table", (), {"__module__": f"{library.split()[1]}.core", **members})()


def _objects(values: list) -> np.ndarray:
    made = np.empty(len(values), object)
    made[:] = values
    return made if isinstance(values[0], list) else np.array(values)


class _Array:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def to_numpy(self, zero_copy_only: bool = False) -> np.ndarray:
        return self.array


class _Places:
    def __init__(self, read: Any) -> None:
        self.read = read

    def __getitem__(self, place: tuple[slice, int]) -> Any:
        return self.read(place[1])


def read(source: Any, executable: treadle.Executable, size: int = 2) -> list[np.ndarray]:
    batches = list(source_of(source, Signature(executable, "main")).batches(size))
    return [np.concatenate(each) for each in zip(*(batch.read() for batch in batches), strict=True)]


LIBRARIES = ["pandas", "polars", "pyarrow", "like pandas", "like polars", "like pyarrow"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_are_arguments_by_name_or_those_of_the_one_matrix(library: str) -> None:
    x, y = read(frame(library, COLUMNS), BY_NAME)
    assert (x.dtype, x.tolist(), y.tolist()) == (np.float32, [1, 2, 3], COLUMNS["y"])
    (m,) = read(frame(library, NUMBERS), MATRIX)
    assert (m.dtype, m.tolist()) == (np.float32, [[1.5, 1, 0], [2.5, 2, 1], [3.5, 3, 0]])
    pieces = [frame(library, NUMBERS), frame(library, NUMBERS)]
    assert read(iter(pieces), MATRIX)[0].tolist() == m.tolist() * 2


@pytest.mark.parametrize(
    ("columns", "executable", "message"),
    [
        ({"X": [1.0], "y": [[1, 2]]}, BY_NAME, "the source has no column 'x'; did you mean X"),
        ({"a": [1.0], "b": [2.0]}, MATRIX, "has the columns a, b, and 'm' is a matrix .*, or 3 columns"),
        ({"x": ["one"], "y": [[1, 2]]}, BY_NAME, "column 'x'.*the function takes float32"),
    ],
)
def test_what_does_not_fit_is_told_by_its_column(columns: dict, executable: treadle.Executable, message: str) -> None:
    with pytest.raises((ArgumentError, DTypeError), match=message):
        read(frame("like polars", columns), executable)


def test_numbers_are_converted_where_they_can_be() -> None:
    places = treadle.compile(Module(main=function([var("p", ("n",), "int64")], lambda p: p + 1)), progress=False)
    assert read(frame("like pandas", {"p": [1.0, 2.0]}), places)[0].dtype == np.int64
    with pytest.raises(DTypeError, match="column 'p' has elements of float64, and int64 does not hold them all"):
        read(frame("like pandas", {"p": [1.5]}), places)
    (values,) = read(
        frame("like pandas", {"v": [1, None]}), treadle.compile(Module(main=function([X], X)), progress=False)
    )
    assert values[0] == 1
    assert np.isnan(values[1])


def write_csv(path: Path, columns: dict[str, list]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".parquet", ".arrow", ".feather"])
def test_files_are_sources(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}"
    if suffix == ".csv":
        write_csv(path, NUMBERS)
    elif suffix == ".npy":
        np.save(path, np.array(list(NUMBERS.values()), np.float32).T)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table(NUMBERS)
        if suffix == ".parquet":
            pytest.importorskip("pyarrow.parquet").write_table(table, path)
        else:
            ipc = pytest.importorskip("pyarrow.ipc")
            with (ipc.new_file if suffix == ".arrow" else ipc.new_stream)(str(path), table.schema) as writer:
                writer.write_table(table)
    for source in (path, str(path)):
        assert read(source, MATRIX)[0].tolist() == [[1.5, 1, 0], [2.5, 2, 1], [3.5, 3, 0]]
    first, second = (source_of(path, Signature(MATRIX, "main")) for _ in range(2))
    assert first.fingerprint() == second.fingerprint() is not None


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    signature = Signature(MATRIX, "main")
    with pytest.raises(MissingFileError, match="there is no such file"):
        source_of("nowhere.csv", signature)
    with pytest.raises(ArgumentError, match=r"expected a file \.parquet, \.csv"):
        source_of("rows.xlsx", signature)
    (tmp_path / "short.csv").write_text("a,b,c\n1,2,3\n4,5\n")
    with pytest.raises(ArgumentError, match="line 3 has 2 values for 3 columns"):
        read(tmp_path / "short.csv", MATRIX)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    MATRIX.export_library(tmp_path / "m.trdl")
    return tmp_path / "m.trdl"


def test_a_file_becomes_another_from_the_command_line(model: Path, tmp_path: Path, capsys: Any) -> None:
    source, made = write_csv(tmp_path / "in.csv", NUMBERS), tmp_path / "out.csv"
    command = ["map", str(source), str(made), "--model", str(model), "--batch-size", "2", "--workers", "1", "--quiet"]
    assert main(command) == 0
    assert "out.csv: 3 rows in" in capsys.readouterr().out
    (name,) = MATRIX.outputs().names
    with made.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        [f"{name}_0", f"{name}_1", f"{name}_2"],
        ["3.0", "2.0", "0.0"],
        ["5.0", "4.0", "2.0"],
        ["7.0", "6.0", "0.0"],
    ]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.csv", "m.trdl", "out.csv"]
    assert main([*command[:2], str(source), *command[3:]]) == 2
    assert "itself would be written over" in capsys.readouterr().err
    assert main([*command[:2], str(tmp_path / "out.xlsx"), *command[3:]]) != 0
    assert "expected a name that ends in .parquet, .arrow or .csv" in capsys.readouterr().err


def test_what_was_done_is_not_done_again(model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    source, made = write_csv(tmp_path / "in.csv", NUMBERS), tmp_path / "out.csv"
    command = ["map", str(source), str(made), "--model", str(model), "--batch-size", "1", "--workers", "1", "--quiet"]
    written: list[int] = []

    def stopped(self: Any, results: Any) -> None:
        written.append(len(results[0]))
        if len(written) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("treadle.cluster.tables.TableWriter.write", stopped)
        assert main(command) == 130
    kept = {each.name for each in (tmp_path / "out.csv.parts").glob("*.batch")}
    assert "0000000001.batch" in kept
    assert not made.exists()
    computed: list[int] = []
    from treadle.cluster.checkpoint import Checkpoint

    put = Checkpoint.put
    monkeypatch.setattr(
        Checkpoint, "put", lambda self, number, result: (computed.append(number), put(self, number, result))
    )
    assert main(command) == 0
    assert {f"{number:010d}.batch" for number in computed}.isdisjoint(kept)
    assert len(made.read_text().splitlines()) == 4
    assert not (tmp_path / "out.csv.parts").exists()


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_results_are_written_as_columns_of_lists(suffix: str, model: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    source, made = write_csv(tmp_path / "in.csv", NUMBERS), tmp_path / f"out{suffix}"
    assert main(["map", str(source), str(made), "--model", str(model), "--workers", "1", "--quiet"]) == 0
    if suffix == ".parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(made)
    else:
        table = pytest.importorskip("pyarrow.ipc").open_file(str(made)).read_all()
    assert table.column(0).to_pylist() == [[3, 2, 0], [5, 4, 2], [7, 6, 0]]
    assert pyarrow.types.is_fixed_size_list(table.schema.field(0).type)


def test_without_pyarrow_its_files_say_what_to_install(
    model: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(TreadleError, match=r'pip install "treadle\[tables\]"'):
        source_of(tmp_path / "rows.parquet", Signature(MATRIX, "main"))


def test_a_file_that_is_no_table_is_an_error_of_ours(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name in ("rows.parquet", "rows.arrow"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises((FileError, treadle.errors.FormatError), match="cannot read"):
            read(tmp_path / name, MATRIX)
