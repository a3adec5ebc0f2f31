"""Devices: where tensors live and kernels run. Today that is the one CPU; other kinds are names, which do not exist here."""

from __future__ import annotations

import contextlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..formats.messages.calling import Suggesting, public, public_class
from ..formats.messages.errors import ArgumentError, DeviceNumberError, ExecutionError, FormatError
from ..native.processors import cpu_count, memory_left, memory_limit

REMOTE = 128  # DLPack's codes end below; TVM counts the device types of its n-th remote from n times this on


class DeviceType:
    """DLPack's and TVM's codes of the kinds of devices."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLAOCL = 32
    kDLSDAccel = 33
    kOpenGL = 34
    kDLMicroDev = 35


_CODES = {
    "cpu": DeviceType.kDLCPU,
    "cuda": DeviceType.kDLCUDA,
    "cuda_host": DeviceType.kDLCUDAHost,
    "opencl": DeviceType.kDLOpenCL,
    "vulkan": DeviceType.kDLVulkan,
    "metal": DeviceType.kDLMetal,
    "vpi": DeviceType.kDLVPI,
    "rocm": DeviceType.kDLROCM,
    "rocm_host": DeviceType.kDLROCMHost,
    "ext_dev": DeviceType.kDLExtDev,
    "cuda_managed": DeviceType.kDLCUDAManaged,
    "oneapi": DeviceType.kDLOneAPI,
    "webgpu": DeviceType.kDLWebGPU,
    "hexagon": DeviceType.kDLHexagon,
    "aocl": DeviceType.kDLAOCL,
    "sdaccel": DeviceType.kDLSDAccel,
    "opengl": DeviceType.kOpenGL,
    "microdev": DeviceType.kDLMicroDev,
}
_KINDS = {code: kind for kind, code in _CODES.items()}

# What text may name besides, which are kinds of targets: text → kind
_ALIASES = {
    **dict.fromkeys(("llvm", "stackvm", "c", "test", "hybrid", "composite"), "cpu"),
    **dict.fromkeys(("gpu", "nvptx"), "cuda"),
    "cl": "opencl",
    "sdaccel": "opencl",
    "aocl_sw_emu": "aocl",
    "mtl": "metal",
}


@public_class
@dataclass(frozen=True)
class Device(DeviceType, Suggesting):
    """A device: its kind, and a number among those of its kind. `session` is the number of a remote, 0 for this process."""

    kind: str
    index: int = 0
    session: int = 0

    def __post_init__(self) -> None:
        """DLPack's code may stand for the kind. Raises FormatError for an unknown kind, ArgumentError."""
        kind: Any = self.kind
        if isinstance(kind, int):
            session, code = divmod(kind, REMOTE)
            object.__setattr__(self, "kind", _KINDS.get(code, ""))
            object.__setattr__(self, "session", session or self.session)
        if not isinstance(self.kind, str) or self.kind not in _CODES:
            raise FormatError(f"Unknown device type: {kind!r}; there are {', '.join(_CODES)}")
        if not isinstance(self.index, int) or self.index < 0:
            raise DeviceNumberError(f"Invalid device id: {self.index!r}; expected a number from 0 on")

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's (device type, device id)."""
        return _CODES[self.kind], self.index

    @property
    def device_type(self) -> int:
        """The code of the kind; a remote's is larger by 128 for each session."""
        return _CODES[self.kind] + REMOTE * self.session

    @property
    def device_id(self) -> int:
        return self.index

    def __repr__(self) -> str:
        remote = f"remote[{self.session - 1}]:" if self.session else ""
        return f"{remote}{self.kind}({self.index})"

    # ---- what it says of itself: None where it does not say, or is not there ----

    @property
    def exist(self) -> bool:
        """Whether it can be used. All numbers of CPUs mean the one: its cores are one device."""
        return self.kind == "cpu" and not self.session

    @property
    def device_name(self) -> str | None:
        """The processor's name."""
        return _processor_fact("model name") or platform.processor() or platform.machine() if self.exist else None

    @property
    def multi_processor_count(self) -> int | None:
        """The CPUs that this process may use."""
        return cpu_count() if self.exist else None

    @property
    def max_clock_rate(self) -> int | None:
        """Kilohertz: the most that the system lets the first CPU have, else what it has now."""
        if not self.exist:
            return None
        with contextlib.suppress(OSError, ValueError):
            return int(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").read_text())
        with contextlib.suppress(ValueError):
            return int(float(_processor_fact("cpu MHz") or "") * 1000)
        return None

    @property
    def l2_cache_size_bytes(self) -> int | None:
        if not self.exist:
            return None
        with contextlib.suppress(OSError, ValueError):
            return int(Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip().rstrip("K")) << 10
        return self._system("SC_LEVEL2_CACHE_SIZE") or None

    @property
    def total_global_memory(self) -> int | None:
        """Bytes of the machine's memory, or fewer if the process's control groups may have no more."""
        sizes = self._memory("SC_PHYS_PAGES"), memory_limit()
        return min((size for size in sizes if size is not None), default=None) if self.exist else None

    @property
    def available_global_memory(self) -> int | None:
        """Bytes of it that nobody uses, and that the process's control groups may still have."""
        sizes = self._memory("SC_AVPHYS_PAGES"), memory_left()
        return min((size for size in sizes if size is not None), default=None) if self.exist else None

    max_threads_per_block = warp_size = max_shared_memory_per_block = max_thread_dimensions = compute_version = None
    api_version = driver_version = None

    def texture_spatial_limit(self) -> None:
        """None: a CPU has no textures."""

    def _memory(self, pages: str) -> int | None:
        count, size = self._system(pages), self._system("SC_PAGE_SIZE")
        return None if count is None or size is None else count * size

    def _system(self, name: str) -> int | None:
        with contextlib.suppress(AttributeError, ValueError, OSError):  # not on this system
            return os.sysconf(name) if self.exist else None
        return None

    # ---- streams: calls are over when they return, so there is one, which has no handle ----

    def create_raw_stream(self) -> None:
        """A stream of work: None, the only one. Raises ExecutionError where the device does not exist."""
        self._require()

    def free_raw_stream(self, stream: None) -> None:
        """Gives a stream up."""
        self._require_stream(stream)

    def set_raw_stream(self, stream: None) -> None:
        """Makes a stream the one that work goes to."""
        self._require_stream(stream)

    def sync(self, stream: None = None) -> None:
        """Returns when all work is done, which it is."""
        self._require_stream(stream)

    def _require_stream(self, stream: object) -> None:
        self._require()
        if stream is not None:
            raise ArgumentError(f"{self!r} has no stream {stream!r}; create_raw_stream() gives the one that it has")

    def _require(self) -> None:
        if not self.exist:
            raise ExecutionError(f"{self!r} does not exist here; there is cpu(0)")


_CPU = Device("cpu")


@public
def cpu(index: int = 0) -> Device:
    """The CPU. Raises ArgumentError for an index but 0: all cores are one device."""
    if not isinstance(index, int) or index != 0:
        raise ArgumentError(f"cpu({index}): there is one CPU device, cpu(0); threads share its cores")
    return _CPU


def device(text: str | int, index: int = 0) -> Device:
    """The device that "cuda", "cuda:1" or a target's text such as "llvm -mcpu=core-avx2" names, or DLPack's code of a kind.

    A number in the text wins over `index`. Raises FormatError, a ValueError, for other text, ArgumentError.
    """
    if not isinstance(index, int):
        raise DeviceNumberError(f"Invalid device id: {index!r}; expected a number from 0 on")
    if isinstance(text, int):
        return Device(text, index)  # type: ignore[arg-type]
    if not isinstance(text, str):
        raise ArgumentError(f"device({text!r}): expected the name of a kind of device, or its code")
    name, *numbers = (text.split() or [""])[0].split(":")
    if len(numbers) > 1:
        raise FormatError(f"Invalid device string: {text!r}; expected a kind and at most one number, as cuda:1")
    if numbers and not numbers[0].isdecimal():
        raise FormatError(f"Invalid device id: {numbers[0]!r} in {text!r}; expected a number from 0 on")
    return Device(_ALIASES.get(name, name), int(numbers[0]) if numbers else index)


def _processor_fact(name: str) -> str | None:
    """A fact about the first processor, from Linux."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return None
