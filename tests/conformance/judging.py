"""How results of ONNX's cases are judged: as ONNX's own runner does, and sequences by their lengths too. Draws that the standard
leaves to the backend are judged by what they may be (`_DRAWS`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from treadle.tools.dev.conformance import Case

_BFLOAT16 = 2.0**-6  # rtol: two units in the last place


def check(case: Case, inputs: Sequence[Any], found: Sequence[Any], due: Sequence[Any]) -> None:
    """Raises AssertionError where results are not those that are due."""
    assert len(found) == len(due), f"{len(found)} results where {len(due)} are due"
    draw = next((judge for pattern, judge in _DRAWS.items() if re.search(pattern, case.name)), None)
    for place, (got, expected) in enumerate(zip(found, due, strict=True)):
        _check_value(got, expected, case, f"result {place}", draw is None)
    if draw is not None:
        draw(inputs, found)


def _check_value(found: Any, due: Any, case: Case, where: str, compares: bool) -> None:
    if due is None:
        assert found is None, f"{where}: {type(found).__name__} where None is due"
        return
    if isinstance(due, list):
        assert isinstance(found, list), f"{where}: {type(found).__name__} where a list is due"
        assert len(found) == len(due), f"{where}: {len(found)} elements where {len(due)} are due"
        for place, (element, expected) in enumerate(zip(found, due, strict=True)):
            _check_value(element, expected, case, f"{where}[{place}]", compares)
        return
    assert isinstance(found, np.ndarray), f"{where}: {type(found).__name__} where an array is due"
    assert found.shape == due.shape, f"{where}: shape {found.shape} where {due.shape} is due"
    if due.dtype == object:  # texts
        assert found.tolist() == due.tolist(), where
        return
    assert found.dtype == due.dtype, f"{where}: {found.dtype} where {due.dtype} is due"
    if not compares:
        return
    rtol = max(case.rtol, _BFLOAT16) if due.dtype.name == "bfloat16" else case.rtol
    if due.dtype.isbuiltin != 1:  # a type of ml_dtypes, all of whose values float32 has
        found, due = found.astype(np.float32), due.astype(np.float32)
    np.testing.assert_allclose(found, due, rtol=rtol, atol=case.atol, err_msg=where)


def _check_bernoulli(inputs: Sequence[Any], found: Sequence[Any]) -> None:
    """Zeros and ones, these as often as their probabilities say: within 5 standard deviations."""
    p, drawn = inputs[0].astype(np.float64), found[0].astype(np.float64)
    assert set(np.unique(drawn)) <= {0.0, 1.0}
    assert abs(drawn.sum() - p.sum()) <= 5 * np.sqrt((p * (1 - p)).sum()) + 1e-9


def _check_dropout(inputs: Sequence[Any], found: Sequence[Any]) -> None:
    """Each element is 0 or grown by what is left of all, as the mask says; there are as many zeros as the ratio says."""
    x, ratio = inputs[0], float(inputs[1]) if len(inputs) > 1 else 0.5
    kept = found[1] if len(found) > 1 else found[0] != 0
    np.testing.assert_allclose(found[0], np.where(kept, x / (1 - ratio), 0), rtol=1e-5)
    assert abs((~kept).sum() - ratio * x.size) <= 5 * np.sqrt(ratio * (1 - ratio) * x.size)


_DRAWS: dict[str, Callable[[Sequence[Any], Sequence[Any]], None]] = {
    r"/test_bernoulli": _check_bernoulli,
    r"/test_training_dropout(?!.*zero_ratio)": _check_dropout,
}
