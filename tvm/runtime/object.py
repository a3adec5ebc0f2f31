"""`tvm.runtime.Object`: what everything of TVM's own is."""

from ..modules.containers import Object

__all__ = ["Object"]
