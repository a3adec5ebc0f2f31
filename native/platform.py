"""Native code of this machine: its CPU as LLVM names it, the versions that decide, object code → addresses in this process.

Loading imports no LLVM where `loader.py` knows the system: a warm start never pays for the compiler (`object_code.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ..formats.messages.errors import FormatError, TreadleError
from . import knobs, loader
from .cache import ObjectCache, cache
from .llvm import NativeTarget, llvm
from .object_code import LENGTH, MAGIC
from .once import kept, once

__all__ = ["ObjectCache", "cache"]

# The newest Numba that the tests have passed with; pyproject.toml says the same
NUMBA_BELOW = "0.69"
ADVICE = f"install another version: pip install 'numba<{NUMBA_BELOW}'; `treadle doctor` names all that is missing"


def host_target() -> NativeTarget:
    """The CPU of this process, or what the knob TREADLE_TARGET says in its place."""
    return _target_of(knobs.get("TREADLE_TARGET"))


@once
def _target_of(override: str | None) -> NativeTarget:
    if not override:
        return _processor()
    try:
        return named_target(override)
    except TreadleError as error:
        raise TreadleError(f"environment variable TREADLE_TARGET={override!r}: {error}") from None


def named_target(text: str) -> NativeTarget:
    """The CPU of that name, of this instruction set, with features switched on or off: "haswell:-fma". Raises TreadleError."""
    from .llvm_names import features_of

    host = _processor()
    cpu, _, changes = text.partition(":")
    features = features_of(host.triple, cpu, changes, (host.cpu, host.features), toolchain())
    return NativeTarget(host.triple, cpu, features)


def check_runnable() -> None:
    """Raises TreadleError where TREADLE_TARGET asks for instructions that this CPU lacks: the process would die of one."""
    target, host = host_target(), _processor()
    if target is host:
        return
    wanted = [each[1:] for each in target.features.split(",") if each[:1] == "+"]
    lacking = [name for name in wanted if name.startswith(_INSTRUCTIONS) and not host.has(name)]
    if lacking:
        message = f"code for {target.cpu} cannot run here: this CPU ({host.cpu}) has no {', '.join(lacking)}"
        raise TreadleError(f"{message}; unset TREADLE_TARGET, or switch them off in it, as in -{lacking[0]}")


# How LLVM's names of features begin whose instructions compilers use unasked
_INSTRUCTIONS = (
    "sse",
    "ssse",
    "avx",
    "amx",
    "fma",
    "f16c",
    "bmi",
    "lzcnt",
    "popcnt",
    "movbe",
    "neon",
    "sve",
    "dotprod",
    "fullfp16",
)


@once
def _processor() -> NativeTarget:
    """This CPU as LLVM names it, less AMX where Linux does not let this process use its registers."""
    found = _known_to_llvm()
    if not found.has("amx-tile") or loader.system_call(*_ASK_FOR_AMX) == 0:
        return found
    return NativeTarget(found.triple, found.cpu, found.features.replace("+amx", "-amx"))


# arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) of Linux on x86-64: once in a process, before its first instruction on them
_ASK_FOR_AMX = (158, 0x1023, 18)


def _known_to_llvm() -> NativeTarget:
    """This CPU as LLVM names it, or named it when it was asked before."""
    identity = processor_identity()
    key = hashlib.sha256(f"processor of LLVM, {toolchain()} {identity}".encode()).hexdigest()
    known = cache().get(key) if identity else None
    if known is not None:
        return NativeTarget(*known.decode().split("\n"))
    binding = llvm()
    try:
        available = sorted(binding.get_host_cpu_features().items())
    except RuntimeError:  # a system where LLVM does not know how to ask
        available = []
    # sorted: the order of LLVM's dictionary is nobody's promise, and the text is part of cache keys
    features = ",".join(f"{'+' if on else '-'}{name}" for name, on in available)
    found = NativeTarget(binding.get_process_triple(), binding.get_host_cpu_name(), features)
    if identity:
        cache().put(key, "\n".join((found.triple, found.cpu, found.features)).encode())
    return found


# Of /proc/cpuinfo, what LLVM's answer depends on, by what Python calls the machine
_IDENTITY = {
    "x86_64": {"vendor_id", "cpu family", "model", "model name", "stepping", "flags"},
    "aarch64": {"CPU implementer", "CPU variant", "CPU part", "Features"},
}
_DESCRIPTION = 1 << 18  # bytes: of some hundred cores of ARM, which need not be equal


def processor_identity() -> str:
    """Text that differs where LLVM would name the CPU differently; empty where there is none at hand."""
    machine = platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            text = file.read(_DESCRIPTION if machine == "aarch64" else 1 << 14)
    except OSError:
        return ""
    return _identity(text, machine)


def _identity(text: str, machine: str) -> str:
    """The same of a description by Linux. On x86, cores are equal, and the first one is enough."""
    wanted = _IDENTITY.get(machine, set())
    lines = (text if machine == "aarch64" else text.partition("\n\n")[0]).splitlines()
    found = [
        tuple(part.strip() for part in line.split(":", 1)) for line in lines if line.partition(":")[0].strip() in wanted
    ]
    if not wanted or {name for name, *_ in found} != wanted:
        return ""
    return "\n".join([machine, *dict.fromkeys(value for _, value in found)])


@once
def toolchain() -> str:
    """The versions that decide about object code, read without importing the packages."""
    return " ".join(f"{name} {_version_of(name)}" for name in ("numba", "llvmlite"))


def _version_of(package: str) -> str:
    """A package's version: from the file that states it, else from `importlib.metadata`, which takes 15 ms."""
    spec = find_spec(package)
    with contextlib.suppress(OSError):
        if spec is not None and spec.origin is not None:
            return hashlib.sha256(Path(spec.origin).with_name("_version.py").read_bytes()).hexdigest()[:16]
    from importlib import metadata  # which takes 15 ms

    return metadata.version(package)


