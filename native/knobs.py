"""Every environment variable that Treadle reads, declared once; `treadle knobs` lists them.

A knob is read when it is asked for, so a program (or a test) may change the environment at any time before that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..formats.messages.errors import TreadleError


@dataclass(frozen=True)
class Knob:
    name: str
    default: Any
    parse: Callable[[str], Any]
    doc: str

    def get(self) -> Any:
        """The value in the environment, else the default. Raises TreadleError for text that does not parse."""
        text = os.environ.get(self.name)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise TreadleError(f"environment variable {self.name}={text!r}: {error}; it is: {self.doc}") from None


def _kernels(text: str) -> str:
    if text not in ("build", "cached"):
        raise ValueError("build or cached is expected")
    return text


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("a number from 1 on is expected")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("a whole number from 0 on is expected")
    return int(text)


def _bytes(text: str) -> int:
    number, unit = (text[:-1], text[-1:].upper()) if text[-1:].isalpha() else (text, "")
    if unit not in _UNITS or not number.isdecimal() or not int(number):
        raise ValueError("a number of bytes from 1 on is expected, or one of units, as 500M or 2G")
    return int(number) * _UNITS[unit]


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise ValueError("a number of seconds is expected, 0 or more")
    return number


# fmt: off
KNOBS: dict[str, Knob] = {knob.name: knob for knob in (
    Knob("TREADLE_CACHE", None, str, "folder of the kernel cache; 'off' for none (default: the user's cache folder)"),
    # the kernels of some three hundred networks at a few MB each
    Knob("TREADLE_CACHE_SIZE", 1 << 30, _bytes, "bytes that the kernel cache may take, such as 500M or 2G (default: 1G)"),
    Knob("TREADLE_NUM_THREADS", None, _count, "threads that one call may use (default: the CPUs of this process)"),
    Knob("TREADLE_TARGET", None, str, "CPU to generate code for, NAME or NAME:+feature,-feature (default: this one)"),
    Knob("TREADLE_KERNELS", "build", _kernels, "in ONNX conformance runs: build what the cache lacks, or cached: evaluate it"),
    Knob("TREADLE_MAX_BUILD_SECONDS", 1800.0, _seconds, "seconds that a machine may build kernels for (default: 1800)"),
    Knob("TREADLE_SEED", None, _seed, "seed of random operators that have none in the model (default: another one in each call)"),
    Knob("TREADLE_JOBS", None, _count, "processes that build kernels (default: the CPUs of this process)"),
)}
# fmt: on


def get(name: str) -> Any:
    """The value of the knob of that name."""
    return KNOBS[name].get()
