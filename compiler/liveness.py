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
    """Backward data flow: a pass over straight code, one more for each level of loops.

    A mask has a bit for each register up to the last: of long code few are kept, and no others at once.
    """
    items = function.items
    live_in, live_out = [0] * len(items), [0] * len(items)
    at_label = {item: 0 for item in items if isinstance(item, Label)}
    changed = True
    while changed:
        changed = False
        live = 0
        for position in range(len(items) - 1, -1, -1):
            item = items[position]
            live_out[position] = live = _wanted_after(item, live, at_label)
            if isinstance(item, Instruction):
                live = (live & ~_mask(item.writes())) | _mask(item.reads())
            live_in[position] = live
            if isinstance(item, Label) and at_label[item] != live:
                at_label[item] = live
                changed = True
    busy = _busy(function, live_in, live_out)
    return Liveness(tuple(live_in), tuple(live_out), _transpose(busy, len(function.registers)))


def _busy(function: VirtualFunction, live_in: list[int], live_out: list[int]) -> Iterator[int]:
    """The registers that are not free, by position; at last none."""
    entry = _mask(iter(function.params))  # arguments arrive in all of the parameters' registers, wanted or not
    for item, before, after in zip(function.items, live_in, live_out, strict=True):
        written = _mask(item.writes()) if isinstance(item, Instruction) else 0
        yield before | after | written | entry
        entry = 0
    yield 0


def _wanted_after(item: Item, next_live: int, at_label: dict[Label, int]) -> int:
    if isinstance(item, Label):
        return next_live
    live = 0 if item.operation.ends_block else next_live
    for target in item.targets():
        live |= at_label[target]
    return live


def _transpose(busy: Iterator[int], registers: int) -> tuple[int, ...]:
    positions = [0] * registers
    start = [0] * registers
    previous = 0
    for position, now in enumerate(busy):
        for serial in bits(now ^ previous):
            if now >> serial & 1:
                start[serial] = position
            else:
                positions[serial] |= (1 << position) - (1 << start[serial])
        previous = now
    return tuple(positions)
