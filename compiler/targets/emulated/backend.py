"""The emulator: a target whose programs are those of a CPU, and whose kernels are interpreted where that CPU would run them.

    executable = treadle.compile(model, target=treadle.emulated("x86-64-v4"))

Executables say what they were made for (`Backend.note`); the machine evaluates each of their primitives as `evaluator` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....formats import dims
from ....formats.messages.calling import public
from ....formats.messages.errors import CompileError, KernelError, TreadleError
from ....formats.primitive import PrimitiveDefinition
from ....formats.program import EXACT
from ....vm.library import KernelFailed
from ..base import CHECK_STEPS, Backend, Costs, Stage
from ..cpu.backend import CPU
from ..cpu.kernels.kernel import Kernel
from ..cpu.kernels.lower import lower
from ..cpu.target import Target, noted
from .call import run_kernel

if TYPE_CHECKING:
    from ....vm.library import Evaluate

_NAME = "emulated"  # the first word of the target of executables
_MOST_CHARACTERS = 2000  # of a CPU with features
_THREADS = 2  # that parts are split for: races between them are found


class Emulated(Backend):
    """`cpu` is a name as TREADLE_TARGET has it; "" for the one that programs run on."""

    def __init__(self, cpu: str = "", precision: str | Mapping[str, str] = EXACT) -> None:
        self._cpu = cpu
        self.target = noted(self.note)
        self._compiled = CPU(self.target, precision)
        self.narrowing = self._compiled.narrowing

    @property
    def note(self) -> str:
        return f"{_NAME} {self._cpu}".strip()

    @property
    def key(self) -> str:
        return self.note

    @property
    def costs(self) -> Costs:
        return self._compiled.costs

    def with_precision(self, precision: str | Mapping[str, str]) -> Emulated:
        return Emulated(self._cpu, precision)

    def passes(self, stage: Stage) -> Sequence[tuple[int, Any]]:
        return self._compiled.passes(stage)

    def supports(self, definition: PrimitiveDefinition) -> bool:
        return self._compiled.supports(definition)

    def build(self, definitions: Sequence[PrimitiveDefinition], progress: bool, seconds: float | None) -> Sequence[Any]:
        return [None] * len(definitions)

    def evaluator(self, definition: PrimitiveDefinition) -> Evaluate:
        """The primitive's kernel, interpreted; the reference where the CPU would have no kernel either."""
        reference = super().evaluator(definition)
        try:
            with dims.bounded(CHECK_STEPS):
                kernel = lower(definition, self.target)
        except KernelError:  # a user's own
            raise
        except CompileError:
            kernel = None
        return reference if kernel is None else _Interpreted(kernel, definition, self.target)


class _Interpreted:
    def __init__(self, kernel: Kernel, definition: PrimitiveDefinition, target: Target) -> None:
        self._kernel, self._definition, self._target = kernel, definition, target

    def __call__(self, arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> Sequence[np.ndarray]:
        """The results. Raises KernelFaultError where the text is wrong, KernelFailed where it says that the elements are."""
        known = dict(zip(self._definition.variables, sizes, strict=True))
        ran = run_kernel(
            self._kernel,
            self._definition,
            arrays,
            known,
            parts=None,
            threads=_THREADS,
            offset=0,
            spare_lanes=True,
            target=self._target,
        )
        if ran.code:
            raise KernelFailed(ran.code)
        return ran.outputs


def backend(note: str) -> Emulated:
    """The target of that note. Raises TreadleError for an unknown CPU."""
    _, _, cpu = note.partition(" ")
    if len(cpu) > _MOST_CHARACTERS:  # a file may say anything, and LLVM is asked about it
        raise TreadleError(
            f"the target of an executable is a CPU of {len(cpu)} characters; at most {_MOST_CHARACTERS} are"
        )
    try:
        return Emulated(cpu)
    except TreadleError as error:
        raise TreadleError(f"the target {note!r} of an executable: {error}") from None


@public
def emulated(cpu: str | None = None) -> Emulated:
    """A target for `compile`: kernels run in Python, line by line, each access to memory checked. No native code is made of them.

    `cpu` is the CPU whose kernels these are: a name of this machine's instruction set, as TREADLE_TARGET has them, such as
    "x86-64-v4" or "haswell:-fma", whether this machine has its instructions or not; or "aarch64". By default they are those of
    the machine that runs the program. Results are the same to the bit as that CPU's, but for what the C library computes, which
    this system's. A kernel that leaves its memory, races, uses what nobody wrote or does not end raises ExecutionError,
    whose cause is a debug.KernelFaultError. It is 10,000 to 100,000 times slower: for small models and small inputs.

    Raises CompileError for a CPU that LLVM does not know.
    """
    if cpu is not None and not (isinstance(cpu, str) and cpu.strip()):
        raise CompileError(
            f'emulated({cpu!r}): expected the name of a CPU, such as "x86-64-v4", or None for the machine that runs'
        )
    try:
        return Emulated(cpu or "")
    except TreadleError as error:
        raise CompileError(f"emulated({cpu!r}): {error}") from None
