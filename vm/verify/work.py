"""Shared parts of the verifier's layers: refusals, and the bound of their time."""

from __future__ import annotations

from ...formats.messages.errors import LimitError

# One unit is about a microsecond. Compiled models take 4 to 5 units a word of code, their tables included.
BASE_WORK = 400_000
WORK_PER_WORD = 12
MESSAGE = 2000  # characters; a type in it may be as large as the file


class Refusal(Exception):
    """A layer's finding; the caller adds function and instruction in a VerificationError."""

    def __init__(self, layer: str, message: str) -> None:
        super().__init__(message)
        self.layer, self.message = layer, message if len(message) <= MESSAGE else message[:MESSAGE] + " …"


class Work:
    """Counts the steps of verification, so that no program can make it take longer than its size explains."""

    def __init__(self, words: int) -> None:
        self.limit = self.left = BASE_WORK + WORK_PER_WORD * words

    def spend(self, units: int) -> None:
        """Raises LimitError when the bound is passed."""
        self.left -= units
        if self.left < 0:
            raise LimitError(
                f"verification takes more than {self.limit} steps, the limit for code of this size: "
                "too many registers are live across too many jumps, or shape expressions are too large"
            )
