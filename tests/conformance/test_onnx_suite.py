"""ONNX's own cases for backends, all of them: `make conformance`."""

from __future__ import annotations

from pathlib import Path

import pytest
from treadle.tools.dev.conformance import cases

from .backend import run
from .judging import check

CASES = cases()
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(120)]


def test_the_suite_is_whole() -> None:
    assert len(CASES) > 1500  # of the oldest package that is supported; 2,033 of onnx 1.23


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, tmp_path: Path) -> None:
    """The compiler sees the model alone: neither the inputs nor what is due."""
    case = CASES[name]
    path = case.saved(tmp_path)
    for inputs, due in case.sets():
        check(case, inputs, run(str(path), inputs), due)
