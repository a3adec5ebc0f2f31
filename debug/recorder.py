"""`machine.record(path)`: a file of what calls were given from outside, of which `recording.py` makes them again.

What is recorded is what the machine's registers hold: the arguments when a call begins, what imports gave, what was drawn. A
machine whose program neither imports nor draws runs at full speed meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..formats import recording as files
from ..formats.constants import aligned, aligned_empty
from ..formats.messages.errors import ArgumentError
from ..formats.recording import Recording, RecordPart, StoredCall, StoredNote, TensorPart
from ..formats.types import DataType
from ..native.once import Lock
from ..native.platform import host_target
from ..vm.calls import Calls
from ..vm.context import Context
from ..vm.convert import native_type
from ..vm.in_process import InProcess
from ..vm.layout import CONTEXT, KIND, OBJECT, OBJECT_HEAD
from ..vm.memory import word, words
from ..vm.observe.hooks import CallListener, Event
from ..vm.places import Place
from ..vm.tensor import Tensor
from ..vm.values import DataValue
from .debugger.session import session
from .debugger.tape import drawing
from .debugger.values import elements

__all__ = ["Recorder", "session"]  # what a machine asks of the debugger

MOST_BYTES = 1 << 30  # of a recording, where nobody says so
_PART_BYTES = 64  # that a value counts besides its elements
# Bytes of memory for copies: NumPy asks for large pages then, and to touch those first takes a twentieth of the time
_BLOCK = 16 << 20


class _FullError(Exception):
    """A recording has no room for a call."""


class Recorder(CallListener, InProcess):
    """Records the calls that a machine makes between `start` and `stop`, which writes the file; `with` does both."""

    def __init__(self, machine: Any, path: str | os.PathLike, most_bytes: int = MOST_BYTES, file: str = "") -> None:
        """`file` names the file of the program, where the executable was not loaded from one."""
        self._machine, self._path, self._left = machine, path, most_bytes
        calls: Calls = machine._calls
        program = calls.image.program
        self._draws = frozenset(drawing(program))
        self.operations = frozenset({"call_import"} | ({"call", "call_host"} if self._draws else set()))
        origin = machine.executable._origin
        name = os.path.basename(origin.paths[0] if origin else file)  # folders are nobody's business elsewhere
        self._made = Recording(calls.image.digest, name, host_target().key)
        self._open: dict[int, _Call] = {}  # that run, by their contexts' addresses
        self._done: list[_Call] = []
        self._copies = _Copies()

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Records the calls that begin from now on."""
        self._machine._listen(add=(self,))

    def stop(self) -> None:
        """Writes what was recorded. Raises FileError, LimitError."""
        self._machine._listen(remove=(self,))
        done, self._done = self._done, []
        for call in done:
            self._add(call)
        files.save(self._made, self._path)

    # ---- what the machine tells ----

    def began(self, context: Context, number: int) -> None:
        function = context.image.program.functions[number]
        call = self._open[context.address] = _Call(function.name, self._left, self._copies)
        refs = context.registers()[0]
        call.add(lambda: call.arguments.extend(call.registers(context, refs, range(len(function.param_names)))))

    def after(self, event: Event) -> None:
        call = self._open.get(event._context.address)
        if call is None or (event.primitive is not None and event.instruction.word("prim") not in self._draws):
            return
        registers = event.registers("outputs" if event.operation.has("outputs") else "dst")
        refs = event._context.registers(event._frame)[0]
        context = event._context
        call.add(lambda: call.notes.append(StoredNote(event.name, tuple(call.registers(context, refs, registers)), "")))

    def ended(self, context: Context, value: Any, failure: Exception | None) -> None:
        call = self._open.pop(context.address, None)
        if call is None:
            return
        if failure is not None and context.words[CONTEXT.FRAME] >= 0:
            instruction = Place.current(context).instruction
            if instruction.operation.has("imported"):
                source = context.image.program.imports[instruction.word("imported")].name
                call.notes.append(StoredNote(source, (), _text(failure)))
        if call.is_full:
            self._made.left_out += 1
            return
        # what can wait, waits: after kernels, Python has little in the processor's caches
        self._left = call.left
        if failure is not None:
            call.error = _text(failure)
        else:
            call.result = self._copies(value.array) if type(value) is Tensor else digest_of_value(value)
        self._done.append(call)

    def _add(self, call: _Call) -> None:
        """The call's values, behind those of the calls before."""
        made = self._made
        values, tensors = len(made.values), len(made.tensors)
        made.values += [_shifted(each, values, tensors) for each in call.values]
        made.tensors += call.tensors
        notes = [each._replace(values=tuple(at + values for at in each.values)) for each in call.notes]
        arguments = tuple(at + values for at in call.arguments)
        result = call.result if isinstance(call.result, str) else digest_of_value(call.result)
        made.calls.append(StoredCall(call.function, arguments, tuple(notes), result, call.error))


