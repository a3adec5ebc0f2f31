"""A debugging session: one call that stops, goes on, and goes back. It prints nothing and reads nothing: a terminal or an editor
shows what its methods give.

    session = machine.debug("main", x)
    session.break_at(when="any(isnan(x))")
    stop = session.resume()
    print(stop, session.registers())
    session.step(back=True)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...formats.bytecode import Decoded
from ...formats.dtypes import DType
from ...formats.isa import Kind, Role, with_role
from ...formats.messages.calling import Suggesting, public_class, told
from ...formats.messages.errors import ArgumentError, ShapeError
from ...formats.messages.readable import brief
from ...formats.program import Program
from ...formats.text.disassembly import OperandPrinter
from ...vm.budgets import Budget
from ...vm.calls import Calls
from ...vm.in_process import InProcess
from ...vm.layout import CONTEXT, KIND, OBJECT
from ...vm.memory import word
from ...vm.places import Round, iterations
from . import values
from .breakpoints import MADE, Breakpoint, Sites
from .conditions import Condition
from .tape import BREAKPOINT, Tape
from .timeline import Halt, Timeline
from .values import Numbers, Value

_BLANK = with_role(Role.BUFFER) | {"frame_tensor", "storage_tensor"}  # whose tensors the next instructions write into
_REGISTER = re.compile(r"([ri])(\d{1,9})$")


@dataclass(frozen=True)
class Frame:
    """A function that runs: the instruction that is next, or, in one that has called another, the one after the call."""

    level: int  # 0 is the innermost
    function: str
    offset: int  # words from the function's start
    instruction: str  # as in assembly
    node: str  # the model node, or the user's line, that it comes from; "" for none
    rounds: tuple[Round, ...]  # the innermost loop first

    @property
    def iterations(self) -> str:
        """Its rounds as text; "" for none."""
        return iterations(self.rounds)

    def __str__(self) -> str:
        where = f" from {self.node}" if self.node else ""
        rounds = f", {self.iterations}" if self.rounds else ""
        return f"#{self.level} {self.function}+{self.offset}{where}{rounds}"


@dataclass(frozen=True)
class Stop:
    """Where the call stands, and why: "start", "step", "breakpoint", "returned", "error", "budget" or "interrupted"."""

    reason: str
    time: int  # instructions executed since the call began
    frame: Frame | None  # the innermost; None when the call has returned
    breakpoint: Breakpoint | None = None
    register: str = ""  # that holds what a condition holds for …
    made: Frame | None = None  # … and the instruction that has just made it
    error: Exception | None = None


class Register(NamedTuple):
    """A register that holds something, and the node that, by the order of the code, has written it last."""

    name: str
    value: Value
    node: str


class Use(NamedTuple):
    """An instruction that made or read a value: when, and where."""

    time: int
    frame: Frame


@dataclass(frozen=True)
class Origin:
    """Where a value comes from and who has read it so far. Without a maker it is a constant, an argument, or blank memory."""

    name: str  # "argument x", "constant 3", or ""
    maker: Use | None
    readers: tuple[Use, ...]


@dataclass(frozen=True)
class _Goal:
    """Where a step ends: at instructions, in frames that are no further in than `inmost`."""

    sites: frozenset[int]
    inmost: int


@public_class
class Session(Suggesting, InProcess):
    """One call under a debugger; `with` it, or `close` it. Times are numbers of instructions since the call began.

    Every motion gives the `Stop` where it ends. Names of registers are "r0", "i0" as in the disassembly; `level` counts frames
    from the innermost, 0; `path` are the numbers of fields, from the value in a register on inwards.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline, self._sites = timeline, Sites(timeline)
        self._printer = OperandPrinter(timeline.program)
        self.breakpoints: dict[int, Breakpoint] = {}
        self._last = 0  # number of a breakpoint
        # whether a breakpoint that holds, for what register was made, is passed over: by hits, or after a line of a log
        self.passes: Callable[[Breakpoint, int | None], bool] = lambda point, made: False
        self.stop = self._stopped("start")
        if any(node.operator == BREAKPOINT for each in timeline.program.primitives for node in each.definition.nodes):
            self.break_at(f"operator {BREAKPOINT}")

    def __repr__(self) -> str:
        where = f" in {self.stop.frame.function}" if self.stop.frame else ""
        return f"<Session: {self.stop.reason} at {self.time}{where}>"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the call where it stands."""
        self._timeline.close()

    # ---- where to stop ----

    def break_at(
        self, where: str | None = None, *, when: str | Condition | None = None, iteration: int | None = None
    ) -> Breakpoint:
        """Stops at a function, a node, a line of Python ("model.py:8"), a primitive, an operator or a loop; where several have
        one name, "node NAME" says which. `when` is a condition (`conditions.py`): on `x`, each result of what was just executed,
        or on registers and parameters before it is. `iteration` is of the innermost loop, from 0. Raises ArgumentError."""
        if where is not None and not isinstance(where, str):
            raise ArgumentError(f"break_at: expected the name of a place, got {told(where)}")
        condition = Condition(when) if isinstance(when, str) else when
        made = self._sites.parse(self._last + 1, where, condition, iteration)
        for name in condition.names if condition else ():
            self._check_name(name, made)
        return self._added(made)

    def watch(self, function: str, name: str, *, reads: bool = False, when: str | None = None) -> Breakpoint:
        """Stops after each instruction of a function that makes what a register holds, r3; with `reads`, before each that reads
        it. Raises ArgumentError."""
        number = {each.name: at for at, each in enumerate(self.program.functions)}.get(function, -1)
        if number < 0:
            raise ArgumentError(f"watch: there is no function {function!r}")
        kind, register = self._parsed(name, number, 0)
        if kind != "r":
            raise ArgumentError(f"watch: {name} is an integer; only registers of values can be watched")
        of = _inputs if reads else _outputs
        line = self._timeline
        at = frozenset(
            line.address(number, each.offset) for each in line.instructions(number).values() if register in of(each)
        )
        text = f"{name} of {function} is {'read' if reads else 'made'}" + (f" if {when}" if when else "")
        before, after = (at, frozenset[int]()) if reads else (frozenset[int](), at)
        return self._added(Breakpoint(self._last + 1, text, before, after, Condition(when) if when else None))

    def _added(self, point: Breakpoint) -> Breakpoint:
        self._last = point.number
        self.breakpoints[point.number] = point
        return point

    def delete(self, number: int) -> None:
        """Forgets a breakpoint. Raises ArgumentError."""
        if self.breakpoints.pop(number, None) is None:
            raise ArgumentError(f"there is no breakpoint {number}; there are {list(self.breakpoints) or 'none'}")

    def _check_name(self, name: str, point: Breakpoint) -> None:
        known = {MADE, "step", "depth", "iteration"}
        starts = {self._timeline.address(n, 0): f for n, f in enumerate(self._timeline.program.functions)}
        if point.before and all(at in starts for at in point.before):
            known |= {name for at in point.before for name in starts[at].param_names}
        if name not in known and not _REGISTER.match(name):
            raise ArgumentError(
                f"condition {point.condition.text if point.condition else ''!r}: there is no {name!r} here; there are "
                f"{', '.join(sorted(known))} and registers. Parameters have their names where a function begins"
            )

    # ---- motion ----

    @property
    def program(self) -> Program:
        """The program whose call it is."""
        return self._timeline.program

    @property
    def time(self) -> int:
        """Instructions executed since the call began."""
        return self._timeline.time

    @property
    def result(self) -> Any:
        """The call's result. Raises ArgumentError before it has returned."""
        if self.stop.reason != "returned":
            raise ArgumentError(f"the call has not returned: {self!r}")
        return self._timeline.result

    def interrupt(self, now: bool = True) -> None:
        """Stops the motion that goes on, or the next one, soon: from another thread, or a handler of signals. False takes it
        back, where a motion may have ended by itself meanwhile."""
        self._timeline.interrupt(now)

    def resume(self, back: bool = False) -> Stop:
        """Goes on to the next breakpoint, or to the end of the call; back to the last one before, or to its beginning."""
        return self._move(None, back)

    def begin(self) -> Stop:
        """As `resume`, but for a breakpoint where the call stands: it stops there."""
        return self._at(next(self._stops(None, None, True)))

    def step(self, back: bool = False) -> Stop:
        """To the beginning of the next node or line, in whatever function."""
        sites = frozenset[int]().union(*map(self._sites.boundaries, range(len(self._timeline.program.functions))))
        return self._move(_Goal(sites, 1 << 62), back)

    def over(self, back: bool = False) -> Stop:
        """To the beginning of the next node or line of this function, or of one that has called it."""
        sites = frozenset[int]().union(*map(self._sites.boundaries, self._running()))
        return self._move(_Goal(sites, max(0, self._timeline.frame)), back)

    def out(self, back: bool = False) -> Stop:
        """To where this function has returned; back to where it was called."""
        frames = self._timeline.frames()
        if len(frames) < 2:
            return self.goto(0) if back else self._move(None, False)
        caller, pc = frames[1]
        sites = self._sites.entering(self._number(pc)) if back else frozenset([pc])
        return self._move(_Goal(sites, caller), back)

    def instruction(self, back: bool = False) -> Stop:
        """One instruction."""
        if back:
            return self.goto(max(0, self.time - 1))
        halt = self._timeline.one()
        return self._at(self._stopped("step") if halt is None else self._halted(halt))

    def goto(self, time: int) -> Stop:
        """To a time, which may be any that the call comes to."""
        if isinstance(time, bool) or not isinstance(time, (int, np.integer)) or time < 0:
            raise ArgumentError(f"goto: expected a number of instructions, got {told(time)}")
        self._timeline.seek(int(time))
        end = self._timeline.end
        return self._at(self._halted(end) if end else self._stopped("step" if self.time else "start"))

    def _move(self, goal: _Goal | None, back: bool) -> Stop:
        if back:
            return self._at(self._backward(goal))
        return self._at(next(self._stops(goal, None, False)))

    def _at(self, stop: Stop) -> Stop:
        self.stop = stop
        return stop

    def _stops(self, goal: _Goal | None, until: int | None, at_start: bool) -> Iterator[Stop]:
        """The stops from here on, each before the call goes on; those at the first instruction too, if `at_start`."""
        line = self._timeline
        after = frozenset[int]().union(*(each.after for each in self.breakpoints.values()))
        sites = after.union(*(each.before for each in self.breakpoints.values()), goal.sites if goal else ())
        while until is None or line.time < until:
            if line.end is not None or line.pc not in sites:
                halt: Halt | None = line.advance(sites, until)
                if halt is not None and halt.reason == "site":
                    halt, at_start = None, True
            else:
                pc, frame = line.pc, line.frame
                if at_start:
                    yield from self._before(pc, goal)
                at_start, halt = True, line.one()
                if halt is None and pc in after:
                    yield from self._after(pc, frame)
            if halt is not None:
                if halt.reason != "time":
                    yield self._halted(halt)
                return

    def _backward(self, goal: _Goal | None) -> Stop:
        """The last stop before now: of the replay from the last state, or from the one before that, and so on."""
        line, now = self._timeline, self.time
        end = now
        while end > 0:
            start, last = line.restore(line.state_before(end - 1)), None
            for stop in self._stops(goal, end, True):
                if stop.reason == "interrupted":
                    return stop
                if stop.time < now:
                    last = stop
            if last is not None:
                line.seek(last.time)
                return last
            end = start
        line.seek(0)
        return self._stopped("start")

    def _before(self, pc: int, goal: _Goal | None) -> Iterator[Stop]:
        """The stop before the instruction at `pc`, if there is one."""
        for point in self.breakpoints.values():
            if pc in point.before and self._stops_at(point, self._timeline.frame, None):
                yield self._stopped("breakpoint", point)
                return
        if goal is not None and pc in goal.sites and self._timeline.frame <= goal.inmost:
            yield self._stopped("step")

    def _after(self, pc: int, frame: int) -> Iterator[Stop]:
        """The stop after the instruction at `pc`, if a condition holds for what it has made."""
        number, offset = self._timeline.where(pc)
        instruction = self._timeline.instructions(number)[offset]
        for point in self.breakpoints.values():
            if pc in point.after:
                for register in _outputs(instruction):
                    if self._stops_at(point, frame, register):
                        yield self._stopped("breakpoint", point, f"r{register}", self._frame(0, frame, pc))
                        return

    def _stops_at(self, point: Breakpoint, frame: int, made: int | None) -> bool:
        return self._holds(point, frame, made) and not self.passes(point, made)

    def _holds(self, point: Breakpoint, frame: int, made: int | None) -> bool:
        """Whether a breakpoint's iteration and condition are those of now. A condition that fits no such value does not hold."""
        line = self._timeline
        if point.iteration is not None and line.iteration(frame) != point.iteration:
            return False
        if point.condition is None:
            return True

        def find(name: str) -> Any:
            return self._named(name, frame, made)

        try:
            return point.condition.holds(find)
        except ArgumentError:
            return False

    def _named(self, name: str, frame: int, made: int | None = None) -> Any:
        """What a name of a condition stands for."""
        line = self._timeline
        if name == "step":
            return line.time
        if name == "depth":
            return line.live.words[CONTEXT.DEPTH]
        if name == "iteration":
            found = line.iteration(frame)
            return -1 if found is None else found
        if name == MADE and made is not None:
            name = f"r{made}"
        kind, register = self._parsed(name, *line.where(line.pc))
        if kind == "i":
            return word(line.live.registers(frame)[1], register)
        refs = line.live.registers(frame)[0]
        return values.elements(word(refs, 2 * register), word(refs, 2 * register + 1))

    def _halted(self, halt: Halt) -> Stop:
        return self._stopped(halt.reason, error=halt.error)

    def _stopped(
        self,
        reason: str,
        point: Breakpoint | None = None,
        register: str = "",
        made: Frame | None = None,
        error: Exception | None = None,
    ) -> Stop:
        innermost = None if self._timeline.frame < 0 else self._frame(0, *self._timeline.frames()[0])
        return Stop(reason, self.time, innermost, point, register, made, error)

    # ---- what there is ----

    def frames(self) -> list[Frame]:
        """The functions that run, the innermost first."""
        return [self._frame(level, *each) for level, each in enumerate(self._timeline.frames())]

    def _frame(self, level: int, frame: int, pc: int) -> Frame:
        line = self._timeline
        number, offset = line.where(pc)
        instruction = line.instructions(number)[offset]
        rounds = line.rounds.at(frame, number, offset)
        text = f"{instruction.operation.name} {self._printer.text(instruction)}".rstrip()
        return Frame(level, line.program.functions[number].name, offset, text, self._sites.node(number, offset), rounds)

    def _running(self) -> set[int]:
        """The numbers of the functions that run, or of the one that has returned."""
        return {self._number(pc) for _, pc in self._timeline.frames()} or {self._timeline.number}

    def _number(self, pc: int) -> int:
        return self._timeline.where(pc)[0]

    def registers(self, level: int = 0) -> list[Register]:
        """The registers of a frame that hold something: references, then the integers that its code names."""
        frame, pc = self._level(level)
        line = self._timeline
        number, offset = line.where(pc)
        function = line.program.functions[number]
        refs, ints = line.live.registers(frame)
        found, writers = [], self._writers(number, offset, Kind.REF)
        for register in range(function.ref_registers):
            reference = word(refs, 2 * register + 1)
            if reference:
                value = values.value_of(line.live.image, word(refs, 2 * register), reference)
                node, is_blank = writers.get(register) or (self._parameter(number, register), False)
                found.append(Register(f"r{register}", replace(value, text="blank") if is_blank else value, node))
        for register, (node, _) in sorted(self._writers(number, offset, Kind.INT).items()):
            found.append(Register(f"i{register}", values.integer(word(ints, register)), node))
        return found

    def _writers(self, number: int, offset: int, kind: Kind) -> dict[int, tuple[str, bool]]:
        """Of each register that instructions before `offset` write: the node of the last one, in the order of the code, and
        whether it has left a tensor into which nothing was written yet."""
        found: dict[int, tuple[str, bool]] = {}
        for each in self._timeline.instructions(number).values():
            if each.offset >= offset:
                break
            written = (*each.written(kind), *(_outputs(each) if kind is Kind.REF else ()))
            if written:
                made = self._sites.node(number, each.offset), each.operation.name in _BLANK
                found.update(dict.fromkeys(written, made))
        return found

    def _parameter(self, number: int, register: int) -> str:
        """The name of the parameter that a register always holds; "" where the function writes it."""
        names = self._timeline.program.functions[number].param_names
        instructions = self._timeline.instructions(number).values()
        is_kept = register < len(names) and not any(register in each.written(Kind.REF) for each in instructions)
        return names[register] if is_kept else ""

    def value(self, name: str, path: Sequence[int] = (), level: int = 0) -> Value:
        """What a register, or a field inside it, holds. Raises ArgumentError."""
        kind, register = self._of_frame(name, level)
        if kind == "i":
            return values.integer(word(self._timeline.live.registers(self._level(level)[0])[1], register))
        return values.value_of(self._timeline.live.image, *self._at_path(register, path, level))

    def fields(self, name: str, path: Sequence[int] = (), level: int = 0) -> list[tuple[str, Value]]:
        """The fields of a tuple or data value, or what a closure has captured, with their names. Raises ArgumentError."""
        _, register = self._of_frame(name, level)
        _, reference = self._at_path(register, path, level)
        image, address = self._timeline.live.image, reference & ~1
        if word(address, OBJECT.KIND) not in (KIND.DATA, KIND.CLOSURE):
            return []
        count = word(address, OBJECT.COUNT)
        names: Sequence[str] = [str(index) for index in range(count)]
        if word(address, OBJECT.KIND) == KIND.CLOSURE:
            names = values.captured_names(image, reference)
        return [(names[index], values.value_of(image, *values.field(reference, index))) for index in range(count)]

    def tensor(self, name: str, path: Sequence[int] = (), level: int = 0) -> np.ndarray:
        """A copy of the tensor in a register, or in a field inside it. Raises ArgumentError where there is none."""
        kind, register = self._of_frame(name, level)
        if kind == "i":
            raise ArgumentError(f"{name} is an integer")
        return values.elements(*self._at_path(register, path, level)).copy()

    def numbers(self, name: str, path: Sequence[int] = (), level: int = 0) -> Numbers:
        """Statistics of such a tensor. Raises ArgumentError."""
        return values.numbers(self.tensor(name, path, level))

    def evaluate(self, text: str, level: int = 0) -> Any:
        """The value of an expression of the language of conditions, of a frame's registers. Raises ArgumentError."""
        frame, _ = self._level(level)
        for name in (condition := Condition(text)).names:
            if name not in ("step", "depth", "iteration"):
                self._of_frame(name, level)
        return condition.value(lambda name: self._named(name, frame))

    def set(self, name: str, value: Any, level: int = 0) -> None:
        """Other elements for a tensor in a register, of its element type and shape; one number is every element. The call goes on
        with them, and what was to come is forgotten. Raises ArgumentError, ShapeError."""
        kind, register = self._of_frame(name, level)
        if kind == "i":
            raise ArgumentError(f"set: {name} is an integer, which sizes and jumps depend on; only tensors can be set")
        old = values.elements(*self._at_path(register, (), level))
        if old.dtype == object:
            raise ArgumentError(f"set: {name} holds texts; only numbers can be set")
        try:
            new = np.ascontiguousarray(np.broadcast_to(np.asarray(value, old.dtype), old.shape))
        except (TypeError, ValueError) as error:
            kind_ = ShapeError if isinstance(value, np.ndarray) else ArgumentError
            expected = f"{DType.of(old.dtype).name}{list(old.shape)}"
            raise kind_(f"set: {name} is {expected}, got {told(value)}: {error}") from None
        self._timeline.set(self._level(level)[0], register, new)

    # ---- where a value comes from ----

    def origin(self, name: str, path: Sequence[int] = (), level: int = 0) -> Origin:
        """Where the value was made, and who has read it since, until now: the call runs once more from its beginning."""
        _, register = self._of_frame(name, level)
        line, now = self._timeline, self.time
        makers: dict[int, Use] = {}
        readers: dict[int, list[Use]] = {}
        works = self._sites.works() | self._sites.makers()
        line.restore(0)
        names = line.program.functions[line.number].param_names
        given = {self._key(*self._pair(line.frame, at)): f"argument {name}" for at, name in enumerate(names)}
        while line.time < now:
            if line.pc not in works and line.advance(works, now).reason != "site":
                break
            number, offset = line.where(line.pc)
            instruction, frame, pc = line.instructions(number)[offset], line.frame, line.pc
            use = Use(line.time, self._frame(0, frame, pc))
            for each in dict.fromkeys(self._key(*self._pair(frame, r)) for r in _inputs(instruction)):
                readers.setdefault(each, []).append(use)
            if line.one() is not None:
                break
            for each in (self._key(*self._pair(frame, r)) for r in _outputs(instruction)):
                makers[each], readers[each] = use, []
        if line.time != now:
            line.seek(now)
            raise ArgumentError("origin: it was interrupted")
        data, reference = self._at_path(register, path, level)
        key = self._key(data, reference)
        label = "" if key in makers else given.get(key) or self._constant(data)
        return Origin(label, makers.get(key), tuple(readers.get(key, ())))

    def _pair(self, frame: int, register: int) -> tuple[int, int]:
        refs = self._timeline.live.registers(frame)[0]
        return word(refs, 2 * register), word(refs, 2 * register + 1)

    @staticmethod
    def _key(data: int, reference: int) -> int:
        """What tells values apart: where a tensor's elements are, where another value is."""
        is_tensor = reference and word(reference & ~1, OBJECT.KIND) in (KIND.TENSOR, KIND.STORAGE)
        return data if is_tensor or not reference else reference

    def _constant(self, data: int) -> str:
        constants = self._timeline.live.image.constants
        found = np.flatnonzero(constants[: len(self._timeline.program.constants), 0] == data)
        return f"constant {found[0]}" if found.size else ""

    # ---- registers ----

    def _level(self, level: int) -> tuple[int, int]:
        """Where a frame is, and where its program counter stands. Raises ArgumentError."""
        frames = self._timeline.frames()
        if not frames:
            raise ArgumentError("the call has returned: no function runs; go back to look at one")
        if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level < len(frames):
            raise ArgumentError(f"there is no frame {brief(level)}; there are 0 to {len(frames) - 1}")
        return frames[level]

    def _of_frame(self, name: str, level: int) -> tuple[str, int]:
        return self._parsed(name, *self._timeline.where(self._level(level)[1]))

    def _parsed(self, name: str, number: int, offset: int) -> tuple[str, int]:
        """ "r" or "i", and the number of a register. Raises ArgumentError for one that the function does not have."""
        function = self._timeline.program.functions[number]
        found = _REGISTER.match(name) if isinstance(name, str) else None
        if found is None and name in function.param_names:
            register = function.param_names.index(name)
            if offset == 0 or self._parameter(number, register):
                return "r", register
        counts = {"r": function.ref_registers, "i": function.int_registers}
        if found is None or int(found[2]) >= counts[found[1]]:
            known = [f"{kind}0 … {kind}{count - 1}" for kind, count in counts.items() if count]
            raise ArgumentError(
                f"{function.name} has no register {brief(name)}; it has {' and '.join(known) or 'none'}"
            )
        return found[1], int(found[2])

    def _at_path(self, register: int, path: Sequence[int], level: int) -> tuple[int, int]:
        pair = self._pair(self._level(level)[0], register)
        if not pair[1]:
            raise ArgumentError(f"r{register} is empty here")
        for index in path:
            pair = values.field(pair[1], index)
        return pair


def _outputs(instruction: Decoded) -> tuple[int, ...]:
    """The reference registers that an instruction writes, or writes into."""
    if instruction.operation.has("outputs"):
        return instruction.list("outputs")
    return instruction.written(Kind.REF)


def _inputs(instruction: Decoded) -> tuple[int, ...]:
    """The reference registers that it reads."""
    found: tuple[int, ...] = ()
    for field, value in zip(instruction.operation.fields, instruction.values, strict=True):
        if field.kind is Kind.REF and not field.is_written and field.name != "outputs":
            found += value if isinstance(value, tuple) else (value,)
    return found


def session(calls: Calls, number: int, args: Sequence[Any], budget: Budget, tape: Tape | None = None) -> Session:
    """The session of a call of function `number`, with what a tape says of it."""
    return Session(Timeline(calls, number, args, budget, tape or Tape()))
