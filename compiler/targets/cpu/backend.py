"""The CPU as a backend of the compiler."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....formats.primitive import PrimitiveDefinition
from ..base import Backend, Stage
from . import operators  # noqa: F401  (they join the table)
from .kernels.lower import supports
from .operators.winograd import WinogradChoice, best_tiles
from .passes.count_texts import CountTexts
from .passes.dequantized_products import DequantizedProducts
from .passes.integer_products import IntegerProducts
from .passes.layout import BlockChannels
from .passes.pack_matrices import PackMatrices
from .passes.pointwise_products import PointwiseProducts
from .passes.transposed_convolutions import TransposedConvolutions
from .target import Target

if TYPE_CHECKING:
    from ....formats.executable import Executable


class CPU(Backend):
    """`winograd` chooses algorithms for convolutions, by default what a count says for the target's registers."""

    def __init__(self, target: Target, winograd: WinogradChoice | None = None) -> None:
        self.target = target
        self.winograd = winograd or functools.partial(best_tiles, registers=target.block_registers)
        self._supported: dict[PrimitiveDefinition, bool] = {}

    @property
    def key(self) -> str:
        return self.target.key

    def passes(self, stage: Stage) -> Sequence[tuple[int, Any]]:
        passes: dict[Stage, list[tuple[int, Any]]] = {
            Stage.SIMPLIFIED: [(1, TransposedConvolutions()), (1, IntegerProducts()), (1, DequantizedProducts())],
            Stage.RECOGNISED: [(1, CountTexts())],
            Stage.LAYOUT: [(2, PointwiseProducts()), (2, BlockChannels(self.winograd)), (2, PackMatrices())],
        }
        return passes[stage]

    def supports(self, definition: PrimitiveDefinition) -> bool:
        found = self._supported.get(definition)
        if found is None:
            found = self._supported[definition] = supports(definition, self.target)
        return found

    def build(
        self, definitions: Sequence[PrimitiveDefinition], variants: Sequence[str], progress: bool, seconds: float | None
    ) -> Sequence[Any]:
        from .toolchain.kernels import build

        return build(definitions, self.target, variants=variants, progress=progress, seconds=seconds)

    def tuned(self, generated: Callable[..., Executable], seconds: Any, remembered: bool, progress: bool) -> Executable:
        from .timing import Memory
        from .tune import Session, tune_kernels, with_known_variants
        from .tune_algorithms import Asked, choice, measure

        session = Session(seconds, progress) if isinstance(seconds, (int, float)) else seconds
        measured = {}
        if session is not None:
            asked = Asked(self.target)
            memory = Memory.of(generated(CPU(self.target, asked), print_after=()).program, self.target)
            measured = measure(asked.problems, memory, self.target, session)
        executable = generated(CPU(self.target, choice(self.target, measured, remembered)))
        if remembered:
            executable = with_known_variants(executable, self.target)
        return executable if session is None else tune_kernels(executable, self.target, session)
