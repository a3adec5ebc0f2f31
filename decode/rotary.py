"""Rotary positions (Su et al., RoFormer, 2021) of the queries and keys that a paged cache takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..formats.messages.errors import CheckError, ShapeError

Waves = tuple[np.ndarray, np.ndarray]  # cosines and sines, [positions, size / 2]


@dataclass(frozen=True)
class Rotary:
    """How positions turn the pairs (i, i + size / 2) of a head's elements: by the angle
    `position * scale / (factors[i] * theta ** (2 i / size))`.

    "none": not at all; "normal": keys are rotated before they are stored; "inline": keys are stored as given and rotated when
    they are read, by the place that they have then: in a sliding window, places change. `factors`, one for each pair, are those
    of models that were stretched to longer texts (LongRoPE, Llama 3); `magnitude` multiplies what is turned, as those models ask.
    """

    mode: Literal["none", "normal", "inline"] = "none"
    theta: float = 10000.0
    scale: float = 1.0
    factors: tuple[float, ...] | None = None
    magnitude: float = 1.0

    def check(self, size: int) -> None:
        """Raises CheckError, ShapeError where it does not fit heads of that size."""
        if self.mode not in ("none", "normal", "inline"):
            raise CheckError(f'the rotary mode must be "none", "normal" or "inline", got {self.mode!r}')
        if self.mode != "none" and size % 2:
            raise ShapeError(f"rotary positions turn pairs: a head of {size} elements has none")
        if self.mode != "none" and not self.theta > 0:
            raise CheckError(f"the rotary theta must be above 0, got {self.theta}")
        if self.factors is not None and len(self.factors) != size // 2:
            raise ShapeError(
                f"expected {size // 2} rotary factors for heads of {size} elements, got {len(self.factors)}"
            )

    def waves(self, positions: np.ndarray, size: int, dtype: np.dtype) -> Waves:
        """Cosines and sines, [positions, size / 2]."""
        steps = self.scale / self.theta ** (np.arange(0, size, 2) / size)
        if self.factors is not None:
            steps = steps / np.array(self.factors)
        angles = np.multiply.outer(np.asarray(positions, np.float64), steps)
        return (self.magnitude * np.cos(angles)).astype(dtype), (self.magnitude * np.sin(angles)).astype(dtype)

    @staticmethod
    def turn(x: np.ndarray, waves: Waves) -> np.ndarray:
        """x, [positions, heads, size], turned; a new array."""
        half = x.shape[-1] // 2
        cos, sin = (wave[:, None] for wave in waves)
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
