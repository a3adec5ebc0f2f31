"""`tvm.contrib.download`: files from the network, which are kept."""

from __future__ import annotations

import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import platformdirs

from ...formats.messages.errors import FileError


def download(
    url: str, path: str | os.PathLike, overwrite: bool = False, size_compare: bool = False, retries: int = 3
) -> None:
    """Fetches a file to `path`, unless it is there. It is there whole, or not at all. Raises FileError."""
    target = Path(path)
    if target.exists() and not overwrite:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(max(retries, 1)):
        try:
            with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
                try:
                    with urllib.request.urlopen(url) as answer:
                        while block := answer.read(1 << 20):
                            file.write(block)
                except BaseException:
                    os.unlink(file.name)
                    raise
            os.replace(file.name, target)
            return
        except (urllib.error.URLError, OSError, ValueError) as error:
            if attempt + 1 >= retries:
                raise FileError(f"download: {url} cannot be fetched: {error}") from None


def download_testdata(url: str, relpath: str, module: str | list[str] | None = None, overwrite: bool = False) -> str:
    """The path of a file of test data, fetched if this user has not got it yet: a folder of the cache, `module`, `relpath`.
    Raises FileError."""
    parts = [module] if isinstance(module, str) else list(module or ())
    folder = os.environ.get("TEST_DATA_ROOT_PATH") or platformdirs.user_cache_dir("treadle")
    path = Path(folder, "test_data", *parts, relpath)
    download(url, path, overwrite)
    return str(path)
