"""The service under both transports: models by name, requests checked, run and answered."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import __version__
from ..formats.ports import Port
from ..vm.budgets import CancelToken
from .batching import Pending
from .datatypes import described
from .endpoint import Endpoint, rows_in
from .errors import BadRequestError, DeadlineError, OverloadedError, as_serve_error
from .metrics import Metrics
from .model import Model
from .repository import Repository
from .scheduler import Scheduler
from .sequences import Sequence, Sequences
from .statistics import History, Statistics
from .tracing import Span

NAME = "treadle"
EXTENSIONS = (
    "binary_tensor_data",
    "model_repository",
    "model_repository(unload_dependents)",
    "model_configuration",
    "statistics",
    "sequence",
    "system_shared_memory",
)


@dataclass(slots=True)
class Request:
    """One call. `deadline` is a time of `time.monotonic`; `outputs` are those that the client wants, all if it names none."""

    model: str
    inputs: Mapping[str, np.ndarray]
    version: str = ""
    id: str = ""
    outputs: tuple[str, ...] = ()
    deadline: float | None = None
    sequence: int | str | None = None
    is_start: bool = False
    is_end: bool = False
    cancel: CancelToken | None = None
    span: Span | None = None
    reading: float = 0.0  # seconds that making arrays of the message took


@dataclass(slots=True)
class Response:
    """The result of a call: tensors by name, in the requested order."""

    model: str
    version: str
    id: str
    outputs: dict[str, np.ndarray]
    statistics: Statistics  # that count how long making a message of it takes


@dataclass(slots=True)
class Call:
    """A request that fits its model. Times are of `time.monotonic`."""

    request: Request
    model: Model
    endpoint: Endpoint
    arguments: list[np.ndarray]
    sequence: Sequence | None = None
    since: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    pending: Pending | None = None  # then its times count

    @property
    def sequences(self) -> Sequences:
        """Those of its function."""
        return self.model.sequences[self.endpoint.function]

    @property
    def computed(self) -> float | None:
        """Seconds that the call took, which other requests may share; None unless it has ended."""
        timed = self.pending or self
        return timed.ended - timed.started if timed.started and timed.ended else None

    @property
    def queued(self) -> float | None:
        """Seconds from the request's last byte to the beginning of the call; None unless it was called."""
        started = self.started if self.pending is None else self.pending.started
        return started - self.gathering - self.since if started else None

    @property
    def gathering(self) -> float:
        """Seconds that it took to put its tensors among other requests'."""
        return 0.0 if self.pending is None else self.pending.gathering


def _tell(span: Span, call: Call) -> None:
    """What tracing is told of a call."""
    function = call.endpoint.function
    span.called(
        call.model.name_of(function),
        model=call.model.name,
        version=call.model.version,
        function=function,
        rows=rows_in(call.arguments),
        queue_seconds=call.queued,
        compute_seconds=call.computed,
    )


