"""Which worker gets which batch, and what happens when one is lost: the same for all engines.

An engine has workers, gives each a few batches at a time, and reports their outcomes. The schedule reads the source no
further than results are taken (back pressure), tries lost batches again on other workers, and gives each result once.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..formats.messages.errors import BatchError, TreadleError, WorkerError
from .sources import Arrays, Batch
from .wire import may_pass

DEPTH = 2  # batches that a worker has: one that it works on, and the next
_AHEAD = 4  # batches a worker that are begun and not yet taken by the caller, where results come in order
_MOST_STARTS = 1  # workers lost one after the other before any was ready, besides one for each, and the retries


class Worker:
    """A worker as the schedule sees it. Engines add what it takes to reach it."""

    def __init__(self, depth: int = DEPTH) -> None:
        self.depth = depth
        self.running: deque[int] = deque()  # the numbers of its batches; it works on the first
        self.since = 0.0  # when it began with that, at the latest
        self.is_ready = False  # it has linked the program


class Event(NamedTuple):
    """An engine's message: of batch `number` its result or error; without a number, that the worker is ready, cannot begin
    because of an error, or is `lost`, with the reason."""

    worker: Worker
    number: int | None = None
    result: Any = None
    error: TreadleError | None = None
    lost: str = ""


class Engine(ABC):
    """Workers of some kind."""

    workers: list[Worker]

    @abstractmethod
    def start(self) -> None:
        """Starts the first workers. Raises WorkerError."""

    @abstractmethod
    def send(self, worker: Worker, number: int, arrays: Arrays) -> None:
        """Gives a batch to a worker; a worker that is gone meanwhile is told of by `wait`."""

    @abstractmethod
    def wait(self, timeout: float | None) -> list[Event]:
        """The events since the last call; waits up to `timeout` seconds for one."""

    @abstractmethod
    def end(self, worker: Worker) -> None:
        """Ends a worker at once, whatever it does, and starts another in its place."""

    @abstractmethod
    def close(self) -> None:
        """Ends all workers."""


class _Task:
    """A batch that is under way."""

    def __init__(self, number: int, arrays: Arrays) -> None:
        self.number, self.arrays, self.attempts = number, arrays, 0
        self.avoided: Worker | None = None  # that it failed on
        self.reasons: list[str] = []


class Schedule:
    """One run over a source."""

    def __init__(
        self,
        engine: Engine,
        batches: Iterable[Batch],
        *,
        ordered: bool,
        retries: int,
        patience: float | None = None,
        stored: Callable[[int], Any] = lambda number: None,
        store: Callable[[int, Any], None] = lambda number, result: None,
    ) -> None:
        """`patience` is how many seconds a worker may work on a batch before it counts as lost. `stored` gives the result of a
        batch that was finished in an earlier run, or None; `store` keeps one."""
        self._engine, self._batches, self._ordered = engine, iter(batches), ordered
        self._retries, self._patience, self._stored, self._store = retries, patience, stored, store
        self._tasks: dict[int, _Task] = {}
        self._again: deque[_Task] = deque()
        self._finished: dict[int, Any] = {}
        self._next, self._read, self._unlucky_starts = 0, 0, 0
        self._source_error: Exception | None = None
        self._is_read = self._is_started = False

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """(number, result) of each batch, once. Raises BatchError, WorkerError, and what the source raises, after the results
        of the batches before."""
        try:
            while True:
                self._feed()
                yield from self._take()
                if self._is_read and not self._tasks and not self._finished:
                    break
                if self._tasks:
                    self._listen()
        finally:
            self._engine.close()
        if self._source_error is not None:
            raise self._source_error

    # ---- giving ----

    def _feed(self) -> None:
        """Gives batches to workers while there is room, lost ones first."""
        if self._again:
            self._feed_again()
        while not self._is_read and not self._again and (worker := self._free()) is not None:
            batch = self._next_batch()
            if batch is None:
                return
            result = self._stored(batch.number)
            if result is not None:
                self._finished[batch.number] = result
                continue
            try:
                task = _Task(batch.number, batch.read())
            except Exception as error:
                self._stop_reading(error)
                return
            if not self._is_started:  # a run that finds all its results stored needs no workers
                self._engine.start()
                self._is_started = True
                worker = self._free()
            assert worker is not None
            self._tasks[task.number] = task
            self._send(worker, task)

    def _feed_again(self) -> None:
        for task in list(self._again):
            worker = self._room(task.avoided)
            if worker is not None:
                self._again.remove(task)
                self._send(worker, task)

    def _next_batch(self) -> Batch | None:
        try:
            batch = next(self._batches, None)
        except Exception as error:  # the source's own: raised to the caller once earlier batches are done
            self._stop_reading(error)
            return None
        self._is_read = batch is None
        self._read += batch is not None
        return batch

    def _stop_reading(self, error: Exception) -> None:
        self._source_error, self._is_read = error, True

    def _send(self, worker: Worker, task: _Task) -> None:
        if not worker.running:
            worker.since = time.monotonic()
        worker.running.append(task.number)
        self._engine.send(worker, task.number, task.arrays)

    def _free(self) -> Worker | None:
        """The worker for the next batch of the source; None while there are enough under way."""
        if not self._is_started:
            return _NOBODY if len(self._finished) < _AHEAD else None
        workers = self._engine.workers
        if len(self._tasks) + len(self._finished) >= _AHEAD * workers[0].depth * len(workers):
            return None
        return self._room(None)

    def _room(self, avoided: Worker | None) -> Worker | None:
        """The worker that has least to do, and room; not the one that a batch failed on, unless there is no other."""
        workers, found = self._engine.workers, None
        if avoided is not None:
            workers = [worker for worker in workers if worker is not avoided] or workers
        for worker in workers:
            if len(worker.running) < (worker.depth if found is None else len(found.running)):
                found = worker
        return found

    # ---- taking ----

    def _take(self) -> Iterator[tuple[int, Any]]:
        if self._ordered:
            while self._next in self._finished:
                yield self._next, self._finished.pop(self._next)
                self._next += 1
                self._feed()  # workers go on while the caller works
        else:
            while self._finished:
                number = next(iter(self._finished))
                yield number, self._finished.pop(number)
                self._feed()

    def _listen(self) -> None:
        for event in self._engine.wait(self._timeout()):
            if event.number is None:
                self._hear_of_worker(event)
            else:
                self._hear_of_batch(event.worker, event.number, event.result, event.error)
        if self._patience is not None:
            for worker in list(self._engine.workers):
                if worker.running and worker.is_ready and time.monotonic() > worker.since + self._patience:
                    self._lose(worker, f"it had not answered after {self._patience:g} s")

    def _timeout(self) -> float | None:
        if self._patience is None:
            return None
        ends = [worker.since + self._patience for worker in self._engine.workers if worker.running and worker.is_ready]
        return max(0.0, min(ends, default=time.monotonic() + 1.0) - time.monotonic())

    def _hear_of_worker(self, event: Event) -> None:
        worker = event.worker
        if event.lost:
            self._lose(worker, event.lost)
        elif event.error is not None:  # it cannot link the program: no other could
            raise event.error
        else:
            worker.is_ready, worker.since, self._unlucky_starts = True, time.monotonic(), 0

    def _hear_of_batch(self, worker: Worker, number: int, result: Any, error: TreadleError | None) -> None:
        if number not in worker.running:  # it was given to another meanwhile
            return
        worker.running.remove(number)
        worker.since = time.monotonic()
        task = self._tasks[number]
        if error is None:
            self._store(number, result)
            del self._tasks[number]
            self._finished[number] = result
            return
        task.avoided = worker
        self._try_again(task, str(error), error, may_pass(error))

    def _lose(self, worker: Worker, reason: str) -> None:
        """Gives a lost worker's batches to others. The one that it worked on may be why it is lost; the others wait."""
        lost, was_ready = list(worker.running), worker.is_ready
        worker.running.clear()
        self._engine.end(worker)
        if not was_ready:
            self._unlucky_starts += 1
            if self._unlucky_starts > _MOST_STARTS + self._retries + len(self._engine.workers):
                raise WorkerError(f"{self._unlucky_starts} workers one after the other did not start: {reason}")
        for place, number in enumerate(lost):
            task = self._tasks[number]
            task.avoided = worker
            if place == 0 and was_ready:
                self._try_again(task, f"its worker is lost: {reason}", None, True)
            else:
                self._again.append(task)

    def _try_again(self, task: _Task, reason: str, error: TreadleError | None, may_go_well: bool) -> None:
        task.attempts += 1
        task.reasons.append(reason)
        if may_go_well and task.attempts <= self._retries:
            self._again.append(task)
            return
        times = "once" if task.attempts == 1 else f"{task.attempts} times"
        told = "; ".join(dict.fromkeys(task.reasons))
        raise BatchError(
            f"batch {task.number} has no result, tried {times}: {told}", number=task.number, attempts=task.attempts
        ) from error


_NOBODY = Worker()
