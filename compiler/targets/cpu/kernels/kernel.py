"""Kernels, and the convention by which the machine calls them.

A kernel is generated as the text of a readable Python function, compiled by Numba:

    kernel(args, scratch, part, parts) -> int

    args      address of int64 words: [0] the address of the kernel's static words, [1…] the addresses of the inputs'
              elements, then of the outputs', then the values of the definition's dimension variables. Tensors are
              C-contiguous and aligned to 4 bytes at least (inputs from outside, results) or 64 (all others). After
              these come the call's NOTE_WORDS notes, which the kernel writes when it is asked for the number of parts
              and all parts share
    scratch   address of `scratch_bytes` bytes, aligned to 64, that this call alone uses. With several parts,
              scratch[0] is -1 for a thread's first part, then kept between its parts
    part      this call does part `part` of `parts` of the work, 0 <= part < parts; parts may run at the same time. All parts
              together write every output element, each in one part alone, which may keep intermediate values
              there; the result is bitwise the same for any number of parts.
              Before the arguments, at args[-1], is the call's stop word. If it is not 0, the call must end: the kernel
              returns STOPPED soon, with outputs in any state (`toolchain/translate.py` has loops check it)
    returns   0, or a code of `vm/failures.py`: an error that depends on the elements, such as an index out of range

    kernel(args, 0, -1, threads) does no work, may write notes, and returns into how many parts to split this call on `threads`
    threads: 1 when it is too small to gain, else usually a small multiple of `threads`.

`compiler/targets/emulated/` runs a text with all of this checked.

Kernels that differ only in sizes should have the same text: what differs goes into the static words. The text is the
identity of the native code, so it must be a function of the definition and the target alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....formats import limits
from .....formats.messages.errors import CompileError
from .. import costs

_WORD = 1 << 63


class Unsupported(Exception):
    """A definition with numbers that no kernel supports: the reference evaluates it."""


class TooLargeError(CompileError):
    """A template would write more than a kernel may have; the definition has no native code then."""


def require_few(count: int, most: int, what: str) -> None:
    """Checks that `count`, of what a template unrolls, is at most `most`. Raises TooLargeError."""
    if count > most:
        raise TooLargeError(f"a kernel would have {count} {what} written out; at most {most} are")


UNFIT = 4  # the code of a kernel whose sizes do not fit each other


@dataclass(frozen=True)
class Kernel:
    """The result of lowering a primitive: a source, and the values that particular sizes add."""

    source: str  # defines `kernel`; its global names are those of `vectors/simd.py`'s namespace(lanes)
    lanes: int  # of every vector in `source`
    words: tuple[int, ...] = ()  # static words, int64
    scratch_bytes: int = 0
    nanoseconds: int = 1000  # estimated, one thread; symbolic dimensions taken as 64
    description: str = ""  # one line: the template, the tile

    def __post_init__(self) -> None:
        if len(self.words) > limits.KERNEL_WORDS or any(not -_WORD <= word < _WORD for word in self.words):
            raise TooLargeError(f"a kernel has at most {limits.KERNEL_WORDS} static words, of 64 bits each")
        if not 0 <= self.scratch_bytes <= limits.SCRATCH_BYTES:
            raise TooLargeError(f"a kernel with {self.scratch_bytes} bytes of scratch memory")
        if self.nanoseconds >= _WORD:
            object.__setattr__(self, "nanoseconds", _WORD - 1)


def even_pieces(length: int, least: int, others: int) -> int:
    """The number of pieces, at least `least`, each of `others` units of work: if these would be
    few, the fewest pieces that two threads and four share evenly."""
    if min(length, others) < 1 or least * others >= costs.MANY_UNITS:
        return least

    def unevenness(pieces: int) -> float:
        size = math.ceil(length / pieces)
        units = math.ceil(length / size) * others
        return max(math.ceil(units / threads) * threads for threads in (2, 4)) * size / (length * others)

    possible = range(least, max(least, min(length, math.ceil(costs.MANY_UNITS / others))) + 1)
    best = min(map(unevenness, possible))
    return next(pieces for pieces in possible if unevenness(pieces) <= max(costs.UNEVEN_PIECES, best))
