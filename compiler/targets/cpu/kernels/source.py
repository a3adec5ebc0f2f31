"""The source of a primitive's kernel, as `Executable.lib.get_source` shows it."""

from __future__ import annotations

from .....formats.messages.errors import CompileError
from .....formats.primitive import PrimitiveDefinition
from ....check import check_definition
from ..target import noted
from .kernel import Kernel
from .lower import lower


def get_source(definition: PrimitiveDefinition, form: str, target: str = "") -> str:
    """The code that this machine runs: generated "python", optimised "llvm" IR, or "asm". Of an executable for a `target`
    (`Program.target`) that emulates a CPU, it is that CPU's code.

    Raises InferenceError for a malformed definition, CompileError for one that has no kernel.
    """
    kernel = get_kernel(definition, target)
    if form == "python":
        return kernel.source
    from ..toolchain.translate import kernel_text

    return kernel_text(kernel.source, kernel.lanes, noted(target).native, form)


def get_kernel(definition: PrimitiveDefinition, target: str = "") -> Kernel:
    """The kernel itself. Raises as `get_source`."""
    check_definition(definition)
    kernel = lower(definition, noted(target))
    if kernel is None:
        operators = ", ".join(node.operator for node in definition.nodes)
        raise CompileError(f"the primitive has no kernel; the reference implementations of {operators} evaluate it")
    return kernel
