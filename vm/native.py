"""Native code: LLVM text of functions → object code → addresses in this process.

`compile_object` imports LLVM; `load_object` does not, where `loader.py` knows the system: a warm start never pays for the
compiler. Object code is a function of the text, the target CPU and the versions of Numba and llvmlite: the same in every process.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..formats.errors import CompileError, FormatError, TreadleError
from . import knobs, loader, machine_code
from .cache import ObjectCache, cache
from .once import Lock, kept, once

__all__ = ["ObjectCache", "cache"]

# A code blob is: MAGIC, the length of the names (u32), the names of its symbols joined by line feeds, an object file.
MAGIC = b"TRDLOBJ1"

# The newest Numba that the tests have passed with; pyproject.toml says the same
NUMBA_BELOW = "0.69"
ADVICE = f"install another version: pip install 'numba<{NUMBA_BELOW}'; `treadle doctor` names all that is missing"
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class NativeTarget:
    """What native code is made for. `features` is LLVM's list, such as "+avx2,-avx512f"."""

    triple: str
    cpu: str
    features: str

    @property
    def key(self) -> str:
        """Short text that is equal for two targets if and only if their code may be exchanged."""
        return hashlib.sha256("\0".join((self.triple, self.cpu, self.features)).encode()).hexdigest()[:16]

    def has(self, feature: str) -> bool:
        """True if the CPU has the feature of LLVM's name `feature`. The last mention of it counts, as LLVM takes it."""
        return _switches(self.features).get(feature, False)

    @property
    def architecture(self) -> str:
        """Linux's name of the instruction set: x86_64, aarch64, or whatever the triple says of others."""
        name = self.triple.partition("-")[0]
        return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)

    @property
    def is_x86(self) -> bool:
        return self.architecture == "x86_64"

    @property
    def is_arm(self) -> bool:
        return self.architecture == "aarch64"

    @property
    def is_of_this_process(self) -> bool:
        """True if LLVM's names of CPUs and features are those of this process's instruction set."""
        return self.architecture == NativeTarget(_llvm().get_process_triple(), "", "").architecture


@once
def _switches(features: str) -> dict[str, bool]:
    """LLVM's list, of which the last mention of a name counts."""
    return {each[1:]: each[0] == "+" for each in features.split(",") if each}


def host_target() -> NativeTarget:
    """The CPU of this process, or what the knob TREADLE_TARGET says in its place."""
    return _target_of(knobs.get("TREADLE_TARGET"))


@once
def _target_of(override: str | None) -> NativeTarget:
    host = _processor()
    if not override:
        return host
    from .llvm_names import features_of

    cpu, _, changes = override.partition(":")
    try:
        features = features_of(host.triple, cpu, changes, (host.cpu, host.features), toolchain())
    except TreadleError as error:
        raise TreadleError(f"environment variable TREADLE_TARGET={override!r}: {error}") from None
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
    """This CPU as LLVM names it, or named it when it was asked before."""
    identity = processor_identity()
    key = hashlib.sha256(f"processor of LLVM, {toolchain()} {identity}".encode()).hexdigest()
    known = cache().get(key) if identity else None
    if known is not None:
        return NativeTarget(*known.decode().split("\n"))
    llvm = _llvm()
    try:
        available = sorted(llvm.get_host_cpu_features().items())
    except RuntimeError:  # a system where LLVM does not know how to ask
        available = []
    # sorted: the order of LLVM's dictionary is nobody's promise, and the text is part of cache keys
    features = ",".join(f"{'+' if on else '-'}{name}" for name, on in available)
    found = NativeTarget(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)
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
    """What identifies a package's version: the file that says it, or else what `importlib.metadata` takes 15 ms to find."""
    spec = find_spec(package)
    with contextlib.suppress(OSError):
        if spec is not None and spec.origin is not None:
            return hashlib.sha256(Path(spec.origin).with_name("_version.py").read_bytes()).hexdigest()[:16]
    return _installed(package)


@once
def _llvm() -> Any:
    import llvmlite.binding as llvm

    # newer llvmlites initialise the core themselves, and refuse to be told
    with contextlib.suppress(RuntimeError):
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    with contextlib.suppress(RuntimeError, OSError):  # kernels call exp and friends; not only Linux has them at hand
        llvm.load_library_permanently("libm.so.6")
    return llvm


# ---- compiling ----

# Gives the LLVM texts of functions, and of what they call, for a target. Raises CompileError, or what Numba does
Source = Callable[[NativeTarget], Sequence[str]]


def compile_object(
    source: Source, symbols: Sequence[str], target: NativeTarget | None = None, *, aligns: bool = True
) -> bytes:
    """Object code of the functions called `symbols`, which `source` gives. All others become part of them.

    The functions must neither raise nor allocate Python objects. `aligns`: they align the stack for what they keep there.
    Raises CompileError.
    """
    target = target or host_target()
    code = _target_machine(target).emit_object(_module(source, symbols, target, aligns))
    names = "\n".join(symbols).encode()
    return b"".join((MAGIC, _LENGTH.pack(len(names)), names, code))