class _Copies:
    """Copies of arrays, in blocks of memory."""

    def __init__(self) -> None:
        self._block, self._used, self._lock = aligned_empty(0), 0, Lock()

    def __call__(self, array: np.ndarray) -> np.ndarray:
        size = array.nbytes
        if array.dtype == object or size > _BLOCK:
            return array.copy()
        with self._lock:
            if self._used + size > len(self._block):
                self._block, self._used = aligned_empty(_BLOCK), 0
            place = self._block[self._used : self._used + size]
            self._used += aligned(size)
        copy = place.view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy


class _Call:
    """A call that is being recorded."""

    def __init__(self, function: str, left: int, copy: _Copies) -> None:
        self.function, self.left, self.is_full, self._copy = function, left, False, copy
        self.result: str | np.ndarray = ""  # or its digest
        self.error = ""
        self.arguments: list[int] = []
        self.notes: list[StoredNote] = []
        self.values: list[TensorPart | RecordPart] = []
        self.tensors: list[np.ndarray] = []

    def add(self, what: Any) -> None:
        """Does `what`, as long as there is room for all of the call."""
        if not self.is_full:
            try:
                what()
            except _FullError:
                self.is_full = True
                self.values, self.tensors = [], []

    def registers(self, context: Context, refs: int, registers: Any) -> Iterator[int]:
        """The numbers of the values in registers."""
        for register in registers:
            yield self._value(context, word(refs, 2 * register), word(refs, 2 * register + 1))

    def _value(self, context: Context, data: int, reference: int) -> int:
        """The number of a value; what is nested waits on a stack."""
        done: list[int] = []
        todo = [(data, reference, False)]
        while todo:
            data, reference, is_open = todo.pop()
            address = reference & ~1
            kind, count = word(address, OBJECT.KIND), word(address, OBJECT.COUNT)
            if kind == KIND.TENSOR:
                array = elements(data, reference)
                self._pay(array.nbytes)
                self.tensors.append(self._copy(array))
                done.append(self._put(TensorPart(len(self.tensors) - 1)))
            elif kind != KIND.DATA:
                raise ArgumentError(
                    f"record: {self.function} is given a closure, which belongs to its machine; record a call of a function "
                    "that makes it"
                )
            elif is_open:
                first = len(done) - count
                type_ = native_type(context.image, reference)
                name, tag = (str(type_), word(address, OBJECT.TAG)) if isinstance(type_, DataType) else ("", 0)
                done[first:] = [self._put(RecordPart(name, tag, tuple(done[first:])))]
            else:
                todo.append((data, reference, True))
                fields = words(address + OBJECT_HEAD, count)
                todo += [(word(each & ~1, OBJECT.DATA), each, False) for each in reversed(fields)]
        return done[0]

    def _put(self, part: TensorPart | RecordPart) -> int:
        self._pay(_PART_BYTES)
        self.values.append(part)
        return len(self.values) - 1

    def _pay(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise _FullError


def _shifted(part: TensorPart | RecordPart, values: int, tensors: int) -> TensorPart | RecordPart:
    if isinstance(part, TensorPart):
        return TensorPart(part.tensor + tensors)
    return part._replace(fields=tuple(at + values for at in part.fields))


def _text(failure: Exception) -> str:
    return f"{type(failure).__name__}: {failure}"[:1000]


# ---- digests ----


def digest_of_value(value: Any) -> str:
    """Of a result: types, shapes and elements."""
    made = hashlib.sha256()
    todo = [value]
    while todo:
        each = todo.pop()
        if hasattr(each, "__array__"):
            array = np.asarray(each)
            made.update(f"{array.dtype.str}{array.dtype.type.__name__}{array.shape}".encode())
            is_text = array.dtype == object
            made.update(repr(array.tolist()).encode() if is_text else np.ascontiguousarray(array).view(np.uint8).data)
        elif isinstance(each, DataValue):
            made.update(f"{each.type_name}.{each.constructor}({len(each.fields)} ".encode())
            todo += reversed(each.fields)
        elif isinstance(each, (tuple, list)):
            made.update(f"({len(each)} ".encode())
            todo += reversed(each)
        elif isinstance(each, Mapping):
            made.update(b"{" + repr(list(each)).encode())
            todo += reversed(list(each.values()))
        else:
            made.update(repr(each).encode())  # of a closure its name and type
    return made.hexdigest()
