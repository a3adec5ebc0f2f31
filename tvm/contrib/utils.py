"""`tvm.contrib.utils`: a temporary folder."""

from __future__ import annotations

import os
import tempfile


class TempDirectory:
    """A folder that is removed with this object, or by `remove`; `custom_path` is one that stays."""

    def __init__(self, custom_path: str | None = None, keep_for_debug: bool | None = None) -> None:
        self._folder = None if custom_path or keep_for_debug else tempfile.TemporaryDirectory(prefix="treadle-")
        self.temp_dir = custom_path or (self._folder.name if self._folder else tempfile.mkdtemp(prefix="treadle-"))
        os.makedirs(self.temp_dir, exist_ok=True)

    @property
    def path(self) -> str:
        return self.temp_dir

    def remove(self) -> None:
        """Removes the folder now."""
        if self._folder is not None:
            self._folder.cleanup()

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        return os.listdir(self.temp_dir)

    def __truediv__(self, name: str) -> str:
        return self.relpath(name)


def tempdir(custom_path: str | None = None, keep_for_debug: bool | None = None) -> TempDirectory:
    """A new temporary folder."""
    return TempDirectory(custom_path, keep_for_debug)
