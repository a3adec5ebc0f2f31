"""Memory planning: offsets of a function's tensors, and their release.

A tensor of a static type that never leaves its function gets a place in the frame's memory, at an offset fixed here, so that a
static function allocates nothing while it runs. Two tensors share memory if they are never live at the same time, and an
elementwise primitive or a normalisation writes its output over an input that it is the last to read: data that one thread has
written and another will read then pass between their caches once. On the heap they do so too, to what a loop carries as well.
Parts of a concatenation are placed in the whole from the beginning, and parts that are split off stay in place. Everything else
is allocated on the heap, and released after its last use.
"""

from __future__ import annotations

import functools
import operator
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...formats import limits
from ...formats.isa import Kind, Role, with_role
from ...formats.messages.errors import CompileError
from ...formats.primitive import PrimitiveDefinition
from ...formats.types import TensorType
from ..operators.table import lookup
from .liveness import Liveness, analyse, members
from .parts import parts_of
from .spans import Spans, contains, intersection, runs, union
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
    lifetime: Spans = ()  # positions; of a buffer that hosts others, theirs too
    wanted: Spans = ()  # points of the code (see `liveness.py`) at which it is still to be read, under whatever name
    private: bool = True  # never seen outside of its function
    in_frame: bool = False
    is_kept: bool = False  # still seen when it is made again (a loop's variable): it needs new memory for each round
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
    in_place = _write_in_place(function, sources, definition_of, liveness)
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


@dataclass(frozen=True)
class _Held:
    """The buffers that a register may hold."""

    group: Sequence[_Buffer] = ()  # all that moves join
    bits: int = 0  # which of these
    is_foreign: bool = False  # it may hold a value made elsewhere, too

    def __iter__(self) -> Iterator[_Buffer]:
        return members(self.bits, self.group)

    @property
    def only(self) -> _Buffer | None:
        """The buffer that the register always holds; None where it may hold one of several, or one made elsewhere."""
        is_one = self.bits.bit_count() == 1 and not self.is_foreign
        return self.group[self.bits.bit_length() - 1] if is_one else None


_Sources = dict[Register, _Held]
_NOTHING = _Held()


def _find_buffers(function: VirtualFunction, liveness: Liveness) -> tuple[list[_Buffer], _Sources]:
    """The buffers, and for each register all that it may hold."""
    buffers: list[_Buffer] = []
    moves: list[tuple[Register, Register]] = []  # target, source
    foreign = set(function.params)
    escaped: set[Register] = set()
    for position, item in enumerate(function.items):
        if isinstance(item, Label):
            continue
        refs = [register for register in item.writes() if register.kind is Kind.REF]
        if item.name in _ALLOCATES:
            buffers.append(_Buffer(position, refs[0]))
        elif item.name in _ALIASES:
            moves += [(target, source) for target in refs for source in item.reads() if source.kind is Kind.REF]
        else:
            foreign.update(refs)
        if item.name not in _STAYS:
            escaped.update(item.reads())
    sources = _spread(buffers, moves, foreign)
    _spread_back(moves, escaped)
    positions, wanted = _joined_along(moves, liveness.positions), _joined_along(moves, liveness.wanted)
    for buffer in buffers:
        serial = buffer.register.serial
        buffer.lifetime, buffer.wanted = positions[serial], wanted[serial]
        buffer.private = buffer.register not in escaped
        buffer.is_kept = contains(buffer.wanted, 2 * buffer.position)
        buffer.in_frame = buffer.private and buffer.type.is_static and not buffer.is_kept
        buffer.is_carried = buffer.lifetime[0] < buffer.position
    return buffers, {
        register: replace(held, is_foreign=True) if register in foreign else held for register, held in sources.items()
    }


def _spread(buffers: Sequence[_Buffer], moves: Sequence[tuple[Register, Register]], foreign: set[Register]) -> _Sources:
    """Carries buffers (and foreignness) along moves until nothing changes."""
    group_of = _groups(moves)
    groups: dict[Register, list[_Buffer]] = {}
    bits: dict[Register, int] = {}
    for buffer in buffers:
        group = groups.setdefault(group_of.get(buffer.register, buffer.register), [])
        bits[buffer.register] = bits.get(buffer.register, 0) | 1 << len(group)
        group.append(buffer)
    changed = True
    while changed:
        changed = False
        for target, source in moves:
            before = bits.get(target, 0)
            held = before | bits.get(source, 0)
            if held != before:
                bits[target] = held
                changed = True
            if source in foreign and target not in foreign:
                foreign.add(target)
                changed = True
    return {register: _Held(groups[group_of.get(register, register)], held) for register, held in bits.items()}


def _groups(moves: Sequence[tuple[Register, Register]]) -> dict[Register, Register]:
    """For each register that is moved, or moved to, one that stands for all that moves join it with."""
    leader: dict[Register, Register] = {}

    def find(register: Register) -> Register:
        while (above := leader.setdefault(register, register)) is not register:
            leader[register] = leader[above]  # halves the path
            register = above
        return register

    for target, source in moves:
        leader[find(target)] = find(source)
    return {register: find(register) for register in list(leader)}


