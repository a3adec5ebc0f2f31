"""LLVM as this process has it, and what it can make code for."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import Any

from .once import once


@dataclass(frozen=True)
class NativeTarget:
    """The target of native code. `features` is LLVM's list, such as "+avx2,-avx512f"."""

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
        return self.architecture == NativeTarget(llvm().get_process_triple(), "", "").architecture


@once
def _switches(features: str) -> dict[str, bool]:
    """LLVM's list, of which the last mention of a name counts."""
    return {each[1:]: each[0] == "+" for each in features.split(",") if each}


@once
def llvm() -> Any:
    import llvmlite.binding as binding

    # newer llvmlites initialise the core themselves, and refuse to be told
    with contextlib.suppress(RuntimeError):
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    with contextlib.suppress(RuntimeError, OSError):  # kernels call exp and friends; not only Linux has them at hand
        binding.load_library_permanently("libm.so.6")
    return binding
