"""Engines that are not what they should be."""

from __future__ import annotations

import numpy as np
import pytest
from treadle.tools.dev.bench import engines


@pytest.fixture
def wrong_treadle(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that Treadle computes is too large by a hundredth."""
    right = engines.ENGINES["onnxruntime"]

    def wrong(*arguments: object) -> engines.Call:
        call = right(*arguments)  # type: ignore[arg-type]
        return lambda: [array * np.float32(1.01) for array in call()]

    monkeypatch.setitem(engines.ENGINES, "treadle", wrong)


@pytest.fixture
def failing_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rival cannot run any model."""

    def refuse(*_: object) -> engines.Call:
        raise RuntimeError("\nno such operator\nat line 3")

    monkeypatch.setitem(engines.ENGINES, "onnxruntime", refuse)
