"""A small client of the Debug Adapter Protocol, over the streams of a socket or a process. With a schema, each message of both
directions is held against it."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable
from typing import Any, BinaryIO

SECONDS = 60


class Refused(Exception):
    """The response says that the request was not carried out."""


class Client:
    def __init__(self, source: Any, sink: BinaryIO, check: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._source, self._sink, self._check = source, sink, check
        self._sent, self._read = 0, b""
        self.events: list[dict[str, Any]] = []  # that nobody has asked for yet
        self._responses: dict[int, dict[str, Any]] = {}

    def close(self) -> None:
        self._sink.close()
        self._source.close()

    # ---- messages ----

    def send(self, command: str, **arguments: Any) -> int:
        self._sent += 1
        message = {"seq": self._sent, "type": "request", "command": command, "arguments": arguments}
        if self._check:
            self._check(message)
        self.write(json.dumps(message).encode())
        return self._sent

    def write(self, body: bytes) -> None:
        self._sink.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._sink.flush()

    def _receive(self, end: float) -> None:
        """One message more, which waits to be asked for."""
        while b"\r\n\r\n" not in self._read:
            self._more(end)
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        size = int(head.partition(b":")[2])
        while len(self._read) < size:
            self._more(end)
        message = json.loads(self._read[:size])
        self._read = self._read[size:]
        if self._check:
            self._check(message)
        if message["type"] == "event":
            self.events.append(message)
        else:
            self._responses[message["request_seq"]] = message

    def _more(self, end: float) -> None:
        ready, _, _ = select.select([self._source], [], [], max(0.0, end - time.monotonic()))
        assert ready, (
            f"no message arrived in {SECONDS} s; unread are events {self.events} and responses {self._responses}"
        )
        more = self._source.raw.read(1 << 16) if hasattr(self._source, "raw") else self._source.recv(1 << 16)
        if not more:
            raise EOFError
        self._read += more

    def response(self, number: int) -> dict[str, Any]:
        """The body of a response. Raises Refused."""
        end = time.monotonic() + SECONDS
        while number not in self._responses:
            self._receive(end)
        found = self._responses.pop(number)
        if not found["success"]:
            raise Refused(found["message"])
        return found.get("body", {})

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.response(self.send(command, **arguments))

    def event(self, name: str) -> dict[str, Any]:
        """The next event of a name; those before it are dropped but for output."""
        end = time.monotonic() + SECONDS
        while True:
            for at, each in enumerate(self.events):
                if each["event"] == name:
                    del self.events[at]
                    return each.get("body", {})
            self._receive(end)

    # ---- what clients do ----

    def begin(self, command: str, **arguments: Any) -> None:
        """Launches or attaches, up to where breakpoints can be set."""
        self.ask("initialize", adapterID="treadle", linesStartAt1=True, supportsVariablePaging=True)
        self.ask(command, **arguments)
        self.event("initialized")

    def stopped(self) -> dict[str, Any]:
        return self.event("stopped")

    def go(self, command: str, **arguments: Any) -> dict[str, Any]:
        """A motion, and where it ends."""
        self.ask(command, threadId=1, **arguments)
        return self.stopped()

    def frames(self) -> list[dict[str, Any]]:
        return self.ask("stackTrace", threadId=1)["stackFrames"]

    def registers(self, frame: int = 1) -> dict[str, dict[str, Any]]:
        """The variables of the first scope, by name; `number` is that of the scope."""
        number = self.ask("scopes", frameId=frame)["scopes"][0]["variablesReference"]
        found = {each["name"]: each for each in self.children(number)}
        return {**found, "": {"variablesReference": number}}

    def children(self, number: int, **how: Any) -> list[dict[str, Any]]:
        return self.ask("variables", variablesReference=number, **how)["variables"]
