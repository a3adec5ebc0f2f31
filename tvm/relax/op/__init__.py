"""`relax.op`: Relax's operators. `tensors` and `calls` have the rows."""

from __future__ import annotations

from typing import Any

from . import calls, tensors  # noqa: F401  they register the rows
from .calls import TIR, call_packed
from .table import namespace

_ALL: dict[str, Any] = {**vars(namespace()), "call_packed": call_packed, **TIR}
_PACKAGES = {name: namespace(name) for name in ("builtin", "image", "memory", "nn", "treadle", "vm")}
globals().update(_ALL, **_PACKAGES)
__all__ = sorted([*_ALL, *_PACKAGES])


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"relax.op has no {name!r}; it has {', '.join(__all__)}")