# ---- loading ----


def load_objects(codes: Sequence[bytes]) -> list[dict[str, int]]:
    """For each code blob of `compile_object`, the addresses of its symbols. Symbols of different blobs must differ. Only the
    frame of a blob is checked (FormatError): what is inside is trusted."""
    if not codes:
        return []
    parsed = [_split(code) for code in codes]
    files = [code for _, code in parsed]
    exports = loader.load(files) or _load_with_llvm(parsed)
    addresses = [
        {name: found.get(name, 0) for name in names} for (names, _), found in zip(parsed, exports, strict=True)
    ]
    missing = [name for group in addresses for name, address in group.items() if not address]
    if missing:
        raise FormatError(f"object code lacks the symbols {', '.join(missing)}")
    return addresses


def _load_with_llvm(parsed: Sequence[tuple[list[str], bytes]]) -> list[dict[str, int]]:
    """Loads object files of any format, by LLVM."""
    binding = llvm()
    machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    for _, code in parsed:
        try:
            engine.add_object_file(binding.ObjectFileRef.from_data(code))
        except Exception as error:
            raise FormatError(f"not an object file: {error}") from error
    engine.finalize_object()
    kept(engine)
    return [{name: engine.get_function_address(name) for name in names} for names, _ in parsed]


def load_object(code: bytes) -> dict[str, int]:
    """The addresses of the symbols of one code blob. The code stays loaded for the life of the process."""
    return load_objects([code])[0]


def _split(code: bytes) -> tuple[list[str], bytes]:
    head = len(MAGIC) + LENGTH.size
    if code[: len(MAGIC)] != MAGIC or len(code) < head:
        raise FormatError("not a code blob of Treadle")
    (length,) = LENGTH.unpack_from(code, len(MAGIC))
    if length > len(code) - head:
        raise FormatError("a code blob is cut short")
    return code[head : head + length].decode().split("\n"), code[head + length :]
