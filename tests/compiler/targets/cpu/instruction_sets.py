"""Which CPUs can run a kernel: what its instructions need, found by disassembling them, against what a CPU has.

Features have LLVM's names. What every x86-64 CPU has (SSE2 and below), or every 64-bit ARM (NEON), is not counted.
"""

from __future__ import annotations

import functools

import pytest
from treadle.native import platform
from treadle.native.llvm import NativeTarget

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_ARM_OF_ELF = 183  # EM_AARCH64

_V2 = {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf", "crc32"}
_V3 = {*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = {*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_ARMV8_2 = {"lse", "rdm", "rcpc", "dotprod", "fullfp16"}
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
    "sapphirerapids": {*_ICE_LAKE, "prfchw", "avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-bf16", "amx-int8"},
    "znver4": {*_ICE_LAKE, "prfchw", "avx512bf16"},
    "cortex-a72": set[str](),
    "neoverse-n1": _ARMV8_2,
    "neoverse-v1": {*_ARMV8_2, "sve", "bf16", "i8mm"},
}
_ARMS = ("cortex", "neoverse")

# Which instructions of 64-bit ARM belong to a feature: (mask, what is left under it, feature). Arm Architecture Reference Manual
# for A-profile, C4: the encodings by class
_ARM_INSTRUCTIONS = [
    (0x1E000000, 0x04000000, "sve"),
    (0x9E000000, 0x80000000, "sme"),
    (0x3FA07C00, 0x08A07C00, "lse"),  # compare and swap …
    (0xBFA07C00, 0x08207C00, "lse"),  # … of pairs
    (0x3FFFFC00, 0x38BFC000, "rcpc"),
    (0x3F200C00, 0x38200000, "lse"),  # read, change and write
    (0x9FE0FC00, 0x0E809400, "dotprod"),
    (0x9FC0F400, 0x0F80E000, "dotprod"),  # by one element
    (0xBFE0FC00, 0x0E809C00, "i8mm"),  # of signed and unsigned numbers …
    (0xDFE0F400, 0x4E80A400, "i8mm"),  # … and of matrices
    (0xBF20F400, 0x2E008400, "rdm"),
    (0xBFE0FC00, 0x2E40FC00, "bf16"),  # sums of products …
    (0xFFE0FC00, 0x6E40EC00, "bf16"),
    (0xFFFFFC00, 0x1E634000, "bf16"),  # … and conversions
    (0xBFFFFC00, 0x0EA16800, "bf16"),
    (0x9F60C400, 0x0E400400, "fullfp16"),  # vectors of float16: of two operands …
    (0x9F7E0C00, 0x0E780800, "fullfp16"),  # … and of one
    (0xFFFF7C00, 0x1EE24000, ""),  # single numbers: conversions to float32 and float64 are NEON's …
    (0xFFE07C00, 0x1EE04000, "fullfp16"),  # … all others of one operand are not …
    (0xFFE00C00, 0x1EE00800, "fullfp16"),  # … of two …
    (0xFFC00000, 0x1FC00000, "fullfp16"),  # … of three
    (0xFFE0FC00, 0x1EE02000, "fullfp16"),  # comparisons
    (0x7FE0FC00, 0x1EE00000, "fullfp16"),  # to and from integers
]

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
_NAMES |= {f"AMX_{part}": f"amx-{part.lower()}" for part in ("TILE", "BF16", "INT8")}


def target(cpu: str) -> NativeTarget:
    """A CPU of the table, with its features spelled out."""
    features = ",".join(f"+{feature}" for feature in sorted(FEATURES[cpu]))
    return NativeTarget(ARM if cpu.startswith(_ARMS) else X86, cpu, features)


def texts(code: bytes) -> list[bytes]:
    """The instructions of a code blob."""
    import llvmlite.binding as llvm

    object_file = llvm.ObjectFileRef.from_data(platform._split(code)[1])
    return [each.data() for each in object_file.sections() if each.is_text()]


def needed(code: bytes) -> frozenset[str]:
    """The features that the instructions of a code blob need."""
    object_file = platform._split(code)[1]
    machine = int.from_bytes(object_file[18:20], "little")  # of ELF's header
    return frozenset().union(*map(_of_arm if machine == _ARM_OF_ELF else _of_x86, texts(code)))


def _of_arm(text: bytes) -> frozenset[str]:
    words = set(memoryview(text).cast("I"))
    found = {next((name for mask, value, name in _ARM_INSTRUCTIONS if word & mask == value), "") for word in words}
    return frozenset(found - {""})


def _of_x86(text: bytes) -> frozenset[str]:
    import iced_x86

    found = set[int]()
    for instruction in iced_x86.Decoder(64, text):
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
