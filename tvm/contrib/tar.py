"""`tvm.contrib.tar`: archives of files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...formats.messages.errors import FileError, FormatError
from ..modules import linker

_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}  # how files begin, and what reads them
_CHUNK = 1 << 20  # bytes read at a time


def tar(output: str, files: str | Sequence[str]) -> None:
    """Writes an archive of files, by their names without folders."""
    linker.archive(Path(output), [files] if isinstance(files, str) else list(files))


def untar(tar_file: str, directory: str) -> None:
    """Unpacks an archive into a folder; nothing is written outside of it. Raises FormatError, FileError."""
    try:
        _read_through(tar_file)
        with tarfile.open(tar_file) as archive:
            archive.extractall(directory, filter="data")
    except OSError as error:
        raise FileError.of(error, f"{tar_file} cannot be unpacked", tar_file) from error
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        raise FormatError(f"{tar_file} cannot be unpacked: {error}") from error


def _read_through(tar_file: str) -> None:
    """Raises for one that is damaged: what compresses an archive has its checksum at the end, after what `tarfile` reads."""
    with open(tar_file, "rb") as file:
        head = file.read(6)
    for magic, opener in _COMPRESSED.items():
        if head.startswith(magic):
            with opener(tar_file) as stream:
                try:
                    while stream.read(_CHUNK):
                        pass
                except OSError as error:
                    if error.errno is not None:
                        raise
                    raise ValueError(str(error)) from error  # so damage is told, of which the system knows nothing


vars(tar)["output_format"] = "tar"
