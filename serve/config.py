"""How a model is served: what its configuration file, or the server's command line, may say."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..formats.messages.errors import FileError, FormatError

MAX_FILE = 1 << 20  # bytes of a configuration


@dataclass(frozen=True)
class ModelConfig:
    """How one model is served. Times are in seconds, memory in bytes; None means no bound."""

    max_queue: int = 128  # requests that wait; one more is refused at once
    instances: int | None = None  # calls at once; None: one a processor
    max_seconds: float = 60.0  # of a call, where the client has no shorter deadline
    max_steps: int | None = None  # instructions of a call
    max_memory: int | None = None  # of a call
    threads: int | None = None  # that may share a kernel; None: the process's
    batching: bool | None = None  # None: where rows are found to be independent
    max_batch: int = 32  # rows of a merged call
    max_delay: float = 0.0  # that the first request of a batch waits for others
    preferred: tuple[int, ...] = ()  # numbers of rows for which nothing waits any longer
    max_new_tokens: int = 4096  # of an answer
    # of all answers, and of prompts that later ones may share; None: what a gibibyte holds
    cache_tokens: int | None = None
    # names → where they are, in the model's folder or below it
    adapters: Mapping[str, str] = field(default_factory=dict)
    max_sequences: int = 64
    max_sequence_memory: int = 1 << 30  # that what the sequences of a function keep may take together
    sequence_idle: float = 60.0  # after which a sequence that nobody continues is forgotten
    state: Mapping[str, str] = field(default_factory=dict)  # an input → the output that it is in a sequence's next call

    def __post_init__(self) -> None:
        for name, least in (("max_queue", 1), ("max_batch", 1), ("max_sequences", 1), ("max_new_tokens", 1)):
            if getattr(self, name) < least:
                raise FormatError(f"{name} = {getattr(self, name)}: expected {least} or more")
        if self.instances is not None and self.instances < 1:
            raise FormatError(f"instances = {self.instances}: expected 1 or more, or null")
        if self.threads is not None and self.threads < 1:
            raise FormatError(f"threads = {self.threads}: expected 1 or more, or null")
        if self.cache_tokens is not None and self.cache_tokens < 1:
            raise FormatError(f"cache_tokens = {self.cache_tokens}: expected 1 or more, or null")
        if not self.max_seconds > 0 or self.max_delay < 0 or not self.sequence_idle > 0:
            raise FormatError("max_seconds and sequence_idle are more than 0, max_delay not less")

    def within(self, owner: ModelConfig) -> ModelConfig:
        """This configuration, which a client has given. Raises FormatError where it has a larger bound than the owner's."""
        for name in _BOUNDS:
            bound, wanted = getattr(owner, name), getattr(self, name)
            if bound is not None and (wanted is None or wanted > bound):
                raise FormatError(f"config: {name} = {wanted}: the server's owner allows {bound}")
        if self.adapters != owner.adapters:
            raise FormatError("config: adapters: the server's owner alone says where files are")
        return self

    @staticmethod
    def parse(text: str | bytes, source: str, base: ModelConfig | None = None) -> ModelConfig:
        """From JSON; what it does not say is as in `base`. Raises FormatError."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{source}: not JSON: {error}") from None
        if not isinstance(values, dict):
            raise FormatError(f"{source}: expected an object, found {type(values).__name__}")
        for name, value in values.items():
            if name not in _CHECKS:
                raise FormatError(f"{source}: no setting {name!r}; there are {', '.join(_CHECKS)}")
            if not _CHECKS[name](value):
                raise FormatError(f"{source}: {name} = {json.dumps(value)[:60]} is not what it can be")
        if "preferred" in values:
            values["preferred"] = tuple(values["preferred"])
        try:
            return replace(base or ModelConfig(), **values)
        except FormatError as error:
            raise FormatError(f"{source}: {error.message}") from None

    @staticmethod
    def load(path: Path, base: ModelConfig) -> ModelConfig:
        """From a file; `base` where there is none. Raises FormatError, FileError."""
        try:
            with open(path, "rb", opener=_open_regular) as file:
                data = file.read(MAX_FILE + 1)
        except FileNotFoundError:
            return base
        except OSError as error:
            raise FileError.of(error, f"cannot read {path.name}") from None
        if len(data) > MAX_FILE:
            raise FormatError(f"{path.name}: more than {MAX_FILE} bytes")
        return ModelConfig.parse(data, path.name, base)


def _open_regular(path: str, flags: int) -> int:
    """`os.open` of a file, through links too, but not of a pipe or device, which may never end. Raises FormatError."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FormatError(f"{os.path.basename(path)} is not a regular file")
    return descriptor


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9


def _or_none(check: Any) -> Any:
    return lambda value: value is None or check(value)


# What a client's configuration may make less, and not more. instances has a default of its own: processors
_BOUNDS = (
    "max_queue",
    "instances",
    "max_seconds",
    "max_steps",
    "max_memory",
    "threads",
    "max_batch",
    "max_new_tokens",
    "cache_tokens",
    "max_sequences",
    "max_sequence_memory",
    "sequence_idle",
)
_CHECKS: dict[str, Any] = {each.name: _whole for each in fields(ModelConfig)} | {
    "instances": _or_none(_whole),
    "max_steps": _or_none(_whole),
    "max_memory": _or_none(_whole),
    "threads": _or_none(_whole),
    "cache_tokens": _or_none(_whole),
    "max_seconds": _number,
    "max_delay": _number,
    "sequence_idle": _number,
    "batching": lambda value: value is None or isinstance(value, bool),
    "preferred": lambda value: isinstance(value, list) and all(map(_whole, value)),
    **dict.fromkeys(
        ("adapters", "state"),
        lambda value: isinstance(value, dict) and all(type(each) is str for each in value.values()),
    ),
}
