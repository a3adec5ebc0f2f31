"""Access control and its log: bearer tokens, and a log of one JSON line a request."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import IO, Any

from ..formats.messages.errors import ArgumentError, FileError
from .errors import UnauthenticatedError


class Tokens:
    """The tokens that clients may show, of which digests alone are kept."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens if token]
        if not self._digests:
            raise ArgumentError("there is no token: then nobody could ask anything")

    @staticmethod
    def load(path: str | os.PathLike) -> Tokens:
        """From a file, one a line. Raises FileError, ArgumentError."""
        try:
            with open(path, encoding="utf-8") as file:
                return Tokens(line.strip() for line in file)
        except OSError as error:
            raise FileError.of(error, "cannot read the file of tokens") from None

    def check(self, authorization: str) -> None:
        """Raises UnauthenticatedError unless that is `Bearer` and one of the tokens. Takes as long for any that is wrong."""
        scheme, _, token = authorization.partition(" ")
        digest = hashlib.sha256(token.strip().encode("utf-8", "replace")).digest()
        matches = [hmac.compare_digest(digest, each) for each in self._digests]
        if scheme.lower() != "bearer" or not any(matches):
            raise UnauthenticatedError(
                "expected the header 'authorization: Bearer TOKEN' with a token that is known here"
            )


class AccessLog:
    """Writes a line for each request, from any thread."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._lock = file, threading.Lock()

    def write(self, **fields: Any) -> None:
        """One line. A log that cannot be written (a full disk) stops nobody."""
        line = json.dumps({"time": round(time.time(), 6), **fields}).replace("\x7f", "\\u007f") + "\n"
        with self._lock:
            try:
                self._file.write(line)
                self._file.flush()
            except (OSError, ValueError):
                pass

    def watched(
        self, scope: MutableMapping[str, Any], send: Callable[[MutableMapping[str, Any]], Awaitable[None]]
    ) -> Callable[[MutableMapping[str, Any]], Awaitable[None]]:
        """`send` of an ASGI request, that writes its line when the answer is over."""
        start, seen = time.perf_counter(), {"status": 0, "bytes": 0}

        async def log(message: MutableMapping[str, Any]) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
            elif message["type"] == "http.response.body":
                seen["bytes"] += len(message.get("body", b""))
                if not message.get("more_body"):
                    client = (scope.get("client") or ("",))[0]
                    self.answered(client, scope["method"], scope["path"], start, **seen)

        return log

    def answered(self, client: str, method: str, path: str, start: float, status: int, bytes: int) -> None:
        """The line of a request over HTTP; `start` is by `time.perf_counter`."""
        seconds = round(time.perf_counter() - start, 6)
        self.write(
            transport="http", client=client, method=method, path=path, seconds=seconds, status=status, bytes=bytes
        )
