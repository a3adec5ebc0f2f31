"""`relay.backend.te_compiler` and, as it was called first, `compile_engine`: TVM's cache of lowered functions.

Scripts clear it between runs. Treadle's cache of kernels needs no clearing: what a kernel is made of is its key.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ....formats.messages.errors import UnsupportedNameError


class TECompiler:
    """The one that `get` gives: always empty."""

    def clear(self) -> None:
        """Nothing is kept here."""

    def items(self) -> list[Any]:
        """What is kept: nothing."""
        return []

    def __getattr__(self, name: str) -> NoReturn:
        raise UnsupportedNameError(f"TECompiler.{name} is not here: TVM lowers to TE schedules; see relay.build")


CompileEngine = TECompiler
_ONE = TECompiler()


def get() -> TECompiler:
    """The compiler of the process."""
    return _ONE
