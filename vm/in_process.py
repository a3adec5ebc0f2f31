"""Objects that cannot leave their process: they hold addresses of its memory, its threads, or connections.

To copy one would make two that free the same memory, and to pickle one hands an address to a process where something else lies.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, SupportsIndex

from ..formats.messages.errors import NotPicklableError


class InProcess:
    """A base of such classes: their objects can be neither pickled nor copied."""

    __slots__ = ()

    instead: ClassVar[str] = ""  # what to do, for the message

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotPicklableError(
            f"a {type(self).__name__} belongs to its process, and can be neither pickled nor copied{self._advice()}"
        )

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(0)

    def _advice(self) -> str:
        return f"; {self.instead}" if self.instead else ""
