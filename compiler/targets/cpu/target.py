"""The CPU target of a kernel: LLVM's name of it, its vectors, its caches.

Templates read it to choose register tiles and blocks; the code generator gets `native`. Nothing here imports Numba.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from ....formats.messages.errors import OutOfMemoryError
from ....native.llvm import NativeTarget
from ....native.platform import host_target, named_target

# LLVM's features, widest first: bytes of a vector, number of vector registers
_VECTORS = (("avx512f", 64, 32), ("avx2", 32, 16))

# The same for CPUs given by name alone, without a list of features
_NAMED = {
    "x86-64-v4": (64, 32),
    "x86-64-v3": (32, 16),
    "haswell": (32, 16),
    "skylake-avx512": (64, 32),
    "icelake-server": (64, 32),
    "sapphirerapids": (64, 32),
    "znver2": (32, 16),
    "znver3": (32, 16),
    "znver4": (64, 32),
    "znver5": (64, 32),
}


_DOTS_OF_ARM = (("usdot", "i8mm"), ("sdot", "dotprod"))  # of bytes, and what has them


@dataclass(frozen=True)
class Target:
    """A CPU's properties for kernels. Sizes are in bytes."""

    native: NativeTarget
    vector_bytes: int = 16
    vector_registers: int = 16
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 4 << 20  # one core's fair share of the last level

    @property
    def key(self) -> str:
        """Equal for two targets if and only if kernels for one are kernels for the other."""
        return f"{self.native.key}-{self.vector_bytes}x{self.vector_registers}-{self.l1_bytes}-{self.l2_bytes}"

    @property
    def half_l1(self) -> int:
        """Bytes of data that a kernel may keep in L1: the other half is for what passes by."""
        return self.l1_bytes // 2

    @property
    def half_l2(self) -> int:
        """The same of L2."""
        return self.l2_bytes // 2

    @property
    def block_registers(self) -> int:
        """The number of vectors of 16 floats, in one register or several, that the registers hold."""
        return self.vector_registers * self.vector_bytes // 64

    @property
    def has_fma(self) -> bool:
        """Whether multiply-add is one instruction; without it, a fused one is a slow library call."""
        return self.native.has("fma") or self.native.is_arm or self.native.cpu in _NAMED

    @property
    def looks_up(self) -> bool:
        """Whether any lanes of two vectors of `lanes()` elements can be selected by one or two instructions."""
        return (self.native.has("avx512f") and self.vector_bytes == 64) or (
            self.native.has("avx2") and self.vector_bytes == 32
        )

    @property
    def dot(self) -> str:
        """The fastest function of `vectors/lanes.py` for 8-bit dot products, four to a sum."""
        if self._has_of_avx512("avx512vnni"):
            return f"dot_{8 * self.vector_bytes}"
        if self.native.has("avxvnni"):
            return f"dot_{8 * min(self.vector_bytes, 32)}"
        if not self.native.is_x86:
            return next((f"dot_{name}" for name, feature in _DOTS_OF_ARM if self.native.has(feature)), "dot_plain")
        return f"dot_pairs_{8 * min(self.vector_bytes, self._pairs_bytes)}"

    @property
    def dot_words(self) -> str:
        """The function of `vectors/lanes.py` for dot products of 16-bit words, two to a sum, where those take less time than of
        bytes; "" elsewhere."""
        is_slow = self.native.is_x86 and not self.multiplies_bytes
        return f"dot_words_{8 * min(self.vector_bytes, self._pairs_bytes)}" if is_slow else ""

    @property
    def dot_halves(self) -> str:
        """The function of `vectors/lanes.py` for dot products of bytes, two to a sum of 16 bits, where those take less time than
        `dot`; "" elsewhere."""
        return self.dot_words.replace("words", "halves") if self._pairs_bytes > 16 else ""

    @property
    def dot_bfloat16(self) -> str:
        """The function of `vectors/lanes.py` that adds products of bfloat16, two to a sum, by an instruction; "" without one."""
        if self.native.is_arm:
            return "dot_bfloat16_odd" if self.native.has("bf16") else ""
        return f"dot_bfloat16_{8 * self.vector_bytes}" if self._has_of_avx512("avx512bf16") else ""

    @property
    def square(self) -> str:
        """The function of `vectors/lanes.py` for squares of sums of bytes, where there is one."""
        return "square_usmmla" if self.dot == "dot_usdot" else ""

    @property
    def square_bfloat16(self) -> str:
        """Likewise of bfloat16."""
        return "square_bfmmla" if self.dot_bfloat16 == "dot_bfloat16_odd" else ""

    @property
    def amx(self) -> str:
        """The instruction of `vectors/amx.py` that multiplies registers of bytes; "" without one."""
        return "dpbusd" if self.vector_bytes == 64 and self.native.has("amx-int8") else ""

    @property
    def amx_bfloat16(self) -> str:
        """Likewise of bfloat16."""
        return "dpbf16ps" if self.dot_bfloat16 == "dot_bfloat16_512" and self.native.has("amx-bf16") else ""

    def _has_of_avx512(self, feature: str) -> bool:
        """Whether instructions of that extension work on vectors as long as this target's."""
        return self.native.has(feature) and (self.vector_bytes == 64 or self.native.has("avx512vl"))

    @property
    def _pairs_bytes(self) -> int:
        """The widest vectors whose 16-bit elements x86 multiplies and adds in pairs. Kernels may use wider ones."""
        if self.native.has("avx512bw"):
            return 64
        is_named = not self.native.features and self.native.cpu in _NAMED
        return 32 if self.native.has("avx2") or is_named else 16

    @property
    def multiplies_bytes(self) -> bool:
        """Whether `dot` is one instruction, or one a row of a tile."""
        return self.dot in ("dot_128", "dot_256", "dot_512", "dot_usdot", "dot_sdot")

    @property
    def byte_speed(self) -> float:
        """Multiply-adds of bytes in the time of one of float32, about."""
        return 4 if self.multiplies_bytes else 0.5 if self.dot == "dot_plain" else 1.5

    @property
    def nibbles(self) -> str:
        """The fastest function of `vectors/lanes.py` that converts the lowest four bits of words."""
        return "nibbles_512" if self.native.has("avx512f") and self.vector_bytes == 64 else "nibbles"

    def lanes(self, itemsize: int = 4) -> int:
        """Elements of `itemsize` bytes in a vector."""
        return self.vector_bytes // itemsize


