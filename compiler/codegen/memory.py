"""Memory planning: offsets of a function's tensors, and their release.

A tensor of a static type that never leaves its function gets a place in the frame's memory, at an offset fixed here, so that a
static function allocates nothing while it runs. Two tensors share memory if they are never live at the same time, and an
elementwise primitive or a normalisation writes its output over an input that it is the last to read: data that one thread has
written and another will read then pass between their caches once. Parts of a concatenation are placed in the whole from
the beginning, and parts that are split off stay in place. Everything else is allocated on the heap, and released after its
last use.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...formats import limits
from ...formats.isa import Kind, Role, with_role
from ...formats.messages.errors import CompileError
from ...formats.primitive import PrimitiveDefinition
from ...formats.types import TensorType
from ..operators.table import lookup
from .liveness import Liveness, analyse
from .parts import parts_of
from .spans import Spans, intersection, runs, union
from .virtual import Instruction, Item, Label, Register, VirtualFunction, instruction

# Uses that keep a tensor in the frame's memory; any other lets it escape.
_STAYS = with_role(Role.LOCAL)
_ALIASES = with_role(Role.ALIAS)
_ALLOCATES = with_role(Role.BUFFER)
_GROWS = with_role(Role.GROWS)
_IMMORTAL = with_role(Role.LASTING)  # releasing these gains nothing


@dataclass(frozen=True)
class MemoryReport:
    """The planner's result for one function."""

    function: str
    frame_bytes: int
    unshared_bytes: int  # bytes of the frame if no two tensors shared memory
    in_frame: int  # tensors in the frame's memory
    in_place: int  # tensors written over an input
    on_heap: int  # tensors allocated while the function runs

    def __str__(self) -> str:
        return (
            f"{self.function}: {self.in_frame} tensors in a frame of {self.frame_bytes} bytes"
            f" ({self.unshared_bytes} without sharing), {self.in_place} in place, {self.on_heap} on the heap"
        )


