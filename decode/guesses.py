"""Tokens guessed ahead, by what stood behind the same words before (prompt lookup: Saxena, 2023).

Guesses are appended beside the token that is known, in one call. Those that the sampler then chooses are kept, so they change
no token. Whether they pay is measured: how often they are right, also while none is appended, and what a call with them takes.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST = 8  # of a text in a step
_WORDS = (3, 2)  # lengths of the endings that are looked up
_NEWEST = 0.15  # what the newest observation weighs in an average
_FORGOTTEN = 0.01  # of what a guess takes, in a call without one


class Guesses:
    """Those of one text."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids  # which grow
        self._known = 0
        # For each length: the place behind the last occurrence of an ending.
        self._behind: list[dict[tuple[int, ...], int]] = [{} for _ in _WORDS]
        self._place = 0  # of the next token, if it is as it was
        self.right = 0.0  # how often

    def take(self) -> None:
        """Learns the newest of the ids."""
        if self._place:
            self.right += _NEWEST * ((self._ids[self._place] == self._ids[-1]) - self.right)
        self._place = self._found()

    def _found(self) -> int:
        ids, end = self._ids, len(self._ids)
        for length, behind in zip(_WORDS, self._behind, strict=True):
            for place in range(max(self._known, length), end):
                behind[tuple(ids[place - length : place])] = place
        self._known = end
        for length, behind in zip(_WORDS, self._behind, strict=True):
            if place := behind.get(tuple(ids[end - length : end]), 0):
                return place
        return 0

    def next(self, count: int) -> list[int]:
        """At most `count` tokens: what stood behind the place, and then the same again."""
        since = len(self._ids) - self._place
        return [self._ids[self._place + number % since] for number in range(count)] if self._place else []


class Pays:
    """What calls take, in seconds."""

    def __init__(self) -> None:
        self._plain = 0.0  # one without guesses
        self._guess = 0.0  # a guess more

    def saw(self, seconds: float, guesses: int) -> None:
        """A call without prompts took `seconds`."""
        if not guesses:
            self._plain = seconds if not self._plain else self._plain + _NEWEST * (seconds - self._plain)
            # What is not tried is forgotten: a call that was slow for another reason must not end guesses for good.
            self._guess += (_FORGOTTEN if self._guess else 1) * (self._plain / MOST - self._guess)
        elif self._plain:
            took = min(max(seconds - self._plain, 0.0) / guesses, self._plain)
            self._guess += _NEWEST * (took - self._guess)

    def count(self, right: float, texts: int) -> int:
        """How many guesses of a text, of which a share is `right`, to append in a call of `texts`: those that save more time than
        they take."""
        saves, likely, count = self._plain / max(texts, 1), right, 0
        while count < MOST and likely * saves > self._guess:
            likely *= right
            count += 1
        return count
