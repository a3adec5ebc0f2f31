"""What all of Relax's syntax has: a text."""

from __future__ import annotations

import importlib
from typing import Any

from .. import relax
from ..modules.containers import Object


class Node(Object):
    """An expression, a binding, a struct info, a type, a function, a module."""

    def script(self, **options: Any) -> str:
        """The TVMScript of it, which `tvm.script.from_source` reads."""
        text: str = importlib.import_module(relax.printer).script(self, **options)
        return text

    def show(self, **options: Any) -> None:
        """Prints the TVMScript."""
        print(self.script(**options))

    _relax_script = script

    def __str__(self) -> str:
        return self.script()
