"""Recordings that are read: `load_recording(path)` makes the calls again, to the bit, elsewhere, step by step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats import recording as files
from ..formats.messages.calling import Suggesting, public, public_class
from ..formats.messages.errors import ArgumentError, ExecutionError
from ..formats.recording import Recording, StoredCall, StoredNote, TensorPart
from ..vm.machine import VirtualMachine
from ..vm.values import DataValue
from .debugger.session import Session, session
from .debugger.tape import Note, Tape
from .recorder import digest_of_value

if TYPE_CHECKING:
    from ..formats.executable import Executable


@dataclass(frozen=True)
class Replayed:
    """A call that was made again: `same` if it gave what it gave before, to the bit, or failed as it did. `given` are arguments
    that were results of calls before, `unlike` what made its result another than that of a call with the same arguments."""

    function: str
    same: bool
    result: Any
    error: Exception | None
    expected: str  # the error that was recorded; "" for a result
    number: int
    given: tuple[str, ...] = ()
    unlike: str = ""

    def __str__(self) -> str:
        head = f"call {self.number}, {self.function}{' with ' * bool(self.given)}{', '.join(self.given)}"
        if self.same:
            return f"{head}: the same {'error' if self.error else 'result, to the bit'}{self.unlike}"
        was = self.expected or "a result"
        got = (
            f"{type(self.error).__name__}: {self.error}"
            if self.error
            else "a result"
            if self.expected
            else "another one"
        )
        return f"{head}: recorded was {was}, now it is {got}{self.unlike}"


class _Given:
    """What calls have been given so far, and what they have made, by digests."""

    def __init__(self) -> None:
        self._results: dict[str, str] = {}
        self._calls: dict[tuple[str, ...], tuple[int, str, list]] = {}

    def by(self, names: Sequence[str], values: Sequence[str]) -> tuple[str, ...]:
        """Of which calls, the latest that made it, arguments are results."""
        return tuple(
            f"{name} = {self._results[each]}" for name, each in zip(names, values, strict=True) if each in self._results
        )

    def made(self, call: int, result: Any) -> None:
        for place, each in enumerate(result if isinstance(result, tuple) else (result,)):
            of = f"result {place} of call {call}" if isinstance(result, tuple) else f"the result of call {call}"
            self._results[digest_of_value(each)] = of

    def unlike(self, stored: StoredCall, values: Sequence[str], notes: list, call: int) -> str:
        """Why the result is another than that of the first call with the same arguments; "" if it is the same."""
        first, result, before = self._calls.setdefault((stored.function, *values), (call, stored.result, notes))
        if result == stored.result:
            return ""
        source = next((mine[0] for mine, other in zip(notes, before, strict=False) if mine != other), "")
        why = f": {source} gave other values" if source else ""
        return f"; but not that of call {first}, which had the same arguments{why}"


@public_class
class Recorded(Suggesting):
    """A recording that was read: `load_recording(path)` gives it."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __repr__(self) -> str:
        return f"<Recorded: {len(self)} calls of program {self._recording.program[:12]}>"

    def __len__(self) -> int:
        return len(self._recording.calls)

    @property
    def file(self) -> str:
        """The file that the program was read from, "" if it was not."""
        return self._recording.file

    @property
    def left_out(self) -> int:
        """Calls for which the recording had no room."""
        return self._recording.left_out

    def machine(self, executable: Executable, **options: Any) -> VirtualMachine:
        """A machine of the program, without the functions that it imports. Raises ArgumentError for another program."""
        names = [each.name for each in executable.program.imports]
        made = VirtualMachine(executable, imports={name: _missing(name) for name in names}, **options)
        found = made._calls.image.digest
        if found != self._recording.program:
            raise ArgumentError(
                f"the recording is of program {self._recording.program[:12]}, this is {found[:12]}; take the one that ran, "
                f"{self.file or 'which was not read from a file'}, with the weights that it had"
            )
        return made

    def replay(self, machine: VirtualMachine, call: int | None = None) -> list[Replayed]:
        """Makes the calls again, or one of them, and compares what they give."""
        if call is not None:
            return [self._replayed(machine, self._number(call))]
        made: list[Replayed] = []
        given = _Given()
        for at, stored in enumerate(self._recording.calls):
            replayed = self._replayed(machine, at)
            names = [port.name for port in machine.executable.inputs(stored.function)]
            values = [digest_of_value(self.value(each)) for each in stored.arguments]
            notes = [(each.source, [digest_of_value(self.value(v)) for v in each.values]) for each in stored.notes]
            made.append(
                replace(replayed, given=given.by(names, values), unlike=given.unlike(stored, values, notes, at))
            )
            given.made(at, replayed.result)
        return made

    def debug(self, machine: VirtualMachine, call: int = -1) -> Session:
        """A session of a call; by default of the last one."""
        return self._session(machine, self._number(call))

    def _replayed(self, machine: VirtualMachine, at: int) -> Replayed:
        stored = self._recording.calls[at]
        with self._session(machine, at) as debugged:
            debugged.breakpoints.clear()
            stop = debugged.resume()
            result = debugged.result if stop.reason == "returned" else None
            error = stop.error
        same = not error and not stored.error and digest_of_value(result) == stored.result
        if error and stored.error:
            same = type(error).__name__ == stored.error.partition(":")[0] or _PLAYED in str(error)
        return Replayed(stored.function, same, result, error, stored.error, at)

    def _session(self, machine: VirtualMachine, at: int) -> Session:
        stored, calls = self._recording.calls[at], machine._calls
        functions = [each.name for each in machine.executable.program.functions]
        if stored.function not in functions:
            raise ArgumentError(f"the recording calls {stored.function!r}, which the program does not have")
        number = functions.index(stored.function)
        expected = len(machine.executable.program.functions[number].param_names)
        if len(stored.arguments) != expected:
            raise ArgumentError(
                f"{stored.function} takes {expected} arguments, the recording has {len(stored.arguments)}"
            )
        imports = {each.name for each in machine.executable.program.imports}
        notes = [self._note(each, each.source in imports) for each in stored.notes]
        return session(calls, number, [self.value(each) for each in stored.arguments], machine._budget, Tape(notes))

    def _note(self, note: StoredNote, is_import: bool) -> Note:
        if note.error:
            return Note(note.source, None, ExecutionError(f"{_PLAYED} {note.source}: {note.error}"))
        values = [self.value(each) for each in note.values]
        return Note(note.source, values[0] if is_import and values else values)

    def value(self, number: int) -> Any:
        """A value of the recording, whose parts stand before it."""
        parts, made = self._recording.values, dict[int, Any]()
        todo = [number]
        while todo:
            at = todo[-1]
            part = parts[at]
            if isinstance(part, TensorPart):
                made[at] = self._recording.tensors[part.tensor]
            elif missing := [each for each in part.fields if each not in made]:
                todo += missing
                continue
            else:
                fields = tuple(made.pop(each) for each in part.fields)
                made[at] = DataValue(part.tag, fields, part.type) if part.type else fields
            todo.pop()
        return made[number]

    def _number(self, call: int) -> int:
        if isinstance(call, bool) or not isinstance(call, int) or not -len(self) <= call < len(self):
            raise ArgumentError(f"the recording has {len(self)} calls; there is no call {call!r}")
        return call % len(self)


_PLAYED = "recorded of the import"


def _missing(name: str) -> Any:
    def call(*_: Any) -> None:
        raise ExecutionError(f"replay: the recording ends before this call of the import {name!r}")

    return call


@public
def load_recording(path: str | os.PathLike | bytes) -> Recorded:
    """The recording in a file, or in its bytes, all of it checked. Raises FormatError, FileError."""
    return Recorded(files.load(path))


def beside(recorded: Recorded, path: str | os.PathLike) -> Path | None:
    """The program's file, by its name alone: beside the recording, or in the working directory."""
    name = os.path.basename(recorded.file)  # a file must not make a reader look elsewhere
    found = [folder / name for folder in (Path(path).parent, Path()) if name and (folder / name).is_file()]
    return found[0] if found else None
