"""Files of constants that several executables share (late-bound constants).

Such a file is a container with two sections: the keys and types of its constants, and their elements. A key is the SHA-256 of
type and elements, so equal constants of different models are stored once, and a file only ever grows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from . import container, limits
from .codec import Buffer, Sequence, row
from .constants import constant_bytes, constant_pieces, constant_type, split_constants
from .messages.errors import FormatError
from .schema import TENSOR_TYPE, TEXT

KEYS = Sequence(row("shared_constant", key=TEXT, type=TENSOR_TYPE), limits.CONSTANTS)
SUFFIX = ".trdc"


def constant_key(array: np.ndarray) -> str:
    import hashlib

    digest = hashlib.sha256(str(constant_type(array)).encode())
    digest.update(constant_bytes(array))
    return digest.hexdigest()


class ConstantsFile:
    """An opened file of constants; `arrays` are read-only and memory-mapped. It is a regular file, not a link to one.

    Raises FormatError, OSError.
    """

    def __init__(self, path: str | os.PathLike, mapped: bool = True) -> None:
        known = frozenset({"constant_keys", "constants"})
        self._container = container.Container(path, known, deferred=frozenset({"constants"}), plain=True, mapped=mapped)
        self._container.require(sorted(known))
        rows = KEYS.decode(self._container.contents["constant_keys"], "constant_keys")
        arrays = split_constants((type_ for _, type_ in rows), self._container.contents["constants"])
        self.arrays = {key: array for (key, _), array in zip(rows, arrays, strict=True)}

    def check(self) -> None:
        """Compare the elements with their checksum. Raises ChecksumError."""
        self._container.check("constants")


def add_constants(path: str | os.PathLike, arrays: Iterable[np.ndarray]) -> list[str]:
    """Store the arrays in the file, beside those that it has; returns their keys. Atomic."""
    stored: dict[str, np.ndarray] = {}
    if Path(path).exists():
        present = ConstantsFile(path)
        present.check()
        stored.update(present.arrays)
    keyed = [(constant_key(array), array) for array in arrays]
    new = dict(keyed)
    if new.keys() - stored.keys() or not stored:
        stored.update(new)
        rows = [(key, constant_type(array)) for key, array in stored.items()]
        contents: dict[str, list[Buffer]] = {
            "constant_keys": [KEYS.encode(rows, "constant_keys")],
            "constants": constant_pieces(stored.values()),
        }
        container.save(path, container.layout(contents, dict.fromkeys(contents, True)))
    return [key for key, _ in keyed]


def beside(folder: str | os.PathLike | None, file: str) -> Path:
    """The path of a constants file that an executable or text in `folder` names. Names with folders are refused: a file
    must not make a reader look elsewhere."""
    if not file or file != os.path.basename(file) or file in (".", "..") or "\\" in file or "\0" in file:
        raise FormatError(f"{file!r} is not the plain name of a constants file")
    if folder is None:
        raise FormatError(f"the constants are in the file {file!r}; say where it is")
    return Path(folder) / file
