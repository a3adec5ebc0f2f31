"""What the compiler asks of a target. Nothing outside `compiler/targets` knows which one it is: it is handed over."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ...formats import dims, limits
from ...formats.primitive import PrimitiveDefinition
from ...formats.program import EXACT, PRECISIONS
from ...formats.types import TensorType, TupleType
from ..ir import Binding, OperatorCall
from ..operators.table import lookup
from ..operators.work import work_of

if TYPE_CHECKING:
    from ...vm.library import Evaluate

# Steps of arithmetic on symbolic dimensions that checking a definition may take: those of the zoo take 680 at most
CHECK_STEPS = 100_000


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


class Narrowing:
    """Which products, convolutions and attentions are computed in less than float32, and in what: all, none, or those of some
    nodes of the model. What gains nothing in int8 is bfloat16."""

    def __init__(self, precision: str | Mapping[str, str] = EXACT) -> None:
        """A precision of `PRECISIONS` for all, or one for each node by its name; other nodes are float32."""
        self.precision = precision
        # nodes that may be narrow in some precision → the operations of the plain algorithm, 0 if sizes are open
        self.met: dict[str, int] = {}
        self.made: dict[str, str] = {}  # nodes that are narrow → the precision

    @property
    def is_any(self) -> bool:
        """Whether anything may be narrow."""
        values = [self.precision] if isinstance(self.precision, str) else self.precision.values()
        return any(each != EXACT for each in values)

    def takes(self, binding: Binding, precision: str, is_possible: bool) -> bool:
        """Whether a binding's operator, for which no other narrow precision is possible, has this one."""
        return self.chosen(binding, lambda: [precision] * is_possible) != EXACT

    def chosen(self, binding: Binding, possible: Callable[[], Collection[str]]) -> str:
        """The precision of a binding's operator: float32, or one of the narrow ones that are `possible`, which is called only
        where something is narrow."""
        if not self.is_any or not (narrow := possible()):
            return EXACT
        node = _node_of(binding)
        asked = self._of(node)
        found = asked if asked in narrow else "bfloat16" if asked == "int8" and "bfloat16" in narrow else EXACT
        self.met[node] = self.met.get(node, 0) + _operations(binding)
        if found != EXACT:
            self.made[node] = found
        return found

    def names(self, binding: Binding) -> bool:
        """Whether the precision of a binding's node is not float32, whatever its operator."""
        return self._of(_node_of(binding)) != EXACT

    def _of(self, node: str) -> str:
        return self.precision if isinstance(self.precision, str) else self.precision.get(node, EXACT)

    @property
    def note(self) -> str:
        """For metadata: the precision, or those of nodes by name; of more than a string of a file holds, their number."""
        if isinstance(self.precision, str):
            return self.precision
        text = json.dumps(dict(self.precision), ensure_ascii=False)
        return text if len(text.encode()) <= limits.STRING_BYTES else f"of {len(self.precision)} nodes"

    @property
    def unknown(self) -> list[str]:
        """Nodes that were named, and that no pass has met."""
        return [] if isinstance(self.precision, str) else [name for name in self.precision if name not in self.met]


def _node_of(binding: Binding) -> str:
    return binding.origin or binding.var.name


def _operations(binding: Binding) -> int:
    call = binding.value
    assert isinstance(call, OperatorCall)
    results = binding.var.type.fields if isinstance(binding.var.type, TupleType) else (binding.var.type,)
    found = [*(getattr(arg, "type", None) for arg in call.args), *results]
    types = [type_ for type_ in found if isinstance(type_, TensorType) and type_.is_static]
    if len(types) < len(found):
        return 0
    operator, inputs = lookup(call.operator), len(call.args)
    return work_of(operator, types[:inputs], types[inputs:], operator.bind(call.attributes)).defined


class Backend(ABC):
    """A target in use: its passes, its kernels, its native code."""

    narrowing: Narrowing

    @property
    @abstractmethod
    def key(self) -> str:
        """The name of this target among the native code of an executable."""

    @property
    @abstractmethod
    def costs(self) -> Costs:
        """What the passes that all targets share ask; `Costs()` leaves products alone."""

    @property
    def note(self) -> str:
        """The target's name in executables that are made for it, or have a device of it, by which a machine finds what computes
        their primitives (`vm.targets`); "" where any machine builds the kernels that it needs."""
        return ""

    @property
    def precisions(self) -> Sequence[str]:
        """What `with_precision` takes; the first is float32."""
        return PRECISIONS

    @abstractmethod
    def with_precision(self, precision: str | Mapping[str, str]) -> Backend:
        """The same target, with products of that precision."""

    @abstractmethod
    def passes(self, stage: Stage) -> Sequence[tuple[int, Any]]:
        """The target's own passes of a stage, each with the least optimisation level at which it runs."""

    @abstractmethod
    def supports(self, definition: PrimitiveDefinition) -> bool:
        """Whether there is a kernel for a definition. What is not supported is split, and in the end runs on the host."""

    @abstractmethod
    def build(self, definitions: Sequence[PrimitiveDefinition], progress: bool, seconds: float | None) -> Sequence[Any]:
        """A kernel for each definition (vm/library.py's `BuiltKernel`); None for one that runs on the host."""

    def evaluator(self, definition: PrimitiveDefinition) -> Evaluate:
        """What computes a primitive on the host where it has no native code. Raises InferenceError for a malformed definition."""
        return reference(definition)


def reference(definition: PrimitiveDefinition) -> Evaluate:
    """The operators' reference implementations. Raises InferenceError for a malformed definition."""
    from ..check import check_definition
    from ..ir.evaluate import DefinitionEvaluator

    with dims.bounded(CHECK_STEPS):
        check_definition(definition)
    return DefinitionEvaluator(definition)
