"""Where clients of the Debug Adapter Protocol are let in: `treadle.debug.listen` in a user's process, `treadle debug --dap`.

treadle.debug.listen(5679).wait_for_client()
machine(x)  # stops where the editor has its breakpoints
"""

from __future__ import annotations

import _thread
import contextlib
import io
import os
import signal
import socket
import sys
from collections.abc import Callable
from threading import Condition, Lock, Thread, get_ident
from typing import Any, BinaryIO

from ...formats.messages.calling import Suggesting, public, public_class, told
from ...formats.messages.errors import ArgumentError, ExecutionError, TreadleError
from ...vm.calls import debug_calls
from .dap import Adapter, LeftError
from .wire import Wire

HOST = "127.0.0.1"  # and no other: who is let in sees and changes what calls compute
Target = Callable[[], None]  # runs the program that a client launches
Launcher = Callable[[dict[str, Any]], "tuple[Target, bool]"]  # of a launch's arguments; and whether it is a script


def _listener(port: int) -> socket.socket:
    if type(port) is not int or not 0 <= port < 1 << 16:
        raise ArgumentError(f"listen: port: expected a number from 0 to 65535, got {told(port)}")
    try:
        return socket.create_server((HOST, port), backlog=1)
    except OSError as error:
        raise ExecutionError(
            f"listen: {HOST}:{port} cannot be listened on: {error}; port 0 takes one that is free"
        ) from None


@public_class
class Listening(Suggesting):
    """Lets one client at a time debug the calls of all machines of this process, on 127.0.0.1; `with` it, or `close` it.

    While one is attached, a call stops where the client says; one that begins meanwhile in another thread, or in a function that
    the first one imports, runs as usual. When the client goes, calls go on without it, and another may come.
    """

    def __init__(self, port: int) -> None:
        self._listener = _listener(port)
        self._adapter: Adapter | None = None
        self._client: socket.socket | None = None
        self._came = Condition()
        self._is_closed = False
        Thread(target=self._serve, name="treadle-dap", daemon=True).start()

    def __repr__(self) -> str:
        return f"<Listening on {HOST}:{self.port}>"

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._listener.getsockname()[1]

    def wait_for_client(self, seconds: float | None = None) -> bool:
        """Until a client is attached and has set its breakpoints; whether one is."""
        with self._came:
            return (
                self._came.wait_for(lambda: self._adapter is not None or self._is_closed, seconds)
                and not self._is_closed
            )

    def close(self) -> None:
        """Lets nobody in any more, and the client go."""
        self._is_closed = True
        for each in (self._listener, self._client):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
                each.close()
        with self._came:
            self._came.notify_all()

    def _serve(self) -> None:
        while not self._is_closed:
            try:
                self._client, _ = self._listener.accept()
            except OSError:
                return
            with self._client as client, client.makefile("rb") as source, client.makefile("wb") as sink:
                adapter = Adapter(Wire(source, sink), is_launched=False)
                Thread(target=self._await, args=(adapter,), name="treadle-dap", daemon=True).start()
                try:
                    adapter.read()
                finally:
                    with self._came:
                        self._adapter = None
                    debug_calls(None)

    def _await(self, adapter: Adapter) -> None:
        adapter.configured.wait()
        with self._came:
            if not adapter.is_gone:
                debug_calls(adapter.debug)
                self._adapter = adapter
                self._came.notify_all()


@public
def listen(port: int = 5679) -> Listening:
    """Lets editors debug this process's calls by the Debug Adapter Protocol, on 127.0.0.1. Calls run at full speed until one
    attaches; `listen(…).wait_for_client()` waits for that. Port 0 is one that is free. Raises ArgumentError, ExecutionError."""
    return Listening(port)


def serve_socket(port: int, launcher: Launcher) -> None:
    """Serves clients that launch programs, one after the other, until Ctrl-C."""
    with _listener(port) as listener:
        print(f"treadle debug: listening on {HOST}:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
        while True:
            client, _ = listener.accept()
            with client, client.makefile("rb") as source, client.makefile("wb") as sink:
                _serve(source, sink, launcher)


def serve_stdio(launcher: Launcher) -> None:
    """Serves the client that has started this process. What is printed goes to the client as the program's output."""
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # who writes to the standard output past Python does not break the protocol
    _serve(source, sink, launcher)


class _Printed(io.TextIOBase):
    """What a program prints, for the client."""

    def __init__(self, adapter: Adapter, category: str) -> None:
        self._adapter, self._category = adapter, category

    def write(self, text: str) -> int:
        self._adapter.output(text, self._category)
        return len(text)


def _serve(source: BinaryIO, sink: BinaryIO, launcher: Launcher) -> None:
    """One client, until it goes. What it launches runs in this thread, since Python has things for the main one alone."""
    adapter = Adapter(Wire(source, sink), is_launched=True)
    main, lock, runs = get_ident(), Lock(), [False]

    def read() -> None:
        adapter.read()
        with lock:
            if runs[0]:  # whatever it waits for
                signal.pthread_kill(main, signal.SIGINT) if hasattr(
                    signal, "pthread_kill"
                ) else _thread.interrupt_main()

    def run(target: Target) -> None:
        with lock:
            runs[0] = True
        try:
            _run(adapter, target)
        finally:
            with lock:
                runs[0] = False

    Thread(target=read, name="treadle-dap", daemon=True).start()
    try:
        while (request := adapter.launches.get()) is not None:
            try:
                target, is_script = launcher(request.get("arguments") or {})
            except (TreadleError, OSError) as error:
                adapter.launched(request, error)
                continue
            if not adapter.launched(request):
                continue
            if is_script:
                adapter.announce()
                adapter.configured.wait()
            run(target)  # the client takes its leave, and launches nothing more
    except KeyboardInterrupt:
        if not adapter.is_gone:
            raise
    adapter.leave()


def _run(adapter: Adapter, target: Target) -> None:
    """Runs what was launched, and says how it ends."""
    code, out, err = 1, _Printed(adapter, "stdout"), _Printed(adapter, "stderr")
    debug_calls(adapter.debug)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            target()
        code = 0
    except LeftError:
        return
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        adapter.output(f"{type(error).__name__}: {error}\n", "stderr")
    finally:
        debug_calls(None)
    adapter.ended(code)
