"""A call as a line of time: it runs to any instruction, forward and back. Its time is the number of instructions executed.

Going back is going forward from an earlier state: snapshots are taken about every `SPACING` seconds of work, as long as all of
them have room, and what is not the program's own (random numbers, what imports gave) comes from the tape the second time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats.bytecode import Decoded, function_words, scan
from ...formats.messages.errors import BudgetExceededError, ExecutionError
from ...vm.budgets import Budget
from ...vm.calls import Calls
from ...vm.context import Context
from ...vm.convert import new_tensor, release
from ...vm.failures import error, start_error
from ...vm.host import HostCall, go_on, perform
from ...vm.imports import Imported, call_imported
from ...vm.in_process import InProcess
from ...vm.layout import CONTEXT, HOOK_OPCODE, OBJECT, TRAP, WORD
from ...vm.memory import set_word, word
from ...vm.observe.loops import Rounds, loops_in
from ...vm.observe.snapshot import Snapshot
from ...vm.places import Place, callers, instruction_at
from ...vm.watch import entrance
from .tape import Tape

SPACING = 0.01  # seconds of work between two snapshots
SHARE = 8  # … and at least this many times what the last snapshot took to take
SNAPSHOT_BYTES = 1 << 30  # of all snapshots of a call
MOST_STATES = 1000
MOST_FRAMES = 4096  # of a state that a snapshot is taken of: a frame takes some 20 µs
_CHUNK = 200_000  # ticks between two looks at the clock: some milliseconds


@dataclass(frozen=True)
class Halt:
    """Why a run has ended: "site", "time", "returned", "error", "budget" or "interrupted"."""

    reason: str
    error: Exception | None = None


@dataclass
class _State:
    """A place to go on from: `time` instructions after the call's start."""

    time: int
    snapshot: Snapshot
    played: int  # of the tape
    rounds: Rounds


class _Clock:
    """The bounds that the engine's helpers ask for: the timeline looks at time and steps itself."""

    may_end = False

    def __init__(self, max_memory: int | None) -> None:
        self.max_memory = max_memory

    def look(self) -> None:
        """Nothing has to be looked at."""

    close = look


