"""What an attention kernel reads, and how its scratch memory is laid out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.writer import shape_of
from ..products.tile import BLOCK, VECTOR_BYTES

NAMES = ("q", "k", "v", "mask", "bias")  # of the operands
_GROUP_ROWS = 64  # queries of a group of tiles, about
SPAN = 256  # keys at once: a multiple of two vectors
LEAST = -3.4028234663852886e38  # the first greatest score: -∞ - (-∞) would be NaN


class Operand(NamedTuple):
    """A parameter, and the order in which it has the axes of the operand that it is, or is a part of."""

    number: int
    order: tuple[int, ...]
    rows: Dim = 0  # the number of rows that the first of the joined tensors holds


def _is_front(slice_options: dict[str, Any], axis: int, rank: int) -> bool:
    """Whether a slice is the beginning of a tensor along an axis."""
    starts, steps = slice_options["starts"], slice_options["steps"] or (1,)
    axes = [each % rank for each in slice_options["axes"] or range(len(starts))]
    return axes == [axis] and tuple(starts) == (0,) and tuple(steps) == (1,)


def operands_of(definition: PrimitiveDefinition) -> dict[str, list[Operand]] | None:
    """The parameters that each operand consists of; None for a definition of another form."""
    *others, node = definition.nodes
    if node.operator != "attention" or len(node.results) != 1 or len(definition.outputs) != 1:
        return None
    count, attributes = len(definition.params), bound_attributes(node)
    makers = {count + place: other for place, other in enumerate(others)}
    if any(len(other.results) != 1 for other in others):
        return None
    found: dict[str, list[Operand]] = {}
    rank = node.results[0].rank
    for name, number in zip(NAMES, node.inputs, strict=False):
        axes = tuple(axis % rank for axis in attributes.get(f"{name}_axes") or range(rank))
        maker = makers.pop(number, None)
        if maker is None:
            found[name] = [Operand(number, axes)]
            continue
        is_joined = maker.operator == "concat" and name in ("k", "v") and attributes[f"{name}_part"] is None
        if not is_joined or len(maker.inputs) != 2 or bound_attributes(maker)["axis"] % rank != axes[-2]:
            return None
        found[name] = []
        for each in maker.inputs:
            order, rows = axes, shape_of(definition.values[each])[axes[-2]]
            if (made := makers.pop(each, None)) is not None:
                options = bound_attributes(made)
                if made.operator == "permute_dims":
                    turn = options["axes"] or range(rank)[::-1]
                    order = tuple(turn[axis] % rank for axis in axes)
                elif made.operator != "slice" or not _is_front(options, axes[-2], rank):
                    return None
                each = made.inputs[0]
            found[name].append(Operand(each, order, rows))
    is_flat = all(part.number < count for parts in found.values() for part in parts)
    return found if is_flat and not makers else None


@dataclass(frozen=True)
class Layout:
    """The layout of a unit's scratch: offsets, in bytes."""

    rows: int  # queries of a unit
    tile: int
    depth: int
    width: int
    is_joined: bool = False  # keys lie in two tensors
    is_narrow: bool = False

    @property
    def lanes(self) -> int:
        """Steps of a product of a query and a key: elements, or pairs of bfloat16."""
        return -(-self.depth // 2) if self.is_narrow else self.depth

    @property
    def query_row(self) -> int:
        return VECTOR_BYTES * -(-self.depth // BLOCK) + costs.LINE_BYTES

    @property
    def group(self) -> int:
        """Rows of the greatest group of tiles."""
        return min(self.rows, -(-_GROUP_ROWS // self.tile) * self.tile)

    @property
    def score_row(self) -> int:
        return 4 * SPAN + costs.LINE_BYTES

    @property
    def sum_row(self) -> int:
        return VECTOR_BYTES * -(-self.width // BLOCK)

    @property
    def parts(self) -> dict[str, int]:
        """The bytes of each part, in their order."""
        sizes = {
            "queries_at": self.rows * self.query_row,  # scaled
            "panels": 4 * SPAN * self.lanes,  # keys, [span / 16, lanes, 16]
            # keys side by side
            **({"block_of_both": BLOCK * self.query_row} if self.is_joined or self.is_narrow else {}),
            "values": SPAN * self.sum_row // (2 if self.is_narrow else 1),
            "scores": self.group * self.score_row,
            "counts": 8 * self.group,  # of visible keys of the span for each row of the group
            "greatest": self.group * VECTOR_BYTES,  # scores of each row of the group in this span, lane by lane
            "factors": self.group * VECTOR_BYTES,  # of the sums of earlier spans
            "norms": self.group * VECTOR_BYTES,  # final factors of the sums
            "sums": self.rows * self.sum_row,  # of values, weighted
            "peaks": self.rows * VECTOR_BYTES,  # the greatest score of each row so far
            "totals": self.rows * VECTOR_BYTES,  # of exponentials, lane by lane
        }
        return {name: -(-size // VECTOR_BYTES) * VECTOR_BYTES for name, size in sizes.items()}
