"""A process whose forked children each do a scene in which one thing fails; `test_faults.py` starts it.

    python faulty.py FOLDER SCENE:KIND:MOST …

KIND is what fails: "calls" of the system, "starts" of processes and threads alone, "blocks" of the engine's memory, or "objects"
of Python's. A first child counts them; then there is one child for each, or for MOST of them, evenly spread. A child does the
scene with the fault, then once more without, and both outcomes are printed as a line of JSON. Everything is imported, and the
engine loaded, before the first fork.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import errno
import faulthandler
import gc
import importlib
import io
import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.testing

SECONDS = 120  # after which a child has hung; on a quiet machine, one takes up to four
CHILDREN = 2  # at once

EVENTS = {
    "open",
    "os.rename",
    "os.mkdir",
    "os.remove",
    "os.scandir",
    "os.utime",
    "os.chmod",
    "os.fork",
    "mmap.__new__",
    "subprocess.Popen",
    "ctypes.dlopen",
}
STARTS = {"os.fork", "subprocess.Popen", "thread"}
FUNCTIONS = ("fstat", "fsync", "fchmod", "lstat", "stat", "pipe", "sched_getaffinity")  # which have no event
MODULES = (".py", ".pyc", ".so", ".pth", "__pycache__")  # what Python reads for imports
ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.ENOMEM)


class Fault:
    """What fails: the thing of that number, once. Things are counted, and named, while it is armed."""

    def __init__(self) -> None:
        self.armed, self.kind, self.number = False, "", -1
        self.seen: list[str] = []

    def meets(self, kind: str, what: str) -> bool:
        """One more thing of a kind: whether it is its turn to fail."""
        if not self.armed or kind != self.kind:
            return False
        self.seen.append(what)
        if len(self.seen) - 1 != self.number:
            return False
        self.armed = False
        return True

    def call(self, what: str) -> None:
        """One more call of the system; fails if it is its turn."""
        if self.meets("calls", what) or (what in STARTS and self.meets("starts", what)):
            if what == "thread":
                raise RuntimeError("can't start new thread")
            code = ERRORS[self.number % len(ERRORS)]
            raise OSError(code, os.strerror(code))


FAULT = Fault()


# ---- calls of the system ----


def hook(event: str, arguments: tuple) -> None:
    if FAULT.armed and event in EVENTS:
        name = str(arguments[0]) if arguments else ""
        if not (event in ("open", "os.scandir") and name.endswith(MODULES)):
            FAULT.call(f"{event} {name if event == 'open' else ''}".strip())


class Counted(io.FileIO):
    """A file whose reads and writes count."""

    def write(self, data):  # type: ignore[no-untyped-def]
        FAULT.call("write")
        return super().write(data)

    def read(self, size=-1):  # type: ignore[no-untyped-def]
        FAULT.call("read")
        return super().read(size)

    def readall(self):  # type: ignore[no-untyped-def]
        FAULT.call("read")
        return super().readall()

    def readinto(self, buffer):  # type: ignore[no-untyped-def]
        FAULT.call("read")
        return super().readinto(buffer)


def count_calls() -> None:
    plain_open = builtins.open

    def counted_open(file, mode="r", buffering=-1, *rest, opener=None, **options):  # type: ignore[no-untyped-def]
        if FAULT.armed and "b" in mode and buffering in (-1, 0):
            return Counted(file, mode.replace("b", ""), opener=opener)
        return plain_open(file, mode, buffering, *rest, opener=opener, **options)

    def counted(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            FAULT.call(name)
            return plain(*arguments, **options)

        return call

    builtins.open = counted_open  # type: ignore[assignment]
    io.FileIO = Counted  # type: ignore[misc]
    for name in FUNCTIONS:
        if hasattr(os, name):
            setattr(os, name, counted(name, getattr(os, name)))
    for name in (
        "_start_new_thread",
        "_start_joinable_thread",
    ):  # by which threads are started, before Python 3.13 and since
        if hasattr(threading, name):
            setattr(threading, name, counted("thread", getattr(threading, name)))
    sys.addaudithook(hook)


# ---- the engine's memory ----

blocks: set[int] = set()  # that the engine has


def count_blocks() -> None:
    """Has native code that is loaded from now on take its memory from here."""
    from treadle.native import loader

    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_size_t]

    def malloc(size: int) -> int:
        if FAULT.meets("blocks", f"malloc {size}"):
            return 0
        block = library.malloc(size)
        blocks.add(block)
        return block

    def free(block: int) -> None:
        blocks.discard(block)
        library.free(block)

    kept = {
        "malloc": ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t)(malloc),
        "free": ctypes.CFUNCTYPE(None, ctypes.c_size_t)(free),
    }
    plain = loader._outside

    def outside(name: str) -> int:
        return ctypes.cast(kept[name], ctypes.c_void_p).value or 0 if name in kept else plain(name)

    loader._outside = outside


# ---- Python's memory ----

try:
    import _testcapi as testcapi
except ImportError:  # not every Python has it
    testcapi = None  # type: ignore[assignment]

_FAR = 300_000  # objects: more than any scene makes


def fail_objects(number: int) -> None:
    testcapi.set_nomemory(number, number + 1)


def count_objects() -> int:
    """About how many objects were made since the `_FAR`th one was chosen to fail."""
    found = 0
    try:
        while True:
            bytes(100)
            found += 1  # makes an object too
    except MemoryError:
        return _FAR - 2 * found


# ---- scenes ----

X = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)


def module(more: bool = False) -> Any:
    """Two kernels, and an operator that runs on the host; `more`: enough kernels for processes to be started."""
    import treadle

    x = treadle.var("x", (4, 6), "float32")
    parts = [treadle.op.softmax(x, axis=axis) for axis in (0, 1)]
    if more:
        parts[0] = parts[0] + 0 * treadle.op.max(x) + 0 * treadle.op.sum(x, axes=(0,), keepdims=True)
    return treadle.Module(main=treadle.function([x], treadle.tuple_(*parts, treadle.op.cumulative_sum(x, axis=0))))


def check(executable: Any) -> None:
    import treadle

    first, second, third = (part.numpy() for part in treadle.VirtualMachine(executable)["main"](X))
    np.testing.assert_allclose(first, np.exp(X) / np.exp(X).sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(second, np.exp(X) / np.exp(X).sum(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(third, X.cumsum(axis=0), rtol=1e-5)


def run(folder: Path) -> None:
    """Loads, verifies, links, and runs; what the cache lacks is built."""
    import treadle

    check(treadle.load(folder / "model.trdl"))


def compile_(folder: Path) -> None:
    import treadle

    check(treadle.compile(module(), progress=False))


def workers(folder: Path) -> None:
    import treadle

    check(treadle.compile(module(more=True), progress=False))


def save(folder: Path) -> None:
    import treadle

    executable = treadle.load(folder / "model.trdl")
    executable.export_library(folder / "saved.trdl")
    check(treadle.load(folder / "saved.trdl"))


# Frames with tensors, a stack that grows, views and closures
ASSEMBLY = """
func @main(n: int64[]) -> int64[1] refs=9 ints=2 frame=8192 {
  read_shape (i0), r0
  if_int i0, bottom
  subtract i0, i0, 1
  make_shape r1, [i0]
  reshape r1, r1, []
  alloc_tensor r3, float32[1024]
  alloc_closure r4, @inner (r1)
  invoke_closure r1, r4 ()
  read_shape (i0), r1
  add i0, i0, 1
bottom:
  make_shape r1, [i0]
  ret r1
}
func @inner() captures (n: int64[]) -> int64[1] refs=60 ints=0 frame=70000 {
  invoke r1, @main (r0)
  ret r1
}
"""
DEPTH = 12


def call(folder: Path) -> None:
    """A deep recursion: every frame's tensors, the stack, and objects of all kinds."""
    from treadle.formats.executable import Executable
    from treadle.formats.text.assembly import parse_assembly
    from treadle.vm.machine import VirtualMachine

    machine = VirtualMachine(Executable(parse_assembly(ASSEMBLY)))
    assert machine["main"](DEPTH).item() == DEPTH


