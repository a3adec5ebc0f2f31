"""`tvm.contrib.cc`: the system's C compiler as a linker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..modules import linker

Files = str | Sequence[str]


def get_cc() -> str | None:
    """The C compiler that is found; None without one."""
    return next(filter(None, map(shutil.which, linker.COMPILERS)), None)


def create_shared(output: str, objects: Files, options: Sequence[str] | None = None, cc: str | None = None) -> None:
    """Links object files, or compiles C's, to a shared library. Raises LinkerError."""
    compiler = linker.find_compiler(cc or "", output)
    linker.link_shared(Path(output), _list(objects), compiler, None, ["-fPIC", *(options or ())])


def create_executable(output: str, objects: Files, options: Sequence[str] | None = None, cc: str | None = None) -> None:
    """Links object files, or compiles C's, to a program. Raises LinkerError."""
    compiler = linker.find_compiler(cc or "", output)
    linker.run([compiler, "-o", str(Path(output).absolute()), *_absolute(objects), *(options or ())], Path())


def cross_compiler(
    compile_func: str | Callable[..., Any],
    options: Sequence[str] | None = None,
    output_format: str = "so",
    get_target_triple: Any = None,
    add_files: Sequence[str] | None = None,
) -> Callable[..., None]:
    """A function that links with another compiler, for `export_library(path, fcompile)`."""

    def link(outputs: str, objects: Files, options: Sequence[str] | None = None) -> None:
        files, more = [*_list(objects), *(add_files or ())], [*base, *(options or ())]
        if callable(compile_func):
            compile_func(outputs, files, options=more)
        else:
            create_shared(outputs, files, more, cc=compile_func)

    base = list(options or ())
    vars(link)["output_format"] = output_format
    return link


vars(create_shared)["output_format"] = "so"


def _list(files: Files) -> list[str]:
    return [files] if isinstance(files, str) else list(files)


def _absolute(files: Files) -> list[str]:
    return [str(Path(each).absolute()) for each in _list(files)]
