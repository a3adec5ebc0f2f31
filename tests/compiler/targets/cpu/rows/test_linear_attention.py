"""Linear attention, compiled, against the reference evaluator and against itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from treadle.formats.types import tensor

from ..examples import examples
from ..harness import NARROW, TARGET, check, definition_of, run_kernel

HEADS, DEPTH, WIDTH = 2, 16, 80


@pytest.mark.parametrize("target", [TARGET, *NARROW])
def test_it_is_what_the_reference_says(target: Any):
    there = [each for each in examples("linear_attention", 300, 12) if not _has_texts_elsewhere(each)]
    assert len(there) > 6
    for number, each in enumerate(there):
        check(each.definition, each.arrays, each.sizes, 1 + number % 3, 1e-3, 1e-3, target)  # states grow


def _has_texts_elsewhere(example: Any) -> bool:
    return len(example.arrays) > 6 and bool(example.arrays[6][:1, 0].any())


def attended(counts: list[int], rows: list[np.ndarray], states: np.ndarray, begins: list[int] | None = None) -> Any:
    """The code, results and states of texts that have `counts` of the rows, one after another."""
    firsts = np.cumsum([0, *counts])[:-1] if begins is None else begins
    texts = np.array([firsts, counts, counts, counts], np.int64).T.reshape(-1, 4)
    shapes = [(1, "n", HEADS, each.shape[3]) for each in rows]
    types = [tensor("float32", shape) for shape in (*shapes[:3], ("t", HEADS, DEPTH, WIDTH), *shapes[3:])]
    definition = definition_of("linear_attention", [*types, tensor("int64", ("t", 4))], delta=True, scale=0.5)
    arrays = [*rows[:3], states, *rows[3:], texts]
    code, outputs = run_kernel(definition, arrays, {"n": rows[0].shape[1], "t": len(counts)}, 2)
    return code, *outputs


def test_a_text_has_the_same_bits_beside_any_others_and_in_any_pieces():
    random = np.random.default_rng(0)
    sizes = (DEPTH, DEPTH, WIDTH, 1, 1)
    rows = [random.standard_normal((1, 40, HEADS, size)).astype("f") / 4 for size in sizes]
    begin = random.standard_normal((1, HEADS, DEPTH, WIDTH)).astype("f")
    code, whole, last = attended([40], rows, begin)
    assert code == 0
    state, results = begin, []
    for first, end in ((0, 1), (1, 23), (23, 24), (24, 40)):
        piece = [np.concatenate([each[:, :3], each[:, first:end]], axis=1) for each in rows]
        code, made, states = attended([3, end - first], piece, np.concatenate([begin, state]))
        assert code == 0
        np.testing.assert_array_equal(made[:, :3], whole[:, :3])
        results.append(made[:, 3:])
        state = states[1:]
    np.testing.assert_array_equal(np.concatenate(results, axis=1), whole)
    np.testing.assert_array_equal(state, last)
    for counts, begins in (([3, 36], [0, 3]), ([3, 37], [0, 4]), ([-1, 41], [0, -1]), ([40, 2**62], [0, 40])):
        assert attended(counts, rows, np.concatenate([begin, begin]), begins)[0] == 1
