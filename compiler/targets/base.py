"""What the compiler asks of a target. Nothing outside `compiler/targets` knows which one it is: it is handed over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...formats.primitive import PrimitiveDefinition


class Stage(Enum):
    """Where the passes of a target run among the others (`passes/__init__.py`)."""

    SIMPLIFIED = "behind the first simplification, while constants are not folded yet"
    RECOGNISED = "when attention, normalisations and activations are single operators"
    LAYOUT = "at the end of the optimisations, before closures are lifted and operators fused"


@dataclass(frozen=True)
class Costs:
    """What the passes that all targets share ask of a target's speed. By default, they leave products alone."""

    attention_row: int = 0  # elements of the longest row of queries, keys or values for which attention is one operator
    merged_bytes: int = 0  # of the result, at most, of a product that takes the place of several
    part_weights: int = 1 << 62  # of a part of a product, at least, that is worth a product of its own
    reads_a_column: int = 0  # elements of the operand, at most, that parts read again for each column of the product


class Backend(ABC):
    """A target in use: its passes, its kernels, its native code."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The name of this target among the native code of an executable."""

    @property
    def costs(self) -> Costs:
        return Costs()

    @abstractmethod
    def passes(self, stage: Stage) -> Sequence[tuple[int, Any]]:
        """The target's own passes of a stage, each with the least optimisation level at which it runs."""

    @abstractmethod
    def supports(self, definition: PrimitiveDefinition) -> bool:
        """Whether there is a kernel for a definition. What is not supported is split, and in the end runs on the host."""

    @abstractmethod
    def build(self, definitions: Sequence[PrimitiveDefinition], progress: bool, seconds: float | None) -> Sequence[Any]:
        """A kernel for each definition (vm/library.py's `BuiltKernel`); None for one that runs on the host."""
