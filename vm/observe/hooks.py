"""Hooks: listeners that see a program run, instruction by instruction, and that the engine knows nothing of.

While a machine has listeners, its calls run a copy of the code in which the instructions that someone listens to are replaced by
a word that is not an opcode. The engine traps there; the listeners are told; the original instruction is executed alone;
the listeners are told again. Without listeners nothing is different.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import IntEnum
from typing import Any

import numpy as np

from ...formats.bytecode import Decoded, function_words, scan
from ...formats.dtypes import DType
from ...formats.isa import OPERATIONS, Operation, Role, with_role
from ...formats.messages.calling import Suggesting, public_class, told
from ...formats.messages.choices import Choices
from ...formats.messages.errors import ArgumentError, ShapeError
from ...formats.messages.names import near
from ...formats.messages.readable import brief
from ...formats.primitive import Primitive
from ...formats.types import TensorType
from ..context import Context
from ..image import Image
from ..in_process import InProcess
from ..layout import CONTEXT, HOOK_OPCODE, KIND, OBJECT, WORD
from ..memory import array_at, word
from ..places import Place, node_at
from .parts_log import Part


class InstrumentAction(IntEnum, metaclass=Choices):
    """A listener's request for the current instruction."""

    NO_OP = 0
    SKIP_RUN = 1  # calls of primitives alone: outputs are what listeners have set them to, zeros where they have not

    @classmethod
    def _missing_(cls, value: object) -> InstrumentAction:
        if isinstance(value, str) and value in cls.__members__:
            return cls[value]
        expected = " or ".join(f"{int(each)} ({each.name})" for each in cls)
        raise ArgumentError(f"InstrumentAction: expected {expected}, got {brief(value)}")


NO_OP, SKIP_RUN = InstrumentAction
_OVER: Any = None  # in place of the context of an event that is over


class Site:
    """An instruction with listeners: what is the same each time that it is executed. That is found out before the call:
    after a kernel, Python has little in the caches of what it needs."""

    __slots__ = ("function", "image", "instruction", "is_static", "number", "operation", "primitive")

    def __init__(self, image: Image, number: int, instruction: Decoded) -> None:
        self.image, self.function, self.number = image, image.program.functions[number], number
        self.instruction, self.operation = instruction, instruction.operation
        self.primitive: Primitive | None = None
        self.is_static = True  # whether the tensors of a primitive always have the shapes that its definition says
        if self.operation.has("prim"):
            self.primitive = image.program.primitives[instruction.word("prim")]
            self.is_static = all(type_.is_static for type_ in self.tensor_types())

    def tensor_types(self) -> tuple[TensorType, ...]:
        """Of a call of a primitive: inputs, then outputs."""
        assert self.primitive is not None
        return (*self.primitive.definition.params, *self.primitive.definition.results)

    @property
    def node(self) -> str | None:
        """The model node that the instruction comes from."""
        return node_at(self.image.program, self.number, self.instruction.offset)

    @property
    def callee(self) -> str | None:
        """The name of the function that an invoke calls."""
        return self.image.program.functions[self.instruction.word("func")].name if self.operation.has("func") else None

    @property
    def imported(self) -> str | None:
        """The name of the function of Python's that a call_import calls."""
        if not self.operation.has("imported"):
            return None
        return self.image.program.imports[self.instruction.word("imported")].name


