"""The memory of an interpreted kernel: tensors, scratch memory and words, each at an address of its own, every access checked.

Memory remembers of each byte whether it has been written, and, where parts share it, which part wrote and which parts read
it: an access out of bounds, a value made of memory that nobody wrote, and a race between parts are found where they happen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ....formats.messages.errors import ExecutionError

_WINDOW = (
    40  # bits of the addresses that belong to one region: what runs out of it by less than 2^39 bytes is still named
)
MOST_ALIGNMENT = 4  # bytes; tensors from outside are aligned to no more, whatever their elements

# Of a byte: what it holds. Other numbers are the line that wrote there what is made of memory that nobody wrote
DEFINED, UNWRITTEN = 0, -1

# The writer or reader of a byte, besides the parts, which count from 0
NOBODY, SEVERAL = -1, -2


class KernelFaultError(ExecutionError):
    """A kernel's text breaks the convention of `kernels/kernel.py`: it leaves its memory, uses what nobody wrote, races,
    or does not end. `kernel`, `line`, `text`, `part` say where, `variables` what the line's variables hold, `reason` what."""

    def __init__(
        self, reason: str, *, kernel: str, line: int, text: str, part: str, variables: Mapping[str, str]
    ) -> None:
        self.reason, self.kernel, self.line, self.text, self.part = reason, kernel, line, text, part
        self.variables = dict(variables)
        values = ", ".join(f"{name} = {value}" for name, value in self.variables.items())
        where = f"kernel {kernel!r}" + (f", line {line}" if line else "") + (f", part {part}" if part else "")
        shown = f"\n    {line}: {text}" if line else ""
        super().__init__(f"{where}: {reason}{shown}" + (f"\n    where {values}" if values else ""))

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        places = {name: getattr(self, name) for name in ("kernel", "line", "text", "part", "variables")}
        return partial(type(self), **places), (self.reason,)


class Fault(Exception):
    """A fault of an operation; the interpreter adds the place."""


class Region:
    """One array of bytes at `base`. Bytes before `writable` cannot be written; of those from `undefined` on it is noted what
    nobody has written. `shared`: parts must not race for it."""

    def __init__(self, name: str, base: int, data: np.ndarray, *, writable: int, undefined: int, shared: bool) -> None:
        self.name, self.base, self.data, self.size, self.writable = name, base, data, len(data), writable
        self.state: np.ndarray | None = None
        if undefined < self.size:
            self.state = np.zeros(self.size, np.int32)
            self.state[undefined:] = UNWRITTEN
        self.writer = np.full(self.size, NOBODY, np.int32) if shared else None
        self.reader = np.full(self.size, NOBODY, np.int32) if shared else None

    def __str__(self) -> str:
        return f"{self.name} of {self.size} bytes"


