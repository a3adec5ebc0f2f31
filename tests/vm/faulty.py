"""A process in which one call of the system fails, the one of a given number; `test_faults.py` starts it, once for each.

    python faulty.py SCENE NUMBER FOLDER

It does the scene with the fault, then once more without, and prints what came of both as JSON. Number -1: nothing fails, and the
calls are counted.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np

CALLS = {
    "open",
    "os.rename",
    "os.mkdir",
    "os.remove",
    "os.scandir",
    "os.utime",
    "os.chmod",
    "mmap.__new__",
    "subprocess.Popen",
    "ctypes.dlopen",
}
MODULES = (".py", ".pyc", ".so", ".pth", "__pycache__")  # what Python reads for imports
ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.ENOMEM)

armed, seen, failing = False, [], -1


def count(what: str) -> None:
    """One more call; fails if it is its turn."""
    global armed
    if not armed:
        return
    seen.append(what)
    if len(seen) - 1 == failing:
        armed = False
        code = ERRORS[failing % len(ERRORS)]
        if code == errno.ENOMEM and failing % 8 == 7:
            raise MemoryError
        raise OSError(code, os.strerror(code))


def hook(event: str, arguments: tuple) -> None:
    if armed and event in CALLS:
        name = str(arguments[0]) if arguments else ""
        if not (event in ("open", "os.scandir") and name.endswith(MODULES)):
            count(f"{event} {name if event == 'open' else ''}".strip())


class Writes(io.FileIO):
    """A file whose writes count."""

    def write(self, data):  # type: ignore[no-untyped-def]
        count("write")
        return super().write(data)


plain_open, plain_fsync = builtins.open, os.fsync


def counted_open(file, mode="r", *rest, **options):  # type: ignore[no-untyped-def]
    if armed and "b" in mode and set(mode) & set("wxa"):
        return Writes(file, mode.replace("b", ""))
    return plain_open(file, mode, *rest, **options)


def counted_fsync(descriptor: int) -> None:
    count("fsync")
    plain_fsync(descriptor)


X = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)


def module():  # type: ignore[no-untyped-def]
    import treadle

    x = treadle.var("x", (4, 6), "float32")
    parts = [treadle.op.softmax(x, axis=axis) for axis in (0, 1)]
    return treadle.Module(main=treadle.function([x], treadle.tuple_(*parts, treadle.op.cumulative_sum(x, axis=0))))


def check(executable) -> None:  # type: ignore[no-untyped-def]
    import treadle

    first, second, third = (part.numpy() for part in treadle.VirtualMachine(executable)["main"](X))
    np.testing.assert_allclose(first, np.exp(X) / np.exp(X).sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(second, np.exp(X) / np.exp(X).sum(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(third, X.cumsum(axis=0), rtol=1e-5)


def run(folder: Path) -> None:
    import treadle

    check(treadle.load(folder / "model.trdl"))


def compile_and_save(folder: Path) -> None:
    import treadle

    executable = treadle.compile(module(), progress=False)
    check(executable)
    executable.export_library(folder / "saved.trdl")
    check(treadle.load(folder / "saved.trdl"))


SCENES = {"run": run, "compile_and_save": compile_and_save}


def attempt(scene: str, folder: Path) -> str:
    """ "right", "right, with a warning", or the error."""
    from treadle.formats.errors import TreadleError

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            SCENES[scene](folder)
        except (TreadleError, OSError) as error:  # what `load` and `export_library` document
            return f"{type(error).__name__}: {error}"
        except BaseException as error:
            return f"RAW {type(error).__name__}: {error}"
    return "right, with a warning" if said else "right"


def main() -> None:
    global armed, failing
    scene, failing, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    import platformdirs  # noqa: F401
    import tqdm  # noqa: F401
    import treadle.compiler.driver
    import treadle.compiler.kernels.build
    import treadle.vm.machine  # noqa: F401

    builtins.open, os.fsync = counted_open, counted_fsync
    sys.addaudithook(hook)
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    armed = True
    first = attempt(scene, folder)
    armed = False
    kept = (folder / "saved.trdl").read_bytes() if (folder / "saved.trdl").exists() else b""
    again = attempt(scene, folder)
    import gc

    gc.collect()
    more = len(os.listdir("/proc/self/fd")) - descriptors if descriptors else 0
    print(json.dumps({"calls": seen, "first": first, "again": again, "kept": kept[:4].hex(), "descriptors": more}))


if __name__ == "__main__":
    main()
