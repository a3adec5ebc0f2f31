"""`tvm.runtime.PackedFunc`."""

from ...vm.registry import PackedFunc

__all__ = ["PackedFunc"]
