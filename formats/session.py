"""Sessions in files: the tokens of a text, the state of its sampler, and what the decoder keeps of them, to go on elsewhere.

A session is a container (`container.py`) of other sections than an executable. It names the program by a digest, and ends with a
digest of all that stands before: by that it is the same session under any name. In a folder its digest is its name.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from . import container, limits
from .codec import Allowance, Binary, Buffer, Converted, Integer, Sequence, Text, record, row
from .constants import constant_bytes, constant_pieces, constant_type, from_bytes, split_constants
from .dtypes import DType
from .messages.errors import ChecksumError, FormatError
from .schema import ATTRIBUTE_VALUE, TENSOR_TYPE, TEXT
from .types import TensorType

SUFFIX = ".trses"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class SavedSession:
    """The contents of a session. `caches` hold the first `held` of its tokens; those of the others are computed again.

    `sampler` has the fields of a Sampler, `seed` what its random numbers are made of, of which `drawn` have been used.
    The last `made` tokens are one text of the decoder's.
    """

    program: str  # SHA-256 of what decides about results
    function: str
    held: int = 0
    sampler: tuple[tuple[str, Any], ...] = ()
    seed: int = 0
    drawn: int = 0
    made: int = 0
    chat: bytes = b""  # of a chat: its messages, as JSON
    tokens: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # int64[n]
    caches: Mapping[str, np.ndarray] = field(default_factory=dict)
    adapter: tuple[str, str] | None = None  # its name and SHA-256

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        return contents_digest(_contents(self))


def _sha256(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise FormatError("expected the 64 hexadecimal digits of a SHA-256")
    return text


_SHA256 = Converted("SHA-256", Text(64), _sha256, _sha256)
_SEED = Converted(
    "seed",
    Binary(limits.SEED_BYTES),
    lambda data: int.from_bytes(data, "little"),
    lambda seed: seed.to_bytes(-(-seed.bit_length() // 8), "little"),
)
_HEAD = record(
    SavedSession,
    program=_SHA256,
    function=TEXT,
    held=Integer(0, limits.DIMENSION),
    sampler=Sequence(row("setting", name=TEXT, value=ATTRIBUTE_VALUE), limits.FIELDS),
    seed=_SEED,
    drawn=Integer(),
    made=Integer(),
    chat=Binary(limits.CHAT_BYTES),
)
CODECS = {"session": _HEAD, "cache_types": Sequence(row("cache", name=TEXT, type=TENSOR_TYPE), limits.FIELDS)}
_ADAPTER = row("adapter", name=TEXT, digest=_SHA256)  # a section of sessions that have one
_REQUIRED = frozenset({*CODECS, "tokens", "caches", "digest"})
SECTIONS = _REQUIRED | {"adapter"}


def save(session: SavedSession, path: str | os.PathLike) -> Path:
    """Writes a session, whole or not at all, and durably; into a folder under its digest. The path of the file. Raises FileError,
    LimitError."""
    pieces = encode(session)
    target = Path(container.named(path))
    if os.path.isdir(target):
        target /= bytes(pieces[-1])[-64:].decode() + SUFFIX
    container.save(target, pieces)
    return target


def encode(session: SavedSession) -> list[Buffer]:
    """The pieces of the file. Raises LimitError."""
    contents = _contents(session)
    contents["digest"] = [_SHA256.encode(contents_digest(contents), "digest")]
    return container.layout(contents, dict.fromkeys(contents, True))


def _contents(session: SavedSession) -> dict[str, list[Buffer]]:
    allowance = Allowance()
    types = [(name, constant_type(array)) for name, array in session.caches.items()]
    rows = {"session": session, "cache_types": types}
    contents: dict[str, list[Buffer]] = {
        name: [codec.encode(rows[name], name, allowance)] for name, codec in CODECS.items()
    }
    if session.adapter is not None:
        contents["adapter"] = [_ADAPTER.encode(session.adapter, "adapter", allowance)]
    contents["tokens"] = [constant_bytes(np.asarray(session.tokens, np.int64))]
    contents["caches"] = constant_pieces(session.caches.values())
    return contents


def contents_digest(contents: Mapping[str, Iterable[Buffer]]) -> str:
    """Of sections, whose lengths and names are in it, so that no byte can go from one to another."""
    made = hashlib.sha256()
    for name in sorted(contents.keys() - {"digest"}):
        pieces = list(contents[name])
        made.update(f"{name} {sum(map(len, pieces))} ".encode())
        for piece in pieces:
            made.update(piece)
    return made.hexdigest()


def load(source: container.Source) -> SavedSession:
    """The session in a file or bytes, all of it checked. Raises FormatError (VersionError, ChecksumError, LimitError) and
    FileError."""
    opened = container.Container(source, SECTIONS, mapped=False)
    opened.require(sorted(_REQUIRED))
    contents = opened.contents
    found, named = contents_digest({name: [view] for name, view in contents.items()}), Path(opened.name)
    for expected in (_SHA256.decode(contents["digest"], "digest"), named.stem if named.suffix == SUFFIX else ""):
        if found != expected and _DIGEST.fullmatch(expected):
            message = f"{opened.name} is damaged: the digest of its contents is {found}, expected {expected}"
            raise ChecksumError(message, section="digest")
    allowance = Allowance()
    rows = {name: codec.decode(contents[name], name, allowance=allowance) for name, codec in CODECS.items()}
    arrays = split_constants((type_ for _, type_ in rows["cache_types"]), contents["caches"])
    caches = dict(zip((name for name, _ in rows["cache_types"]), arrays, strict=True))
    if len(caches) < len(arrays):
        raise FormatError("two caches of one name", section="cache_types")
    made: SavedSession = rows["session"]
    has_adapter = "adapter" in contents
    adapter = _ADAPTER.decode(contents["adapter"], "adapter", allowance=allowance) if has_adapter else None
    tokens = from_bytes(TensorType(DType.int64, (len(contents["tokens"]) // 8,)), contents["tokens"])
    if len(tokens) and tokens.min() < 0:
        raise FormatError(f"a token {tokens.min()}; none is below 0", section="tokens")
    for what, count in (("caches of", made.held), ("a text of", made.made)):
        if count > len(tokens):
            raise FormatError(f"{what} {count} tokens, of {len(tokens)}", section="session")
    made = replace(made, tokens=tokens, caches=caches, adapter=adapter)
    vars(made)["digest"] = found  # which takes a second for caches of a gibibyte
    return made
