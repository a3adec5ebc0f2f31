"""The target that users mean. This file and `base.py` are all that the rest of the compiler imports of targets."""

from __future__ import annotations

from typing import Any

from ...formats.messages.errors import CompileError
from .base import Backend


def backend_of(target: Any = None) -> Backend:
    """A backend for what users give as a target: a `Target` of the CPU, a Backend, or None for this machine's CPU.

    Raises CompileError for anything else.
    """
    from .cpu.backend import CPU
    from .cpu.target import Target, host

    if isinstance(target, Backend):
        return target
    if target is None or isinstance(target, Target):
        return CPU(target or host())
    raise CompileError(
        f"target={target!r}: expected a Target, got a {type(target).__name__}; None, the default, means this CPU, and "
        "TREADLE_TARGET says another. treadle.tvm takes the names that TVM has, such as 'llvm'"
    )
