"""Errors of requests, each with its HTTP status and its gRPC status code."""

from __future__ import annotations

import logging

from ..formats.messages.errors import (
    BudgetExceededError,
    CancelledError,
    ExecutionError,
    FormatError,
    OutOfMemoryError,
    TreadleError,
)
from ..formats.messages.terminal import shown

LOG = logging.getLogger("treadle.serve")


def _show(record: logging.LogRecord) -> bool:
    """Names of models, functions and files come from anywhere: a record is one line, which no terminal obeys."""
    record.msg, record.args = shown(record.getMessage()).replace("\n", "\\n"), None
    if record.exc_info:
        record.exc_text = shown(logging.Formatter().formatException(record.exc_info))
    return True


LOG.addFilter(_show)
_LONGEST = 1000  # characters of an error's text, which may hold names that a client has sent; gRPC's clients take 8 KiB


class ServeError(TreadleError):
    """A request that is answered with an error."""

    http, grpc = 500, "INTERNAL"

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class BadRequestError(ServeError):
    """The request is malformed, or does not fit the model."""

    http, grpc = 400, "INVALID_ARGUMENT"


class UnauthenticatedError(ServeError):
    """A token is missing or wrong."""

    http, grpc = 401, "UNAUTHENTICATED"


class NotFoundError(ServeError):
    """There is no such model, version, region or page."""

    http, grpc = 404, "NOT_FOUND"


class TooLargeError(ServeError):
    """A body is larger than it may be, or than the tensors that it declares."""

    http, grpc = 413, "INVALID_ARGUMENT"


class LimitedError(ServeError):
    """The call passed a limit of the model: steps or memory."""

    http, grpc = 422, "RESOURCE_EXHAUSTED"


class OverloadedError(ServeError):
    """The model's queue is full. To be tried again later."""

    http, grpc = 429, "RESOURCE_EXHAUSTED"


class ClientGoneError(ServeError):
    """The client went away, or cancelled the call."""

    http, grpc = 499, "CANCELLED"


class NotImplementedHereError(ServeError):
    """A part of the protocol that this server does not have."""

    http, grpc = 501, "UNIMPLEMENTED"


class UnavailableError(ServeError):
    """The model is not ready, or the server is about to stop."""

    http, grpc = 503, "UNAVAILABLE"


class DeadlineError(ServeError):
    """The call took longer than the client, or the model's limit, allows."""

    http, grpc = 504, "DEADLINE_EXCEEDED"


def let_go(error: BaseException) -> None:
    """Cuts an answered error, and its causes, off from the frames that they passed: these hold tensors,
    and often the error itself, so that only Python's collector would free them."""
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is not None and each.__traceback__ is not None:
            each.__traceback__ = None
            todo += each.__cause__, each.__context__


def as_serve_error(error: BaseException) -> ServeError:
    """The error that answers a request in which this was raised."""
    if isinstance(error, ServeError):
        return error
    if isinstance(error, BudgetExceededError):
        kind: type[ServeError] = DeadlineError if error.budget == "seconds" else LimitedError
        return kind(str(error))
    if isinstance(error, CancelledError):
        return ClientGoneError(str(error))
    if isinstance(error, (OutOfMemoryError, MemoryError)):
        return LimitedError(str(error) or "the system has no memory for it")
    if isinstance(error, (ExecutionError, FormatError)):
        return BadRequestError(str(error))
    if isinstance(error, TreadleError):
        return ServeError(str(error))
    LOG.error("a fault of the server", exc_info=error)
    return ServeError("a fault of the server; its log has more")  # what Python says of it is nobody else's business
