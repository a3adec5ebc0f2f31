"""What names mean where: a name's meanings as a stack, so that leaving a block takes as long as what it bound."""

from __future__ import annotations

from typing import Any


class Scope:
    """Names, the innermost meaning of each."""

    def __init__(self) -> None:
        self._meanings: dict[str, list[Any]] = {}
        self._bound: list[str] = []

    def bind(self, name: str, meaning: Any) -> None:
        self._meanings.setdefault(name, []).append(meaning)
        self._bound.append(name)

    def get(self, name: str) -> Any:
        """The innermost meaning; None for a name that is not bound."""
        meanings = self._meanings.get(name)
        return meanings[-1] if meanings else None

    def mark(self) -> int:
        """Where `reset` goes back to."""
        return len(self._bound)

    def reset(self, mark: int) -> None:
        """Forgets what was bound since."""
        while len(self._bound) > mark:
            self._meanings[self._bound.pop()].pop()
