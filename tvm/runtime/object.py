"""`tvm.runtime.Object`: what everything of TVM's own is."""

from __future__ import annotations

import ctypes
from typing import Any


class Object:
    """A value of TVM's. Here it is Python's own object; `handle` tells two apart."""

    __slots__ = ()

    @property
    def handle(self) -> ctypes.c_void_p:
        """A handle of its own each time, as each crossing of TVM's border makes one; its value is the object's."""
        return ctypes.c_void_p(id(self))

    @property
    def __tvm_object__(self) -> Object:
        return self

    def same_as(self, other: object) -> bool:
        """Whether both names mean one object."""
        return self is other

    def _move(self) -> Any:
        """The object, for a call that may take it over: Python counts references itself."""
        return self
