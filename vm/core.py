"""The engine as this process sees it: its entry points, as functions of C called through ctypes.

Releases bring its object code along (`vm/engines`, which setup.py fills). Elsewhere, and where a file that decides about it has
been edited since, it is compiled in a second, and kept in the cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from ..formats.messages.errors import CompileError
from ..native import platform as native
from ..native import sources
from ..native.llvm import NativeTarget
from ..native.once import is_forked, once
from . import entries

# What releases bring the engine for: the names of the files, `platform.machine()` and `sys.platform`, and what LLVM calls that
RELEASED = {"x86_64-linux": "x86_64-unknown-linux-gnu", "aarch64-linux": "aarch64-unknown-linux-gnu"}
ENGINES = Path(__file__).with_name("engines")


@once
def engine() -> SimpleNamespace:
    """The entry points by name. The first call on a machine may have to compile them."""
    native.check_runnable()
    addresses = native.load_object(_object_code())
    return SimpleNamespace(**{name: _function(entry, addresses[name]) for name, entry in entries.ENTRIES.items()})


def is_built() -> bool:
    """Whether the engine's object code came with this release, or is in the cache."""
    return _released() is not None or native.cache().get(_key(_target())) is not None


def _function(entry: entries.Entry, address: int) -> Callable[..., int]:
    prototype = ctypes.CFUNCTYPE if entry.releases_gil else ctypes.PYFUNCTYPE
    return prototype(entry.result, *[entries.WORD] * entry.arguments)(address)


def _object_code() -> bytes:
    released = _released()
    if released is not None:
        return released
    cache, target = native.cache(), _target()
    key = _key(target)
    code = cache.get(key)
    if code is not None:
        return code
    with cache.claims() as claims:
        code = claims.await_other(key)
        if code is None:
            if sys.stderr is not None:
                print("treadle: compiling the engine for this machine, about a second …", file=sys.stderr, flush=True)
            code = _compiled_elsewhere(target) if is_forked() else entries.compiled(target)
            cache.put(key, code)
    return code


def _target() -> NativeTarget:
    return entries.least(native.host_target().triple)


def _key(target: NativeTarget) -> str:
    identity = f"{sources.engine_version()} {native.toolchain()} {target.key} {object.__basicsize__}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _released() -> bytes | None:
    """The object code that came with this release, of the present files, by their hash."""
    try:
        data = (ENGINES / f"{platform.machine()}-{sys.platform}").read_bytes()
    except OSError:
        return None
    head = _release_head()
    return data[len(head) :] if data.startswith(head) else None


def _release_head() -> bytes:
    return hashlib.sha256(f"{sources.engine_version()} {object.__basicsize__}".encode()).digest()


def write_released(folder: Path) -> None:
    """Writes what `_released` reads. Imports LLVM."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, triple in RELEASED.items():
        (folder / name).write_bytes(_release_head() + entries.compiled(entries.least(triple)))


def _compiled_elsewhere(target: NativeTarget) -> bytes:
    """In a child of fork, another thread of the parent may hold LLVM's lock for ever."""
    from ..native import processes

    program = f"""
import sys
from {entries.__name__} import NativeTarget, compiled
sys.stdout.buffer.write(compiled(NativeTarget(*sys.argv[1:])))
"""
    done = processes.run(program, target.triple, target.cpu, target.features, stdout=processes.PIPE)
    if done.returncode:
        raise CompileError(f"the process that builds the engine failed, with exit status {done.returncode}")
    return done.stdout
