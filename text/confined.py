"""Processes for what files from anywhere say: one that takes too long, or too much, ends alone.

`confined_process.py` runs in them, and answers requests, lines of JSON, by a script of this folder: `tokenizer_process.py`,
`template_process.py`, `grammar_process.py`.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from ..formats.starting import Thread
from ..native import processes
from ..native.once import Lock

MEMORY = 512 << 20  # address space of a process, of which Python takes some 100 MB
_START_SECONDS = 30.0  # until a process answers for the first time, and one more for each MiB of the first request
_TICK_SECONDS = 0.05  # between two looks at the clock while an answer is waited for
_RUN = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"


class Confined:
    """A process that answers one request at a time; it starts with the first. Any thread may ask."""

    _process: _Process | None = None

    def __init__(self, script: str, first: bytes, memory: int = MEMORY) -> None:
        """`first` is the request that each new process gets before any other, `memory` its address space."""
        self._script, self._first, self._memory = script, first, memory
        self._lock = Lock()

    def begin(self, most: int) -> dict[str, Any] | None:
        """Starts a process. Its answer to the first request, or None as of `ask`. Raises ExecutionError."""
        with self._lock:
            self.close()
            process = _Process(Path(__file__).with_name(self._script), self._memory)
            return self._answer(process, self._first + b"\n", _START_SECONDS + len(self._first) / (1 << 20), most)

    def ask(self, request: Mapping[str, Any], seconds: float, most: int) -> dict[str, Any] | None:
        """The answer; None where it, or that of a new process to the first request, took more time, more memory, or more than
        `most` bytes. Raises TypeError, ValueError and RecursionError for what is not JSON, ExecutionError where no process can be
        started."""
        data = json.dumps(request).encode() + b"\n"
        with self._lock:
            if (self._process is None or self._process.is_over()) and self.begin(most) is None:
                return None
            process, self._process = self._process, None
            assert process is not None
            return self._answer(process, data, seconds, most)

    def _answer(self, process: _Process, data: bytes, seconds: float, most: int) -> dict[str, Any] | None:
        """The process is kept if it answers: an answer that Ctrl-C keeps from being read is not one to the next request."""
        try:
            line = process.answer(data, seconds, most)
            if line.endswith(b"\n"):
                found: dict[str, Any] = json.loads(line)
                self._process = process
                return found
        finally:
            if self._process is None:
                process.end()
        return None

    def close(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():  # else the process ends with its pipe
            self.close()


class _Process:
    """A process, and the thread that ends it where an answer takes too long: one thread, since most answers take less time than
    to start one."""

    def __init__(self, script: Path, memory: int) -> None:
        pipe, null = processes.PIPE, processes.DEVNULL
        given = (script.with_name("confined_process.py"), script, memory, json.dumps(sys.path))
        self._process = processes.start(_RUN, *given, stdin=pipe, stdout=pipe, stderr=null)
        self._is_asked, self._deadline = Event(), 0.0
        Thread(target=self._watch, name="treadle-confined", daemon=True).start()

    def _watch(self) -> None:
        while self._process.returncode is None:
            self._is_asked.wait()
            if time.monotonic() > self._deadline:
                self._process.kill()
                return
            time.sleep(_TICK_SECONDS)

    @contextlib.contextmanager
    def _bounded(self, seconds: float) -> Iterator[None]:
        self._deadline = time.monotonic() + seconds
        self._is_asked.set()
        try:
            yield
        finally:
            self._is_asked.clear()

    def answer(self, request: bytes, seconds: float, most: int) -> bytes:
        """Its line, cut where it is too long; of a process that takes longer what it wrote, or nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._bounded(seconds), contextlib.suppress(OSError):
            self._process.stdin.write(request)
            self._process.stdin.flush()
            return self._process.stdout.readline(most)
        return b""

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._is_asked.set()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError, AttributeError):
                pipe.close()  # type: ignore[union-attr]
