"""Host primitives: what the engine leaves to Python, done by the operators' reference implementations.

A `call` whose primitive has no native code writes into tensors that are there already; a `call_host` makes new ones, whose shapes
may depend on the elements.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from ..formats import dims
from ..formats.messages.errors import (
    BudgetExceededError,
    CancelledError,
    ExecutionError,
    IndexOutOfRangeError,
    OutOfMemoryError,
    ShapeError,
    TreadleError,
)
from ..formats.metering import Meter, free, meter
from ..formats.primitive import PrimitiveDefinition
from ..formats.strings import characters, hold
from ..formats.types import UNKNOWN, TensorType
from . import library
from .array_memory import bounded
from .aside import Job, too_many_left
from .blas import one_thread
from .context import UNLIMITED, Context
from .convert import new_tensor, release
from .failures import error, memory_error
from .layout import CONTEXT, OBJECT, TRAP, WORD
from .memory import array_at, set_word, word, words
from .places import Place

# Elements of all tensors of an operator that is done at once, by the calling thread
_TINY = 64  # even square loops of Python's are done within a millisecond
_BLAS = 8192  # from which on threads of BLAS may share a product: OpenBLAS's do from matrices of 9216 elements on
_FEW = 4096  # characters of the texts of such an operator: what may take steps for each pair of them looks whether it is to end
_KNOWN = 64  # sizes of calls whose shapes are kept
_SHORT = 1 << 16  # where nothing but Ctrl-C can end the call

Shape = tuple[Union[int, None], ...]  # None: a dimension that depends on elements


@dataclass(frozen=True)
class HostCall:
    """An instruction that calls a host primitive: what is the same each time."""

    number: int  # of the primitive
    name: str
    definition: PrimitiveDefinition
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dims: tuple[int, ...]
    makes_results: bool
    size: int  # words
    dtypes: tuple[np.dtype, ...]  # of all values
    types: tuple[TensorType, ...]
    has_texts: bool
    largest: int  # the greatest product of integers in one: sizes of windows, numbers of rounds
    # of all values the shapes, and how many elements they have together, by the sizes of calls before
    known: dict[tuple[int, ...], tuple[tuple[Shape, ...], int]] = field(default_factory=dict)

    @staticmethod
    def at(place: Place) -> HostCall:
        instruction = place.instruction
        makes_results = instruction.operation.has("dst")
        primitive = place.context.image.program.primitives[instruction.word("prim")]
        definition = primitive.definition
        types = definition.values
        return HostCall(
            instruction.word("prim"),
            primitive.name,
            definition,
            instruction.list("inputs"),
            instruction.list("dst" if makes_results else "outputs"),
            instruction.list("dims"),
            makes_results,
            instruction.size,
            tuple(type_.dtype.numpy for type_ in types),
            types,
            any(type_.dtype.is_string for type_ in types),
            max((_product(value) for node in definition.nodes for _, value in node.attributes), default=1),
        )

    def shapes_for(self, sizes: tuple[int, ...], context: Context) -> tuple[tuple[Shape, ...], int]:
        """The shapes of all values as far as they are known, and their elements together, where unknown dimensions count as 1."""
        found = self.known.get(sizes)
        if found is not None:
            return found
        values = dict(zip(self.definition.variables, sizes, strict=True))
        try:
            shapes = _shapes(self.types, values)
        except ZeroDivisionError:
            message = f"primitive {self.name}: a dimension is divided by zero for {values}"
            raise ExecutionError(message, **Place.current(context).where()) from None
        if len(self.known) >= _KNOWN:
            self.known.clear()
        elements = sum(math.prod(1 if dim is None else max(0, dim) for dim in shape) for shape in shapes)
        self.known[sizes] = shapes, elements
        return shapes, elements


def _product(value: Any) -> int:
    """Of the integers in an attribute."""
    parts = value if isinstance(value, tuple) else (value,)
    return math.prod(abs(part) or 1 for part in parts if isinstance(part, int))


def _shapes(types: Sequence[TensorType], values: Mapping[str, int]) -> tuple[Shape, ...]:
    return tuple(
        tuple(
            dim if isinstance(dim, int) else None if dim is UNKNOWN else dims.evaluate(dim, values)  # type: ignore[arg-type]
            for dim in type_.shape
        )
        for type_ in types
    )


def perform(context: Context, evaluators: dict[int, library.Evaluate], calls: dict[int, HostCall]) -> None:
    """Does the call or call_host at the context's program counter, and moves that past it. Raises what the operator raises.

    `evaluators` of primitives, and `calls` by the place of their instruction, are those that were met before.
    """
    at = context.words[CONTEXT.PC]
    call = calls.get(at)
    if call is None:
        call = calls[at] = HostCall.at(Place.current(context))
    registers, integers = context.registers()
    sizes = tuple([operand if operand >= 0 else word(integers, ~operand) for operand in call.dims])
    shapes, elements = call.shapes_for(sizes, context)
    _check_room(context, call, shapes)
    arrays = [
        _array(registers, register, dtype, shape, writeable=False)
        for register, dtype, shape in zip(call.inputs, call.dtypes, shapes)  # noqa: B905 (the parameters come first)
    ]
    results = _evaluate(context, call, arrays, sizes, evaluators, elements)
    if context.texts is not None:
        _check_room(context, call, shapes)
    _check(context, call, results, shapes)
    for register, result in zip(call.outputs, results, strict=True):
        if call.makes_results:
            _set_register(context, registers, register, result)
        else:
            _array(registers, register, result.dtype, result.shape)[...] = result
    context.words[CONTEXT.PC] += call.size * WORD
    context.words[CONTEXT.FUEL] -= 1


def _array(registers: int, register: int, dtype: np.dtype, shape: Shape, writeable: bool = True) -> np.ndarray:
    """The tensor in a register, in place."""
    data, reference = words(registers + 2 * register * WORD, 2)
    if None in shape:
        shape = words((reference & ~1) + WORD * OBJECT.ITEMS, len(shape))
    return array_at(data, dtype, shape, writeable)  # type: ignore[arg-type]


def go_on(context: Context) -> None:
    """After a kernel that was stopped for what is over by now, a Ctrl-C that came before: it begins anew, unless it writes over
    what it reads."""
    place = Place.current(context)
    if place.instruction.operation.name != "call":  # nothing else is left half done
        context.go_on()
        return
    instruction = place.instruction
    reads, writes = (
        [_extent(place, register) for register in instruction.list(name)] for name in ("inputs", "outputs")
    )
    if any(start < end_ and start_ < end for start, end in reads for start_, end_ in writes):
        raise KeyboardInterrupt
    context.go_on()


def _extent(place: Place, register: int) -> tuple[int, int]:
    """Where a tensor's elements begin and end."""
    start = place.data(register)
    return start, start + place.array(register).nbytes


