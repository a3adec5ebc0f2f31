"""`dump`: every tensor that the kernels of a call make, as a folder of .npy files and an index."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..formats.messages.calling import public
from ..formats.messages.errors import naming
from ..vm.observe.hooks import Event
from .files import as_npy, new_folder, safe_name
from .flow import Flow, Step
from .subject import arguments, subject

INDEX = "index.json"


@public
def dump(
    model: Any,
    feeds: Mapping[str, Any] | Sequence[Any] | None,
    folder: str | os.PathLike,
    *,
    function: str = "main",
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Writes arguments, results of kernels in the order of the call, and results of the program into a folder: NNNN-node.npy,
    and index.json with whole names, types, primitives, depths, functions and iterations. Images in blocks of channels stay so.

    The folder is made, or empty, unless `overwrite`. `model`, `feeds` and options are as `compare` has them. Raises
    ArgumentError, FileError where the disk is full, and what running raises.
    """
    of = subject(model, function=function, **options)
    values = arguments(of.executable, function, feeds)
    path = new_folder(folder, "dump", overwrite)
    with naming(f"the dump in {str(path)!r}"):
        writer = _Writer(path)
        for name, array in values.items():
            writer.write("argument", name, array)
        results = of.run(values, writer)
        for name, value in results.items():
            if isinstance(value, np.ndarray):
                writer.write("result", name, value)
        text = json.dumps({"version": 1, "function": function, "tensors": writer.rows}, ensure_ascii=False, indent=1)
        (path / INDEX).write_text(text, encoding="utf-8")
    return path


class _Writer(Flow):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.rows: list[dict[str, Any]] = []

    def result(self, step: Step, index: int, event: Event, register: int) -> None:
        more = {"primitive": step.primitive, "result": index, "step": step.number, "depth": step.depth}
        more |= {"function": step.function, "iterations": step.iterations}
        self.write("kernel", step.node, event.tensor(register), **more)

    def write(self, kind: str, name: str, array: np.ndarray, **more: Any) -> None:
        file = f"{safe_name(len(self.rows), name)}.npy"
        (self._folder / file).write_bytes(as_npy(array))
        row = {"file": file, "kind": kind, "name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
        self.rows.append(row | more)
