"""Building kernels: from definitions of primitives to native code, lowered and compiled only where the cache lacks them.

This module is the compiler that the machine knows (`vm/library.py`): it names the target, builds, and evaluates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from ...formats.primitive import PrimitiveDefinition
from ...vm import library, native
from ...vm.library import BuiltKernel, Evaluate
from .kernel import Kernel
from .target import Target, host


def target_key() -> str:
    """Names what kernels are made for here."""
    return host().key


def build(
    definitions: Sequence[PrimitiveDefinition],
    target: Target | None = None,
    *,
    progress: bool = True,
    jobs: int | None = None,
) -> list[BuiltKernel | None]:
    """The kernel of each definition; None for one without a native lowering, which will be evaluated by reference.

    What is built is stored in the cache. `jobs` bounds the processes. Raises InferenceError for a malformed definition.
    """
    target = target or host()
    keys = [library.definition_key(definition, target.key) for definition in definitions]
    found = library.find_kernels(keys)
    missing = {key: definition for key, definition in zip(keys, definitions, strict=True) if key not in found}
    if missing:
        found |= _build(missing, target, progress, jobs)
    return [found[key] for key in keys]


def evaluator(definition: PrimitiveDefinition) -> Evaluate:
    """The operators' reference implementations. Raises InferenceError for a malformed definition."""
    from ..check import check_definition
    from ..evaluate import evaluate_definition

    check_definition(definition)

    def evaluate(inputs: list[np.ndarray], dims: list[int]) -> Sequence[np.ndarray]:
        return evaluate_definition(definition, inputs, dims)

    return evaluate


def _build(
    missing: Mapping[str, PrimitiveDefinition], target: Target, progress: bool, jobs: int | None
) -> dict[str, BuiltKernel | None]:
    from ..check import check_definition
    from .lower import lower

    kernels: dict[str, Kernel | None] = {}
    for key, definition in missing.items():
        check_definition(definition)
        kernels[key] = lower(definition, target)
    codes = _compile([kernel for kernel in kernels.values() if kernel is not None], target, progress, jobs)
    built: dict[str, BuiltKernel | None] = {}
    for key, kernel in kernels.items():
        if kernel is None:
            built[key] = None
        else:
            object_key = _object_key(kernel, target)
            code = codes[object_key]
            built[key] = BuiltKernel(key, object_key, code, kernel.words, kernel.scratch_bytes, kernel.nanoseconds)
        library.store_kernel(key, built[key])
    return built


def _object_key(kernel: Kernel, target: Target) -> str:
    """The identity of a kernel's native code: kernels that differ only in sizes share it."""
    identity = f"{library.compiler_version()} {target.key} {kernel.lanes}\n{kernel.source}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _compile(kernels: Sequence[Kernel], target: Target, progress: bool, jobs: int | None) -> dict[str, bytes]:
    """Native code by object key: what the cache has, else compiled, each text once."""
    texts = {_object_key(kernel, target): kernel for kernel in kernels}
    codes = {key: code for key in texts if (code := native.cache().get(key))}
    waiting = {f"kernel_{key[:16]}": key for key in texts if key not in codes}
    if not waiting:
        return codes
    from tqdm import tqdm

    from .pool import Text, compile_texts

    todo = [Text(symbol, texts[key].source, texts[key].lanes) for symbol, key in waiting.items()]
    with tqdm(
        total=len(todo), desc="compiling kernels", unit="", leave=False, disable=None if progress else True
    ) as bar:
        for text, code in compile_texts(todo, target.native, jobs):
            codes[waiting[text.symbol]] = code
            bar.update()
    return codes
