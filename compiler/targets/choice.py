"""The target that users mean. This file and `base.py` are all that the rest of the compiler imports of targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...formats.dtypes import DType
from ...formats.messages.errors import CompileError
from ...formats.messages.names import near
from ...formats.program import EXACT, PRECISIONS
from .base import Backend


def backend_of(target: Any = None, precision: str | Mapping[str, str] | None = None) -> Backend:
    """A backend for what users give as a target: a `Target` of the CPU, a Backend, or None for this machine's CPU; and as a
    precision, or those of nodes, by default a Backend's own, or float32.

    Raises CompileError for anything else, MissingPackageError for what bfloat16 needs.
    """
    from .cpu.backend import CPU
    from .cpu.target import Target, host

    for each in precision.values() if isinstance(precision, Mapping) else () if precision is None else (precision,):
        if type(each) is not str or each not in PRECISIONS:
            others = "; onnxruntime.transformers.float16 and onnxruntime.quantization write models of other types"
            hint = near(str(each), PRECISIONS) or others
            raise CompileError(
                f"precision={precision!r}: expected {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}{hint}"
            )
        if each != EXACT:
            DType.bfloat16.numpy  # noqa: B018  (an error now, not in the middle)
    if isinstance(target, Backend):
        return target if precision is None else target.with_precision(precision)
    if target is None or isinstance(target, Target):
        return CPU(target or host(), precision or EXACT)
    raise CompileError(
        f"target={target!r}: expected a Target, got a {type(target).__name__}; None, the default, means this CPU, and "
        "TREADLE_TARGET says another. treadle.tvm takes the names that TVM has, such as 'llvm'"
    )
