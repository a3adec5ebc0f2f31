"""The source of a primitive's kernel, as `Executable.lib.get_source` shows it."""

from __future__ import annotations

from .....formats.messages.errors import CompileError
from .....formats.primitive import PrimitiveDefinition
from ....check import check_definition
from ..target import host
from .kernel import Kernel
from .lower import lower


def get_source(definition: PrimitiveDefinition, form: str) -> str:
    """The code that this machine runs: generated "python", optimised "llvm" IR, or "asm".

    Raises InferenceError for a malformed definition, CompileError for one that has no kernel.
    """
    kernel = get_kernel(definition)
    if form == "python":
        return kernel.source
    from ..toolchain.translate import kernel_text

    return kernel_text(kernel.source, kernel.lanes, host().native, form)


def get_kernel(definition: PrimitiveDefinition) -> Kernel:
    """The kernel itself. Raises as `get_source`."""
    check_definition(definition)
    kernel = lower(definition, host())
    if kernel is None:
        operators = ", ".join(node.operator for node in definition.nodes)
        raise CompileError(f"the primitive has no kernel; the reference implementations of {operators} evaluate it")
    return kernel