SCENES = {"run": run, "build": run, "compile": compile_, "workers": workers, "save": save, "call": call}
COLD = {"build", "compile", "workers"}  # those that find no kernel


def attempt(scene: str, folder: Path, arm: Callable[[], None] = lambda: None) -> str:
    """ "right", "right, with a warning", or the error."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            arm()
            SCENES[scene](folder)
        except (sys.modules["treadle.formats.messages.errors"].TreadleError, MemoryError) as error:
            return f"{type(error).__name__}: {error}"
        except BaseException as error:
            where = "; ".join(
                f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]
            )
            kind = "RAW" if is_ours(error) else "PYTHON"
            return f"{kind} {type(error).__name__}: {error} ({where})"
    return "right, with a warning" if said else "right"


def is_ours(error: BaseException) -> bool:
    """Whether it is our fault that an error has no name. Where there is no memory, Python's own libraries raise what they like: C
    code a SystemError ("error return without exception set"), and its modules what comes of a failure that they took for
    something else."""
    *_, last = traceback.extract_tb(error.__traceback__)
    is_of_c = isinstance(error, (SystemError, ctypes.ArgumentError))
    return FAULT.kind != "objects" or not (is_of_c or is_library(last.filename))


def is_library(path: str) -> bool:
    return "site-packages" in path or Path(path).is_relative_to(Path(os.__file__).parent) or path.startswith("<frozen")


# ---- children ----


def child(scene: str, kind: str, number: int, folder: Path) -> dict[str, Any]:
    """Both attempts, in a process that has done nothing yet."""
    from treadle.native import once
    from treadle.vm import context, library

    once._is_forked = False  # the one thread of the process that forked is here
    library._loaded.clear()
    os.environ["TREADLE_CACHE"] = str(folder / "cache")
    unraised: list[str] = []
    sys.unraisablehook = lambda found: unraised.append(f"{found.exc_value!r} in {found.object!r}")  # type: ignore[assignment]
    threading.excepthook = lambda found: unraised.append(f"{found.exc_value!r} in {found.thread!r}")
    descriptors = len(os.listdir("/proc/self/fd"))
    total = 0

    def arm() -> None:
        FAULT.kind, FAULT.number, FAULT.armed = kind, number, True
        if kind == "objects":
            fail_objects(_FAR if number < 0 else number + 1)

    first = attempt(scene, folder, arm)
    FAULT.armed = False
    if kind == "objects":
        total = count_objects() if number < 0 else 0
        testcapi.remove_mem_hooks()
    seen = FAULT.seen if kind != "objects" else [""] * total
    kept = intact(folder / "saved.trdl")
    again = attempt(scene, folder)
    gc.collect()
    return {
        "number": number,
        "what": seen[number] if 0 <= number < len(seen) else "",
        "count": len(seen),
        "first": first,
        "again": again,
        "kept": kept,
        "bytes": context.live_bytes(),
        "blocks": len(blocks),
        "descriptors": len(os.listdir("/proc/self/fd")) - descriptors,
        "left": [path.name for path in folder.rglob(".*") if path.name != ".claims"],
        "unraised": unraised,
    }


def intact(path: Path) -> bool:
    """Whether the file that was there, or the one that took its place, is whole."""
    import treadle

    treadle.load(path).check_constants()
    return True


def forked(scene: str, kind: str, number: int, start: Path, folder: Path) -> Callable[[], dict[str, Any]]:
    """Starts a child on a copy of a folder; what comes back waits for it."""
    shutil.copytree(start, folder)
    said = folder.with_suffix(".said")
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            faulthandler.dump_traceback_later(SECONDS - 5)
            signal.alarm(SECONDS)
            with open(said, "w") as file:
                os.dup2(file.fileno(), 2)
            found = child(scene, kind, number, folder)
            folder.with_suffix(".json").write_text(json.dumps(found))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def wait() -> dict[str, Any]:
        _, status = os.waitpid(process, 0)
        status = os.waitstatus_to_exitcode(status)
        try:
            if status:
                return {"number": number, "died": status, "said": said.read_text()[-3000:]}
            return json.loads(folder.with_suffix(".json").read_text())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_suffix(".json").unlink(missing_ok=True)
            said.unlink(missing_ok=True)

    return wait


def outcomes(scene: str, kind: str, most: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Of a run in which nothing fails, then of one for each fault."""
    start = folder.parent / ("cold" if scene in COLD else "warm")
    clean = forked(scene, kind, -1, start, folder / "clean")()
    yield clean
    count = clean.get("count", 0)
    numbers = range(count) if count <= most else sorted({round(at * count / most) for at in range(most)})
    running: list[Callable[[], dict[str, Any]]] = []
    for number in numbers:
        if len(running) == CHILDREN:
            yield running.pop(0)()
        running.append(forked(scene, kind, number, start, folder / str(number)))
    for wait in running:
        yield wait()


