"""`tvm.runtime.Object`: what everything of TVM's own is."""

from ...vm.containers import Object

__all__ = ["Object"]
