"""What operators ask of sizes that inference could not prove, since only a call tells these: kernels look before they work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...formats import dims
from ...formats.dims import Dim, SymbolicDim
from ...formats.primitive import PrimitiveDefinition
from ..operators.shapes import is_nonnegative
from .expression import bound_attributes

_Shapes = Sequence[tuple[Any, ...]]
_Rule = Callable[[_Shapes, dict[str, Any]], Iterable[Dim]]


@dataclass(frozen=True)
class Relation:
    """That a dimension is 0, or that it is not negative."""

    dim: SymbolicDim
    is_zero: bool

    @property
    def failure(self) -> str:
        """The condition on which a call fails, of the dimension's variable."""
        return "!= 0" if self.is_zero else "< 0"


def _groups(shapes: _Shapes, attributes: dict[str, Any]) -> list[Dim]:
    return [dims.modulo(shapes[0][1], attributes["groups"])]


def _conv(shapes: _Shapes, attributes: dict[str, Any]) -> list[Dim]:
    return [dims.modulo(channels, attributes["groups"]) for channels in (shapes[0][1], shapes[1][0])]


def _parts(name: str) -> _Rule:
    return lambda shapes, attributes: [dims.modulo(shapes[0][1], dims.product(attributes[name]))]


def _pads(shapes: _Shapes, attributes: dict[str, Any]) -> Iterable[Dim]:
    return attributes["pads"] or ()


# operator → what must be 0, from the shapes of the operands and the attributes
_ZERO: dict[str, _Rule] = {
    "group_normalization": _groups,
    "conv": _conv,
    "depth_to_space": _parts("blocks"),
    "col2im": _parts("kernel"),
}

# operator → what must not be negative. `pad` looks itself
_NOT_NEGATIVE: dict[str, _Rule] = {
    **dict.fromkeys(("max_pool", "average_pool", "conv", "conv_blocked", "conv_planar", "conv_to_few"), _pads),
    **dict.fromkeys(("conv_integer_blocked", "conv_depthwise"), _pads),
}


def relations(definition: PrimitiveDefinition) -> Iterator[Relation]:
    """What must hold in every call of the definition, and may not for all that its types tell."""
    values = definition.values
    for node in definition.nodes:
        for is_zero, rules in ((True, _ZERO), (False, _NOT_NEGATIVE)):
            if node.operator in rules:
                shapes = [values[number].shape for number in node.inputs]
                for dim in rules[node.operator](shapes, bound_attributes(node)):
                    if isinstance(dim, SymbolicDim) and (is_zero or not is_nonnegative(dim)):
                        yield Relation(dim, is_zero)