class Event(Suggesting):
    """An instruction about to be executed, or just executed, in a running call. Valid while the listener runs."""

    __slots__ = ("_context", "_frame", "_written", "site")

    def __init__(self, context: Context, site: Site) -> None:
        if type(site) is not Site or type(context) is not Context:
            raise ArgumentError("Event: a machine makes events and gives them to its listeners; nobody else can")
        self.site = site
        self._context, self._frame = context, context.words[CONTEXT.FRAME]
        # of the outputs, those that a listener has set; None once the instruction was executed. What the memory of the others
        # held before is not for a listener to see
        self._written: tuple[int, ...] | None = ()

    def __repr__(self) -> str:
        node = f" from {self.node!r}" if self.node else ""
        what = self.operation.name if self.name == self.operation.name else f"{self.operation.name} {self.name}"
        return f"<Event {what} in {self.function}{node}>"

    @property
    def _place(self) -> Place:
        if self._context is _OVER:
            raise ArgumentError(
                f"{self!r} is over: what it tells of tensors can be asked while the listener runs; keep copies of these"
            )
        site = self.site
        return Place(self._context, site.function, site.number, site.instruction.offset, self._frame)

    @property
    def instruction(self) -> Decoded:
        return self.site.instruction

    @property
    def operation(self) -> Operation:
        return self.site.operation

    @property
    def function(self) -> str:
        """The name of the function whose instruction it is."""
        return self.site.function.name

    @property
    def name(self) -> str:
        """Of the primitive, or of the function that is called; of other instructions that of the operation."""
        return self.primitive.name if self.primitive else self.callee or self.imported or self.operation.name

    @property
    def node(self) -> str | None:
        """The model node that the instruction comes from."""
        return self.site.node

    @property
    def primitive(self) -> Primitive | None:
        """The primitive of a call."""
        return self.site.primitive

    @property
    def callee(self) -> str | None:
        """The name of the function that an invoke calls."""
        return self.site.callee

    @property
    def imported(self) -> str | None:
        """The name of the function of Python's that a call_import calls."""
        return self.site.imported

    def registers(self, field: str) -> tuple[int, ...]:
        """The registers that a field names: "inputs", "outputs" of a call; `operation.fields` has those of any instruction.
        Raises ArgumentError."""
        if not isinstance(field, str) or not self.operation.has(field):
            known = [each.name for each in self.operation.fields]
            raise ArgumentError(
                f"registers: {self.operation.name} has no field {field!r}; there are {', '.join(known)}{near(field, known)}"
            )
        value = self.instruction.values[self.operation.position(field)]
        return value if isinstance(value, tuple) else (value,)

    @property
    def tensors(self) -> tuple[int, ...]:
        """The registers of a call's tensors: inputs, then outputs."""
        outputs = "outputs" if self.operation.has("outputs") else "dst"
        return self.registers("inputs") + self.registers(outputs)

    def inputs(self) -> list[np.ndarray]:
        """Copies of the tensors that a call of a primitive reads."""
        return [self.tensor(register) for register in self.registers("inputs")]

    def outputs(self) -> list[np.ndarray]:
        """Copies of the tensors that a call of a primitive writes: zeros before it has."""
        return [self.tensor(register) for register in self.registers("outputs")]

    def describe(self, register: int) -> str:
        """The element type and shape of the tensor in a reference register, as "float32[2, 3]". Raises ArgumentError where the
        register holds no tensor."""
        view = self._view(register)
        return f"{view.dtype.name}[{', '.join(map(str, view.shape))}]"

    def shape(self, register: int) -> tuple[int, ...]:
        """The shape of the tensor in a reference register that the instruction reads or has written."""
        return self._place.shape(register)

    def nbytes(self, register: int) -> int:
        """The bytes of the elements of the tensor in a reference register. Raises ArgumentError where it holds none."""
        return self._view(register).nbytes

    @property
    def sizes(self) -> tuple[int, ...]:
        """The values of the dimension variables of a call of a primitive."""
        return tuple(map(self._place.integer, self.registers("dims")))

    def integer(self, register: int) -> int:
        """The value of an integer register that the instruction reads or has written."""
        return self._place.integer(register)

    @property
    def parts(self) -> list[Part]:
        """After a call of a primitive that threads shared: which thread did which part. Else empty, and without `wants_parts`."""
        log = self._context.parts_log
        return [] if log is None else log.parts()

    def is_constant(self, register: int) -> bool:
        """True if a reference register holds a constant of the program."""
        constants = self._context.image.constants
        return bool((constants[:, 1] == self._place.reference(register)).any())

    def address(self, register: int) -> int:
        """Where the elements of the tensor in a reference register lie, which tells tensors apart."""
        return self._place.data(register)

    def tensor(self, register: int) -> np.ndarray:
        """A copy of the tensor in a reference register, zeros where the call is yet to write it. Raises ArgumentError where
        the register holds no tensor."""
        view = self._view(register)
        is_blank = register in self._blank and register not in self.registers("inputs")
        return np.zeros_like(view) if is_blank else view.copy()

    def set_tensor(self, register: int, value: np.ndarray) -> None:
        """Overwrites the elements of a tensor that the instruction writes into. Raises ArgumentError, ShapeError."""
        view = self._view(register)
        try:
            view[...] = value
        except (TypeError, ValueError):
            got = f"shape {list(np.shape(value))}" if isinstance(value, np.ndarray) else told(value)
            kind = ShapeError if isinstance(value, np.ndarray) and value.dtype.kind != "O" else ArgumentError
            raise kind(f"set_tensor: r{register} is {self.describe(register)}, got {got}") from None
        if self._written is not None:
            self._written += (register,)

    @property
    def _blank(self) -> set[int]:
        """The outputs that nobody has written yet."""
        if self._written is None or not self.operation.has("outputs"):
            return set()
        return set(self.registers("outputs")).difference(self._written)

    def skipped(self) -> None:
        """The call will not be executed: what nobody has set becomes zeros."""
        for register in self._blank:
            self._view(register)[...] = 0
        self._written = None

    def executed(self) -> None:
        """The instruction has been executed."""
        self._written = None

    def end(self) -> None:
        """The listeners have been told: what memory holds from now on is nobody's."""
        self._context = _OVER

    def _view(self, register: int) -> np.ndarray:
        place = self._place
        if isinstance(register, bool) or not isinstance(register, (int, np.integer)):
            raise ArgumentError(f"expected the number of a register, as registers gives them, got {told(register)}")
        reference = place.reference(register) if 0 <= register < place.function.ref_registers else 0
        if not reference or word(reference & ~1, OBJECT.KIND) != KIND.TENSOR:
            raise ArgumentError(f"r{register} holds no tensor here", **place.where())
        dtype = DType.from_code(word(place.reference(register) & ~1, OBJECT.TAG)).numpy
        return array_at(place.data(register), dtype, place.shape(register))


