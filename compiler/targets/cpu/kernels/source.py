"""The source of a primitive's kernel, as `Executable.lib.get_source` shows it."""

from __future__ import annotations

from .....formats.messages.errors import CompileError
from .....formats.primitive import PrimitiveDefinition
from .....formats.tuning import Tuning
from .....vm import library
from ....check import check_definition
from ..target import noted
from .kernel import Kernel
from .lower import lower


def get_source(definition: PrimitiveDefinition, form: str, tuning: Tuning, target: str = "") -> str:
    """The code that this machine runs, with an executable's tuning: generated "python", optimised "llvm" IR, or "asm". Of an
    executable for a `target` (`Program.target`) that emulates a CPU, it is that CPU's code.

    Raises InferenceError for a malformed definition, CompileError for one that has no kernel, or not in the variant that
    is asked for.
    """
    kernel = get_kernel(definition, tuning, target)
    if form == "python":
        return kernel.source
    from ..toolchain.translate import kernel_text

    return kernel_text(kernel.source, kernel.lanes, noted(target).native, form)


def get_kernel(definition: PrimitiveDefinition, tuning: Tuning, target: str = "") -> Kernel:
    """The kernel itself. Raises as `get_source`."""
    check_definition(definition)
    cpu = noted(target)
    _, (variant,) = library.variant_keys([definition], cpu.key, tuning.get(cpu.key, {}))
    kernel = lower(definition, cpu, variant)
    if kernel is None:
        operators = ", ".join(node.operator for node in definition.nodes)
        raise CompileError(f"the primitive has no kernel; the reference implementations of {operators} evaluate it")
    return kernel
