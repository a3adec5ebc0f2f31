"""A case: a folder that reproduces a divergence anywhere.

    model.trdl      the executable               feeds/*.npy     the arguments
    case.json       what is where, and the report expected/*.npy  the results of the reference
    kernel/         what the first divergent kernel read, made, and should have made

`treadle compare FOLDER` does it again. Nothing of a folder is executed but its executable, which is
verified as any other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats.executable import Executable, load
from ..formats.messages.calling import public
from ..formats.messages.errors import FormatError, naming
from .files import as_npy, new_folder, safe_name
from .references import Reference
from .subject import Subject

if TYPE_CHECKING:
    from .comparison import Comparison

MODEL, CASE = "model.trdl", "case.json"
_VERSION = 1


def save_case(
    path: str | os.PathLike, of: Subject, feeds: Mapping[str, np.ndarray], wanted: Reference, report: Comparison
) -> Path:
    """Writes the folder, which is made, or empty. Raises ArgumentError, FileError."""
    folder = new_folder(path, "save")
    with naming(f"the case in {str(folder)!r}"):
        of.executable.export_library(folder / MODEL)
        document: dict[str, Any] = {
            "version": _VERSION,
            "function": of.function,
            "feeds": _write(folder, "feeds", feeds),
            "expected": _write(folder, "expected", wanted.results),
            "report": report.as_dict(),
        }
        first = report.first
        if first is not None and first.step >= 0:
            from .kernels import check

            checked = check(of, feeds, first.step)
            if checked is not None:
                document["kernel"] = {
                    "primitive": first.primitive,
                    "inputs": _write(folder, "kernel", _numbered("input", checked.inputs)),
                    "found": _write(folder, "kernel", _numbered("found", checked.found)),
                    "wanted": _write(folder, "kernel", _numbered("wanted", checked.wanted)),
                }
        (folder / CASE).write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
    return folder


def _numbered(what: str, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{what}{number}": array for number, array in enumerate(arrays)}


def _write(folder: Path, under: str, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Name → file, in the folder."""
    (folder / under).mkdir(exist_ok=True)
    files = {}
    for number, (name, array) in enumerate(arrays.items()):
        files[name] = f"{under}/{safe_name(number, name)}.npy"
        (folder / files[name]).write_bytes(as_npy(array))
    return files


@public
def load_case(path: str | os.PathLike) -> tuple[Executable, dict[str, np.ndarray], Reference, str]:
    """The executable, its arguments, the results that were expected, and the function. Raises FormatError, FileError."""
    folder = Path(path)
    with naming(f"reading {str(folder / CASE)!r}"):
        text = (folder / CASE).read_bytes()
    try:
        document = json.loads(text)
        function, feeds, expected = document["function"], document["feeds"], document["expected"]
        if document["version"] != _VERSION or not isinstance(function, str):
            raise KeyError("version")
        arrays = [_read(folder, each) for each in (feeds, expected)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{folder / CASE}: this is not a case that `treadle compare --save` wrote: {error}") from None
    wanted = Reference("the saved reference", results=arrays[1])
    return load(folder / MODEL), arrays[0], wanted, function


def _read(folder: Path, files: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Raises ValueError for a file that is not in the folder: a case comes from others."""
    found = {}
    for name, file in files.items():
        inside = (folder / file).resolve()
        if not inside.is_relative_to(folder.resolve()):
            raise ValueError(f"{file!r} is not in the folder")
        with naming(f"reading {str(inside)!r}"):
            found[name] = np.load(inside, allow_pickle=False)
    return found
