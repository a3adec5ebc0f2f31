"""Passes: functions from module to module, each in its own file. One with options is a frozen dataclass, whose fields they are.

    module = DeadCode(entries=("main",))(module)

`pipeline` lists the passes of a compilation in order; `run` applies them, prints the module after those that it is told to
print, and measures their times. A pass takes and returns a typed module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...formats.dtypes import DType
from ...formats.messages.errors import CompileError, UnknownPassError
from ...formats.messages.names import near
from ...formats.primitive import PrimitiveDefinition
from .. import bounds, ir
from ..targets.base import Backend, Stage
from ..targets.choice import backend_of
from .common_subexpressions import CommonSubexpressions
from .dead_code import DeadCode
from .devices import Devices
from .fold_batch_norm import FoldBatchNorm
from .fold_constants import FoldConstants
from .fuse import Fuse
from .lambda_lift import LambdaLift
from .merge_products import MergeProducts
from .monomorphise import Monomorphise
from .name_shapes import NameShapes
from .page_attention import PageAttention
from .recognise import Recognise
from .simplify import Simplify
from .split_batches import SplitBatches
from .split_products import SplitProducts
from .split_rows import SplitRows
from .text_entries import TextEntries
from .unread_rows import UnreadRows
from .widen_float16 import WidenFloat16

__all__ = [
    "PIPELINE",
    "CommonSubexpressions",
    "DeadCode",
    "Devices",
    "FoldBatchNorm",
    "FoldConstants",
    "Fuse",
    "InferTypes",
    "LambdaLift",
    "MergeProducts",
    "Monomorphise",
    "NameShapes",
    "Options",
    "PageAttention",
    "Pass",
    "Recognise",
    "Simplify",
    "SplitBatches",
    "SplitProducts",
    "SplitRows",
    "TextEntries",
    "Timings",
    "UnreadRows",
    "WidenFloat16",
    "optional_passes",
    "pipeline",
    "run",
]


class Pass(Protocol):
    @property
    def name(self) -> str: ...

    def __call__(self, module: ir.Module) -> ir.Module: ...


@dataclass(frozen=True)
class InferTypes:
    """Types every variable, and checks existing types."""

    name: str = "infer_types"

    def __call__(self, module: ir.Module) -> ir.Module:
        from ..ir.infer import infer_types

        return infer_types(module)


@dataclass(frozen=True)
class Options:
    """Options of the pipeline."""

    entries: tuple[str, ...] = ("main",)
    backend: Backend = field(default_factory=backend_of)
    devices: Mapping[str, Backend] = field(default_factory=dict)  # besides the host
    placement: Mapping[str, str] = field(default_factory=dict)  # nodes of the model → devices
    cache_dtype: DType | None = None  # of keys and values in pages

    @property
    def supports(self) -> dict[str, Callable[[PrimitiveDefinition], bool]]:
        """By device, whether there is a kernel for a definition."""
        return {name: backend.supports for name, backend in self.devices.items()}


Row = tuple[int, Callable[[Options], Pass]]

# The order of passes, each with the least optimisation level at which it runs, and the places of a target's own. Level 0 is what
# code generation needs: types, no generic functions, no nested functions, no function that nothing calls (its types may have
# stayed open), a name for each size that a kernel is told, and a place for each value. All others may be left out: they make
# programs faster, or a kernel possible, and nothing else.
PIPELINE: tuple[Row | Stage, ...] = (
    (0, lambda options: InferTypes()),
    (0, lambda options: Monomorphise()),
    (1, lambda options: WidenFloat16()),
    (1, lambda options: Simplify()),
    Stage.SIMPLIFIED,
    (1, lambda options: DeadCode(options.entries)),
    (1, lambda options: FoldConstants()),
    (1, lambda options: FoldBatchNorm()),
    (1, lambda options: Simplify()),
    (1, lambda options: CommonSubexpressions()),
    (1, lambda options: SplitRows()),
    (1, lambda options: SplitBatches()),
    (1, lambda options: DeadCode(options.entries)),
    (1, lambda options: Recognise(options.backend.costs)),
    (1, lambda options: PageAttention(options.backend.costs.attention_row, options.cache_dtype)),
    (1, lambda options: UnreadRows()),
    Stage.RECOGNISED,
    (1, lambda options: CommonSubexpressions()),
    (1, lambda options: DeadCode(options.entries)),
    (1, lambda options: SplitProducts(options.backend.costs)),
    (1, lambda options: MergeProducts(options.backend.costs)),
    (1, lambda options: DeadCode(options.entries)),
    Stage.LAYOUT,
    (1, lambda options: TextEntries(options.entries)),
    (0, lambda options: LambdaLift()),
    (0, lambda options: DeadCode(options.entries)),
    (0, lambda options: NameShapes()),
    (0, lambda options: Devices(options.supports, options.placement)),
    (1, lambda options: Fuse(options.backend.supports, options.supports)),
    (1, lambda options: DeadCode(options.entries)),
)


def passes_of(options: Options) -> list[tuple[int, Pass]]:
    """All passes, those of the target included, each with its level."""
    found: list[tuple[int, Pass]] = []
    for row in PIPELINE:
        found += options.backend.passes(row) if isinstance(row, Stage) else [(row[0], row[1](options))]
    return found


def optional_passes() -> list[str]:
    """The names of the passes that may be left out, in the order of their first runs."""
    passes = passes_of(Options())
    required = {each.name for least, each in passes if least == 0}
    return [name for name in dict.fromkeys(each.name for _, each in passes) if name not in required]


def pipeline(level: int, options: Options, without: Collection[str] = ()) -> list[Pass]:
    """The passes of an optimisation level; those named in `without` are left out wherever they run.

    Raises UnknownPassError for a name not among `optional_passes()`, CompileError for an unknown level.
    """
    passes = passes_of(options)
    most = max(least for least, _ in passes)
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= most:
        raise CompileError(f"opt_level={level!r}: expected a level from 0 to {most}")
    if unknown := set(without).difference(optional_passes()):
        hint = near(min(unknown), optional_passes())
        raise UnknownPassError(
            f"{', '.join(sorted(unknown))} cannot be left out; possible: {', '.join(optional_passes())}{hint}"
        )
    return [step for least, step in passes if level >= least and step.name not in without]


@dataclass
class Timings:
    """Seconds, by pass, in the order in which they ran."""

    seconds: list[tuple[str, float]] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(f"{seconds * 1e3:9.1f} ms  {name}" for name, seconds in self.seconds)


def run(
    module: ir.Module,
    passes: Sequence[Pass],
    begun: int = 0,
    *,
    print_after: Iterable[str] = (),
    show: Callable[[str], None] = print,
    timings: Timings | None = None,
) -> ir.Module:
    """Applies the passes in order, but for the first `begun`, which have run; `show` gets the text of the module after each pass
    named in `print_after`, without large constants.

    Raises UnknownPassError for a name that no pass has.
    """
    wanted = set(print_after)
    if unknown := wanted - {step.name for step in passes} - {"all"}:
        names = ", ".join(dict.fromkeys(step.name for step in passes))
        hint = near(min(unknown), (step.name for step in passes))
        raise UnknownPassError(f"no pass is called {', '.join(sorted(unknown))}; this pipeline has: {names}{hint}")
    for step in passes[begun:]:
        start = time.perf_counter()
        bounds.step(f"the pass {step.name}")
        module = step(module)
        if timings is not None:
            timings.seconds.append((step.name, time.perf_counter() - start))
        if step.name in wanted or "all" in wanted:
            from ..ir.text import print_module

            show(f"# after {step.name}\n{print_module(module, elide=True)}")
    return module
