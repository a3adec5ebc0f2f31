"""Contexts: the engine's state of one call, and what Python reads and writes in it."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from ..formats.strings import Texts
from ..native.convention import ARGUMENT_HEAD, STOP_WORD
from ..native.once import kept, once
from . import core, threads
from .image import Image
from .in_process import InProcess
from .layout import CONTEXT, CONTEXT_WORDS, FRAME, FRAME_HEAD, FUNCTION, MAX_THREADS, PYTHON, WORD
from .memory import word
from .observe.parts_log import PartsLog
from .python_layout import python_layout

_Words = ctypes.c_int64 * CONTEXT_WORDS
UNLIMITED = (1 << 63) - 1

SLICE_SECONDS = 0.005  # about so long between two looks at signals, deadlines and cancellation
SLICE_TICKS = 1_250_000  # which this is, unless kernels take longer than their estimates
KEPT_BYTES = 256 << 20  # freed blocks that a context keeps for its next objects

_contexts: weakref.WeakSet[Context] = weakref.WeakSet()
# By address, those of every context that has not settled: the collector empties weak sets before that.
_words: dict[int, Any] = {}
_process = 0  # how many forks lie between the first process and this one


def abandon_contexts() -> None:
    """In a child of fork: contexts stay as calls of other threads left them, in the middle of anything."""
    global _process
    _process += 1


def contexts_of(image: Image) -> list[Context]:
    """Of this process."""
    return [context for context in list(_contexts) if context.image is image and not context.is_abandoned]


class Context(InProcess):
    """The memory of one call at a time. `words` is the context block; the engine owns all else."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.hooked: Any = None  # the HookedCode that the call runs, if any
        self.rounds: Any = None  # the iterations of its loops, while someone observes the call
        self.arguments: Any = None  # arrays that the call reads in place
        self.constants: list[Any] = []  # that were replaced since it began
        self.texts: Texts | None = None  # that the call has met, if any
        self._engine = core.engine()
        self.words = _Words()
        self.address = ctypes.addressof(self.words)
        self.clock: Any = None  # what looks at the bounds of the call, if any
        self.left_behind: Any = None  # the Job of a host operator that may still read the call's tensors
        block = np.zeros(ARGUMENT_HEAD + image.argument_words, np.int64)
        self._arguments, self._head = block[ARGUMENT_HEAD:], block[:ARGUMENT_HEAD]
        self._pins = np.zeros(image.parameter_count, np.int64)
        self._scratch = np.empty(image.scratch_bytes + 64, np.uint8)
        words = self.words
        words[CONTEXT.CODE] = image.code.ctypes.data
        words[CONTEXT.FUNCTIONS] = image.functions.ctypes.data
        words[CONTEXT.PRIMITIVES] = image.primitives.ctypes.data
        words[CONTEXT.CONSTANTS] = image.constants.ctypes.data
        words[CONTEXT.TYPES] = image.type_words.ctypes.data
        words[CONTEXT.PYTHON] = python_layout().address
        python_layout().words[PYTHON.OUTSIDE] = outside().address
        words[CONTEXT.ARGUMENTS] = self._arguments.ctypes.data
        words[CONTEXT.PINS] = self._pins.ctypes.data
        words[CONTEXT.SCRATCH] = -(-self._scratch.ctypes.data // 64) * 64
        words[CONTEXT.FRAME] = words[CONTEXT.RESULT_AT] = -1
        words[CONTEXT.SLICE] = SLICE_TICKS
        words[CONTEXT.POOL] = threads.pool().address
        self._has_workers = False
        self.parts_log: PartsLog | None = None  # while a listener wants to know of parts
        self._process = _process
        _words[self.address] = words
        _contexts.add(self)

    def stop(self) -> None:
        """Has native code return soon, from within kernels too: the call is to end. From any thread."""
        self._head[STOP_WORD] = 1

    def go_on(self) -> None:
        """Takes `stop` back."""
        self._head[STOP_WORD] = 0

    def share_kernels(self, count: int | None) -> None:
        """At most `count` threads share a kernel; None: all of the process. Workers begin when they may be wanted."""
        self.words[CONTEXT.THREADS] = count or MAX_THREADS
        if not self._has_workers and count != 1:
            threads.pool().start()
            self._has_workers = True

    def note_parts(self, is_wanted: bool) -> None:
        """Whether threads note which parts of kernels they do."""
        if is_wanted != (self.parts_log is not None):
            self.parts_log = PartsLog() if is_wanted else None
            self.words[CONTEXT.LOG] = 0 if self.parts_log is None else self.parts_log.address

    def holder(self) -> Texts:
        """The owner of the texts of the call's string tensors."""
        if self.texts is None:
            self.texts = Texts()
        return self.texts

    def set_argument(self, position: int, data: int, reference: int) -> None:
        """Sets register `position` of the function called next."""
        self._arguments[2 * position] = data
        self._arguments[2 * position + 1] = reference

    def registers(self, frame: int | None = None) -> tuple[int, int]:
        """The addresses of a frame's reference and integer registers: of the one `frame` bytes from the start of the stack,
        or of the current one."""
        address = self.words[CONTEXT.STACK] + (self.words[CONTEXT.FRAME] if frame is None else frame)
        refs = address + FRAME_HEAD
        return refs, refs + 2 * WORD * word(word(address, FRAME.FUNCTION), FUNCTION.REFERENCES)

    def unwind(self) -> None:
        """Releases what a call that will not go on has left."""
        self.words[CONTEXT.BUFFER], self.words[CONTEXT.RESULT_AT], self.words[CONTEXT.PLACES] = 0, -1, 0
        self._engine.unwind(self.address)

    @property
    def is_abandoned(self) -> bool:
        """Whether it belongs to a call that a parent process was in the middle of when it forked."""
        return self._process != _process

    def __del__(self) -> None:
        if not hasattr(self, "_process"):
            return
        if not self.is_abandoned:
            self.unwind()  # Ctrl-C may have come between a trap and what follows it
            self._engine.close(self.address)
            self._engine.hand_back(outside().address)
        self._engine.settle(self.address)
        if _words is not None:  # it is where Python ends, whose modules have lost their names by then
            _words.pop(self.address, None)


class _Outside:
    """The context that results are released through, from any thread: it keeps no blocks."""

    def __init__(self) -> None:
        self.words = kept(_Words())  # results may be released when Python ends
        self.words[CONTEXT.MAX_CACHED] = -1
        address, drop = ctypes.addressof(self.words), core.engine().drop
        self.address = address
        self.drop = lambda reference: drop(address, reference)


@once
def outside() -> _Outside:
    return _Outside()


def live_bytes() -> int:
    """Bytes of all objects of all machines in this process that are in use: results that are kept, and running calls. While
    calls begin and end, it may lag behind by what they take or free meanwhile.
    """
    settled = outside().words
    for _ in range(100):
        before = settled[CONTEXT.LIVE]
        live = before + sum([words[CONTEXT.LIVE] for words in list(_words.values())])
        if settled[CONTEXT.LIVE] == before:  # else a context settled, or a result was released, between the two looks
            break
    return max(0, live)
