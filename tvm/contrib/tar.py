"""`tvm.contrib.tar`: archives of files."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from ...formats.errors import FileError, FormatError
from ...vm import linker


def tar(output: str, files: str | Sequence[str]) -> None:
    """Writes an archive of files, by their names without folders."""
    linker.archive(Path(output), [files] if isinstance(files, str) else list(files))


def untar(tar_file: str, directory: str) -> None:
    """Unpacks an archive into a folder; nothing is written outside of it. Raises FormatError, FileError."""
    try:
        with tarfile.open(tar_file) as archive:
            archive.extractall(directory, filter="data")
    except OSError as error:
        raise FileError.of(error, f"{tar_file} cannot be unpacked", tar_file) from error
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        raise FormatError(f"{tar_file} cannot be unpacked: {error}") from error


vars(tar)["output_format"] = "tar"
