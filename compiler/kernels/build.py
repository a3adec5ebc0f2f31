"""Building kernels: from definitions of primitives to native code, lowered and compiled only where the cache lacks them.

This module is the compiler that the machine knows (`vm/library.py`): it names the target, builds, and evaluates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...formats.primitive import PrimitiveDefinition
from ...vm import library, native
from ...vm.library import BuiltKernel, Evaluate
from .kernel import Kernel
from .target import Target, host

_SYMBOL = "kernel_"  # what the functions in object code are called, before their object key


class _Wanted(NamedTuple):
    """A kernel to build."""

    definition: PrimitiveDefinition
    variant: str


def target_key() -> str:
    """Names what kernels are made for here."""
    return host().key


def build(
    definitions: Sequence[PrimitiveDefinition],
    target: Target | None = None,
    *,
    variants: Sequence[str] = (),
    progress: bool = True,
    jobs: int | None = None,
) -> list[BuiltKernel | None]:
    """The kernel of each definition; None for one without a native lowering, which will be evaluated by reference.

    What is built is stored in the cache. `variants` are those of the kernels that are wanted, where not all are the default.
    `jobs` bounds the processes. Raises InferenceError for a malformed definition, CompileError for a variant that there is not.
    """
    target = target or host()
    wanted = [
        _Wanted(definition, variant)
        for definition, variant in zip(definitions, variants or [""] * len(definitions), strict=True)
    ]
    keys = [library.variant_key(library.definition_key(each.definition, target.key), each.variant) for each in wanted]
    found = library.find_kernels(keys)
    missing = {key: each for key, each in zip(keys, wanted, strict=True) if key not in found}
    if missing:
        found |= _build(missing, target, progress, jobs)
    return [found[key] for key in keys]


def compiled(definition: PrimitiveDefinition, target: Target) -> BuiltKernel | None:
    """The kernel of a definition that nobody has checked, so that no record of it is kept: for tests of the templates alone.

    The native code of a text is kept, which is what the text says whoever made it.
    """
    from .lower import lower

    kernel = lower(definition, target)
    if kernel is None:
        return None
    ((key, code),) = _compile({_object_key(kernel, target): kernel}, target, False, 1)
    native.cache().put(key, code)
    return BuiltKernel("", key, code, kernel.words, kernel.scratch_bytes, kernel.nanoseconds)


def evaluator(definition: PrimitiveDefinition) -> Evaluate:
    """The operators' reference implementations. Raises InferenceError for a malformed definition."""
    from ..check import check_definition
    from ..evaluate import evaluate_definition

    check_definition(definition)

    def evaluate(inputs: list[np.ndarray], dims: list[int]) -> Sequence[np.ndarray]:
        return evaluate_definition(definition, inputs, dims)

    return evaluate


def _build(
    missing: Mapping[str, _Wanted], target: Target, progress: bool, jobs: int | None
) -> dict[str, BuiltKernel | None]:
    """Each kernel is kept as soon as it is done, so that an interrupted build loses little."""
    from ..check import check_definition
    from .lower import lower

    kernels: dict[str, Kernel] = {}
    users: dict[str, list[str]] = {}  # object key → the definitions' keys that share the code
    for key, (definition, variant) in missing.items():
        check_definition(definition)
        kernel = lower(definition, target, variant)
        if kernel is None:
            library.store_kernel(key, None)
        else:
            kernels[key] = kernel
            users.setdefault(_object_key(kernel, target), []).append(key)
    built: dict[str, BuiltKernel | None] = dict.fromkeys(missing)
    for object_key, code in _compile({key: kernels[keys[0]] for key, keys in users.items()}, target, progress, jobs):
        for key in users[object_key]:
            kernel = kernels[key]
            built[key] = BuiltKernel(key, object_key, code, kernel.words, kernel.scratch_bytes, kernel.nanoseconds)
            library.store_kernel(key, built[key])
    return built


def _object_key(kernel: Kernel, target: Target) -> str:
    """The identity of a kernel's native code: kernels that differ only in sizes share it."""
    identity = f"{library.compiler_version()} {target.key} {kernel.lanes}\n{kernel.source}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _compile(
    kernels: Mapping[str, Kernel], target: Target, progress: bool, jobs: int | None
) -> Iterator[tuple[str, bytes]]:
    """Native code by object key, as it comes: what the cache has, then what must be compiled, behind a progress bar."""
    waiting: dict[str, Kernel] = {}
    for key, kernel in kernels.items():
        code = native.cache().get(key)
        if code is None:
            waiting[key] = kernel
        else:
            yield key, code
    if not waiting:
        return
    from tqdm import tqdm

    from .compile_pool import Text, compile_texts

    texts = [Text(f"{_SYMBOL}{key}", kernel.source, kernel.lanes) for key, kernel in waiting.items()]
    hidden = None if progress else True  # None: hidden where stderr is no terminal
    with tqdm(total=len(texts), desc="compiling kernels", unit="", delay=1, leave=False, disable=hidden) as bar:
        for text, code in compile_texts(texts, target.native, jobs):
            yield text.symbol.removeprefix(_SYMBOL), code
            bar.update()
