"""Snapshots: the state of a running call, kept in Python's memory, from which it goes on again.

A primitive writes only into tensors of registers that were never given away (`vm/verify/flow.py`). So a snapshot copies the
elements of those that registers lead to, and takes one more reference to data values and closures, which nobody writes.
"""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple, Union

from ...formats.dtypes import DType
from ...formats.messages.errors import OutOfMemoryError
from ..context import Context
from ..convert import release
from ..core import engine
from ..layout import CONTEXT, FRAME, FRAME_HEAD, FUNCTION, KIND, OBJECT, OBJECT_HEAD, WORD
from ..memory import set_word, word, words
from ..places import callers


class _Own(NamedTuple):
    """A tensor with elements of its own, or a storage."""

    kind: int
    dtype: int
    shape: tuple[int, ...]
    elements: bytes


class _View(NamedTuple):
    """A tensor whose elements are elsewhere."""

    dtype: int
    shape: tuple[int, ...]
    data: _Address
    owner: int  # as in `_Register`


class _Address(NamedTuple):
    """An address: `offset` bytes in the memory of a frame, or in an object; or, with neither, what it is itself."""

    frame: int
    thing: int
    offset: int


class _Register(NamedTuple):
    """A reference register: `thing` is the number of an object that the snapshot has copied, or -1, and `reference` stands."""

    data: _Address
    thing: int
    reference: int


class _Frame(NamedTuple):
    top: int  # bytes from the start of the stack
    head: tuple[int, ...]  # the words of FRAME
    registers: tuple[_Register, ...]
    integers: tuple[int, ...]
    memory: bytes


_Thing = Union[_Own, _View]


def frames_of(context: Context) -> list[int]:
    """Where the frames of a running call are, in bytes from the start of the stack: the outermost first."""
    frame = context.words[CONTEXT.FRAME]
    return [frame, *(at for at, _ in callers(context, frame))][::-1] if frame >= 0 else []


