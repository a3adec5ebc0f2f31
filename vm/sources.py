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

from ..formats.errors import TreadleError
from . import native, source_lists
from .once import once

PACKAGE = Path(__file__).parent.parent


@once
def kernel_version() -> str:
    """Of what makes a kernel of a definition."""
    return version(source_lists.KERNELS)


@once
def engine_version() -> str:
    """Of what makes the engine."""
    return version(source_lists.ENGINE)


def version(paths: Sequence[str], package: Path = PACKAGE) -> str:
    """A hash of modules of the package, and of what they run on as far as it decides about native code."""
    digest = hashlib.sha256(f"{native.toolchain()} {sys.implementation.cache_tag} numpy {np.__version__}".encode())
    for path in paths:
        try:
            content = (package / path).read_bytes()
        except OSError as error:
            raise TreadleError(f"this installation of Treadle is not whole: {path}: {error.strerror}") from None
        digest.update(f"\n{path} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
