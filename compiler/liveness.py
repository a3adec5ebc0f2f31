"""Liveness: at which instructions of a function each register holds a value that is still wanted.

Sets are integers used as bit masks: of registers (bit = the register's serial) or of positions in the code. Two registers
may share a place if and only if their masks of positions have no bit in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .virtual import Instruction, Item, Label, Register, VirtualFunction


@dataclass(frozen=True)
class Liveness:
    live_in: tuple[int, ...]  # by position, the registers that are wanted before the item there
    live_out: tuple[int, ...]  # and after it
    positions: tuple[int, ...]  # by register, where it is read, written, or waits to be read


def bits(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set, from low to high."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _mask(registers: Iterator[Register]) -> int:
    mask = 0
    for register in registers:
        mask |= 1 << register.serial
    return mask


def analyse(function: VirtualFunction) -> Liveness:
    """Backward data flow: a pass over straight code, one more for each level of loops."""
    items = function.items
    reads = [_mask(item.reads()) if isinstance(item, Instruction) else 0 for item in items]
    writes = [_mask(item.writes()) if isinstance(item, Instruction) else 0 for item in items]
    live_in, live_out = [0] * len(items), [0] * len(items)
    at_label = {item: 0 for item in items if isinstance(item, Label)}
    changed = True
    while changed:
        changed = False
        live = 0
        for position in range(len(items) - 1, -1, -1):
            item = items[position]
            live_out[position] = live = _wanted_after(item, live, at_label)
            live_in[position] = live = (live & ~writes[position]) | reads[position]
            if isinstance(item, Label) and at_label[item] != live:
                at_label[item] = live
                changed = True
    busy = [before | after | written for before, after, written in zip(live_in, live_out, writes, strict=True)]
    entry = _mask(iter(function.params))
    if busy:
        busy[0] |= entry  # arguments arrive in all of the parameters' registers, wanted or not
    return Liveness(tuple(live_in), tuple(live_out), _transpose(busy, len(function.registers)))


def _wanted_after(item: Item, next_live: int, at_label: dict[Label, int]) -> int:
    if isinstance(item, Label):
        return next_live
    live = 0 if item.operation.ends_block else next_live
    for target in item.targets():
        live |= at_label[target]
    return live


def _transpose(busy: list[int], registers: int) -> tuple[int, ...]:
    positions = [0] * registers
    start = [0] * registers
    previous = 0
    for position, now in enumerate([*busy, 0]):
        for serial in bits(now ^ previous):
            if now >> serial & 1:
                start[serial] = position
            else:
                positions[serial] |= (1 << position) - (1 << start[serial])
        previous = now
    return tuple(positions)
