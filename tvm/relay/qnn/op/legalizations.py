"""`relay.qnn.op.legalizations`: the functions of real numbers that quantised operators compute."""

from __future__ import annotations

import numpy as np

__all__ = ["hardswish_func"]


def hardswish_func(x: np.ndarray) -> np.ndarray:
    """x · min(max(x + 3, 0), 6) / 6."""
    return x * np.clip(x + 3, 0, 6) / 6