@dataclass(eq=False)
class _Buffer:
    """A tensor's memory: made by the instruction at `position`, seen through several registers."""

    position: int
    register: Register
    aliases: list[Register] = field(default_factory=list)
    lifetime: Spans = ()  # positions; including those of hosted buffers
    private: bool = True  # never seen outside of its function
    in_frame: bool = False
    is_carried: bool = False  # live before it is made: in the next iteration of a loop
    host: _Buffer | None = None  # the buffer that contains this one
    start: int = 0  # there, in bytes
    offset: int = 0  # of a buffer that is its own root

    @property
    def type(self) -> TensorType:
        assert isinstance(self.register.type, TensorType)
        return self.register.type

    @property
    def root(self) -> _Buffer:
        """The buffer that hosts this one's host, and so on. Becomes this one's host, too (path compression)."""
        guests: list[_Buffer] = []
        root = self
        while root.host is not None:
            guests.append(root)
            root = root.host
        for guest in reversed(guests[:-1]):
            guest.start += guest.host.start  # type: ignore[union-attr]
            guest.host = root
        return root

    @property
    def place(self) -> int:
        """The offset in the root's memory."""
        return 0 if self.root is self else self.start

    @cached_property
    def size(self) -> int:
        """Bytes in the frame."""
        return -(-self.type.nbytes // limits.ALIGNMENT) * limits.ALIGNMENT


def plan(function: VirtualFunction, definition_of: Callable[[int], PrimitiveDefinition]) -> MemoryReport:
    """Rewrites the allocations of `function` and adds its `kill`s. `definition_of` gives a primitive by its index.

    Raises CompileError for tensors that together are larger than any frame.
    """
    liveness = analyse(function)
    buffers, sources = _find_buffers(function, liveness)
    _put_together(function, sources, definition_of)
    in_place = _write_in_place(function, liveness, sources, definition_of)
    framed = [buffer for buffer in buffers if buffer.in_frame]
    frame_bytes = _place([buffer for buffer in framed if buffer.host is None])
    if frame_bytes > limits.FRAME_BYTES:
        largest = max(framed, key=lambda buffer: buffer.type.nbytes)
        raise CompileError(
            f"the tensors of a call take {frame_bytes} bytes, but {limits.FRAME_BYTES} at most are possible; the largest is "
            f"{largest.type}",
            function=function.name,
            node=function.items[largest.position].origin or None,  # type: ignore[union-attr]
        )
    for buffer in framed:
        allocation = function.items[buffer.position]
        assert isinstance(allocation, Instruction)
        dst, type_ = allocation.operand("dst"), allocation.operand("type")
        place = buffer.root.offset + buffer.place
        function.items[buffer.position] = instruction("frame_tensor", dst, type_, place, origin=allocation.origin)
    _insert_kills(function)
    return MemoryReport(
        function.name,
        frame_bytes,
        sum(buffer.size for buffer in framed),
        len(framed),
        in_place,
        sum(isinstance(item, Instruction) and item.name in _ALLOCATES for item in function.items),
    )


# ---- buffers: allocations, their registers, and their lifetimes ----


def _find_buffers(function: VirtualFunction, liveness: Liveness) -> tuple[list[_Buffer], dict[Register, set[_Buffer]]]:
    """The buffers, and for each register those that it may hold (except values made elsewhere)."""
    buffers: list[_Buffer] = []
    sources: dict[Register, set[_Buffer]] = {}
    moves: list[tuple[Register, Register]] = []
    foreign = set(function.params)
    escaped: set[Register] = set()
    for position, item in enumerate(function.items):
        if isinstance(item, Label):
            continue
        refs = [register for register in item.writes() if register.kind is Kind.REF]
        if item.name in _ALLOCATES:
            buffers.append(_Buffer(position, refs[0]))
            sources.setdefault(refs[0], set()).add(buffers[-1])
        elif item.name in _ALIASES:
            moves += [(target, source) for target in refs for source in item.reads() if source.kind is Kind.REF]
        else:
            foreign.update(refs)
        if item.name not in _STAYS:
            escaped.update(item.reads())
    _spread(sources, moves, foreign)
    for register, held in sources.items():
        for buffer in held:
            buffer.aliases.append(register)
            buffer.lifetime = union(buffer.lifetime, liveness.positions[register.serial])
            buffer.private &= register not in escaped
    for buffer in buffers:
        # one that is still visible when it is made again (a loop's variable) needs new memory in each iteration
        carried = any(liveness.is_wanted(register, buffer.position) for register in buffer.aliases)
        buffer.in_frame = buffer.private and buffer.type.is_static and not carried
        buffer.is_carried = buffer.lifetime[0] < buffer.position
    for register in foreign:
        sources.pop(register, None)
    return buffers, sources


def _spread(
    sources: dict[Register, set[_Buffer]], moves: list[tuple[Register, Register]], foreign: set[Register]
) -> None:
    """Propagates buffers (and foreignness) along moves to a fixed point."""
    changed = True
    while changed:
        changed = False
        for target, source in moves:
            held = sources.get(source, set())
            if not held <= sources.get(target, set()):
                sources.setdefault(target, set()).update(held)
                changed = True
            if source in foreign and target not in foreign:
                foreign.add(target)
                changed = True


# ---- parts of tensors ----


def _put_together(
    function: VirtualFunction,
    sources: dict[Register, set[_Buffer]],
    definition_of: Callable[[int], PrimitiveDefinition],
) -> None:
    """Places parts in the wholes that they are joined to or split off.

    From the last primitive to the first: of tensors that grow by joins, the last holds all others. All parts of a root share
    its elements, so it needs its memory for as long as any of them is live.
    """
    for item in reversed(function.items):
        if not isinstance(item, Instruction) or item.name != "call":
            continue
        found = parts_of(definition_of(item.operand("prim")))  # type: ignore[arg-type]
        if found is None:
            continue
        inputs, outputs = item.registers("inputs"), item.registers("outputs")
        wholes, parts = (outputs, inputs) if found.is_join else (inputs, outputs)
        whole = _movable(sources, wholes[0])
        if whole is None:
            continue
        places = [(_movable(sources, part), start) for part, start in zip(parts, found.starts, strict=True)]
        if not _lies_among(whole, places):
            _take_in(whole, places)


def _movable(sources: dict[Register, set[_Buffer]], register: Register) -> _Buffer | None:
    """The buffer that a register always holds, if it is in the frame and made before all uses."""
    held = sources.get(register, set())
    (buffer,) = held if len(held) == 1 else (None,)
    return buffer if buffer is not None and buffer.in_frame and not buffer.is_carried else None


_Places = Sequence[tuple["_Buffer | None", int]]


def _lies_among(whole: _Buffer, places: _Places) -> bool:
    """Places the whole where all of its parts are adjacent already. False if they are not."""
    first, start = places[0]
    if first is None or first.host is None or whole.host is not None or first.root is whole:
        return False
    root, place = first.root, first.place - start
    if sum(part.type.nbytes for part, _ in places if part is not None) != whole.type.nbytes:
        return False
    if any(part is None or part.root is not root or part.place != place + start for part, start in places):
        return False
    _lay(whole, root, place)
    return True


def _take_in(whole: _Buffer, places: _Places) -> None:
    """Places those parts in the whole that have no other host."""
    for part, start in places:
        if part is not None and part.host is None and part is not whole.root:
            _lay(part, whole, start)


def _lay(buffer: _Buffer, host: _Buffer, start: int) -> None:
    buffer.host, buffer.start = host, start
    host.root.lifetime = union(host.root.lifetime, buffer.lifetime)


# ---- writing in place ----


def _write_in_place(
    function: VirtualFunction,
    liveness: Liveness,
    sources: dict[Register, set[_Buffer]],
    definition_of: Callable[[int], PrimitiveDefinition],
) -> int:
    """Lets outputs take the memory of inputs that die there, where the primitive allows it. Returns how many."""
    count = 0
    for position, item in enumerate(function.items):
        if not isinstance(item, Instruction) or item.name != "call":
            continue
        for index, place in _possible_places(definition_of(item.operand("prim"))):  # type: ignore[arg-type]
            inputs, outputs = item.registers("inputs"), item.registers("outputs")
            source, target = inputs[index], outputs[place]
            old, new = sources.get(source, set()), sources.get(target, set())
            if len(old) != 1 or len(new) != 1 or _is_read_twice(inputs, index, next(iter(old)), sources):
                continue
            count += _take_over(function, liveness, position, next(iter(old)), next(iter(new)), source)
    return count


def _is_read_twice(
    inputs: Sequence[Register], index: int, buffer: _Buffer, sources: dict[Register, set[_Buffer]]
) -> bool:
    """Whether another input aliases it: the primitive may read that in another order."""
    others = (held for i, register in enumerate(inputs) if i != index for held in sources.get(register, ()))
    return any(held.root is buffer.root for held in others)


def _possible_places(definition: PrimitiveDefinition) -> list[tuple[int, int]]:
    """(input, output) pairs where the primitive reads each element for the last time before it writes the same one."""
    if not all(lookup(node.operator).in_place for node in definition.nodes):
        return []
    return [
        (index, place)
        for place, result in enumerate(definition.results)
        for index, param in enumerate(definition.params)
        if param.shape == result.shape and param.dtype.itemsize == result.dtype.itemsize
    ]


def _take_over(
    function: VirtualFunction, liveness: Liveness, position: int, old: _Buffer, new: _Buffer, source: Register
) -> bool:
    """Gives `new`, written at `position`, the memory of `old`, if that is not visible elsewhere or later."""
    root = old.root
    if old is new or new.host is not None or root is new or not old.private:
        return False
    if any(liveness.is_wanted(register, position + 1) for register in old.aliases):
        return False
    both = intersection(root.lifetime, new.lifetime)
    if both and (both[0] < new.position or both[-1] > position + 1):
        return False
    if old.in_frame and new.in_frame and old.size == new.size:
        _lay(new, old, 0)
        return True
    if old.in_frame or new.in_frame or old.type.is_static or source.type != new.type:
        return False  # frame and heap are never mixed: a frame buffer has its offset, and perhaps guests
    origin = function.items[new.position].origin  # type: ignore[union-attr]
    function.items[new.position] = instruction("move", new.register, source, origin=origin)
    function.items[position].replace(source, new.register)  # type: ignore[union-attr]
    _lay(new, old, 0)
    return True


# ---- offsets ----


def _place(buffers: Sequence[_Buffer]) -> int:
    """Offsets in the frame, the largest buffers first, each in the smallest gap that fits it. Returns the frame's bytes."""
    placed = _Placed(max((buffer.lifetime[-1] for buffer in buffers), default=0))
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.position)):
        buffer.offset = _best_gap(placed.rivals(buffer), buffer.size)
        placed.add(buffer)
    return max((buffer.offset + buffer.size for buffer in buffers), default=0)


