"""Sources become numbered batches of bounded size, whatever they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import treadle
from hypothesis import given
from hypothesis import strategies as st
from treadle import Module, function, var
from treadle.cluster.runner import Signature
from treadle.cluster.sources import source_of
from treadle.formats.messages.errors import ArgumentError

X, Y = var("x", ("n",)), var("y", ("n",))
SIGNATURE = Signature(treadle.compile(Module(main=function([X, Y], X + Y))), "main")


def cut(source: object, size: int) -> list[tuple[int, list, list]]:
    batches = list(source_of(source, SIGNATURE).batches(size))
    assert [batch.number for batch in batches] == list(range(len(batches)))
    read = [(batch.rows, *(array.tolist() for array in batch.read())) for batch in batches]
    assert all(rows == len(x) == len(y) for rows, x, y in read)
    return read


@given(st.lists(st.integers(0, 12), max_size=20), st.integers(1, 9))
def test_pieces_of_any_size_are_cut_as_the_whole_is(sizes: list[int], size: int) -> None:
    ends = np.cumsum([0, *sizes])
    x = np.arange(ends[-1], dtype=np.float32)
    pieces = [(x[start:end], -x[start:end]) for start, end in itertools.pairwise(ends)]
    assert cut(iter(pieces), size) == cut((x, -x), size)
    assert [x for _, xs, _ in cut(pieces, size) for x in xs] == x.tolist()


def test_an_iterator_may_fill_one_buffer_again_and_again() -> None:
    def pieces() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        buffer = np.zeros(3, np.float32)
        for number in range(4):
            buffer[:] = number
            yield buffer, buffer

    assert [x for _, x, _ in cut(pieces(), 5)] == [[0, 0, 0, 1, 1], [1, 2, 2, 2, 3], [3, 3]]


def test_arrays_are_read_when_their_batch_is() -> None:
    class Rows:
        shape, dtype = (10,), np.dtype(np.float32)

        def __init__(self) -> None:
            self.read: list[slice] = []

        def __getitem__(self, rows: slice) -> np.ndarray:
            self.read.append(rows)
            return np.zeros(rows.stop - rows.start, np.float32)

    rows = Rows()
    batches = source_of((rows, rows), SIGNATURE).batches(4)
    next(batches)
    second = next(batches)
    assert rows.read == []
    second.read()
    assert rows.read == [slice(4, 8)] * 2


def test_different_numbers_of_rows_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"their shapes are x \[3\], y \[4\]"):
        source_of((np.zeros(3), np.zeros(4)), SIGNATURE)


def test_missing_names_are_told() -> None:
    with pytest.raises(ArgumentError, match=r"the source has no 'y'; function 'main' takes x, y, got x, z"):
        source_of({"x": np.zeros(3), "z": np.zeros(3)}, SIGNATURE)


def test_a_fingerprint_tells_arrays_apart(tmp_path: Path) -> None:
    def fingerprint(*arrays: np.ndarray) -> str | None:
        return source_of(arrays, SIGNATURE).fingerprint()

    x = np.arange(1000, dtype=np.float32)
    changed = x.copy()
    changed[501] = 0
    assert fingerprint(x, x) == fingerprint(x.copy(), x)
    assert len({fingerprint(*pair) for pair in ((x, x), (x, changed), (changed, x), (x[:-1], x[:-1]))}) == 4
    np.save(tmp_path / "x.npy", x)
    mapped = fingerprint(np.load(tmp_path / "x.npy", mmap_mode="r"), x)
    assert mapped == fingerprint(np.load(tmp_path / "x.npy", mmap_mode="r"), x)
    assert source_of(iter([]), SIGNATURE).fingerprint() is None
