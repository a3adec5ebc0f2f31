"""What all of Relax's syntax has: a text. `tvm/script/printer.py` registers how it is made."""

from __future__ import annotations

import functools
from typing import Any

from ..modules.containers import Object


@functools.singledispatch
def as_script(value: Any, **options: Any) -> str:
    """The TVMScript of a value."""
    raise TypeError(f"there is no TVMScript of a {type(value).__name__}")


class Node(Object):
    """An expression, a binding, a struct info, a type, a function, a module."""

    def script(self, **options: Any) -> str:
        """The TVMScript of it, which `tvm.script.from_source` reads."""
        from ..script import printer  # noqa: F401  it registers itself

        return as_script(self, **options)

    def show(self, **options: Any) -> None:
        """Prints the TVMScript."""
        print(self.script(**options))

    _relax_script = script

    def __str__(self) -> str:
        return self.script()
