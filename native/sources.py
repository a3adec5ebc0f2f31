"""The identity of the modules that decide about native code, which is part of the cache's keys.

It covers what those modules import, and so on: `source_lists.py`, which is derived from their text and kept, since a warm start
has no time to look.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..formats.messages.errors import TreadleError
from . import platform, source_lists
from .once import once

PACKAGE = Path(__file__).parent.parent


@once
def kernel_version() -> str:
    """Of what makes a kernel's record of a definition, and object code of its text."""
    return version(
        source_lists.KERNELS, f"{translator_version()} {sys.implementation.cache_tag} numpy {np.__version__}"
    )


@once
def translator_version() -> str:
    """Of what makes object code of a kernel's text."""
    return version(source_lists.TRANSLATOR, platform.toolchain())


@once
def engine_version() -> str:
    """Of the engine's text and what makes object code of it, LLVM apart."""
    return version(source_lists.ENGINE)


def version(paths: Sequence[str], others: str = "", package: Path = PACKAGE) -> str:
    """A hash of modules of the package, and of the names of what else decides."""
    digest = hashlib.sha256(others.encode())
    for path in paths:
        try:
            content = (package / path).read_bytes()
        except OSError as error:
            raise TreadleError(f"this installation of Treadle is not whole: {path}: {error.strerror}") from None
        digest.update(f"\n{path} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