class Timeline(InProcess):
    """One call. `close` it: its context serves the machine's other calls then."""

    def __init__(self, calls: Calls, number: int, values: Sequence[Any], budget: Budget, tape: Tape) -> None:
        self.program = calls.image.program
        self.calls, self.number, self.tape, self._budget = calls, number, tape, budget
        self._engine = calls._engine
        self._evaluators = tape.evaluators(self.program, calls._evaluators)
        self._imports = [Imported(each.entry, tape.imported(each.entry.name, each.function)) for each in calls._imports]
        self._host_calls: dict[int, HostCall] = {}
        self.loops = loops_in(calls.image)
        self._codes: dict[frozenset[int], np.ndarray] = {}
        self._decoded: dict[int, dict[int, Decoded]] = {}
        self._edits: dict[int, list[tuple[int, int, np.ndarray]]] = {}  # by time: frame, register, elements
        self.time = self.furthest = 0
        self.end: Halt | None = None  # why the call cannot go on from here
        self.result: Any = None
        self._worked = self._since = 0.0  # seconds, in all and since the last snapshot
        self._cost = 0.0  # seconds that the last one took
        self._is_interrupted = False
        self.context: Context | None = calls._enter(budget)
        try:
            self.context.clock = _Clock(budget.max_memory)
            self.context.rounds = Rounds(self.loops)
            calls._set_arguments(self.context, number, calls.keep(number, values), None)
            trap = self._engine.start(self.context.address, number)
            if trap:
                raise start_error(trap, self.context, number)
            self._states = [self._state()]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the call where it stands."""
        context, self.context = self.context, None
        if context is not None:
            for state in getattr(self, "_states", ()):
                state.snapshot.drop(context)
            self.calls._leave(context)

    def __del__(self) -> None:
        if getattr(self, "context", None) is not None and not sys.is_finalizing():
            self.close()

    # ---- where it stands ----

    @property
    def live(self) -> Context:
        """The context of the call. Raises ExecutionError after `close`."""
        if self.context is None:
            raise ExecutionError("this debugger is closed; machine.debug(…) makes another one")
        return self.context

    def address(self, number: int, offset: int) -> int:
        """An instruction's place in the code: bytes from its start, as the program counter has it."""
        return (self.program.functions[number].start + offset) * WORD

    @property
    def pc(self) -> int:
        return self.live.words[CONTEXT.PC]

    @property
    def frame(self) -> int:
        """The current frame, in bytes from the start of the stack; -1 when the call has returned."""
        return self.live.words[CONTEXT.FRAME]

    def where(self, pc: int) -> tuple[int, int]:
        """The number of the function of an instruction, and the words between that one's start and it."""
        return instruction_at(self.program, pc // WORD)

    @property
    def place(self) -> Place:
        return Place.current(self.live)

    def frames(self) -> list[tuple[int, int]]:
        """Of each frame, the innermost first: where it is, and where its program counter stands."""
        return [(self.frame, self.pc), *callers(self.live, self.frame)] if self.frame >= 0 else []

    def instructions(self, number: int) -> dict[int, Decoded]:
        """A function's instructions by their offsets."""
        if number not in self._decoded:
            words = function_words(self.program, self.program.functions[number])
            self._decoded[number] = {each.offset: each for each in scan(words)}
        return self._decoded[number]

    @property
    def rounds(self) -> Rounds:
        """The iterations that the frames are in."""
        return self.live.rounds

    def iteration(self, frame: int) -> int | None:
        """Which iteration of its innermost loop a frame is in where the call stands, from 0; None where that is in no loop."""
        found = self.rounds.at(frame, *self.where(self.pc))
        return found[0].iteration if found else None

    # ---- forward ----

    def advance(self, sites: Collection[int] = (), until: int | None = None) -> Halt:
        """Goes on to the next of some instructions, but at least by one; to a time, if that is before; or to the end."""
        sites = frozenset(sites)
        if until is not None and self.time >= until:
            return Halt("time")
        halt = self.one() if self.pc in sites else None
        while halt is None:
            if until is not None and self.time >= until:
                return Halt("time")
            edit = min((at for at in self._edits if at > self.time), default=None)
            limits = [each for each in (until, edit, self._budget.max_steps) if each is not None]
            halt = self._go(self._code(sites), min(limits, default=None))
            if halt is not None and halt.reason == "trap":
                halt = Halt("site") if self.pc in sites else self.one()
        return halt

    def one(self) -> Halt | None:
        """Executes one instruction. None, or why the call does not go on."""
        return self._go(self.calls.image.code, self.time + 1)

    def interrupt(self, now: bool = True) -> None:
        """Has the run that goes on end soon, as "interrupted", from any thread; or takes that back."""
        self._is_interrupted = now

    def _go(self, code: np.ndarray, until: int | None) -> Halt | None:
        """As `_run`. Where Ctrl-C ends it, anywhere, the call stands at a state from before."""
        time_ = self.time
        try:
            return self._run(self.live, code, until)
        except BaseException:
            self.restore(self.state_before(time_))
            raise

    @entrance
    def _run(self, context: Context, code: np.ndarray, until: int | None) -> Halt | None:
        """Runs code until it traps, or some instruction after the time `until`, or long enough to look around."""
        if self.end is not None:
            return self.end
        words = context.words
        if self._budget.max_steps is not None and self.time >= self._budget.max_steps:
            return self._ended(Halt("budget", self._passed("steps", f"more than {self._budget.max_steps} steps")))
        pc, frame, before = words[CONTEXT.PC], words[CONTEXT.FRAME], self.time
        given = _CHUNK if until is None else min(_CHUNK, until - self.time)
        words[CONTEXT.CODE], words[CONTEXT.FUEL], words[CONTEXT.WORKED] = code.ctypes.data, given, 0
        start = time.perf_counter()
        failure: Exception | None = None
        trap = self._engine.run(context.address)
        if trap not in (TRAP.SLICE, TRAP.HOOK):
            failure, trap = self._handle(context, trap)
        self.time += given - words[CONTEXT.FUEL] - words[CONTEXT.WORKED] - (failure is not None and trap != TRAP.HOST)
        is_new = self.time > self.furthest
        self.furthest = max(self.furthest, self.time)
        if self.time == before + 1 and pc in self.loops.sites:
            self.rounds.executed(pc, frame, self.pc)
        if failure is not None:
            reason = "budget" if isinstance(failure, BudgetExceededError) else "error"
            return self._ended(Halt(reason, failure))
        if trap in (TRAP.RETURNED, TRAP.IN_PLACE):
            self.result = self.calls._results.taker(self.number)(context)
            return self._ended(Halt("returned"))
        self._edit()
        spent = time.perf_counter() - start
        self._since += spent
        if is_new:
            self._worked += spent
            most = self._budget.max_seconds
            if most is not None and self._worked > most:
                return self._ended(Halt("budget", self._passed("seconds", f"more than {most} s")))
        if self._since > max(SPACING, SHARE * self._cost) and self._budget.max_memory is None:
            self._keep()
        if self._is_interrupted:
            self._is_interrupted = False
            return Halt("interrupted")
        return Halt("trap") if trap == TRAP.HOOK else None

    def _handle(self, context: Context, trap: int) -> tuple[Exception | None, int]:
        """Does what a trap asks for. What the call fails with, if it does; and the trap."""
        try:
            if trap == TRAP.HOST:
                perform(context, self._evaluators, self._host_calls)
            elif trap == TRAP.IMPORT:
                call_imported(context, self._imports, self.calls._results)
            elif trap == TRAP.STOPPED:
                go_on(context)
            elif trap not in (TRAP.RETURNED, TRAP.IN_PLACE):
                raise error(context, trap)
        except Exception as failure:
            return failure, TRAP.HOST if trap in (TRAP.HOST, TRAP.IMPORT) else trap
        return None, trap

    def _passed(self, name: str, what: str) -> BudgetExceededError:
        message = f"the call took {what}; raise max_{name}"
        return BudgetExceededError(message, budget=name, **self.place.where())

    def _ended(self, halt: Halt) -> Halt:
        self.end = halt
        return halt

    def _code(self, sites: frozenset[int]) -> np.ndarray:
        """The program's code with traps at some instructions, where loops go back, and where functions with loops begin."""
        found = self._codes.get(sites)
        if found is None:
            if len(self._codes) > 8:
                self._codes.clear()
            found = self._codes[sites] = self.calls.image.code.copy()
            for at in (*sites, *self.loops.sites):
                found[at // WORD] = HOOK_OPCODE
        return found

    # ---- back ----

    def seek(self, to: int) -> None:
        """Goes to a time, which the call has been at before or will come to."""
        at = self.state_before(to)
        if not (self.end is None and self._states[at].time <= self.time <= to):
            self.restore(at)
        self.advance(until=to)

    def state_before(self, to: int) -> int:
        """The number of the last state that is not after a time."""
        return max(number for number, state in enumerate(self._states) if state.time <= to)

    def restore(self, number: int) -> int:
        """Goes to a state; its time."""
        state, context = self._states[number], self.live
        context.go_on()
        state.snapshot.restore(context)
        self.time, self.end, self.result = state.time, None, None
        self.tape.seek(state.played)
        context.rounds = state.rounds.copy()
        self._since = 0.0
        self._edit()
        return state.time

    def _state(self) -> _State:
        start = time.perf_counter()
        snapshot = Snapshot(self.live)
        self._cost, self._since = time.perf_counter() - start, 0.0
        return _State(self.time, snapshot, self.tape.at, self.rounds.copy())

    def _keep(self) -> None:
        """Takes a snapshot, unless there is one; and drops those that leave the smallest gaps where all take too much."""
        self._since = 0.0
        if self.live.words[CONTEXT.DEPTH] > MOST_FRAMES or any(state.time == self.time for state in self._states):
            return
        self._states.append(self._state())
        self._states.sort(key=lambda state: state.time)
        states = self._states
        while len(states) > 2 and (
            len(states) > MOST_STATES or sum(state.snapshot.nbytes for state in states) > SNAPSHOT_BYTES
        ):
            gaps = {
                at: (states[at + 1].time - states[at - 1].time) / (1 + abs(self.time - states[at].time))
                for at in range(1, len(states) - 1)
            }
            states.pop(min(gaps, key=gaps.__getitem__)).snapshot.drop(self.live)

    # ---- change ----

    def set(self, frame: int, register: int, value: np.ndarray) -> None:
        """Other elements for a tensor, from now on: what was to come is forgotten."""
        for state in [each for each in self._states if each.time > self.time]:
            state.snapshot.drop(self.live)
            self._states.remove(state)
        self._edits = {at: edits for at, edits in self._edits.items() if at <= self.time}
        self._edits.setdefault(self.time, []).append((frame, register, value))
        self.furthest = self.time
        self.tape.forget()
        if self.end is not None and self.end.reason != "returned":
            self.end = None
        self._write(frame, register, value)

    def _edit(self) -> None:
        for frame, register, value in self._edits.get(self.time, ()):
            self._write(frame, register, value)

    def _write(self, frame: int, register: int, value: np.ndarray) -> None:
        """A new tensor in the place of the old one, which others may hold as well: constants, arguments, data values."""
        context = self.live

        def checked(address: int) -> int:
            if address < 0:
                raise error(context, -address)
            return address

        made = new_tensor(context, value, checked)
        refs = context.registers(frame)[0]
        old = word(refs, 2 * register + 1)
        set_word(refs, 2 * register, word(made, OBJECT.DATA))
        set_word(refs, 2 * register + 1, made)
        if old:
            release(context, old)