class _Placed:
    """Placed buffers by the positions of their lifetimes: a segment tree, in which a run of positions is few
    nodes. Two runs intersect if one begins in the other."""

    def __init__(self, positions: int) -> None:
        self._leaves = 1 << positions.bit_length()
        self._covering: dict[int, list[_Buffer]] = {}  # by node, the buffers that live in all of it
        self._starts: list[
            tuple[int, int, _Buffer]
        ] = []  # by position: a unique number, the buffer whose run begins there
        self._order: dict[_Buffer, int] = {}

    def add(self, buffer: _Buffer) -> None:
        self._order[buffer] = len(self._order)
        for start, end in runs(buffer.lifetime):
            insort(self._starts, (start, self._order[buffer], buffer))
            for node in self._nodes(start, end):
                self._covering.setdefault(node, []).append(buffer)

    def rivals(self, buffer: _Buffer) -> list[_Buffer]:
        """The buffers with overlapping lifetimes, by offset, and in the order of placement."""
        found: set[_Buffer] = set()
        for start, end in runs(buffer.lifetime):
            first, last = bisect_left(self._starts, (start,)), bisect_left(self._starts, (end,))
            found.update(each for _, _, each in self._starts[first:last])
            node = self._leaves + start
            while node:
                found.update(self._covering.get(node, ()))
                node //= 2
        return sorted(found, key=lambda each: (each.offset, self._order[each]))

    def _nodes(self, start: int, end: int) -> Iterator[int]:
        """The largest nodes whose leaves are all in a run."""
        first, last = self._leaves + start, self._leaves + end
        while first < last:
            if first % 2:
                yield first
                first += 1
            if last % 2:
                last -= 1
                yield last
            first, last = first // 2, last // 2


