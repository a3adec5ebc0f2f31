"""Primitives to native code: finds the kernels of a program in the cache, has missing ones built, loads them.

What the cache keeps of a definition is a record, whose key is a hash of the definition, the target and the compiler's own sources
(`native/sources.py`). It names the object code, whose key is a hash of the kernel's text and of the translator's sources alone:
where a record is missing, the definition is lowered anew, and its code may be there. A warm start computes keys and reads files,
and imports no compiler. What only that can do (build, evaluate) is asked of the module that `vm.compiler_name`
names.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np

from .. import vm
from ..formats import dims, extensions
from ..formats.messages.errors import ArgumentError, InferenceError, TreadleError
from ..formats.primitive import PrimitiveDefinition
from ..formats.program import CPU, NativeKernel, Program
from ..formats.sections import encode_definition
from ..formats.weight_table import WeightTable
from ..native import platform, sources
from ..native.once import Lock, once

Evaluate = Callable[[list[np.ndarray], Sequence[int]], Sequence[np.ndarray]]  # inputs, dimension variables → results


class BuiltKernel(NamedTuple):
    """Native code of one primitive. Kernels that differ only in `words` have the same `object_key` and `code`."""

    key: str
    object_key: str
    code: bytes
    words: tuple[int, ...]
    scratch_bytes: int
    nanoseconds: int


class Compiler(Protocol):
    """The interface of the compiler to the machine. A module will do."""

    def target_key(self) -> str:
        """Names what kernels are made for here."""

    def build(
        self, definitions: Sequence[PrimitiveDefinition], *, names: Sequence[str], seconds: float | None
    ) -> Sequence[BuiltKernel | None]:
        """Builds and stores kernels; None for a definition that has no native lowering. Refuses malformed ones."""

    def evaluator(self, definition: PrimitiveDefinition) -> Evaluate:
        """The operators' reference implementation, checked like `build` does."""

    def paged_attention(self, size: int, group: int, element: str, turns: bool) -> BuiltKernel | None:
        """The kernel that reads a paged cache in place; its word is the number of heads it takes at once."""

    def remade(
        self, table: WeightTable, arrays: Mapping[int, np.ndarray], places: Collection[int]
    ) -> dict[int, np.ndarray]:
        """Constants at these places, made of the weights of these numbers."""


class Target(Protocol):
    """A target whose kernels this machine does not run as native code."""

    def evaluator(self, definition: PrimitiveDefinition) -> Evaluate:
        """What computes a primitive; it checks the definition. Raises KernelFailed where the kernel finds its inputs wrong."""


class KernelFailed(Exception):
    """The code that a kernel returns, by which `failures.py` says what is wrong."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class LinkedPrimitive(NamedTuple):
    """A primitive of a program, ready to be called: through `address`, or, when that is 0, by the reference evaluator."""

    address: int
    words: tuple[int, ...] = ()
    scratch_bytes: int = 0
    nanoseconds: int = 0


HOST = LinkedPrimitive(0)


@once
def compiler() -> Compiler:
    """The compiler of the package, imported only when something is missing from the cache. Raises TreadleError without one."""
    if not vm.compiler_name:
        raise TreadleError("the machine was told of no compiler; import treadle, not a part of it")
    return cast(Compiler, importlib.import_module(vm.compiler_name))


def target_of(target: str, what: str = "the executable was made for") -> Compiler | Target:
    """What computes primitives that were made for a target: on the host the compiler, for "". Raises TreadleError for an unknown
    one."""
    if not target:
        return compiler()
    name = vm.targets.get(target.partition(" ")[0])
    if name is None:
        known = ", ".join(vm.targets) or "none"
        raise TreadleError(f"{what} the target {target!r}; besides CPUs, this version of Treadle has {known}")
    return cast(Target, importlib.import_module(name).backend(target))


def check_targets(program: Program) -> None:
    """Raises TreadleError for a program of a target, or with a device of one, that is not here."""
    if program.target:
        target_of(program.target)
    for device in program.devices:
        if device.target != CPU:
            target_of(device.target, f"the executable's device {device.name!r} is of")


# ---- keys and the cache ----


def compiler_version() -> str:
    """A hash of everything that decides how a definition becomes native code."""
    return sources.kernel_version()


def definition_key(definition: PrimitiveDefinition, target_key: str) -> str:
    """The identity of a definition's native code, as hexadecimal digits."""
    digest = hashlib.sha256(f"{compiler_version()} {target_key} ".encode())
    digest.update(encode_definition(definition))
    if extensions.EXTENSIONS:
        for node in definition.nodes:
            if node.operator in extensions.EXTENSIONS:
                digest.update(extensions.EXTENSIONS[node.operator].digest.encode())
    return digest.hexdigest()


# A kernel's record: digits of the key of its object code, scratch bytes, nanoseconds, then the static words. An
# empty record: the definition has no native lowering.
_RECORD = struct.Struct("<64sqq")


def store_record(key: str, kernel: BuiltKernel | None) -> None:
    """Keeps what building a definition gave, for this and other processes; its code is kept by its own key.

    Only for definitions that the compiler has checked: `link` takes a record as proof that one was.
    """
    cache = platform.cache()
    if kernel is None:
        cache.put(key, b"")
        return
    head = _RECORD.pack(kernel.object_key.encode(), kernel.scratch_bytes, kernel.nanoseconds)
    cache.put(key, head + struct.pack(f"<{len(kernel.words)}q", *kernel.words))


