"""`treadle doctor`: what Treadle sees of this machine, and what is wrong with it; `treadle knobs`: its environment variables."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

_PACKAGES = ("numpy", "numba", "llvmlite", "msgpack", "platformdirs", "tqdm")
_PREFIX = "TREADLE_"
# variables without which the processor, the cache and the engine cannot be looked at
_NEEDED = frozenset(f"{_PREFIX}{name}" for name in ("CACHE", "CACHE_SIZE", "TARGET", "NUM_THREADS", "JOBS"))
_OPTIONAL = {"onnx": "pip install onnx, to compile ONNX models"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `problem` says what is wrong and what to do; "" if nothing is."""

    name: str
    value: str
    problem: str = ""


COMMANDS = {"Look after this machine": ("doctor", "knobs")}


def add_commands(commands: Any) -> None:
    """Adds `doctor` and `knobs` to the command line."""
    doctor = commands.add_parser("doctor", help="what Treadle sees of this machine, and what is wrong with it")
    doctor.set_defaults(command=doctor_command)
    knobs = commands.add_parser("knobs", help="the environment variables that Treadle reads")
    knobs.set_defaults(command=knobs_command)


def doctor_command(options: argparse.Namespace) -> int:
    """Exits with 4 if something is wrong."""
    found = list(examine())
    problems = [finding for finding in found if finding.problem]
    if options.json:
        print(json.dumps({"findings": list(map(asdict, found)), "healthy": not problems}))
    else:
        width = max(len(finding.name) for finding in found)
        for finding in found:
            print(f"{finding.name:{width}}  {finding.value}")
            if finding.problem:
                print(f"{'':{width}}  ! {finding.problem}")
        print("\nall is well" if not problems else f"\n{len(problems)} problem{'s' * (len(problems) > 1)}, marked by !")
    return 4 if problems else 0


def examine() -> Iterator[Finding]:
    """Everything that `doctor` looks at."""
    from .. import __version__

    yield Finding("treadle", __version__)
    yield Finding("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield from map(_package, _PACKAGES)
    for name, advice in _OPTIONAL.items():
        finding = _package(name)
        yield Finding(name, f"{finding.value}; {advice}") if finding.problem else finding
    variables = list(_variables())
    yield from variables
    broken = {finding.name for finding in variables if finding.problem}
    if broken.isdisjoint(_NEEDED):
        yield from _processor()
        yield _cache()
        yield _engine()
    yield from _internals()


def _package(name: str) -> Finding:
    import importlib.metadata  # 10 ms, which the other commands of `treadle` need not pay

    try:
        return Finding(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "not installed", f"pip install {name}")


def _processor() -> Iterator[Finding]:
    from ..compiler.targets.cpu.target import host
    from ..vm.threads import get_num_threads

    target = host()
    bits = 8 * target.vector_bytes
    problem = "" if bits >= 256 else "narrow vectors: kernels will be slow"
    yield Finding("processor", f"{target.native.cpu}, {os.cpu_count()} hardware threads")
    yield Finding("CPUs", _cpus())
    yield Finding("vectors", f"{bits} bits, {target.lanes()} floats", problem)
    yield Finding("threads", f"{get_num_threads()} a call")


def _cpus() -> str:
    """How many this process has, and what of the machine's it was denied."""
    from ..native.processors import allowed_count, cpu_count, cpu_quota

    told = [f"{cpu_count()} for this process"]
    if allowed_count() != (os.cpu_count() or 1):
        told.append(f"may run on {allowed_count()} (affinity)")
    quota = cpu_quota()
    if quota is not None:
        told.append(f"the time of {quota:g} (control group)")
    return ", ".join(told)


def _variables() -> Iterator[Finding]:
    """The environment variables that are set: unknown ones, and values that do not parse."""
    from ..formats.messages.errors import TreadleError
    from ..formats.messages.names import near
    from ..native import platform as native
    from ..native.knobs import KNOBS

    for name in sorted(name for name in os.environ if name.upper().startswith(_PREFIX)):
        problem = ""
        if name not in KNOBS:
            problem = f"Treadle reads no such variable{near(name, KNOBS)}; `treadle knobs` lists them"
        else:
            try:
                KNOBS[name].get()
                if name == "TREADLE_TARGET":
                    native.check_runnable()
            except TreadleError as error:
                problem = str(error)
        yield Finding(name, os.environ[name], problem)


def _cache() -> Finding:
    from ..native import platform as native

    cache = native.cache()
    if cache.folder is None:
        return Finding("cache", "off", "every process builds its kernels anew; unset TREADLE_CACHE")
    problem, files = cache.problem(), cache.entries()
    size = sum(entry.size for entry in files)
    return Finding(
        "cache", f"{cache.folder}, {len(files)} files, {size / 1e6:.1f} of {cache.limit / 1e6:.0f} MB", problem
    )


def _engine() -> Finding:
    from ..vm import core

    return Finding("engine", "built" if core.is_built() else "not built yet; the first call will build it, once")


def _internals() -> Iterator[Finding]:
    """Undocumented internals of other packages that Treadle relies on."""
    from ..vm.internals import RELIANCES

    for each in RELIANCES:
        problem = each.problem()
        yield Finding(each.name, "not as expected" if problem else "as expected", problem)


def knobs_command(options: argparse.Namespace) -> int:
    from ..native.knobs import KNOBS

    if options.json:
        print(json.dumps([{"name": k.name, "value": os.environ.get(k.name), "doc": k.doc} for k in KNOBS.values()]))
        return 0
    width = max(map(len, KNOBS))
    for knob in KNOBS.values():
        value = os.environ.get(knob.name)
        print(f"{knob.name:{width}}  {knob.doc}{'' if value is None else f' [now {value!r}]'}")
    return 0
