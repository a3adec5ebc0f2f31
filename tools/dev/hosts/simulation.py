"""A discrete-event simulation of hosts that serve models as `treadle serve` does.

Requests of each model arrive at random (Poisson) and go to the host with the shorter line of two drawn ones. A host has as many
servers as processors, and a line for each model: a full one refuses (429). The model that has used the least time is next
(`serve/scheduler.py`); a call takes the requests that wait, up to its largest batch (`serve/batching.py`). A host that fails
loses what it has; its clients notice, and ask once more elsewhere. A draining host takes no new requests. A model's requests may
come from clients instead that each wait for an answer before they ask again. Time is in seconds; one seed makes the randomness.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_MOMENT = 1e-3  # seconds after which it is asked again whether a host is idle


@dataclass(frozen=True)
class Model:
    """`rate` requests a second for all hosts, or `clients`; a call takes `call` seconds, and `row` for each request in it."""

    rate: float
    call: float
    row: float = 0.0
    max_batch: int = 1
    max_queue: int = 128
    varies: bool = False  # calls, and clients' thoughts, take exponentially distributed times of that mean
    clients: int = 0  # each asks again `think` seconds after its answer
    think: float = 0.0


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

    def percentile(self, share: float) -> float:
        """The latency that this share of the answered requests does not pass."""
        return sorted(self.latencies)[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


@dataclass
class _Request:
    model: int
    arrived: float
    begun: float = 0.0
    tries: int = 1


class _Host:
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
                self.at(self._draw.expovariate(model.rate), self._arrive, number)
            for _ in range(model.clients):
                self.at(0.0, self._ask, number)
        while self._events:
            self.now, _, action, told = heapq.heappop(self._events)
            action(*told)
        return self._outcomes

    # ---- what happens to hosts ----

    def fail(self, number: int, down: float) -> None:
        """A host is gone for `down` seconds, with what it has. Until clients notice, they still ask it."""
        host, noticed = self._hosts[number], self.now + min(self.fleet.notices, down)
        lost = [request for group in (*host.lines, *host.running.values()) for request in group]
        host.life, host.ready, host.free, host.waiting = host.life + 1, False, 0, 0
        host.running, host.lines = {}, [deque() for _ in self.models]
        self.at(noticed, self._leave, number)
        for request in lost:
            self.at(noticed, self._again, request)
        self.at(self.now + down, self._join, number)

    def drain(self, number: int, down: float, then: Callable[[], None] = lambda: None) -> None:
        """A host gets no new requests, answers what it has, is gone for `down` seconds, and comes back; `then` follows."""
        self._leave(number)
        if self._hosts[number].busy:
            self.at(self.now + _MOMENT, self.drain, number, down, then)
            return
        self._hosts[number].ready = False
        self.at(self.now + down, self._join, number)
        self.at(self.now + down, then)

    def occupy(self, number: int, seconds: float, then: Callable[[], None]) -> None:
        """One of a host's processors is taken for so long, as soon as one is free; `then` follows."""
        host = self._hosts[number]
        if host.free <= 0:
            self.at(self.now + _MOMENT, self.occupy, number, seconds, then)
            return
        host.free -= 1
        self.at(self.now + seconds, self._free, number, host.life)
        self.at(self.now + seconds, then)

    def _free(self, number: int, life: int) -> None:
        if self._hosts[number].life == life:  # it has not failed meanwhile
            self._hosts[number].free += 1
            self._serve(number)

    def _leave(self, number: int) -> None:
        if number in self._ready:
            self._ready.remove(number)

    def _join(self, number: int) -> None:
        self._hosts[number].ready, self._hosts[number].free = True, self.fleet.processors
        self._ready.append(number)

    # ---- what happens to requests ----

    def _arrive(self, number: int) -> None:
        self._send(_Request(number, self.now))
        following = self.now + self._draw.expovariate(self.models[number].rate)
        if following < self._until:
            self.at(following, self._arrive, number)

    def _ask(self, number: int) -> None:
        """One of a model's clients, which waits for what comes."""
        if self.now < self._until:
            self._send(_Request(number, self.now))

    def _seconds(self, mean: float, model: Model) -> float:
        return self._draw.expovariate(1 / mean) if model.varies and mean else mean

    def _ended(self, request: _Request, refused: int = 0, lost: int = 0) -> None:
        """If a client waits for the request, it thinks, and asks again."""
        if request.arrived >= self._warm:
            self._outcomes[request.model].refused += refused
            self._outcomes[request.model].lost += lost
        model = self.models[request.model]
        if model.clients:
            think = self._seconds(model.think, model)
            self.at(self.now + (max(think, _MOMENT) if refused or lost else think), self._ask, request.model)

    def _send(self, request: _Request) -> None:
        if not self._ready:
            self._ended(request, refused=1)
            return
        drawn = [self._ready[self._draw.randrange(len(self._ready))] for _ in range(self.fleet.choices)]
        number = min(drawn, key=lambda number: self._hosts[number].busy)
        host, line = self._hosts[number], self._hosts[number].lines[request.model]
        if not host.ready:  # nobody has noticed yet that it is gone: the client does, by its connection's end
            self.at(self.now + self.fleet.notices, self._again, request)
        elif not host.free and len(line) >= self.models[request.model].max_queue:
            self._ended(request, refused=1)
        else:
            if not line:  # one that was idle has no claim to the time that it did not use
                busy = [used for used, waiting in zip(host.used, host.lines, strict=True) if waiting]
                host.used[request.model] = max(host.used[request.model], min(busy, default=0.0))
            line.append(request)
            host.waiting += 1
            self._serve(number)

    def _again(self, request: _Request) -> None:
        request.tries += 1
        if request.tries > 2:
            self._ended(request, lost=1)
            return
        self._outcomes[request.model].repeated += request.arrived >= self._warm
        self._send(request)

    def _serve(self, number: int) -> None:
        """Begins calls while there are free servers and requests that wait."""
        host = self._hosts[number]
        while host.free > 0 and host.waiting:
            chosen = min((index for index, line in enumerate(host.lines) if line), key=host.used.__getitem__)
            model, line, call = self.models[chosen], host.lines[chosen], next(self._count)
            batch = host.running[call] = [line.popleft() for _ in range(min(len(line), model.max_batch))]
            host.waiting, host.free = host.waiting - len(batch), host.free - 1
            for request in batch:
                request.begun = self.now
            seconds = self._seconds(model.call + model.row * len(batch), model)
            host.used[chosen] += seconds
            self._outcomes[chosen].calls += 1
            self.at(self.now + seconds, self._answered, number, host.life, call)

    def _answered(self, number: int, life: int, call: int) -> None:
        for request in self._hosts[number].running.pop(call, ()):  # none where it failed meanwhile
            if request.arrived >= self._warm:
                self._outcomes[request.model].waits.append(request.begun - request.arrived)
                self._outcomes[request.model].latencies.append(self.now - request.arrived)
            self._ended(request)
        self._free(number, life)
