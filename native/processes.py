"""Starting Python, and programs of the system, as child processes: the one place of the package that does.

Python puts the working directory, or what PYTHONPATH says of it, on the path of `python -m` and `-c`; a `numpy.py` beside a
model from elsewhere would then be run. Children are started isolated (`-I`) and are told what they may import: where this
package is, and this process's path without the working directory.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..formats.messages.errors import ExecutionError
from .descriptors import pipe

PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL
TimeoutExpired = subprocess.TimeoutExpired
Process = subprocess.Popen

_PACKAGE = Path(__file__).resolve().parent.parent
_NAME = __name__.partition(".")[0]

# The package is found where it is for this process, however that came about: by an editable install, or by a path of its own.
_START = """
import sys
sys.path[:] = {path!r}
class _Package:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {name!r}:
            from importlib.util import spec_from_file_location
            return spec_from_file_location(name, {init!r})
sys.meta_path.insert(0, _Package)
"""


def start(code: str, *arguments: object, **options: Any) -> subprocess.Popen:
    """Starts Python with this code and these arguments; `options` are those of `subprocess.Popen`.

    Raises ExecutionError where the system starts no process, or nobody knows where Python is.
    """
    command = _command(code, arguments)
    try:
        return _started(command, **options)
    except OSError as error:
        raise ExecutionError(f"no process can be started: {error}") from error


def run(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess:
    """The same, and waits for its end; `options` are those of `subprocess.run`."""
    command = _command(code, arguments)
    try:
        return _finished(command, **options)
    except OSError as error:
        raise ExecutionError(f"no process can be started: {error}") from error


def start_program(command: Sequence[str], **options: Any) -> subprocess.Popen:
    """Starts a program of the system's; `options` are those of `subprocess.Popen`.

    Raises ExecutionError where it cannot be started.
    """
    try:
        return _started(command, **options)
    except OSError as error:
        raise ExecutionError(f"{command[0]} cannot be started: {error}") from error


def run_program(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess:
    """Runs a program of the system's, such as its C compiler, and waits for its end; `options` are those of `subprocess.run`.

    Raises ExecutionError where it cannot be started, TimeoutExpired.
    """
    try:
        return _finished(command, **options)
    except OSError as error:
        raise ExecutionError(f"{command[0]} cannot be started: {error}") from error


def _started(command: Sequence[str], **options: Any) -> subprocess.Popen:
    """`subprocess.Popen`, whose pipes are made here: its own stay open where no file can be made of one of them."""
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        streams = {}
        for name in ("stdin", "stdout", "stderr"):
            if options.get(name) == PIPE:
                reader, writer = pipe()
                near, far = (writer, reader) if name == "stdin" else (reader, writer)
                ours.callback(near.close)
                theirs.callback(far.close)
                streams[name] = _stream(near, options)
                options[name] = far.fileno()
        process = subprocess.Popen(command, **options)
        ours.pop_all()
    vars(process).update(streams)
    return process


def _stream(file: io.FileIO, options: dict[str, Any]) -> io.BufferedIOBase | io.TextIOWrapper:
    buffered = io.BufferedReader(file) if file.readable() else io.BufferedWriter(file)
    if not options.get("text"):
        return buffered
    return io.TextIOWrapper(buffered, line_buffering=options.get("bufsize") == 1, write_through=True)


def _finished(
    command: Sequence[str],
    input: str | bytes | None = None,
    timeout: float | None = None,
    capture_output: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess:
    """`subprocess.run` of such a process."""
    if capture_output:
        options |= {"stdout": PIPE, "stderr": PIPE}
    if input is not None:
        options["stdin"] = PIPE
    with _started(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()  # and the end of `with` waits for it
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def module(name: str) -> str:
    """The code that runs a module as `python -m` does."""
    return f"import runpy\nrunpy.run_module({name!r}, run_name='__main__', alter_sys=True)\n"


def _command(code: str, arguments: tuple[object, ...]) -> list[str]:
    if not sys.executable:
        raise ExecutionError("no process can be started: Python does not know its own path (sys.executable is empty)")
    head = _START.format(path=search_path(), name=_NAME, init=str(_PACKAGE / "__init__.py"))
    return [sys.executable, "-I", *_inherited_flags(), "-c", head + code, *map(str, arguments)]


def _inherited_flags() -> list[str]:
    """Settings of the environment that `-I` would ignore, as flags."""
    flags = ["-B"] if sys.flags.dont_write_bytecode else []
    flags += ["-X", "utf8"] if sys.flags.utf8_mode else []
    return flags + [f"-W{option}" for option in sys.warnoptions]


def search_path() -> list[str]:
    """The import path of children: this process's, absolute, without the working directory unless this package is in it."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it was removed
        return [entry for entry in sys.path if os.path.isabs(entry)]
    paths = [os.path.join(here, entry) for entry in sys.path if isinstance(entry, str) and entry]
    # who can write to where this package is needs no other way to be run
    return [path for path in paths if os.path.realpath(path) != here or here == str(_PACKAGE.parent)]