class Service:
    """Answers requests, in any number of threads."""

    def __init__(
        self, repository: Repository, scheduler: Scheduler | None = None, metrics: Metrics | None = None
    ) -> None:
        self.repository = repository
        self.scheduler = scheduler or Scheduler()
        self.metrics = metrics or Metrics()
        self.metrics.follow(repository)
        self.history = History(self._counted)
        self.is_draining = False

    def _counted(self) -> Iterator[Statistics]:
        """Of all functions."""
        return (each for model in self.repository.models() for each in model.statistics.values())

    # ---- calls ----

    def infer(self, request: Request, bound: Callable[[Request], None] | None = None) -> Response:
        """Answers a request in the thread at hand, or waits until another has done it. `bound` gives the request its deadline and
        its token, and is called unless the call takes next to no time. Raises ServeError."""
        if bound is not None and request.sequence is not None:
            bound(request)  # it may wait for its turn
        call = self.begin(request)
        try:
            if self.is_short(call):
                return self.run_now(call, True)
            if bound is not None and call.sequence is None:
                bound(request)
            if self.scheduler.enter(call.model.line):
                return self.run_now(call, False)
            future: concurrent.futures.Future = concurrent.futures.Future()
            self.submit(call, lambda outputs, error: _resolve(future, outputs, error))
            try:
                outputs = future.result(None if request.deadline is None else request.deadline - time.monotonic())
            except concurrent.futures.TimeoutError:
                raise self.failed(call, DeadlineError("the deadline passed")) from None
            except Exception as error:
                raise self.failed(call, error) from None
            return self.finish(call, outputs)
        finally:
            self.end(call)

    def begin(self, request: Request) -> Call:
        """Checks a request, and waits for the turn of its sequence, which it has from here on, until `end`. Raises ServeError."""
        call = self._found(request)
        if call.sequence is not None:
            turn = call.sequence.enter(call.model.config.max_queue)
            if turn is not None:
                try:
                    turn.result(_turn_seconds(request))
                except concurrent.futures.TimeoutError:
                    call.sequence.give_up(turn)
                    raise _busy(request) from None
        return self._filled(call)

    async def begin_soon(self, request: Request) -> Call:
        """`begin` for the thread of an event loop, which must not wait."""
        call = self._found(request)
        if call.sequence is not None:
            turn = call.sequence.enter(call.model.config.max_queue)
            if turn is not None:
                try:
                    await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(turn)), _turn_seconds(request))
                except BaseException as error:
                    call.sequence.give_up(turn)
                    if isinstance(error, asyncio.TimeoutError):
                        raise _busy(request) from None
                    raise
        return self._filled(call)

    def _found(self, request: Request) -> Call:
        since = time.monotonic()
        model, endpoint = self.repository.endpoint(request.model, request.version)
        endpoint.check_outputs(request.outputs)
        sequence = None
        if request.sequence is not None:
            sequence = model.sequences[endpoint.function].find(request.sequence, request.is_start)
        return Call(request, model, endpoint, [], sequence, since)

    def _filled(self, call: Call) -> Call:
        """The call with its arguments, for which a sequence keeps what the request does not give."""
        request, sequence = call.request, call.sequence
        if sequence is None:
            call.arguments = call.endpoint.arguments(request.inputs)
            return call
        try:
            if sequence.is_over:
                raise BadRequestError(f"sequence {request.sequence!r} has ended meanwhile")
            call.arguments = call.endpoint.arguments({**sequence.inputs, **request.inputs})
            call.sequences.keep(sequence, {name: np.array(array) for name, array in request.inputs.items()})
        except BaseException:
            if request.is_start and request.sequence is not None:
                call.sequences.end(request.sequence, sequence)
            sequence.leave()
            raise
        return call

    def is_short(self, call: Call) -> bool:
        """Whether the thread that has read a request should make the call: it is over before another could take it."""
        return call.endpoint.is_short(call.arguments) and self.scheduler.enter(call.model.line)

    def run_now(self, call: Call, is_short: bool) -> Response:
        """Makes a call in the thread at hand, for which the scheduler has given a slot. Raises ServeError."""
        call.started = time.monotonic()
        endpoint = call.endpoint
        try:
            if is_short:
                outputs = endpoint.run_short(call.arguments)
            else:
                outputs = endpoint.run(call.arguments, call.request.deadline, call.request.cancel)
        except Exception as error:
            raise self.failed(call, error) from error
        finally:
            call.ended = time.monotonic()
            self.scheduler.leave(call.model.line, call.ended - call.started)
        return self.finish(call, outputs)

    def submit(self, call: Call, done: Callable[[Any, Exception | None], None]) -> None:
        """Has a thread make the call; `done(outputs, error)` is called in there. Raises OverloadedError, UnavailableError."""
        rows = None
        if call.endpoint.function in call.model.merged and call.sequence is None:
            rows = call.arguments[0].shape[0]
        request = call.request
        pending = call.pending = Pending(call.endpoint, call.arguments, rows, request.deadline, request.cancel, done)
        try:
            self.scheduler.submit(call.model.line, pending)
        except Exception as error:
            raise self.failed(call, error) from None

    def finish(self, call: Call, outputs: list[np.ndarray]) -> Response:
        """The answer, once the outputs are there."""
        request, ports = call.request, call.endpoint.outputs
        named = {port.name: array for port, array in zip(ports, outputs, strict=True)}
        if call.sequence is not None:
            self._continue(call, call.sequence, named)
        model, function = call.model, call.endpoint.function
        seconds, queued, rows = time.monotonic() - call.since + request.reading, call.queued, rows_in(call.arguments)
        statistics = model.statistics[function]
        statistics.succeeded(seconds, queued or 0.0, request.reading + call.gathering, call.computed or 0.0, rows)
        self.metrics.answered(model.name, function, "OK", seconds, queued)
        if request.span is not None:
            _tell(request.span, call)
        wanted = {name: named[name] for name in request.outputs} if request.outputs else named
        return Response(request.model, str(call.model.version), request.id, wanted, statistics)

    def failed(self, call: Call, error: BaseException) -> Exception:
        """The error that a request is answered with; it is counted."""
        answer = as_serve_error(error)
        seconds = time.monotonic() - call.since
        call.model.statistics[call.endpoint.function].failed(seconds)
        self.metrics.answered(call.model.name, call.endpoint.function, answer.grpc, seconds, call.queued)
        if call.request.span is not None:
            _tell(call.request.span, call)
        return answer

    def _continue(self, call: Call, sequence: Sequence, outputs: Mapping[str, np.ndarray]) -> None:
        request, state = call.request, call.model.config.state
        assert request.sequence is not None
        if request.is_end:
            call.sequences.end(request.sequence, sequence)
            return
        changed = {name: outputs[output] for name, output in state.items() if output in outputs}
        try:
            if changed:
                call.sequences.keep(sequence, changed)
        except OverloadedError as error:  # without its state it cannot be continued
            call.sequences.end(request.sequence, sequence)
            raise self.failed(call, error) from None

    @staticmethod
    def end(call: Call) -> None:
        """After a call, however it ended."""
        if call.sequence is not None:
            call.sequence.leave()

    def tidy(self) -> None:
        """To be called now and then: what has expired is forgotten, though nobody asks for anything."""
        for model in self.repository.models():
            for sequences in model.sequences.values():
                sequences.expire()

    # ---- what there is ----

    @property
    def is_live(self) -> bool:
        return True

    @property
    def is_ready(self) -> bool:
        """Whether requests will be answered: everything is loaded, and the server does not stop."""
        return not self.is_draining and self.repository.is_ready

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Whether a model can be called now."""
        try:
            self.repository.endpoint(name, version)
        except Exception:
            return False
        return not self.is_draining

    def server_metadata(self) -> dict[str, Any]:
        """The protocol's server metadata."""
        return {"name": NAME, "version": __version__, "extensions": list(EXTENSIONS)}

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """The protocol's model metadata. Raises ServeError."""
        model, endpoint = self.repository.endpoint(name, version)
        return {
            "name": name,
            "versions": [str(number) for number in self.repository.versions(model.name)],
            "platform": NAME,
            "inputs": list(map(_tensor_metadata, endpoint.inputs)),
            "outputs": list(map(_tensor_metadata, endpoint.outputs)),
            "properties": {"sha256": model.digest, "batching": model.merging[endpoint.function].text},
        }


def _turn_seconds(request: Request) -> float:
    """How long a request waits for the one of its sequence before it: not at all, unless it says until when."""
    return 0.0 if request.deadline is None else max(0.0, request.deadline - time.monotonic())


def _busy(request: Request) -> BadRequestError:
    return BadRequestError(f"sequence {request.sequence!r} has a request that is not answered yet")


def _resolve(future: concurrent.futures.Future, outputs: Any, error: Exception | None) -> None:
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(outputs)


def _tensor_metadata(port: Port) -> dict[str, Any]:
    datatype, shape = described(port)
    return {"name": port.name, "datatype": datatype, "shape": shape}
