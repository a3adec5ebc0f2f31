"""What an attack is: a variant of what is done, and of what it may take; and what all attacks need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..... import Executable, VirtualMachine, compile

MB = 1 << 20
COMPILING = 5.0  # seconds: nobody promises that other threads go on meanwhile


class Broken(Exception):
    """A promise that does not hold."""


@dataclass(frozen=True)
class Variant:
    """What is done; texts that it gives are printed somewhere. Seconds are of the processor."""

    act: Callable[[], object]
    seconds: float = 5.0
    memory: int = 256 * MB
    pause: float = 0.1  # seconds that another thread may have to wait


def want(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def dropped(act: Callable[[], object]) -> Callable[[], None]:
    """Does it, and lets go of what it gives."""

    def do() -> None:
        act()

    return do


def texts_of(*values: str) -> np.ndarray:
    return np.array(values, object)


def machine_of(source: Any, **bounds: Any) -> VirtualMachine:
    """Of a program or model; nothing is built for it."""
    executable = source if isinstance(source, Executable) else compile(source, embed_native=False, progress=False)
    return VirtualMachine(executable, kernels="cached", **bounds)