def compile_text(source: Source, symbols: Sequence[str], target: NativeTarget | None = None, form: str = "llvm") -> str:
    """The same code as text: `form` is "llvm" (optimised IR) or "asm"."""
    target = target or host_target()
    module = _module(source, symbols, target, aligns=True)
    return str(module) if form == "llvm" else _target_machine(target).emit_assembly(module)


def _target_machine(target: NativeTarget) -> Any:
    llvm = _llvm()
    if not target.is_of_this_process:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple)
    # what Numba generates code with; the large code model reaches libm from wherever the code is loaded
    return machine.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


_compiler_lock = Lock()


def _module(source: Source, symbols: Sequence[str], target: NativeTarget, aligns: bool) -> Any:
    """An optimised LLVM module with the functions under their symbols; everything else is internal and renamed."""
    with _compiler_lock:
        machine = _target_machine(target)
        module = _linked(_texts(source, symbols, target), machine)
        _optimise(module, machine)
        text = _renamed(module, symbols)
    for symbol in symbols if aligns else ():
        text = _aligning(text, symbol)
    module = _linked([text])
    module.verify()
    for function in module.functions:
        if function.is_declaration and not _resolves(function.name):
            raise CompileError(f"native code of {', '.join(symbols)} calls {function.name!r}, which only Numba has")
    return module


def _texts(source: Source, symbols: Sequence[str], target: NativeTarget) -> Sequence[str]:
    """The LLVM texts of the functions and of those they call."""
    try:
        texts = source(target)
    except (AttributeError, ImportError, TypeError) as error:  # what the insides of another version give
        found = f"Numba {_installed('numba')} is not as Treadle expects, or Treadle is at fault"
        raise CompileError(f"{found}: {type(error).__name__}: {error}; {ADVICE}") from error
    if any(name in text for name in machine_code.NAMES for text in texts):
        texts = [*texts, machine_code.text(target)]
    return texts


def _linked(texts: Sequence[str], machine: Any = None) -> Any:
    """One LLVM module of several, all for `machine` where one is given, whatever they say."""
    llvm = _llvm()
    modules = [llvm.parse_assembly(text) for text in texts]
    for each in modules if machine else ():
        each.triple, each.data_layout = machine.triple, str(machine.target_data)
    for each in modules[1:]:
        modules[0].link_in(each)
    return modules[0]


def _installed(package: str) -> str:
    from importlib import metadata

    return metadata.version(package)


def _optimise(module: Any, machine: Any) -> None:
    """As Numba would, once."""
    llvm = _llvm()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


_HEADER = re.compile(r"^(; ModuleID|source_filename).*\n", re.MULTILINE)


def _renamed(module: Any, symbols: Sequence[str]) -> str:
    """LLVM text without what is unused. All but the functions of these names are internal, and numbered in the order of the text:
    Numba's own names hold counters of this process."""
    for item in (*module.functions, *module.global_variables):
        if item.name not in symbols and not item.name.startswith("llvm.") and not item.is_declaration:
            item.linkage, item.visibility = "internal", "default"
    _drop_dead(module)
    others = [each for each in module.functions if not each.is_declaration and each.name not in symbols]
    for number, item in enumerate((*others, *module.global_variables)):
        if not item.name.startswith("llvm."):
            item.name = f"{symbols[0]}.{number}"
    return _HEADER.sub("", str(module))


def _aligning(text: str, symbol: str) -> str:
    """LLVM text whose function `symbol` aligns the stack. Left alone, LLVM learns too late that there are not enough registers
    for all vectors, and those that wait in memory cross cache lines: up to 6 % of the time of a matrix product. Without loops
    there are few vectors."""
    if " = phi " not in text:
        return text
    head = re.compile(rf'^(define .*@"?{re.escape(symbol)}"?\(.*?)((?: #\d+)? {{)$', re.MULTILINE)
    return head.sub(r'\1 "stackrealign"\2', text)


def _drop_dead(module: Any) -> None:
    llvm = _llvm()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    manager = llvm.create_new_module_pass_manager()
    manager.add_global_dead_code_eliminate_pass()
    manager.run(module, builder)


def _resolves(name: str) -> bool:
    return name.startswith("llvm.") or bool(_llvm().address_of_symbol(name))


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
    """Whatever the system's object files are."""
    llvm = _llvm()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for _, code in parsed:
        try:
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        except Exception as error:
            raise FormatError(f"not an object file: {error}") from error
    engine.finalize_object()
    kept(engine)
    return [{name: engine.get_function_address(name) for name in names} for names, _ in parsed]


def load_object(code: bytes) -> dict[str, int]:
    """The addresses of the symbols of one code blob. The code stays loaded for the life of the process."""
    return load_objects([code])[0]


def _split(code: bytes) -> tuple[list[str], bytes]:
    head = len(MAGIC) + _LENGTH.size
    if code[: len(MAGIC)] != MAGIC or len(code) < head:
        raise FormatError("not a code blob of Treadle")
    (length,) = _LENGTH.unpack_from(code, len(MAGIC))
    if length > len(code) - head:
        raise FormatError("a code blob is cut short")
    return code[head : head + length].decode().split("\n"), code[head + length :]