def _spread_back(moves: Sequence[tuple[Register, Register]], escaped: set[Register]) -> None:
    """What a register is moved to sees its buffers, too: if that escapes, so do they."""
    changed = True
    while changed:
        changed = False
        for target, source in reversed(moves):
            if target in escaped and source not in escaped:
                escaped.add(source)
                changed = True


def _joined_along(moves: Sequence[tuple[Register, Register]], spans: Sequence[Spans]) -> list[Spans]:
    """By register's serial, the spans of all registers that its value is moved to, directly or not, and its own."""
    joined = list(spans)
    targets: dict[Register, list[Register]] = {}
    sources: dict[Register, list[Register]] = {}
    for target, source in moves:
        targets.setdefault(source, []).append(target)
        sources.setdefault(target, []).append(source)
    stale = set(targets)
    while stale:
        for source in [
            each for each in reversed(targets) if each in stale
        ]:  # in one round, but for moves that lead back
            stale.discard(source)
            found = union(joined[source.serial], *(joined[target.serial] for target in targets[source]))
            if found != joined[source.serial]:
                joined[source.serial] = found
                stale.update(sources.get(source, ()))
    return joined


# ---- parts of tensors ----


def _put_together(
    function: VirtualFunction,
    sources: _Sources,
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


def _movable(sources: _Sources, register: Register) -> _Buffer | None:
    """The buffer that a register always holds, if it lies in the frame and is made before all that is made of it."""
    buffer = sources.get(register, _NOTHING).only
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
    sources: _Sources,
    definition_of: Callable[[int], PrimitiveDefinition],
    liveness: Liveness,
) -> int:
    """Lets outputs take the memory of inputs that die there, where the primitive allows it. Returns how many."""
    count, handing_on = 0, _HandingOn(function, sources, liveness)
    for position, item in enumerate(function.items):
        if not isinstance(item, Instruction) or item.name != "call":
            continue
        definition = definition_of(item.operand("prim"))  # type: ignore[arg-type]
        for index, place in _possible_places(definition):
            inputs, outputs = item.registers("inputs"), item.registers("outputs")
            source, target = inputs[index], outputs[place]
            old, new = sources.get(source, _NOTHING).only, sources.get(target, _NOTHING).only
            if new is None or source in outputs:
                continue
            if not new.in_frame and definition.params[index] == definition.results[place]:
                others = {*inputs[:index], *inputs[index + 1 :]}
                count += handing_on.hand_on(position, source, target, new, others)
            elif old is not None and not _is_read_twice(inputs, index, old, sources):
                count += _take_over(position, old, new)
    return count


def _is_read_twice(inputs: Sequence[Register], index: int, buffer: _Buffer, sources: _Sources) -> bool:
    """Whether another input lies in the same memory: the primitive may read it in another order."""
    others = (held for i, register in enumerate(inputs) if i != index for held in sources.get(register, _NOTHING))
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


def _take_over(position: int, old: _Buffer, new: _Buffer) -> bool:
    """Gives `new`, written at `position`, the place of `old` in the frame, if that is seen by nobody else or later."""
    root = old.root
    if old is new or new.host is not None or root is new or not old.private or not old.in_frame or old.size != new.size:
        return False
    if contains(old.wanted, 2 * (position + 1)):
        return False
    both = intersection(root.lifetime, new.lifetime)
    if both and (both[0] < new.position or both[-1] > position + 1):
        return False
    _lay(new, old, 0)
    return True


