"""Worker processes of this host: the default engine, which needs nothing installed.

Workers are started, not forked, so that this process may have any threads. They map the same file, and so share the weights.
Batches and results pass through memory that both sides map; a worker has two slots, so that its next batch lies there when it
finishes one. When this process ends, however that happens, its workers do.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
from collections import deque
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from ..formats.messages.errors import FileError, WorkerError, naming
from ..native import processes
from . import worker as worker_process
from .handle import Handle
from .schedule import DEPTH, Engine, Event, Worker
from .sources import Arrays
from .wire import Memory, decode_error, end_of, places, read, unflatten, write
from .worker import DONE, FAILED, READY

_CODE = f"from {worker_process.__name__} import main; main()"


class _Process(Worker):
    """A worker's process, and what it is reached by."""

    def __init__(self, greeting: bytes) -> None:
        super().__init__()
        self.slots = [(Memory(), Memory()) for _ in range(DEPTH)]  # for a batch, for its result
        self.free = deque(range(DEPTH))
        self.slot_of: dict[int, int] = {}
        ours, theirs = socket.socketpair()
        descriptors = [theirs.fileno(), *(memory.descriptor for slot in self.slots for memory in slot)]
        try:
            self.process = processes.start(
                _CODE,
                *descriptors,
                stdin=processes.PIPE,  # never written to: its end tells the worker that this process has ended
                pass_fds=descriptors,
                cwd=Path(__file__).parent,  # of ours: Numba reads settings from the working directory
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.connection = Connection(ours.detach())
        with contextlib.suppress(OSError):  # it is gone; its connection will tell
            self.connection.send_bytes(greeting)

    def give(self, number: int, arrays: Arrays) -> None:
        """Sends a batch. Raises OutOfMemoryError."""
        slot = self.slot_of[number] = self.free.popleft()
        found, size = places(arrays)
        write(arrays, found, self.slots[slot][0].room(size or 1))
        with contextlib.suppress(OSError):
            self.connection.send_bytes(msgpack.packb([number, slot, found]))

    def take(self) -> Event:
        """Its next message. Raises EOFError or OSError where it is gone."""
        kind, *told = msgpack.unpackb(self.connection.recv_bytes())
        if kind == READY:
            return Event(self)
        if kind not in (DONE, FAILED):
            return Event(self, error=decode_error(told[0]))
        slot = self.slot_of.pop(told[0])
        self.free.append(slot)
        if kind == FAILED:
            return Event(self, told[0], error=decode_error(told[1]))
        number, structure, found = told
        views = read(found, self.slots[slot][1].room(end_of(found) or 1))
        return Event(self, number, unflatten(structure, [np.array(view) for view in views]))

    def ending(self) -> str:
        """How the process ended, whose connection has."""
        with contextlib.suppress(processes.TimeoutExpired):
            code = self.process.wait(_LAST_WORDS)
            if code >= 0:
                return f"its process ended with status {code}"
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            hint = ", as the system does when it has no more memory" if name == "SIGKILL" else ""
            return f"its process was ended by {name}{hint}"
        return "its process has closed the connection"

    def kill(self) -> None:
        """Ends the process at once, and gives up what it was reached by."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        for memory in (memory for slot in self.slots for memory in slot):
            memory.close()


_LAST_WORDS = 5.0  # seconds for the system to take a process apart whose connection is closed already


class LocalEngine(Engine):
    """`workers` processes, each of which takes `threads` threads."""

    def __init__(self, handle: Handle, function: str, workers: int, threads: int) -> None:
        if sys.platform == "win32":
            raise WorkerError('engine="local" needs a POSIX system, whose processes share memory without a name')
        self._greeting: bytes = msgpack.packb(
            [handle.path, handle.digest, handle.stamp, handle.options, function, threads]
        )
        self._count = workers
        self._owner = os.getpid()
        self._selector: Any = None
        self.workers: list[Worker] = []

    def start(self) -> None:
        """Starts one worker; the others start when that is ready, and find its kernels in the cache."""
        self._selector = selectors.DefaultSelector()
        self._add()

    def _add(self) -> None:
        try:
            with naming("a worker"):
                worker = _Process(self._greeting)
        except FileError as error:
            raise WorkerError(str(error)) from error
        self._selector.register(worker.connection, selectors.EVENT_READ, worker)
        self.workers.append(worker)

    def send(self, worker: Worker, number: int, arrays: Arrays) -> None:
        assert isinstance(worker, _Process)
        worker.give(number, arrays)

    def wait(self, timeout: float | None) -> list[Event]:
        events = []
        for key, _ in self._selector.select(timeout):
            worker = key.data
            try:
                event = worker.take()
            except (EOFError, OSError):
                event = Event(worker, lost=worker.ending())
            if event.number is None and not event.lost and event.error is None:
                while len(self.workers) < self._count:
                    self._add()
            events.append(event)
        return events

    def end(self, worker: Worker) -> None:
        self._remove(worker)
        self._add()

    def _remove(self, worker: Worker) -> None:
        assert isinstance(worker, _Process)
        self._selector.unregister(worker.connection)
        self.workers.remove(worker)
        worker.kill()

    def close(self) -> None:
        if os.getpid() != self._owner:  # a child of fork: the workers are its parent's
            return
        for worker in list(self.workers):
            self._remove(worker)
        if self._selector is not None:
            self._selector.close()
