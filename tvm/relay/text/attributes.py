"""Values of attributes as Relay's text has them: `[1, 1]`, `0.5f`, `"NCHW"`, `None`. Values of one text are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....formats.dims import SymbolicDim
from ....formats.messages.errors import TreadleError
from .. import ty
from ..expr import Expr, GlobalVar, Op
from .scalars import float_text

_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def value_text(value: Any, other: Callable[[Any], str] = str) -> str:
    """The text of a value; `other` gives that of symbolic dimensions and expressions."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return str(value)
    if isinstance(value, (str, bytes)):
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        return f'"{text.translate(_ESCAPED)}"'
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return f"{float_text(float(value))}f"
    if isinstance(value, np.ndarray):
        return value_text(value.tolist(), other)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(value_text(each, other) for each in value)}]"
    if isinstance(value, ty.Any):
        return "?"
    if isinstance(value, (SymbolicDim, Expr)):
        return other(value) if not isinstance(value, (GlobalVar, Op)) else str(value)
    if getattr(value, "value", None) is not None:
        return value_text(value.value, other)
    try:
        return f'"{ty.dtype_name(value)}"'
    except (TypeError, ValueError, TreadleError):
        return value_text(str(value))


def same_values(a: Any, b: Any) -> bool:
    """Whether programs cannot tell two attributes' values apart."""
    if a is b or (type(a) is type(b) and not isinstance(a, np.ndarray) and a == b):
        return True
    return value_text(a, _identity) == value_text(b, _identity)


def _identity(value: Any) -> str:
    return str(value) if isinstance(value, SymbolicDim) else str(id(value))