@public_class
class Listener:
    """Is told what happens, by the methods that you override.

    `operations` are the names of the instructions that it is told of, `{"call"}` for calls of primitives; None: all.
    `wants_parts` says whether threads note which parts of kernels they do, for `Event.parts`. What a method raises ends the call.
    """

    operations: Collection[str] | None = None
    wants_parts = False

    def __init__(self) -> None:
        """Takes nothing; subclasses take what they like."""

    def before(self, event: Event) -> InstrumentAction | None:
        """An instruction is about to be executed. `SKIP_RUN` skips a call of a primitive."""

    def after(self, event: Event) -> None:
        """It was executed. After an invoke the callee is about to begin; a ret of the outermost frame has no after."""

    def error(self, failure: Exception) -> None:
        """The call fails: with an error of the machine's, or with what a function of Python's raised that it has imported."""


class CallListener(Listener):
    """Is told of calls besides: where each begins, and how it ends. What it is told is the machine's own."""

    def began(self, context: Context, number: int) -> None:
        """A call of function `number` is about to execute its first instruction."""

    def ended(self, context: Context, value: Any, failure: Exception | None) -> None:
        """It has returned a value, or fails where the context stands."""


def wanted(listener: Listener) -> frozenset[str] | None:
    """Its `operations`. Raises ArgumentError for anything but names of instructions."""
    names, where = listener.operations, f"{type(listener).__name__}.operations"
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ArgumentError(f"{where}: expected None, or a set of names of instructions, got {brief(names)}")
    known = [operation.name for operation in OPERATIONS]
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"{where}: there is no instruction {brief(name)}{near(name, known)}; "
                "primitives and functions are known by event.name, in listeners to {'call'} and {'invoke'}"
            )
    return frozenset(names)


def action(value: Any) -> InstrumentAction:
    """The action that a listener or instrument returned. Raises ArgumentError for anything but None and an action."""
    return NO_OP if value is None else InstrumentAction(value)


CALLS = with_role(Role.WORKS)
ALLOCATIONS = with_role(Role.MAKES)


