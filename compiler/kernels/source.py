"""The source of a primitive's kernel, as `Executable.lib.get_source` shows it."""

from __future__ import annotations

from functools import partial

from ...formats.errors import CompileError
from ...formats.primitive import PrimitiveDefinition
from ...formats.tuning import Tuning
from ...vm import library
from ...vm.native import compile_text
from ..check import check_definition
from .kernel import Kernel
from .lower import lower
from .target import host
from .worker import lowered


def get_source(definition: PrimitiveDefinition, form: str, tuning: Tuning) -> str:
    """What this machine runs, by an executable's tuning: the generated "python", its "llvm" IR after optimisation, its "asm".

    Raises InferenceError for a malformed definition, CompileError for one that has no kernel, or not in the variant that
    is asked for.
    """
    kernel = get_kernel(definition, tuning)
    if form == "python":
        return kernel.source
    native = host().native
    return compile_text({"kernel": partial(lowered, "kernel", kernel.source, kernel.lanes)}, native, form)


def get_kernel(definition: PrimitiveDefinition, tuning: Tuning) -> Kernel:
    """The kernel itself. Raises as `get_source`."""
    check_definition(definition)
    target = host()
    _, (variant,) = library.variant_keys([definition], target.key, tuning.get(target.key, {}))
    kernel = lower(definition, target, variant)
    if kernel is None:
        operators = ", ".join(node.operator for node in definition.nodes)
        raise CompileError(f"the primitive has no kernel; the reference implementations of {operators} evaluate it")
    return kernel
