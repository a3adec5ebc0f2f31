"""Chat templates, rendered by a process of their own (`template_process.py`): a template that takes too long is ended with it."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..formats.messages.errors import ArgumentError, BudgetExceededError, MissingPackageError
from ..native import processes
from ..native.once import Lock

SECONDS = 2.0  # that a chat may take
MOST_BYTES = 4 << 20  # of a rendered chat
MEMORY = 512 << 20  # address space of the process, of which Python takes some 100 MB
_START_SECONDS = 30.0  # until the process answers for the first time
_RUN = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"


class Renderer:
    """A process that renders templates, one request at a time; it starts with the first. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: processes.Process[bytes] | None = None

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Raises ArgumentError for a template that fails or variables that are not JSON, BudgetExceededError,
        MissingPackageError."""
        try:
            request = json.dumps({"template": template, "variables": dict(variables)}).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"the chat template: its variables are not JSON: {error}") from None
        with self._lock:
            answer = self._asked(request)
        if "error" in answer:
            raise ArgumentError(f"the chat template: {answer['error']}")
        return str(answer["text"])

    def _asked(self, request: bytes) -> dict[str, Any]:
        process = self._running()
        self._process = None  # an answer that Ctrl-C keeps from being read is not one to the next request
        try:
            line = self._answer(process, request, SECONDS)
            if line.endswith(b"\n"):
                found: dict[str, Any] = json.loads(line)
                if len(found.get("text", "")) <= MOST_BYTES:
                    self._process = process
                    return found
        finally:
            if self._process is None:
                _end(process)
        raise BudgetExceededError(
            f"the chat template took more than {SECONDS} s, {MEMORY >> 20} MiB, or {MOST_BYTES} characters",
            budget="seconds",
        )

    @staticmethod
    def _answer(process: processes.Process[bytes], request: bytes, seconds: float) -> bytes:
        """Its line, cut where it is too long; of a process that takes longer what it wrote, or nothing."""
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            return process.stdout.readline(6 * MOST_BYTES)  # JSON takes up to 6 bytes for one
        except OSError:
            return b""
        finally:
            timer.cancel()

    def _running(self) -> processes.Process[bytes]:
        if self._process is None or self._process.poll() is not None:
            if find_spec("jinja2") is None:
                raise MissingPackageError("chat templates need jinja2: pip install 'treadle[text]'")
            script = Path(__file__).with_name("template_process.py")
            pipe, null = processes.PIPE, processes.DEVNULL
            path = json.dumps(sys.path)
            process = processes.start(_RUN, script, path, MEMORY, stdin=pipe, stdout=pipe, stderr=null)
            try:
                self._answer(process, b'{"template": "", "variables": {}}\n', _START_SECONDS)
            except BaseException:
                _end(process)
                raise
            self._process = process
        return self._process

    def close(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():  # else the process ends with its pipe
            self.close()


def _end(process: processes.Process[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError, AttributeError):
            pipe.close()  # type: ignore[union-attr]