class Instrument(Listener):
    """TVM's instrument: `callback(primitive, symbol, before_run, result, *tensors)` before and after each call.

    `tensors` are copies of the inputs, then of the outputs, zeros before the run. When the callback returns SKIP_RUN then, the
    primitive is not run, and what the callback wrote into the outputs, zeros where it wrote nothing, is its result.
    """

    operations = frozenset({"call"})

    def __init__(self, callback: Callable[..., Any]) -> None:
        self._callback = callback

    def before(self, event: Event) -> InstrumentAction | None:
        inputs, outputs = self._tensors(event)
        for output in outputs:
            output[...] = 0  # one that overwrites an input is no other
        assert event.primitive is not None
        given = self._callback(event.primitive, event.primitive.name, True, None, *inputs, *outputs)
        if action(given) is not SKIP_RUN:
            return NO_OP
        for register, output in zip(event.registers("outputs"), outputs, strict=True):
            event.set_tensor(register, output)
        return SKIP_RUN

    def after(self, event: Event) -> None:
        inputs, outputs = self._tensors(event)
        assert event.primitive is not None
        result = outputs[0] if len(outputs) == 1 else tuple(outputs)
        self._callback(event.primitive, event.primitive.name, False, result, *inputs, *outputs)

    @staticmethod
    def _tensors(event: Event) -> tuple[list[np.ndarray], list[np.ndarray]]:
        inputs, outputs = event.registers("inputs"), event.registers("outputs")
        return [event.tensor(r) for r in inputs], [event.tensor(r) for r in outputs]


class HookedCode(InProcess):
    """A program's code with traps where the listeners listen."""

    def __init__(self, image: Image, listeners: Iterable[Listener]) -> None:
        self.listeners = tuple(listeners)
        self.of_calls = tuple(listener for listener in self.listeners if isinstance(listener, CallListener))
        self.wants_parts = any(listener.wants_parts for listener in self.listeners)
        self._original = image.code.ctypes.data
        self._words = image.code.copy()
        # by bytes from the start of the code, as the program counter has them; a site has no listeners, who may keep it
        self._sites: dict[int, tuple[Site, tuple[Listener, ...]]] = {}
        wishes = [(listener, wanted(listener)) for listener in self.listeners]
        told_of = {
            operation.name: tuple(each for each, names in wishes if names is None or operation.name in names)
            for operation in OPERATIONS
        }
        for number, function in enumerate(image.program.functions):
            for instruction in scan(function_words(image.program, function)):
                operation = instruction.operation
                if told_of[operation.name]:
                    at = function.start + instruction.offset
                    self._sites[at * WORD] = Site(image, number, instruction), told_of[operation.name]
                    self._words[at] = HOOK_OPCODE
        self.address = self._words.ctypes.data

    def step(self, context: Context, run_one: Callable[[Context], int]) -> int:
        """Executes the instruction that trapped, with its listeners told. Returns what `run_one`, which executes one
        instruction, returns: the trap that ends the call, or -1 when it goes on."""
        site, listeners = self._sites[context.words[CONTEXT.PC]]
        event, skips = Event(context, site), False
        try:
            for listener in listeners:  # each is told, also when an earlier one skips
                skips |= action(listener.before(event)) is SKIP_RUN
            if skips and site.operation.has("outputs"):
                event.skipped()
                context.words[CONTEXT.PC] += site.instruction.size * WORD
                return -1
            trap = self._run_original(context, run_one)
            event.executed()
            if site.operation.name != "ret":
                for listener in listeners:
                    listener.after(event)
            return trap
        finally:
            event.end()

    def _run_original(self, context: Context, run_one: Callable[[Context], int]) -> int:
        if context.parts_log is not None:
            context.parts_log.clear()
        fuel, worked = context.words[CONTEXT.FUEL], context.words[CONTEXT.WORKED]
        context.words[CONTEXT.CODE], context.words[CONTEXT.FUEL] = self._original, 1
        try:
            return run_one(context)
        finally:
            context.words[CONTEXT.CODE], context.words[CONTEXT.FUEL] = self.address, fuel - 1
            context.words[CONTEXT.WORKED] = worked
