"""Which CPUs can run a kernel: what its instructions need, found by disassembling them, against what a CPU has.

Features have LLVM's names. What every x86-64 CPU has (SSE2 and below) is not counted.
"""

from __future__ import annotations

import functools

import pytest
from treadle.vm import native

_V2 = {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf", "crc32"}
_V3 = {*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = {*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_ICE_LAKE = {*_V4, "avx512vnni", "avx512vbmi", "avx512ifma", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq", "gfni"}

# What these CPUs have, as far as LLVM may use it for kernels (Intel's and AMD's manuals)
FEATURES = {
    "x86-64": set[str](),
    "nehalem": _V2,
    "haswell": _V3,
    "znver3": {*_V3, "prfchw"},
    "alderlake": {*_V3, "avxvnni", "prfchw", "gfni"},
    "skylake-avx512": {*_V4, "prfchw"},
    "cascadelake": {*_V4, "prfchw", "avx512vnni"},
    "cooperlake": {*_V4, "prfchw", "avx512vnni", "avx512bf16"},
    "icelake-server": {*_ICE_LAKE, "prfchw"},
    "znver4": {*_ICE_LAKE, "prfchw", "avx512bf16"},
}

# iced's names of what is in every x86-64 CPU, or does nothing on one that lacks it
_EVERYWHERE = {
    "X64",
    "CPUID",
    "FPU",
    "CMOV",
    "CX8",
    "FXSR",
    "MMX",
    "MSR",
    "TSC",
    "SSE",
    "SSE2",
    "MULTIBYTENOP",
    "PAUSE",
}
_NAMES = {"BMI1": "bmi", "SSE4_1": "sse4.1", "SSE4_2": "sse4.2", "PREFETCHW": "prfchw"}


def target(cpu: str) -> native.NativeTarget:
    """A CPU of the table, with its features spelled out."""
    features = ",".join(f"+{feature}" for feature in sorted(FEATURES[cpu]))
    return native.NativeTarget(native.host_target().triple, cpu, features)


def needed(code: bytes) -> frozenset[str]:
    """The features that the instructions of a code blob need."""
    import iced_x86
    import llvmlite.binding as llvm

    found = set[int]()
    for section in llvm.ObjectFileRef.from_data(native._split(code)[1]).sections():
        for instruction in iced_x86.Decoder(64, section.data()) if section.is_text() else ():
            found.update(instruction.cpuid_features())
    names = {_feature_names()[number] for number in found}
    return frozenset(
        _NAMES.get(name, name.lower().replace("_", ""))
        for name in names
        if name not in _EVERYWHERE and not name.startswith(("INTEL", "LONG_MODE"))
    )


@functools.cache
def _feature_names() -> dict[int, str]:
    from iced_x86 import CpuidFeature

    return {number: name for name, number in vars(CpuidFeature).items() if isinstance(number, int)}


@functools.cache
def of_this_cpu() -> frozenset[str]:
    """What the CPU has that this process runs on, whatever TREADLE_TARGET says."""
    import llvmlite.binding as llvm

    return frozenset(name for name, is_there in llvm.get_host_cpu_features().items() if is_there)


def require(code: bytes) -> None:
    """The rule of all tests of kernels for other CPUs: what this CPU lacks is not run here, but by `make cpus`."""
    lacking = needed(code) - of_this_cpu()
    if lacking:
        pytest.skip(f"this CPU lacks {', '.join(sorted(lacking))}; `make cpus` runs kernels for the CPUs that QEMU has")