def find_kernels(keys: Sequence[str]) -> dict[str, BuiltKernel | None]:
    """Those of the keys that the cache knows, with their kernels; None for what has no native lowering."""
    cache = platform.cache()
    codes: dict[str, bytes | None] = {}
    found: dict[str, BuiltKernel | None] = {}
    for key in dict.fromkeys(keys):
        record = cache.get(key)
        if record == b"":
            found[key] = None
        elif record is not None and len(record) >= _RECORD.size:
            name, scratch_bytes, nanoseconds = _RECORD.unpack_from(record)
            object_key = name.decode()
            if object_key not in codes:
                codes[object_key] = cache.get(object_key)
            code = codes[object_key]
            if code is not None:
                words = struct.unpack_from(f"<{(len(record) - _RECORD.size) // 8}q", record, _RECORD.size)
                found[key] = BuiltKernel(key, object_key, code, words, scratch_bytes, nanoseconds)
    return found


# ---- linking ----


def link(
    program: Program,
    kernels: str = "build",
    trusted: Mapping[str, Mapping[str, NativeKernel]] | None = None,
    called: Collection[int] | None = None,
    max_build_seconds: float | None = None,
) -> list[LinkedPrimitive]:
    """Native code for each primitive of a verified program, or of those alone whose numbers are in `called`.

    `kernels` is "build", or "cached": then nothing is compiled, and what the cache lacks runs by the reference evaluator.
    `trusted` is native code of the executable that its user vouches for, tried after the cache. Raises
    BudgetExceededError when building takes longer than `max_build_seconds`, UnknownOperatorError for operators of users that are
    not defined here.
    """
    if kernels not in ("build", "cached"):
        raise ArgumentError(f'kernels={kernels!r}: expected "build" or "cached"')
    extensions.check_present(program.metadata)
    check_targets(program)
    linked = [HOST] * len(program.primitives)
    numbers = range(len(linked)) if called is None else sorted(called)
    if program.target or program.devices:
        numbers = [number for number in numbers if not program.target_of(number)]
    definitions = [program.primitives[number].definition for number in numbers]
    if not definitions:
        return linked
    target = compiler().target_key()
    platform.check_runnable()
    keys = [definition_key(definition, target) for definition in definitions]
    found = find_kernels(keys)
    for key in keys:
        kernel = (trusted or {}).get(target, {}).get(key)
        if kernel is not None and key not in found:
            found[key] = _from_file(key, kernel)
    names = [program.primitives[number].name for number in numbers]
    missing = {key: rest for key, *rest in zip(keys, definitions, names, strict=True) if key not in found}
    if missing and kernels == "build":
        with _building:
            found |= find_kernels(list(missing))  # another thread may have built them meanwhile
            missing = {key: rest for key, rest in missing.items() if key not in found}
            if missing:
                lacking, names = map(list, zip(*missing.values(), strict=True))
                try:
                    built = compiler().build(lacking, names=names, seconds=max_build_seconds)
                except InferenceError:
                    with dims.bounded(_NAMING_STEPS):
                        check_definitions(program)
                    raise
                found |= zip(missing, built, strict=True)
    addresses = _load({kernel.object_key: kernel.code for kernel in found.values() if kernel is not None})
    for number, key in zip(numbers, keys, strict=True):
        linked[number] = _linked(found.get(key), addresses)
    return linked


_NAMING_STEPS = 200_000  # of arithmetic on symbolic dimensions


def check_definitions(program: Program) -> None:
    """Raises InferenceError for the first primitive whose definition is malformed, with its name. Linking says the same."""
    for primitive in program.primitives:
        try:
            compiler().evaluator(primitive.definition)
        except InferenceError as error:
            raise InferenceError(f"primitive {primitive.name!r}: {error.message}", node=error.node) from None


def _from_file(key: str, kernel: NativeKernel) -> BuiltKernel:
    object_key = hashlib.sha256(kernel.code).hexdigest()
    return BuiltKernel(key, object_key, kernel.code, kernel.words, kernel.scratch_bytes, kernel.nanoseconds)


def _linked(kernel: BuiltKernel | None, addresses: Mapping[str, int]) -> LinkedPrimitive:
    if kernel is None:
        return HOST
    address = addresses[kernel.object_key]
    return LinkedPrimitive(address, kernel.words, kernel.scratch_bytes, kernel.nanoseconds)


# A kernel as Numba compiles it: where its result and its exception go, then `args`, `scratch`, `part`, `parts`
PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 4)


def address_of(kernel: BuiltKernel) -> int:
    """Where a kernel is in this process."""
    return _load({kernel.object_key: kernel.code})[kernel.object_key]


_loaded: dict[str, int] = {}  # object key → address of the kernel, for all that this process has loaded
_loading, _building = Lock(), Lock()


def _load(codes: Mapping[str, bytes]) -> Mapping[str, int]:
    with _loading:
        new = {key: code for key, code in codes.items() if key not in _loaded}
        for key, symbols in zip(new, platform.load_objects(list(new.values())), strict=True):
            _loaded[key] = next(iter(symbols.values()))
        return _loaded
