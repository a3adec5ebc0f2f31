"""`tvm.runtime.PackedFunc`."""

from ..modules.registry import PackedFunc

__all__ = ["Function", "PackedFunc"]

Function = PackedFunc  # as it was called before 0.7
