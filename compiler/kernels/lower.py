"""From the definition of a primitive to its kernel: the table of templates, by the operator that anchors the primitive."""

from __future__ import annotations

from collections.abc import Callable

from ...formats.primitive import PrimitiveDefinition, PrimitiveNode
from ...formats.types import UNKNOWN
from ..operators.table import Fusion, lookup
from . import elementwise
from .kernel import Kernel
from .target import Target

Template = Callable[[PrimitiveDefinition, Target], "Kernel | None"]

TEMPLATES: dict[str, Template] = {}


def anchor(definition: PrimitiveDefinition) -> PrimitiveNode | None:
    """The node that is not elementwise, of which there is one at most."""
    return next((node for node in definition.nodes if lookup(node.operator).fusion is not Fusion.ELEMENTWISE), None)


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of a definition, or None if no template takes it: then it must be split, or run as a host operator."""
    if any(dim is UNKNOWN for type_ in definition.values for dim in type_.shape):
        return None
    node = anchor(definition)
    template = elementwise.lower if node is None else TEMPLATES.get(node.operator)
    return template(definition, target) if template else None


def supports(definition: PrimitiveDefinition, target: Target) -> bool:
    """True if `lower` gives a kernel."""
    return lower(definition, target) is not None
