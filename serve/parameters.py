"""Parameters of a request, the same for JSON and for protobuf's values."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import BadRequestError

_MAX_SEQUENCE = 128  # characters of a sequence's id
_LONGEST = 1e9  # seconds that anything may wait: what threads can wait for ends at ten times as much


class Options(NamedTuple):
    """Options of a request's call, besides its tensors. `deadline` is a time of `time.monotonic`."""

    deadline: float | None = None
    sequence: int | str | None = None
    is_start: bool = False
    is_end: bool = False


def options(parameters: Mapping[str, Any]) -> Options:
    """Of a request's parameters: `timeout` (microseconds from now on), `sequence_id` (0 and "" are none), `sequence_start`,
    `sequence_end`. Raises BadRequestError."""
    if not parameters:
        return _NONE
    timeout, sequence = parameters.get("timeout"), parameters.get("sequence_id")
    if type(sequence) not in (int, str, type(None)) or len(str(sequence)) > _MAX_SEQUENCE:
        raise BadRequestError("sequence_id: expected a number or a string")
    return Options(
        None if timeout is None else after(whole(timeout, "timeout") / 1e6),
        sequence or None,
        _flag(parameters, "sequence_start"),
        _flag(parameters, "sequence_end"),
    )


_NONE = Options()


def after(seconds: float) -> float:
    """The deadline in `seconds`, or practically never."""
    return time.monotonic() + min(seconds, _LONGEST)


def text(value: Any, what: str) -> str:
    """The value, which must be a string. Raises BadRequestError."""
    if not isinstance(value, str):
        raise BadRequestError(f"{what}: expected a string")
    return value


def whole(value: Any, what: str) -> int:
    """The value, which must be a size. Raises BadRequestError."""
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise BadRequestError(f"{what}: expected a whole number, 0 or more")
    return value


def _flag(parameters: Mapping[str, Any], name: str) -> bool:
    value = parameters.get(name, False)
    if type(value) is not bool:
        raise BadRequestError(f"{name}: expected true or false")
    return value
