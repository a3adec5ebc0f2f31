"""A discrete-event simulation of hosts that serve models as `treadle serve` does.

Requests of each model arrive at random (Poisson) and go to the host with the shorter line of two drawn ones. A host has as many
servers as processors, and a line for each model: a full one refuses (429). The model that has used the least time is next
(`serve/scheduler.py`); a call takes the requests that wait, up to its largest batch (`serve/batching.py`). A host
that fails loses what it has, and its clients ask once more elsewhere, after they have noticed. A draining host takes
no new requests. Beside random arrivals, a model may have clients that each wait for an answer before they ask again; a model
has either the one or the other.

Time is in seconds. All randomness comes from one seed: the same run gives the same figures everywhere.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Model:
    """`rate` requests a second for all hosts together, or so many `clients`; a call takes `call` seconds, and `row` for each
    request in it."""

    rate: float
    call: float
    row: float = 0.0
    max_batch: int = 1
    max_queue: int = 128
    varies: bool = False  # calls, and clients' thoughts, take exponentially distributed times of that mean
    clients: int = 0  # each asks again `think` seconds after its answer
    think: float = 0.0

    def seconds(self, rows: int, draw: random.Random) -> float:
        """How long a call takes."""
        mean = self.call + self.row * rows
        return draw.expovariate(1 / mean) if self.varies else mean


@dataclass(frozen=True)
class Fleet:
    hosts: int
    processors: int = 2
    notices: float = 1.0  # seconds until a failure is noticed: those of a health check
    choices: int = 2  # hosts that a request is drawn among; 1 sends it anywhere


@dataclass
class Outcome:
    """What came of the requests of one model that arrived behind the warm-up. Times are seconds."""

    waits: list[float] = field(default_factory=list)  # for a server
    latencies: list[float] = field(default_factory=list)
    refused: int = 0  # 429: a line was full, or no host is ready
    repeated: int = 0  # asked once more, since a host failed
    lost: int = 0  # its second host failed as well
    calls: int = 0

    @property
    def asked(self) -> int:
        return len(self.latencies) + self.refused + self.lost

    @property
    def mean_wait(self) -> float:
        return sum(self.waits) / len(self.waits)

    def percentile(self, share: float) -> float:
        """The latency that this share of the answered requests does not pass."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _Request:
    __slots__ = ("arrived", "begun", "model", "tries")

    def __init__(self, model: int, arrived: float) -> None:
        self.model, self.arrived, self.begun, self.tries = model, arrived, 0.0, 1


class _Host:
    __slots__ = ("free", "life", "lines", "ready", "running", "used", "waiting")

    def __init__(self, processors: int, models: int) -> None:
        self.free, self.life, self.ready, self.waiting = processors, 0, True, 0
        self.lines: list[deque[_Request]] = [deque() for _ in range(models)]
        self.used = [0.0] * models
        self.running: dict[int, list[_Request]] = {}

    @property
    def busy(self) -> int:
        return self.waiting + len(self.running)


