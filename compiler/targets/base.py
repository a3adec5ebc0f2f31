"""What the compiler asks of a target. Nothing outside `compiler/targets` knows which one it is: it is handed over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from ...formats.primitive import PrimitiveDefinition

if TYPE_CHECKING:
    from ...formats.executable import Executable


class Stage(Enum):
    """Where the passes of a target run among the others (`passes/__init__.py`)."""

    SIMPLIFIED = "behind the first simplification, while constants are not folded yet"
    RECOGNISED = "when attention, normalisations and activations are single operators"
    LAYOUT = "at the end of the optimisations, before closures are lifted and operators fused"


class Backend(ABC):
    """A target in use: its passes, its kernels, its native code, its tuning."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The name of this target among the native code of an executable."""

    @abstractmethod
    def passes(self, stage: Stage) -> Sequence[tuple[int, Any]]:
        """The target's own passes of a stage, each with the least optimisation level at which it runs."""

    @abstractmethod
    def supports(self, definition: PrimitiveDefinition) -> bool:
        """Whether there is a kernel for a definition. What is not supported is split, and in the end runs on the host."""

    @abstractmethod
    def build(
        self, definitions: Sequence[PrimitiveDefinition], variants: Sequence[str], progress: bool, seconds: float | None
    ) -> Sequence[Any]:
        """A kernel for each definition (vm/library.py's `BuiltKernel`); None for one that runs on the host."""

    def tuned(self, generated: Callable[..., Executable], seconds: Any, remembered: bool, progress: bool) -> Executable:
        """What `generated(backend)` gives, by the fastest choices: measured for that many seconds if any are given (or by a
        tuning session), and those remembered from before if asked for. A target without choices has nothing to measure."""
        return generated(self)
