"""Where a function's control flow branches, and a program of the same functions that goes only where it has been before.

Requests are merged because a call of several rows was tried (`independence.py`). What was tried says nothing of code that it did
not come to. So merged calls run a guarded program: after each side of a branch that no trial took stands an instruction that
ends the call, and its requests are called each for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ..formats.bytecode import CodeBuilder, Decoded, Label, code_array, function_words, jump_target, scan
from ..formats.program import Function, Program, SourceLocation
from ..vm.observe.hooks import Event, Listener
from ..vm.places import node_at

_CONDITIONS = frozenset(("if", "if_int"))
_UNREACHABLE = 1  # the reason of `fatal`

Side = tuple[int, int, bool]  # a branch (number of the function, offset of the instruction), and whether it jumps


@dataclass(frozen=True)
class Flow:
    """How control flows through a function and those that it calls. `loop` says where it may come to an instruction again, or to
    code that is not known; empty: nowhere."""

    branches: frozenset[tuple[int, int]] = frozenset()
    loop: str = ""

    @property
    def is_straight(self) -> bool:
        """Neither branches nor loops: then shapes alone say how long a call takes."""
        return not self.branches and not self.loop


def flow_of(program: Program, function: Function) -> Flow:
    branches: set[tuple[int, int]] = set()
    inside: set[int] = set()  # the functions that are being walked through, each called by one of the others
    done: set[int] = set()
    pending = [(program.functions.index(function), False)]
    while pending:
        number, is_over = pending.pop()
        if is_over:
            inside.discard(number)
            done.add(number)
            continue
        if number in inside:
            return Flow(loop=f"{program.functions[number].name!r} calls itself")
        if number in done:
            continue
        inside.add(number)
        pending.append((number, True))
        for instruction in _instructions(program, number):
            target = jump_target(instruction)
            name = instruction.operation.name
            if name == "invoke_closure" or (target is not None and target <= instruction.offset):
                what = "a loop" if target is not None else "a call of a closure"
                return Flow(loop=f"it has {what}{at_node(program, number, instruction.offset)}")
            if target is not None and name in _CONDITIONS:
                branches.add((number, instruction.offset))
            elif name == "invoke":
                pending.append((instruction.word("func"), False))
    return Flow(frozenset(branches))


def at_node(program: Program, number: int, offset: int) -> str:
    """The end of a message: the model node that an instruction comes from, if that is known."""
    node = node_at(program, number, offset)
    return f" at node {node!r}" if node else ""


class Sides(Listener):
    """Notes which sides of branches calls take."""

    operations = _CONDITIONS

    def __init__(self) -> None:
        self.taken: set[Side] = set()

    def before(self, event: Event) -> None:
        (register,) = event.registers("cond")
        is_int = event.operation.name == "if_int"
        condition = event.integer(register) if is_int else event.tensor(register).item()
        self.taken.add((event.site.number, event.instruction.offset, not condition))


def guarded(program: Program, branches: Collection[tuple[int, int]], taken: Collection[Side]) -> Program | None:
    """The program, in which each side of these branches that is not among `taken` ends the call; None where there is none."""
    missing = {(*branch, jumps) for branch in branches for jumps in (False, True)}.difference(taken)
    if not missing:
        return None
    functions, words, sources, start = [], [], [], 0
    for number, function in enumerate(program.functions):
        body, nodes = _guarded(program, number, {(offset, jumps) for at, offset, jumps in missing if at == number})
        functions.append(replace(function, start=start, length=len(body)))
        words.append(body)
        sources += [SourceLocation(number, offset, node) for offset, node in nodes]
        start += len(body)
    return replace(program, functions=tuple(functions), code=code_array(words), source_map=tuple(sources))


def _guarded(program: Program, number: int, missing: Collection[tuple[int, bool]]) -> tuple[list[int], list]:
    instructions = list(_instructions(program, number))
    labels: dict[int, Label] = {}
    for each in instructions:
        if (target := jump_target(each)) is not None:
            labels.setdefault(target, Label())
    code, end = CodeBuilder(), Label()
    for each in instructions:
        if each.offset in labels:
            code.place(labels[each.offset])
        code.node = node_at(program, number, each.offset) or ""
        fields = {field.name: value for field, value in zip(each.operation.fields, each.values, strict=True)}
        if (target := jump_target(each)) is not None:
            fields["label"] = end if (each.offset, True) in missing else labels[target]  # type: ignore[assignment]
        code.emit(each.operation.name, **fields)
        if (each.offset, False) in missing:
            code.emit("fatal", reason=_UNREACHABLE)
    if any(jumps for _, jumps in missing):
        code.place(end)
        code.emit("fatal", reason=_UNREACHABLE)
    return code.finish()


def _instructions(program: Program, number: int) -> Iterator[Decoded]:
    function = program.functions[number]
    return scan(function_words(program, function), function.name)