def _evaluate(
    context: Context,
    call: HostCall,
    arrays: list[np.ndarray],
    sizes: Sequence[int],
    evaluators: dict[int, library.Evaluate],
    elements: int,
) -> list[np.ndarray]:
    """An operator's result; evaluated in another thread if it may take long."""
    most = context.words[CONTEXT.MAX_LIVE]
    is_bounded = most != UNLIMITED
    room = most - max(0, context.words[CONTEXT.LIVE]) - _text_bytes(context)
    look = context.clock.look
    by_one = one_thread if elements > _BLAS else contextlib.nullcontext

    def evaluate() -> list[np.ndarray] | None:
        """None where arrays, or what is paid for, would pass the memory budget."""
        if call.has_texts:
            hold(context.holder())
        with bounded(room) if is_bounded else contextlib.nullcontext() as account, by_one():
            meter(Meter(look, free if account is None else account.pay))
            try:
                return list(evaluators[call.number](arrays, sizes))
            except MemoryError:
                if account is not None and account.was_refused:
                    return None
                raise

    try:
        if call.number not in evaluators:
            target = context.image.program.target_of(call.number)
            evaluators[call.number] = library.target_of(target).evaluator(call.definition)
        is_long = _is_long(context, call, elements, arrays)
        inflates = context.clock.may_end and getattr(evaluators[call.number], "inflates", False)
        # in a context of its own: whatever ends it, the meter, the holder of texts and NumPy's handler for memory are as before
        copied = contextvars.copy_context()
        results = _aside(context, lambda: copied.run(evaluate)) if is_long or inflates else copied.run(evaluate)
    except (BudgetExceededError, CancelledError):
        raise
    except library.KernelFailed as failure:
        context.words[CONTEXT.DETAIL] = failure.code
        raise error(context, TRAP.KERNEL) from failure
    except Exception as failure:
        kind = next(ours for theirs, ours in _KINDS if isinstance(failure, theirs))
        reason = failure.message if isinstance(failure, TreadleError) else str(failure)
        raise kind(f"primitive {call.name}: {reason}", **Place.current(context).where()) from failure

    if results is None:
        raise error(context, TRAP.MEMORY)
    return results


