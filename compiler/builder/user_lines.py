"""Where the user wrote an expression: the origin of what it computes, as the name of a node is in a model.

Errors of a run, profiles, dumps and listings name that file and line. The file is named without its folder, so that a program
compiles to the same bytes wherever it lies.
"""

from __future__ import annotations

import os
import sys
from types import FrameType

from ...formats.messages.calling import is_own

_ROOT = __name__.partition(".")[0]
# Code that builds expressions for its caller: the line is the caller's
_BUILDERS = frozenset(
    [f"{_ROOT}.formats.messages.calling"]
    + [
        f"{_ROOT}.compiler.builder.{name}"
        for name in ("anf", "array_methods", "control", "expressions", "indexing", "operator_functions", "programs")
    ]
)
_FACES = (f"{_ROOT}.tvm.relax.", f"{_ROOT}.debug.debugger.marks", "numpy.")


def line_of_user() -> str:
    """`serve/model.py:14`, the line that asked for an expression, or "" where that is one of Treadle's own, as of an importer."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module not in _BUILDERS and not module.startswith(_FACES):
            return "" if is_own(module) else f"{_file(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _file(path: str) -> str:
    """A file's name; a notebook's cell as the notebook shows it, `In[3]`, since its file is of one session."""
    notebook = sys.modules.get("IPython")
    shell = notebook.get_ipython() if notebook is not None and hasattr(notebook, "get_ipython") else None
    if shell is not None:
        cell = shell.compile.format_code_name(path)  # ("Cell", "In[3]"), or None
        if cell:
            return str(cell[1])
    return os.path.basename(path)