def _best_gap(rivals: Sequence[_Buffer], size: int) -> int:
    """The offset of the smallest gap of at least `size` bytes between `rivals`; after them all if there is none."""
    best, best_size = -1, 0
    end = 0
    for rival in rivals:
        gap = rival.offset - end
        if gap >= size and (best < 0 or gap < best_size):
            best, best_size = end, gap
        end = max(end, rival.offset + rival.size)
    return best if best >= 0 else end


# ---- release ----


def _insert_kills(function: VirtualFunction) -> None:
    """Releases heap values where they die, unless the function returns before it can need the memory."""
    liveness = analyse(function)
    mortal = _mortal_registers(function)
    matters = _where_release_matters(function.items)
    jumps = _jumps_by_label(function.items)
    last_wanted: dict[int, list[Register]] = {}
    for register in function.registers:
        for position in liveness.ends(register) if register in mortal else ():
            last_wanted.setdefault(position, []).append(register)
    items: list[Item] = []
    for position, item in enumerate(function.items):
        items.append(item)
        if not matters[position]:
            continue
        if isinstance(item, Label):
            comes_by_jumps = _ends_block(function.items, position - 1)
            dead = _dead_at(item, jumps[item], liveness) if comes_by_jumps else []
        else:
            dead = [] if item.operation.ends_block else last_wanted.get(position, [])
            handed_on = set(item.reads() if item.name == "move" else ())
            dead = [register for register in dead if register not in handed_on]
        if released := tuple(register for register in dead if register in mortal):
            items.append(instruction("kill", released))
    function.items = items


def _dead_at(label: Label, jumps: Sequence[Instruction], liveness: Liveness) -> list[Register]:
    """Registers held on every incoming edge of a label, and dead there."""
    held = frozenset[Register].intersection(*(liveness.before[jump] for jump in jumps)) if jumps else frozenset()
    return sorted(held - liveness.before[label], key=lambda register: register.serial)


def _mortal_registers(function: VirtualFunction) -> set[Register]:
    """The reference registers that may hold a value on the heap."""
    mortal = set(function.params)
    changed = True
    while changed:
        before = len(mortal)
        for item in function.items:
            if isinstance(item, Label) or item.name in _IMMORTAL:
                continue
            if item.name in _ALIASES and not any(register in mortal for register in item.reads()):
                continue
            mortal.update(register for register in item.writes() if register.kind is Kind.REF)
        changed = len(mortal) != before
    return mortal


def _where_release_matters(items: Sequence[Item]) -> list[bool]:
    """By position: whether more memory may be allocated after it, before the function returns."""
    matters = [False] * len(items)
    at_label: dict[Label, bool] = {item: False for item in items if isinstance(item, Label)}
    changed = True
    while changed:
        changed = False
        later = False
        for position in range(len(items) - 1, -1, -1):
            item = items[position]
            if isinstance(item, Label):
                changed |= at_label[item] != later
                at_label[item] = matters[position] = later
                continue
            falls_through = later and not item.operation.ends_block
            matters[position] = falls_through or any(at_label[target] for target in item.targets())
            later = matters[position] or item.name in _GROWS
    return matters


def _jumps_by_label(items: Sequence[Item]) -> dict[Label, list[Instruction]]:
    jumps: dict[Label, list[Instruction]] = {item: [] for item in items if isinstance(item, Label)}
    for item in items:
        if isinstance(item, Instruction):
            for target in item.targets():
                jumps[target].append(item)
    return jumps


def _ends_block(items: Sequence[Item], position: int) -> bool:
    return position >= 0 and isinstance(item := items[position], Instruction) and item.operation.ends_block
