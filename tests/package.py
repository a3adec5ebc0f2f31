"""The package's own modules, for tests of rules that all of them keep: a new folder is looked through without being named."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


def modules(of: Collection[str] = FOLDERS, without: Collection[str] = ()) -> dict[str, Path]:
    """The files of folders, by their names within the package: `vm/machine.py`."""
    assert {*of, *without} <= {*FOLDERS}
    return {
        path.relative_to(ROOT).as_posix(): path
        for folder in of
        if folder not in without
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