class Memory:
    """All regions of a call. `part` is the part that runs, NOBODY while the kernel is asked for the number of parts."""

    def __init__(self) -> None:
        self.regions: dict[int, Region] = {}
        self.part = NOBODY
        self.races = False  # whether there are several parts
        self.is_streaming = False  # whether a part has streamed and not waited for it
        self.amx: Any = None  # registers of AMX between amx_begin and amx_end
        self.line: Callable[[], int] = lambda: 1  # which line of the text is executed

    def add(
        self,
        name: str,
        data: np.ndarray,
        *,
        offset: int = 0,
        writable: int | None = None,
        undefined: int | None = None,
        shared: bool = False,
    ) -> Region:
        """A region of these bytes, `offset` bytes after a multiple of 4096. By default nothing is writable, and all defined."""
        number = len(self.regions) + 1
        base = (number << _WINDOW) + (1 << (_WINDOW - 1)) + offset
        region = Region(
            name,
            base,
            data,
            writable=len(data) if writable is None else writable,
            undefined=len(data) if undefined is None else undefined,
            shared=shared,
        )
        self.regions[base >> _WINDOW] = region
        return region

    def named(self, address: int) -> str:
        """An address as people read it; a number that is none as it is."""
        region = self.regions.get(address >> _WINDOW)
        if region is None or not -(1 << 30) < address - region.base < 1 << 38:
            return str(address)
        return f"{region.name} {address - region.base:+d}"

    def _place(self, address: int, size: int, alignment: int, verb: str) -> tuple[Region, int]:
        region = self.regions.get(address >> _WINDOW)
        if region is None:
            raise Fault(f"{verb} {size} bytes at address {address}, where there is no memory")
        start = address - region.base
        if start < 0 or start + size > region.size:
            raise Fault(f"{verb} {size} bytes at byte {start} of {region}")
        if address % alignment:
            raise Fault(f"{verb} at byte {start} of {region}, which is not at a multiple of {alignment}")
        return region, start

    def read(self, address: int, size: int, alignment: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The bytes there; and the states of these bytes, unless all are defined."""
        region, start = self._place(address, size, alignment, "reads")
        end = start + size
        if self.races and region.writer is not None:
            self._note_read(region, start, end)
        state = None
        if region.state is not None:
            state = region.state[start:end]
            if not np.count_nonzero(state):
                state = None
        return region.data[start:end], state

    def write(self, address: int, data: np.ndarray, alignment: int, undefined: np.ndarray | None = None) -> None:
        """Writes bytes there, of which those where `undefined` is set are made of what nobody wrote."""
        size = len(data)
        region, start = self._place(address, size, alignment, "writes")
        end = start + size
        if start < region.writable:
            raise Fault(f"writes {size} bytes at byte {start} of {region}, which cannot be written")
        if self.part == NOBODY and region.writable == 0:
            raise Fault(f"writes to {region.name} while it is asked for the number of parts")
        if region.writer is not None:
            self._note_write(region, start, end)
        region.data[start:end] = data
        if region.state is not None:
            region.state[start:end] = DEFINED if undefined is None else undefined * np.int32(self.line())

    def look(self, base: int, offsets: np.ndarray, size: int, alignment: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The elements of `size` bytes at these offsets from an address, one a row; and which of them are undefined."""
        region = self.regions.get(base >> _WINDOW)
        if region is None:
            raise Fault(f"gathers from address {base}, where there is no memory")
        starts = offsets + (base - region.base)
        beyond = (starts < 0) | (starts + size > region.size)
        if np.count_nonzero(beyond):
            lane = int(beyond.argmax())
            raise Fault(
                f"gathers {size} bytes at byte {int(starts[lane])} of {region}, for place {lane} of those asked for"
            )
        if base % alignment:
            raise Fault(f"gathers at byte {base - region.base} of {region}, which is not at a multiple of {alignment}")
        places = starts[:, None] + np.arange(size)
        if self.races and region.writer is not None:
            for start in starts.tolist():
                self._note_read(region, start, start + size)
        state = None if region.state is None else region.state[places].astype(np.bool_).max(1)
        return region.data[places], state

    # ---- races ----

    @contextlib.contextmanager
    def synchronised(self) -> Iterator[None]:
        """An access that other parts may make at the same time."""
        before, self.races = self.races, False
        yield
        self.races = before

    def _note_read(self, region: Region, start: int, end: int) -> None:
        assert region.writer is not None
        assert region.reader is not None
        writer, reader = region.writer[start:end], region.reader[start:end]
        self._check(region, start, writer, "reads", "wrote")
        if self.part != NOBODY:
            reader[(reader != NOBODY) & (reader != self.part)] = SEVERAL
            reader[reader == NOBODY] = self.part

    def _note_write(self, region: Region, start: int, end: int) -> None:
        assert region.writer is not None
        assert region.reader is not None
        if self.races:
            self._check(region, start, region.writer[start:end], "writes", "wrote")
            self._check(region, start, region.reader[start:end], "writes", "read")
        region.writer[start:end] = self.part

    def _check(self, region: Region, start: int, others: np.ndarray, verb: str, did: str) -> None:
        conflict = (others != NOBODY) & (others != self.part)
        if not np.count_nonzero(conflict):
            return
        at = int(conflict.argmax())
        other = "several parts" if others[at] == SEVERAL else f"part {others[at]}"
        raise Fault(f"a race: it {verb} byte {start + at} of {region}, which {other} {did}")