def host() -> Target:
    """The CPU of this process, or the one that the knob TREADLE_TARGET names."""
    return of(host_target())


# 64-bit ARM: each has NEON, and the templates ask for no more
_ARM = NativeTarget("aarch64-unknown-linux-gnu", "generic", "")


def named(text: str) -> Target:
    """The CPU of this instruction set that LLVM names so, as in TREADLE_TARGET; or "aarch64". Raises TreadleError."""
    return of(_ARM if text == "aarch64" else named_target(text))


def noted(target: str) -> Target:
    """The CPU whose kernels are run for an executable's target (`Program.target`): of the emulator, the one behind its name."""
    _, _, cpu = target.partition(" ")
    return named(cpu) if cpu else host()


@functools.cache
def of(native: NativeTarget) -> Target:
    """The target of that CPU. Its caches are taken to be this machine's."""
    vector_bytes, registers = _vectors(native)
    l1, l2, l3 = _caches()
    return Target(native, vector_bytes, registers, l1, l2, l3)


def _vectors(native: NativeTarget) -> tuple[int, int]:
    for feature, vector_bytes, registers in _VECTORS:
        if native.has(feature):
            return vector_bytes, registers
    if not native.features and native.cpu in _NAMED:
        return _NAMED[native.cpu]
    return 16, 32 if native.is_arm else 16  # NEON is on every 64-bit ARM, also where LLVM lists no features


@functools.cache
def _caches() -> tuple[int, int, int]:
    """Bytes of L1 (data), of L2, and of a core's share of L3, with conservative guesses."""
    sizes = {1: 32 << 10, 2: 512 << 10, 3: 4 << 20}
    try:
        found = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*"))
    except OSError:  # of a system that does not tell
        found = []
    except MemoryError as error:
        raise OutOfMemoryError("no memory to look at the processor's caches") from error
    for index in found:
        try:
            level, kind = int((index / "level").read_text()), (index / "type").read_text().strip()
            size = int((index / "size").read_text().strip().rstrip("K")) << 10
            sharers = _count_cpus((index / "shared_cpu_list").read_text().strip())
        except (OSError, ValueError):
            continue
        except MemoryError as error:  # a guess would last for the process, and select other kernels
            raise OutOfMemoryError("no memory to look at the processor's caches") from error
        if kind != "Instruction" and level in sizes:
            sizes[level] = size if level < 3 else size // sharers
    return sizes[1], sizes[2], sizes[3]


def _count_cpus(text: str) -> int:
    """The number of CPUs in the kernel's list format, such as "0-3,8"."""
    ranges = [part.split("-") for part in text.split(",")]
    return max(1, sum(int(part[-1]) - int(part[0]) + 1 for part in ranges))
