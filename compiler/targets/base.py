"""What the compiler asks of a target. Nothing outside `compiler/targets` knows which one it is: it is handed over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from ...formats import dims
from ...formats.primitive import PrimitiveDefinition

if TYPE_CHECKING:
    from ...formats.executable import Executable
    from ...vm.library import Evaluate

# Steps of arithmetic on symbolic dimensions that checking a definition may take: those of the zoo take 680 at most
CHECK_STEPS = 100_000


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

    @property
    def note(self) -> str:
        """The target's name in the executables that are made for it, by which a machine finds what computes their primitives
        (`vm.targets`); "" where any machine builds the kernels that it needs."""
        return ""

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

    def evaluator(self, definition: PrimitiveDefinition) -> Evaluate:
        """What computes a primitive on the host where it has no native code. Raises InferenceError for a malformed definition."""
        return reference(definition)

    def tuned(self, generated: Callable[..., Executable], seconds: Any, remembered: bool, progress: bool) -> Executable:
        """What `generated(backend)` gives, by the fastest choices: measured for that many seconds if any are given (or by a
        tuning session), and those remembered from before if asked for. A target without choices has nothing to measure."""
        return generated(self)


def reference(definition: PrimitiveDefinition) -> Evaluate:
    """The operators' reference implementations. Raises InferenceError for a malformed definition."""
    from ..check import check_definition
    from ..ir.evaluate import DefinitionEvaluator

    with dims.bounded(CHECK_STEPS):
        check_definition(definition)
    return DefinitionEvaluator(definition)