class Snapshot:
    """The state of a call between two instructions. `drop` it while its context lives."""

    def __init__(self, context: Context) -> None:
        self._held: list[int] = []  # references to what is shared with the call
        self._things: list[_Thing] = []
        self._addresses: list[int] = []  # of the things
        self._numbers: dict[int, int] = {}  # of the things, by their addresses
        self._pc = context.words[CONTEXT.PC]
        self._memories: list[tuple[int, int]] = []  # of the frames: address, bytes
        frames = frames_of(context)
        for at in frames:
            frame = context.words[CONTEXT.STACK] + at
            self._memories.append((word(frame, FRAME.MEMORY), word(word(frame, FRAME.FUNCTION), FUNCTION.MEMORY)))
        self._frames = [self._frame(context, at, number) for number, at in enumerate(frames)]
        del self._addresses, self._numbers, self._memories
        things = sum(len(thing.elements) for thing in self._things if isinstance(thing, _Own))
        self.nbytes = things + sum(len(frame.memory) + 64 * len(frame.registers) for frame in self._frames)

    # ---- taking ----

    def _frame(self, context: Context, at: int, number: int) -> _Frame:
        frame, (memory, size) = context.words[CONTEXT.STACK] + at, self._memories[number]
        refs, ints = context.registers(at)
        function = word(frame, FRAME.FUNCTION)
        count = word(function, FUNCTION.REFERENCES)
        ints_count = (word(function, FUNCTION.FRAME_SIZE) - FRAME_HEAD) // WORD - 2 * count
        pairs = words(refs, 2 * count)
        registers = tuple(self._register(pairs[k], pairs[k + 1]) for k in range(0, 2 * count, 2))
        elements = ctypes.string_at(memory, size) if size else b""
        return _Frame(at, words(frame, FRAME.WORDS), registers, words(ints, ints_count), elements)

    def _register(self, data: int, reference: int) -> _Register:
        if reference == 0 or reference & 1:
            return _Register(self._address(data, -1), -1, reference)
        if word(reference, OBJECT.KIND) in (KIND.TENSOR, KIND.STORAGE):
            thing = self._thing(reference)
            return _Register(self._address(data, thing), thing, 0)
        self._hold(reference)
        return _Register(_Address(-1, -1, data), -1, reference)

    def _hold(self, reference: int) -> None:
        engine().retain_reference(reference)
        self._held.append(reference)

    def _thing(self, address: int) -> int:
        """The number of the copy of a counted tensor or storage."""
        known = self._numbers.get(address)
        if known is not None:
            return known
        header = words(address, OBJECT.ITEMS)
        data, owner = header[OBJECT.DATA], header[OBJECT.OWNER]
        if header[OBJECT.KIND] == KIND.STORAGE:
            size = word(address, OBJECT.ITEMS)
            made: _Thing = _Own(KIND.STORAGE, 0, (size,), ctypes.string_at(data, size))
        else:
            shape = words(address + OBJECT_HEAD, header[OBJECT.COUNT])
            size = _bytes_of(header[OBJECT.TAG], shape)
            if owner == 0 and address <= data < address + header[OBJECT.SIZE]:
                made = _Own(KIND.TENSOR, header[OBJECT.TAG], shape, ctypes.string_at(data, size))
            else:
                holder = self._thing(owner) if owner and not owner & 1 else -1
                made = _View(header[OBJECT.TAG], shape, self._address(data, holder), holder if holder >= 0 else ~owner)
        self._numbers[address] = len(self._things)
        self._things.append(made)
        self._addresses.append(address)
        return self._numbers[address]

    def _address(self, data: int, thing: int) -> _Address:
        """`data` is in the thing of that number, if it is one with elements of its own; in a frame's memory; or elsewhere."""
        holder = self._holder(thing)
        if holder >= 0:
            return _Address(-1, holder, data - word(self._addresses[holder], OBJECT.DATA))
        for number, (memory, size) in enumerate(self._memories):
            if memory <= data < memory + size:
                return _Address(number, -1, data - memory)
        return _Address(-1, -1, data)

    def _holder(self, thing: int) -> int:
        """The number of what holds a thing's elements, -1 for memory that is no object's."""
        while thing >= 0 and isinstance(found := self._things[thing], _View):
            thing = found.owner if found.owner >= 0 else -1
        return thing

    # ---- giving back ----

    def restore(self, context: Context) -> None:
        """The call goes on from here. Raises OutOfMemoryError."""
        core = engine()
        context.unwind()
        memories: list[int] = []
        made: dict[int, int] = {}  # addresses by number
        fresh: set[int] = set()  # whose first reference nobody has yet
        for frame in self._frames:
            head = frame.head
            address = _checked(
                core.push(
                    context.address,
                    frame.top,
                    head[FRAME.FUNCTION],
                    head[FRAME.CALLER],
                    head[FRAME.RETURN],
                    head[FRAME.TARGET],
                )
            )
            context.words[CONTEXT.FRAME] = frame.top
            memory = word(address, FRAME.MEMORY)
            memories.append(memory)
            if frame.memory:
                ctypes.memmove(memory, frame.memory, len(frame.memory))
            refs, ints = context.registers(frame.top)
            for k, register in enumerate(frame.registers):
                reference = register.reference
                if register.thing >= 0:
                    reference = self._make(context, register.thing, made, fresh, memories)
                    if reference in fresh:
                        fresh.discard(reference)
                    else:
                        core.retain_reference(reference)
                elif reference:
                    core.retain_reference(reference)
                set_word(refs, 2 * k, _found(register.data, made, memories))
                set_word(refs, 2 * k + 1, reference)
            for k, value in enumerate(frame.integers):
                set_word(ints, k, value)
        for reference in fresh:  # owners that no register holds itself
            release(context, reference)
        context.words[CONTEXT.PC] = self._pc

    def _make(self, context: Context, number: int, made: dict[int, int], fresh: set[int], memories: list[int]) -> int:
        if number in made:
            return made[number]
        core, thing = engine(), self._things[number]
        if isinstance(thing, _Own):
            if thing.kind == KIND.STORAGE:
                address = _checked(core.new_storage(context.address, thing.shape[0]))
            else:
                address = _checked(core.new_tensor(context.address, thing.dtype, len(thing.shape), len(thing.elements)))
                _set_shape(address, thing.shape)
            ctypes.memmove(word(address, OBJECT.DATA), thing.elements, len(thing.elements))
        else:
            owner = ~thing.owner
            if thing.owner >= 0:
                owner = self._make(context, thing.owner, made, fresh, memories)
                core.retain_reference(owner)
            data = _found(thing.data, made, memories)
            address = _checked(core.new_view(context.address, thing.dtype, len(thing.shape), data, owner))
            _set_shape(address, thing.shape)
        made[number] = address
        fresh.add(address)
        return address

    def drop(self, context: Context) -> None:
        """Gives up what the snapshot shares with the call."""
        for reference in self._held:
            release(context, reference)
        self._held.clear()


def _checked(address: int) -> int:
    if address < 0:
        raise OutOfMemoryError("the system has no memory for a state of the call to go back to")
    return address


def _set_shape(address: int, shape: tuple[int, ...]) -> None:
    for axis, size in enumerate(shape):
        set_word(address, OBJECT.ITEMS + axis, size)


def _found(at: _Address, made: dict[int, int], memories: list[int]) -> int:
    if at.thing >= 0:
        return word(made[at.thing], OBJECT.DATA) + at.offset
    return memories[at.frame] + at.offset if at.frame >= 0 else at.offset


def _bytes_of(dtype: int, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * DType.from_code(dtype).itemsize
