"""`step`: a kernel of a model, run line by line in CPython on what it reads in a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..compiler.targets.emulated.call import Ran, Watch, run_kernel
from ..formats.messages.calling import public
from ..formats.messages.errors import ArgumentError, ExecutionError
from ..formats.primitive import PrimitiveDefinition
from ..vm.observe.hooks import Event, InstrumentAction
from .flow import Flow, Step
from .subject import arguments, subject


@public
def step(
    model: Any,
    feeds: Mapping[str, Any] | Sequence[Any] | None,
    primitive: str,
    *,
    function: str = "main",
    parts: int = 1,
    watch: Watch | None = None,
    debugger: Any = None,
    **options: Any,
) -> Ran:
    """Calls the model, and then the kernel of its first call of a primitive again, in CPython, with every access checked.

    `watch` is told of each line: a function of a step with `line`, `text` and `values`; the kernel ends where it returns False.
    `debugger` is a `pdb.Pdb`, which is entered at the kernel's first line. `model`, `feeds`, `function` and options are as
    `compare` has them. In several `parts`, one after the other, those that would race if threads did them are found.

    Raises KernelFaultError for a kernel that leaves its memory, races, or uses what nobody wrote, CompileError for a primitive
    that has no kernel, UnknownFunctionError, ArgumentError for one that the call does not reach.
    """
    from ..compiler.targets.cpu.kernels.source import get_kernel
    from ..compiler.targets.cpu.target import noted

    if isinstance(parts, bool) or not isinstance(parts, int) or parts < 1:
        raise ArgumentError(f"parts: expected an integer from 1 on, got {parts!r}")
    of = subject(model, function=function, **options)
    executable = of.executable
    kernel = get_kernel(executable.lib[primitive], executable.program.target)
    first = _First(primitive)
    try:
        of.run(arguments(executable, function, feeds), first)
    except ExecutionError:  # the kernel's own, perhaps: then it is run below, where its line is known
        if first.definition is None:
            raise
    if first.definition is None:
        raise ArgumentError(f"{function!r} with these arguments does not call {primitive!r}")
    sizes = dict(zip(first.definition.variables, first.sizes, strict=True))
    return run_kernel(
        kernel,
        first.definition,
        first.inputs,
        sizes,
        parts=parts,
        spare_lanes=True,
        offset=0,
        target=noted(executable.program.target),
        watch=watch,
        debugger=debugger,
    )


class _First(Flow):
    """Finds the registers that the first call of a primitive reads."""

    def __init__(self, primitive: str) -> None:
        super().__init__()
        self._primitive = primitive
        self.definition: PrimitiveDefinition | None = None
        self.inputs: list[np.ndarray] = []
        self.sizes: Sequence[int] = ()

    def reads(self, step: Step, event: Event) -> InstrumentAction | None:
        if step.primitive == self._primitive and self.definition is None:
            assert event.primitive is not None
            self.definition, self.sizes = event.primitive.definition, event.sizes
            self.inputs = [event.tensor(register).copy() for register in event.registers("inputs")]
        return None
