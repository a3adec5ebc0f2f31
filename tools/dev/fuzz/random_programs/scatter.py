"""Scatters the values of a program over devices: a pass for fuzzers and tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from .....compiler import ir
from .....compiler.passes.devices import COPY
from .....compiler.passes.rewriting import Rewriter, operator_call
from .....formats.types import TensorType


@dataclass(frozen=True)
class Scatter:
    """What follows one value in `one_in` reads its copy on a device."""

    devices: Sequence[str]
    seed: str
    one_in: int = 3
    name: str = "scatter"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Scattering(module, self).run()


class _Scattering(Rewriter):
    def __init__(self, module: ir.Module, options: Scatter) -> None:
        super().__init__(module)
        self.options, self.random = options, Random(options.seed)

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        yield from super().binding(binding)
        type_ = binding.var.type
        is_tensor = isinstance(type_, TensorType) and not type_.dtype.is_string
        if is_tensor and not self.random.randrange(self.options.one_in):
            call = operator_call(COPY, binding.var, device=self.random.choice(self.options.devices))
            self.atoms[binding.var] = there = ir.Var("there", type_)
            yield ir.Binding(there, call)