def prepare(folder: Path) -> None:
    """Makes what children find, and imports what they import."""
    import treadle
    from treadle.vm import core

    core.engine()
    warm, cold = folder / "warm", folder / "cold"
    process = os.fork()
    if process == 0:  # not here: it starts threads, and makes what is made once
        cold.mkdir()
        os.environ["TREADLE_CACHE"] = str(warm / "cache")
        executable = treadle.compile(module(), progress=False, embed_native=False)
        for name in ("model.trdl", "saved.trdl"):
            executable.export_library(cold / name)
        shutil.copytree(cold, warm, dirs_exist_ok=True)
        for scene in ("run", "save", "call"):
            SCENES[scene](warm)
        (folder / "modules").write_text("\n".join(sys.modules))
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0
    for name in (folder / "modules").read_text().splitlines():
        if name != "__main__":
            with contextlib.suppress(ImportError):  # what others have put there
                importlib.import_module(name)


def main() -> None:
    folder = Path(sys.argv[1])
    faulthandler.enable()
    if not any(
        ":objects:" in wanted for wanted in sys.argv[2:]
    ):  # what counts blocks is Python, and needs objects itself
        count_blocks()
    prepare(folder)
    count_calls()
    gc.collect()
    gc.freeze()
    for wanted in sys.argv[2:]:
        scene, kind, most = wanted.split(":")
        begin = time.monotonic()
        place = folder / f"{scene}-{kind}"
        place.mkdir()
        for found in outcomes(scene, kind, int(most), place):
            print(json.dumps({"scene": scene, "kind": kind} | found), flush=True)
        print(f"{scene}, {kind}: {time.monotonic() - begin:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
