"""Attention over pages, compiled, against the reference evaluator and against itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from treadle.compiler.operators.paged import STORED
from treadle.compiler.operators.table import lookup
from treadle.formats.messages.errors import IndexOutOfRangeError
from treadle.formats.types import tensor

from ..examples import examples
from ..harness import NARROW, TARGET, check, definition_of, run_kernel

HEADS, REPEAT, SIZE, PAGE = 2, 3, 32, 32


@pytest.mark.parametrize("target", [TARGET, *NARROW])
def test_it_is_what_the_reference_says(target: Any):
    there = [each for each in examples("paged_attention", 300, 20) if _is_there(each)]
    assert {each.arrays[3].dtype.name for each in there} == {each.name for each in STORED}
    for number, each in enumerate(there):
        error = 3e-4 if each.arrays[3].dtype == np.uint8 else 1e-5  # there queries have 15 bits
        check(each.definition, each.arrays, each.sizes, 1 + number % 3, error, error, target)


def _is_there(example: Any) -> bool:
    """Whether its texts lie where they must, and have rows."""
    *_, values, _, tables = example.arrays
    return example.arrays[0].size > 0 and bool(((tables >= 0) & (tables < len(values))).all())


def attention(
    lengths: list[tuple[int, int]],
    rows: list[np.ndarray],
    window: int = 0,
    parts: int = 2,
    dtype: str = "float32",
    **changed: np.ndarray,
) -> Any:
    """The code, and the result [heads, tokens, size], of texts of `lengths`, earlier and new tokens. All queries, keys and
    values are `rows`; the earlier ones lie in the pages 0, 1, … in the order of the texts."""
    q, k, v = (np.concatenate([each[:, past : past + count] for past, count in lengths], axis=1)[None] for each in rows)
    keys, values, entries, first = [], [], [], 0
    for past, count in lengths:
        entries.append((first, count, past, len(keys)))
        first += count
        for start in range(0, past, PAGE):
            key, value = (np.full((HEADS, PAGE, SIZE), np.nan, np.float32) for _ in range(2))
            for page, each in ((key, rows[1]), (value, rows[2])):
                page[:, : past - start] = each[:, start : min(start + PAGE, past)]
            keys.append(key)
            values.append(value)
    pages = [np.reshape(np.array(each, "f"), (-1, HEADS, PAGE, SIZE)) for each in (keys, values)]
    given, unit = [q, k, v, *pages], 1
    if dtype == "uint8":
        given[1:], unit = [lookup("quantize_rows").evaluate([each])[0] for each in given[1:]], 4
    units = given[3].view(f"u{unit}") if unit > 1 else given[3]
    panels = units.reshape(-1, HEADS, PAGE // 16, 16, units.shape[3]).swapaxes(3, 4)
    given[3] = np.ascontiguousarray(panels).view(dtype)
    shapes = [(1, HEADS * REPEAT, "n", SIZE), *[(1, HEADS, "n", given[4].shape[3])] * 2]
    shapes += [("p", *given[3].shape[1:]), ("p", *given[4].shape[1:]), ("t", 4), ("e",)]
    given += [changed.get("texts", np.array(entries)), changed.get("tables", np.arange(len(keys)))]
    dtypes = ["float32", *[dtype] * 4, "int64", "int64"]
    types = [tensor(each, shape) for each, shape in zip(dtypes, shapes, strict=True)]
    definition = definition_of("paged_attention", types, scale=0.3, repeat=REPEAT, window=window)
    sizes = {"n": q.shape[2], "p": len(keys), "t": len(given[5]), "e": len(given[6])}
    code, outputs = run_kernel(definition, given, sizes, parts)
    return code, outputs[0][0] if code == 0 else None


@pytest.fixture(scope="module")
def rows() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal((heads, 600, SIZE)).astype("f") for heads in (HEADS * REPEAT, HEADS, HEADS)]


@pytest.mark.parametrize(("window", "dtype"), [(0, "float32"), (40, "float32"), (0, "uint8"), (40, "uint8")])
def test_a_row_has_the_same_bits_beside_any_others_and_in_any_piece_of_its_text(
    rows: list[np.ndarray], window: int, dtype: str
):
    code, whole = attention([(0, 600)], rows, window, parts=1, dtype=dtype)
    assert code == 0
    for texts in (
        [(past, 1) for past in (0, 1, 31, 32, 255, 256, 300, 599)],
        [(5, 2), (0, 16), (250, 90), (500, 13), (7, 1)],
    ):
        code, pieces = attention(texts, rows, window, parts=len(texts), dtype=dtype)
        assert code == 0
        expected = np.concatenate([whole[:, past : past + count] for past, count in texts], axis=1)
        np.testing.assert_array_equal(pieces, expected)


@pytest.mark.parametrize(("which", "wrong"), [(1, np.inf), (2, np.nan)])
def test_in_8_bits_what_is_not_finite_is_seen_by_later_rows_alone(rows: list[np.ndarray], which: int, wrong: float):
    spoilt = [each.copy() for each in rows]
    spoilt[which][1, 300, 5] = wrong
    (_, whole), (code, made) = (attention([(290, 30)], each, dtype="uint8") for each in (rows, spoilt))
    assert code == 0
    is_spoilt = np.zeros(made.shape[:2], bool)
    is_spoilt[REPEAT:, 10:] = True  # of the second head of keys
    np.testing.assert_array_equal(made[~is_spoilt], whole[~is_spoilt])
    assert np.isnan(made[is_spoilt]).all()


@pytest.mark.parametrize(
    "changed",
    [
        {"texts": [[0, 1, 40, 0], [0, 1, 0, 2]]},
        {"texts": [[0, 1, 40, 0], [1, 2, 0, 2]]},
        {"texts": [[0, 1, 40, 0], [1, 0, 0, 2]]},
        {"texts": [[0, 1, 40, -1], [1, 1, 0, 2]]},
        {"texts": [[0, 1, 40, 0], [1, 1, 0, 3]]},
        {"texts": [[0, 1, 2**62, 0], [1, 1, 0, 2]]},
        {"texts": [[0, 1, 40, 2**62], [1, 1, 0, 2]]},
        {"texts": [[0, 2**63 - 1, 40, 0], [1, 1, 0, 2]]},
        {"texts": [[0, -1, 40, 0], [-1, 3, 0, 2]]},
        {"tables": [0, 2]},
        {"tables": [-1, 0]},
        {"tables": [0]},
    ],
)
def test_texts_and_pages_that_there_are_not_end_the_kernel(rows: list[np.ndarray], changed: dict[str, list]):
    code, _ = attention([(40, 1), (0, 1)], rows, **{name: np.array(each) for name, each in changed.items()})
    assert code == 1


def test_the_reference_refuses_a_first_page_behind_the_tables():
    new, keys, values = np.zeros((1, 1, 1, 16), "f"), np.zeros((2, 1, 2, 16, 16), "f"), np.zeros((2, 1, PAGE, 16), "f")
    arrays = [new, new, new, keys, values, np.array([[0, 1, 0, 3]]), np.arange(2)]
    with pytest.raises(IndexOutOfRangeError, match=r"0 before them in the pages \[\] of 2, from entry 3 of 2 on"):
        lookup("paged_attention").evaluate(arrays)