class _HandingOn:
    """Tensors of the heap that primitives give another value in place, those of a loop's variables too: none is allocated then.
    It keeps to what the verifier can follow (`vm/verify/flow.py`), which knows memory by the instruction that allocates it."""

    _MOST = limits.MEMORIES - 2  # that a register may hold, beside the frame's and others'

    def __init__(self, function: VirtualFunction, sources: _Sources, liveness: Liveness) -> None:
        self.function, self.liveness = function, liveness
        self.held: dict[Register, set[_Buffer]] = {}  # of the buffers that may be handed on
        self.holders: dict[_Buffer, set[Register]] = {}
        groups = {id(held.group): held.group for held in sources.values()}
        # frame and heap are never mixed: a frame buffer has its offset, and perhaps guests
        kept = {
            key: sum(1 << n for n, each in enumerate(group) if each.type.is_static) for key, group in groups.items()
        }
        for held in sources.values():
            if held.bits.bit_count() > self._MOST:
                kept[id(held.group)] |= held.bits
        for register, held in sources.items():
            self.held[register] = set(members(held.bits & ~kept[id(held.group)], held.group))
            for buffer in self.held[register]:
                self.holders.setdefault(buffer, set()).add(register)
        self.fixed = {r for r, held in sources.items() if held.is_foreign or held.bits & kept[id(held.group)]}
        moves = (item for item in function.items if isinstance(item, Instruction) and item.name in _ALIASES)
        self.moved = {register for item in moves for register in item.reads()}

    def hand_on(self, position: int, source: Register, target: Register, new: _Buffer, others: set[Register]) -> bool:
        """Makes `new`, written at `position`, the tensor in `source`, if nothing else is seen of that tensor from there on.
        `others` are registers that the primitive reads besides."""
        held = self.held.get(source, set())
        found = held - {new}
        if not found or source in self.fixed or new not in self.holders or not all(each.private for each in held):
            return False
        if any(self.held.get(other, set()) & held for other in others):
            return False  # the primitive may read them in another order
        users = self.holders[new].union(*(self.holders[each] for each in found))
        is_wanted = self.liveness.is_wanted
        if any(user is not target and is_wanted(user, position + 1) for user in users):
            return False
        # a tensor that is seen when its instruction makes the next one is others' from then on, whatever it is moved to
        moved = users & (self.moved | {source})
        if any(is_wanted(user, each.position) for user in moved for each in found):
            return False
        merged = {user: self.held[user] - {new} | found for user in self.holders[new]}
        if any(len(each) > self._MOST for each in merged.values()):
            return False
        # all that a register may hold is shared once it leaves the function
        if not new.private and (len(found) > 1 or any(self.held[user] - {new} > found for user in users)):
            return False
        return self._replace(new, position, source) and self._merge(found, new, merged)

    def _replace(self, new: _Buffer, position: int, source: Register) -> bool:
        allocation, *between = self.function.items[new.position : position]
        assert isinstance(allocation, Instruction)
        if any(isinstance(item, Label) or source in item.writes() for item in between):
            return False
        self.function.items[new.position] = instruction("move", new.register, source, origin=allocation.origin)
        self.function.items[position].replace(source, new.register)  # type: ignore[union-attr]
        self.moved.add(source)
        return True

    def _merge(self, found: set[_Buffer], new: _Buffer, merged: dict[Register, set[_Buffer]]) -> bool:
        """What holds `new` holds one of these from now on."""
        self.held.update(merged)
        del self.holders[new]
        for each in found:
            self.holders[each].update(merged)
            each.private &= new.private
        return True


# ---- offsets ----


def _place(buffers: Sequence[_Buffer]) -> int:
    """Offsets in the frame, the largest buffers first, each in the smallest gap that fits it. Returns the frame's bytes."""
    placed = _Placed(max((buffer.lifetime[-1] for buffer in buffers), default=0))
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.position)):
        buffer.offset = _best_gap(placed.rivals(buffer), buffer.size)
        placed.add(buffer)
    return max((buffer.offset + buffer.size for buffer in buffers), default=0)


_Place = tuple[int, int, int]  # where a buffer begins in the frame, its number, and where it ends


class _Placed:
    """Placed buffers by the positions of their lifetimes: a segment tree, in which a run of positions is few
    nodes. Two runs intersect if one begins in the other."""

    def __init__(self, positions: int) -> None:
        self._leaves = 1 << positions.bit_length()
        self._covering: dict[int, list[_Place]] = {}  # by node, those that live in all of it
        self._starts: list[tuple[int, _Place]] = []  # by position, those whose run begins there
        self._count = 0

    def add(self, buffer: _Buffer) -> None:
        place = (buffer.offset, self._count, buffer.offset + buffer.size)
        self._count += 1
        for start, end in runs(buffer.lifetime):
            insort(self._starts, (start, place))
            for node in self._nodes(start, end):
                self._covering.setdefault(node, []).append(place)

    def rivals(self, buffer: _Buffer) -> list[_Place]:
        """Those that live while it does, by offset, and in the order in which they were placed."""
        found: set[_Place] = set()
        for start, end in runs(buffer.lifetime):
            first, last = bisect_left(self._starts, (start,)), bisect_left(self._starts, (end,))
            found.update(place for _, place in self._starts[first:last])
            node = self._leaves + start
            while node:
                found.update(self._covering.get(node, ()))
                node //= 2
        return sorted(found)

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


def _best_gap(rivals: Sequence[_Place], size: int) -> int:
    """The offset of the smallest gap of at least `size` bytes between `rivals`; behind them all when there is none."""
    best, best_size = -1, 0
    end = 0
    for start, _, behind in rivals:
        gap = start - end
        if gap >= size and (best < 0 or gap < best_size):
            best, best_size = end, gap
        if behind > end:
            end = behind
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
    """What is held wherever control comes from, and wanted no more."""
    if not jumps:
        return []
    held = functools.reduce(operator.and_, (liveness.before[jump] for jump in jumps))
    dead = members(held & ~liveness.before[label], liveness.crossing)
    return sorted(dead, key=lambda register: register.serial)


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
