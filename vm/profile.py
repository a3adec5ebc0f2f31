"""A profile of one call: how long each primitive took, by a listener.

Times are those of the machine's traps too, some microseconds a call of a primitive: compare with care what is smaller.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from .hooks import CALLS, Event, InstrumentAction, Listener


@dataclass
class ProfileRow:
    """One place of the program that calls a primitive."""

    primitive: str
    node: str | None  # the model node that it comes from
    calls: int = 0
    seconds: float = 0.0


class Profiler(Listener):
    """Adds up the times of primitives, by place, in calls of the thread that made it."""

    operations = CALLS

    def __init__(self) -> None:
        self.by_place: dict[tuple[str, int], ProfileRow] = {}  # (function, offset of the instruction)
        self._since = 0.0
        self._thread = threading.get_ident()

    @property
    def rows(self) -> list[ProfileRow]:
        """The places, the longest first."""
        return sorted(self.by_place.values(), key=lambda row: -row.seconds)

    def before(self, event: Event) -> InstrumentAction | None:
        if threading.get_ident() == self._thread:
            self._since = time.perf_counter()
        return None

    def after(self, event: Event) -> None:
        seconds = time.perf_counter() - self._since
        if threading.get_ident() != self._thread:
            return
        place = event.function, event.instruction.offset
        if place not in self.by_place:
            assert event.primitive is not None
            self.by_place[place] = ProfileRow(event.primitive.name, event.node)
        self.by_place[place].calls += 1
        self.by_place[place].seconds += seconds
