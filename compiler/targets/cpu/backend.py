"""The CPU as a backend of the compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....formats.primitive import PrimitiveDefinition
from ....formats.program import EXACT
from ...passes.common_subexpressions import CommonSubexpressions
from ..base import Backend, Costs, Narrowing, Stage
from . import costs, operators  # noqa: F401  (operators join the table)
from .kernels.lower import supports
from .passes.count_texts import CountTexts
from .passes.dequantized_products import DequantizedProducts
from .passes.integer_products import IntegerProducts
from .passes.layout import BlockChannels
from .passes.pack_matrices import PackMatrices
from .passes.pointwise_products import PointwiseProducts
from .passes.transposed_convolutions import TransposedConvolutions
from .target import Target


class CPU(Backend):
    def __init__(self, target: Target, precision: str | Mapping[str, str] = EXACT) -> None:
        self.target, self.narrowing = target, Narrowing(precision)
        self._supported: dict[PrimitiveDefinition, bool] = {}

    @property
    def key(self) -> str:
        return self.target.key

    @property
    def costs(self) -> Costs:
        return Costs(costs.ATTENTION_ROW, costs.MERGED_BYTES, costs.PART_WEIGHTS, costs.READS_A_COLUMN)

    def with_precision(self, precision: str | Mapping[str, str]) -> CPU:
        return CPU(self.target, precision)

    def passes(self, stage: Stage) -> Sequence[tuple[int, Any]]:
        narrowing, multiplies = self.narrowing, bool(self.target.dot_bfloat16)
        options = narrowing, multiplies, self.target.byte_speed
        passes: dict[Stage, list[tuple[int, Any]]] = {
            Stage.SIMPLIFIED: [(1, TransposedConvolutions()), (1, IntegerProducts()), (1, DequantizedProducts())],
            Stage.RECOGNISED: [(1, CountTexts())],
            Stage.LAYOUT: [
                (2, PointwiseProducts(narrowing if multiplies else Narrowing())),
                (2, BlockChannels(self.target.block_registers, *options)),
                (2, PackMatrices(*options)),
                # what several products read is rounded once
                *([(2, CommonSubexpressions())] if self.narrowing.is_any else []),
            ],
        }
        return passes[stage]

    def supports(self, definition: PrimitiveDefinition) -> bool:
        found = self._supported.get(definition)
        if found is None:
            found = self._supported[definition] = supports(definition, self.target)
        return found

    def build(self, definitions: Sequence[PrimitiveDefinition], progress: bool, seconds: float | None) -> Sequence[Any]:
        from .toolchain.kernels import build

        return build(definitions, self.target, progress=progress, seconds=seconds)
