"""Devices: where tensors live and kernels run. Today the one CPU."""

from __future__ import annotations

from dataclasses import dataclass

from ..formats.errors import ArgumentError


@dataclass(frozen=True)
class Device:
    """A device: its kind, and a number among those of its kind."""

    kind: str
    index: int = 0

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's (device type, device id)."""
        return _DLPACK_TYPES[self.kind], self.index

    def __repr__(self) -> str:
        return f"{self.kind}({self.index})"


_DLPACK_TYPES = {"cpu": 1}


def cpu(index: int = 0) -> Device:
    """The CPU. Raises ArgumentError for an index but 0: all cores are one device."""
    if index != 0:
        raise ArgumentError(f"cpu({index}): there is one CPU device, cpu(0); threads share its cores")
    return Device("cpu")