def _is_long(context: Context, call: HostCall, elements: int, arrays: Sequence[np.ndarray]) -> bool:
    """Whether an operator may take so long that it matters that the call can end meanwhile: for the elements that go in, come out
    or are computed on the way, for the numbers that say how often something is done, or for the characters of texts."""
    if context.clock.may_end:
        return max(elements, call.largest) > _TINY or (call.has_texts and sum(map(characters, arrays)) > _FEW)
    return elements > _SHORT and threading.current_thread() is threading.main_thread() and not too_many_left()


def _aside(context: Context, evaluate: Callable[[], list[np.ndarray] | None]) -> list[np.ndarray] | None:
    """An operator's results, made by another thread, which stays behind where the call ends before."""
    context.left_behind = job = Job(evaluate)
    results = job.run(context.clock.look)
    context.left_behind = None
    return results


# An operator's exception, and the error of the call that it becomes.
_KINDS: tuple[tuple[type[Exception], type[ExecutionError]], ...] = (
    (IndexError, IndexOutOfRangeError),
    (MemoryError, OutOfMemoryError),
    (ShapeError, ShapeError),
    (Exception, ExecutionError),
)


def _check_room(context: Context, call: HostCall, shapes: Sequence[Shape]) -> None:
    """NumPy's memory is not the engine's, but counts for the budget all the same."""
    if context.words[CONTEXT.MAX_LIVE] == UNLIMITED:
        return
    inner = slice(len(call.definition.params), None)
    needed = _text_bytes(context) + sum(
        math.prod(1 if dim is None else max(0, dim) for dim in shape) * type_.dtype.itemsize
        for type_, shape in zip(call.types[inner], shapes[inner], strict=True)
    )
    if context.words[CONTEXT.LIVE] + needed > context.words[CONTEXT.MAX_LIVE]:
        raise memory_error(Place.current(context), needed)


def _text_bytes(context: Context) -> int:
    return 0 if context.texts is None else context.texts.nbytes


def _check(context: Context, call: HostCall, results: list[np.ndarray], shapes: Sequence[Shape]) -> None:
    """The verifier relies on what a definition says of its results; an operator that breaks its word stops here."""
    outputs = call.definition.outputs
    good = len(results) == len(outputs) and all(
        result.dtype == call.dtypes[value] and _is_of(result.shape, shapes[value])
        for result, value in zip(results, outputs)  # noqa: B905 (there are as many)
    )
    if not good:
        got = ", ".join(f"{result.dtype}{list(result.shape)}" for result in results)
        wanted = ", ".join(str(call.types[value]) for value in outputs)
        where = Place.current(context).where()
        raise ExecutionError(f"primitive {call.name} gave {got} in place of {wanted}", **where)


def _is_of(actual: tuple[int, ...], shape: Shape) -> bool:
    return actual == shape or (
        len(actual) == len(shape) and all(dim is None or dim == size for dim, size in zip(shape, actual))  # noqa: B905 (as many)
    )


def _set_register(context: Context, registers: int, register: int, value: np.ndarray) -> None:
    def checked(address: int) -> int:
        if address < 0:
            raise error(context, -address)
        return address

    made = new_tensor(context, value, checked)
    old = word(registers, 2 * register + 1)
    set_word(registers, 2 * register, word(made, OBJECT.DATA))
    set_word(registers, 2 * register + 1, made)
    if old:
        release(context, old)