class Simulation:
    """One run. `at` plans what happens to hosts; `run` gives an outcome for each model."""

    def __init__(self, fleet: Fleet, models: Sequence[Model], seed: int) -> None:
        self.fleet, self.models, self.now = fleet, tuple(models), 0.0
        self._draw = random.Random(seed)
        self._hosts = [_Host(fleet.processors, len(self.models)) for _ in range(fleet.hosts)]
        self._ready = list(range(fleet.hosts))  # to which clients send, as far as they know
        self._events: list[tuple[float, int, Callable[..., None], tuple]] = []
        self._count = itertools.count()  # events of one moment happen in the order in which they were planned
        self._outcomes = [Outcome() for _ in self.models]
        self._warm = self._until = 0.0

    def at(self, when: float, action: Callable[..., None], *told: object) -> None:
        """Plans an action for a moment."""
        heapq.heappush(self._events, (when, next(self._count), action, told))

    def run(self, seconds: float, warm: float = 0.0) -> list[Outcome]:
        """Requests arrive for so long, those of the first `warm` seconds uncounted; all are answered."""
        self._warm, self._until = warm, seconds
        for number, model in enumerate(self.models):
            if model.rate:
                self.at(self._draw.expovariate(model.rate), self._arrive, number, seconds)
            for _ in range(model.clients):
                self.at(0.0, self._ask, number)
        while self._events:
            self.now, _, action, told = heapq.heappop(self._events)
            action(*told)
        return self._outcomes

    # ---- what happens to hosts ----

    def fail(self, number: int, down: float) -> None:
        """A host is gone for `down` seconds, with what it has. Until clients notice, they still ask it."""
        host = self._hosts[number]
        lost = [request for group in (*host.lines, *host.running.values()) for request in group]
        host.life += 1
        host.ready, host.free, host.waiting = False, 0, 0
        host.running.clear()
        for line in host.lines:
            line.clear()
        noticed = min(self.fleet.notices, down)
        self.at(self.now + noticed, self._leave, number)
        for request in lost:
            self.at(self.now + noticed, self._again, request)
        self.at(self.now + down, self._join, number)

    def drain(self, number: int, down: float, then: Callable[[], None] = lambda: None) -> None:
        """A host gets no new requests, answers what it has, is gone for `down` seconds, and comes back; `then` follows."""
        self._leave(number)
        self._drained(number, down, then)

    def occupy(self, number: int, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        """One of a host's processors is taken for so long, as by a new version that is loaded beside the old; `then` follows."""
        host = self._hosts[number]
        if host.free <= 0:  # as soon as one is free: a thread that loads gets its share soon
            self.at(self.now + _MOMENT, self.occupy, number, seconds, then)
            return
        host.free -= 1
        self.at(self.now + seconds, self._released, number, host.life, then)

    def _released(self, number: int, life: int, then: Callable[[], None]) -> None:
        host = self._hosts[number]
        if host.life == life:
            host.free += 1
            self._serve(number)
        then()

    def _drained(self, number: int, down: float, then: Callable[[], None]) -> None:
        if self._hosts[number].busy:
            self.at(self.now + _MOMENT, self._drained, number, down, then)
            return
        self._hosts[number].ready = False
        self.at(self.now + down, self._join, number)
        self.at(self.now + down, then)

    def _leave(self, number: int) -> None:
        if number in self._ready:
            self._ready.remove(number)

    def _join(self, number: int) -> None:
        host = self._hosts[number]
        host.ready, host.free = True, self.fleet.processors
        if number not in self._ready:
            self._ready.append(number)

    # ---- what happens to requests ----

    def _arrive(self, number: int, until: float) -> None:
        self._send(_Request(number, self.now))
        following = self.now + self._draw.expovariate(self.models[number].rate)
        if following < until:
            self.at(following, self._arrive, number, until)

    def _ask(self, number: int) -> None:
        """One of a model's clients, which waits for what comes."""
        if self.now < self._until:
            self._send(_Request(number, self.now))

    def _ended(self, number: int, answered: bool = True) -> None:
        """A request has ended: if a client waits for it, the client thinks, and asks again."""
        model = self.models[number]
        if model.clients:
            think = self._draw.expovariate(1 / model.think) if model.varies and model.think else model.think
            self.at(self.now + (think if answered else max(think, _MOMENT)), self._ask, number)

    def _send(self, request: _Request) -> None:
        model, counted = self.models[request.model], request.arrived >= self._warm
        if not self._ready:
            self._outcomes[request.model].refused += counted
            self._ended(request.model, answered=False)
            return
        number = self._chosen()
        host = self._hosts[number]
        if not host.ready:  # nobody has noticed yet that it is gone: the client does, by its connection's end
            self.at(self.now + self.fleet.notices, self._again, request)
            return
        line = host.lines[request.model]
        if not host.free and len(line) >= model.max_queue:
            self._outcomes[request.model].refused += counted
            self._ended(request.model, answered=False)
            return
        if not line:  # one that was idle has no claim to the time that it did not use
            busy = [host.used[other] for other, waiting in enumerate(host.lines) if waiting]
            host.used[request.model] = max(host.used[request.model], min(busy, default=0.0))
        line.append(request)
        host.waiting += 1
        self._serve(number)

    def _chosen(self) -> int:
        """The host with the least to do of some that are drawn."""
        drawn = [self._ready[self._draw.randrange(len(self._ready))] for _ in range(self.fleet.choices)]
        return min(drawn, key=lambda number: self._hosts[number].busy)

    def _again(self, request: _Request) -> None:
        outcome, counted = self._outcomes[request.model], request.arrived >= self._warm
        if request.tries > _RETRIES:
            outcome.lost += counted
            self._ended(request.model, answered=False)
            return
        request.tries += 1
        outcome.repeated += counted
        self._send(request)

    def _serve(self, number: int) -> None:
        """Begins calls while there are free servers and requests that wait."""
        host = self._hosts[number]
        while host.free > 0 and host.waiting:
            chosen = min((index for index, line in enumerate(host.lines) if line), key=host.used.__getitem__)
            model, line = self.models[chosen], host.lines[chosen]
            batch = [line.popleft() for _ in range(min(len(line), model.max_batch))]
            host.waiting -= len(batch)
            host.free -= 1
            for request in batch:
                request.begun = self.now
            seconds = model.seconds(len(batch), self._draw)
            host.used[chosen] += seconds
            call = next(self._count)
            host.running[call] = batch
            self._outcomes[chosen].calls += 1
            self.at(self.now + seconds, self._answered, number, host.life, call)

    def _answered(self, number: int, life: int, call: int) -> None:
        host = self._hosts[number]
        if host.life != life:  # it failed meanwhile
            return
        for request in host.running.pop(call):
            if request.arrived >= self._warm:
                outcome = self._outcomes[request.model]
                outcome.waits.append(request.begun - request.arrived)
                outcome.latencies.append(self.now - request.arrived)
            self._ended(request.model)
        host.free += 1
        self._serve(number)


_MOMENT = 1e-3  # seconds after which it is asked again whether a host is idle
_RETRIES = 1  # that a client makes
