"""`treadle warmup` builds ahead what first calls would wait for; `treadle cache` shows and empties the cache that keeps it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .errors import UsageError
from .program_files import HELP, add_compile_options, compile_options, program_file

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}  # seconds
_AGE = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)([{''.join(_UNITS)}])")
_SERVED = "**/*.trdl"  # in a folder

COMMANDS = {"Look after this machine": ("warmup", "cache")}


def add_commands(commands: Any) -> None:
    """Adds `warmup` and `cache` to the command line."""
    warmup = commands.add_parser(
        "warmup",
        help="build the engine, and programs' kernels, so that first calls need not wait",
        description="Build the engine, and the kernels of programs, into the kernel cache, so that no process of this user waits "
        "for a compiler: in a container's image, with TREADLE_CACHE as a folder of it, and TREADLE_TARGET as the oldest CPU that "
        "it will run on where that is not this one.",
    )
    warmup.add_argument("programs", nargs="*", metavar="program", help=f"{HELP}; or a folder of executables")
    add_compile_options(warmup)
    warmup.set_defaults(command=warmup_command)
    cache = commands.add_parser("cache", help="show the kernel cache, or remove what is in it")
    what = cache.add_mutually_exclusive_group()
    what.add_argument("--size", action="store_true", help="print its bytes alone")
    what.add_argument("--clear", action="store_true", help="remove everything")
    what.add_argument("--older-than", metavar="AGE", help="remove what was not used for that time: 90m, 12h, 30d, 8w")
    cache.set_defaults(command=cache_command)


def warmup_command(options: argparse.Namespace) -> int:
    from ..vm import core

    cache = _cache()
    if cache.folder is None or cache.problem():
        raise UsageError(f"nothing that is built can be kept: {cache.problem() or 'TREADLE_CACHE is off'}")
    start, before = time.perf_counter(), len(cache.entries())
    core.engine()
    programs = [each for name in options.programs for each in _programs(name)]
    for program in programs:
        _build(program, **compile_options(options))
    report = {
        "cache": str(cache.folder),
        "programs": programs,
        "built": len(cache.entries()) - before,
        "seconds": round(time.perf_counter() - start, 3),
    }
    what = f"the engine and {len(programs)} program{'s' * (len(programs) != 1)}"
    text = f"{what} are ready in {cache.folder}: {report['built']} new files, in {report['seconds']:.2f} s"
    print(json.dumps(report) if options.json else text)
    return 0


def _programs(name: str) -> Sequence[str]:
    """A file itself; of a folder its executables."""
    if not os.path.isdir(name):
        return [name]
    found = sorted(str(path) for path in Path(name).glob(_SERVED))
    if not found:
        raise UsageError(f"there is no executable (*.trdl) in {name!r}")
    return found


def _build(name: str, **compiling: Any) -> None:
    """Builds the kernels that a machine of the program would."""
    from .. import VirtualMachine

    VirtualMachine(program_file(name).executable(kernels=True, **compiling))


def cache_command(options: argparse.Namespace) -> int:
    cache = _cache()
    entries = cache.entries()
    if options.clear or options.older_than is not None:
        before = time.time() if options.clear else time.time() - _seconds(options.older_than)
        return _removed(cache.folder, [entry for entry in entries if options.clear or entry.used < before], options)
    size = sum(entry.size for entry in entries)
    if options.size:
        print(json.dumps({"bytes": size}) if options.json else size)
        return 0
    report = {
        "folder": None if cache.folder is None else str(cache.folder),
        "files": len(entries),
        "bytes": size,
        "limit": cache.limit,
        "engine": bool(entries) and _engine_is_built(),
        "problem": cache.problem(),
        "days": {
            str(days): sum(entry.size for entry in entries if entry.used < time.time() - days * _UNITS["d"])
            for days in (1, 7, 30)
        },
    }
    print(json.dumps(report) if options.json else "\n".join(_lines(report)))
    return 0


def _lines(report: dict[str, Any]) -> Iterable[str]:
    if report["folder"] is None:
        yield "the cache is off (TREADLE_CACHE): every process builds its kernels anew"
        return
    yield f"folder   {report['folder']}"
    yield f"kept     {report['files']} files, {report['bytes'] / 1e6:.1f} of {report['limit'] / 1e6:.0f} MB (TREADLE_CACHE_SIZE)"
    yield f"engine   {'built' if report['engine'] else 'not built yet; `treadle warmup` builds it'}"
    unused = ", ".join(f"{bytes_ / 1e6:.1f} MB for {days} d" for days, bytes_ in report["days"].items())
    yield f"unused   {unused}; `treadle cache --older-than 30d` removes it"
    if report["problem"]:
        yield f"! {report['problem']}"


def _removed(folder: Path | None, entries: Sequence[Any], options: argparse.Namespace) -> int:
    """Removes files. Others may do so at the same time. Raises OSError."""
    removed = []
    for entry in entries:
        assert folder is not None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / entry.shelf / entry.name)
            removed.append(entry.size)
    report = {"removed": len(removed), "bytes": sum(removed)}
    text = f"removed {len(removed)} files, {sum(removed) / 1e6:.1f} MB"
    print(json.dumps(report) if options.json else text)
    return 0


def _seconds(age: str) -> float:
    found = _AGE.fullmatch(age)
    if found is None:
        raise UsageError(f"--older-than {age!r}: write a number and its unit, as in 90m, 12h, 30d or 8w")
    return float(found[1]) * _UNITS[found[2]]


def _engine_is_built() -> bool:
    from ..vm import core

    return core.is_built()


def _cache() -> Any:
    from ..native import platform

    return platform.cache()
