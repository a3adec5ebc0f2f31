"""Compiling many kernel texts side by side, in worker processes that are fed through pipes.

Workers are started by `native/processes.py` and not by `multiprocessing`, which would run a user's script again unless it guards
its main part. A worker that dies costs its text a second try; Ctrl-C, or any error, ends all of them.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from .....formats.messages.errors import CompileError, ExecutionError
from .....formats.starting import Thread
from .....native import knobs, processes
from .....native.llvm import NativeTarget
from .....native.once import is_forked
from .....native.processors import cpu_count
from . import worker

# Starting a worker costs about as much as compiling two kernels: fewer texts than these are compiled in this process.
_WORTH_WORKERS = 3

# Only texts of fewer characters than these, together, are compiled in this process, uninterruptibly. Measured on an
# EPYC of 2.6 GHz: templates take 10 to 60 us a character, chains of pow and sin, the slowest, 125 to 155. So it is over in two
# seconds at most; a worker has started in one.
_SHORT = 12_000

# A process that dies may have been killed for memory that others used; a text that kills two is at fault.
_ATTEMPTS = 2


@dataclass(frozen=True)
class Text:
    """A kernel to compile: `symbol` is the name of the function in the object code."""

    symbol: str
    source: str
    lanes: int


class UnfinishedError(Exception):
    """A text that was not compiled in time."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self.texts = texts


Result = Union[bytes, CompileError]  # object code, or why there is none


def compile_texts(
    texts: Sequence[Text], target: NativeTarget, jobs: int | None = None, until: float = math.inf
) -> Iterator[tuple[Text, Result]]:
    """The same, but a text that does not compile does not stop the others: its error is its result."""
    jobs = min(jobs or knobs.get("TREADLE_JOBS") or cpu_count(), len(texts))
    # Numba in a child of fork may not be able to compile
    is_short = sum(len(text.source) for text in texts) < _SHORT
    if not is_forked() and len(texts) < _WORTH_WORKERS and (is_short or until == math.inf):
        for text in texts:
            yield text, _compile_here(text, target)
    else:
        # long texts first: a long one that starts last would leave the other workers idle
        yield from _on_workers(sorted(texts, key=lambda text: -len(text.source)), target, jobs, until)


def _compile_here(text: Text, target: NativeTarget) -> Result:
    try:
        return worker.compile_kernel(text.symbol, text.source, text.lanes, target)
    except CompileError as error:
        return error


def _on_workers(texts: Sequence[Text], target: NativeTarget, jobs: int, until: float) -> Iterator[tuple[Text, Result]]:
    waiting: queue.SimpleQueue[Text] = queue.SimpleQueue()
    finished: queue.SimpleQueue[tuple[Text, bytes | Exception]] = queue.SimpleQueue()
    for text in texts:
        waiting.put(text)
    clients = [_Client(target) for _ in range(jobs)]
    try:
        if not sum(client.start(waiting, finished) for client in clients):
            clients[0].work(waiting, finished)
        missing = dict.fromkeys(texts)
        while missing:
            try:
                text, result = finished.get(timeout=None if until == math.inf else max(0, until - time.monotonic()))
            except queue.Empty:
                raise UnfinishedError(list(missing)) from None
            if isinstance(result, Exception) and not isinstance(result, CompileError):
                raise result
            del missing[text]
            yield text, result
    finally:
        for client in clients:
            client.close()


class _Client:
    """This process's side of one worker at a time; a dead one is replaced."""

    def __init__(self, target: NativeTarget) -> None:
        self._target = target
        self._process: processes.Process[bytes] | None = None
        self._lock = threading.Lock()  # between starting a worker here and closing in another thread
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(
        self, waiting: queue.SimpleQueue[Text], finished: queue.SimpleQueue[tuple[Text, bytes | Exception]]
    ) -> bool:
        """Compiles texts, in a thread of its own, until none wait. Whether the system has a thread for that."""
        thread = Thread(target=self.work, args=(waiting, finished), daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def work(
        self, waiting: queue.SimpleQueue[Text], finished: queue.SimpleQueue[tuple[Text, bytes | Exception]]
    ) -> None:
        """Compiles waiting texts; a text's error is its result."""
        while not self._closed:
            try:
                text = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                finished.put((text, self._compile(text)))
            except Exception as error:
                finished.put((text, error))

    def _compile(self, text: Text) -> Result:
        status: int | None = None
        for _ in range(_ATTEMPTS):
            try:
                process = self._running()
            except ExecutionError:  # the system starts no more processes
                return _compile_here(text, self._target)
            try:
                worker.send(process.stdin, [text.symbol, text.source, text.lanes])  # type: ignore[arg-type]
                outcome, content = worker.receive(process.stdout)  # type: ignore[arg-type]
            except (EOFError, OSError):
                process.kill()  # a living one does not respond
                status = process.wait()
                _close_pipes(process)
                continue
            if outcome == "error":
                raise CompileError(content)
            return content
        raise CompileError(f"the process that compiled kernel {text.symbol} died twice, with exit status {status}")

    def _running(self) -> processes.Process[bytes]:
        with self._lock:
            if self._closed:
                raise CompileError("the build was interrupted")
            if self._process is None or self._process.poll() is not None:
                if self._process is not None:
                    _close_pipes(self._process)
                self._process = _start(self._target)
            return self._process

    def close(self) -> None:
        """Ends the worker, whatever it is doing."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()
        if self._thread is not None:
            self._thread.join()  # it finds that its worker is dead
        if self._process is not None:
            _close_pipes(self._process)


def _close_pipes(process: processes.Process[bytes]) -> None:
    """Of a process that has ended."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what a request had not written is lost
                pipe.close()


def _start(target: NativeTarget) -> processes.Process[bytes]:
    # in a folder of ours: Numba reads settings from the working directory
    process = processes.start(
        processes.module(worker.__name__), stdin=processes.PIPE, stdout=processes.PIPE, cwd=Path(__file__).parent
    )
    try:
        worker.send(process.stdin, [target.triple, target.cpu, target.features])  # type: ignore[arg-type]
    except OSError:
        pass  # it is dead already; the next request finds out
    except BaseException:
        process.kill()
        process.wait()
        _close_pipes(process)
        raise
    return process
