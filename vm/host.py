"""Host primitives: what the engine leaves to Python, done by the operators' reference implementations.

A `call` whose primitive has no native code writes into tensors that are there already; a `call_host` makes new ones, whose shapes
may depend on the elements.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from typing import Union

import numpy as np

from ..formats import dims
from ..formats.errors import (
    BudgetExceededError,
    CancelledError,
    ExecutionError,
    IndexOutOfRangeError,
    OutOfMemoryError,
    ShapeError,
    TreadleError,
)
from ..formats.primitive import PrimitiveDefinition
from ..formats.strings import held_by
from ..formats.types import UNKNOWN, TensorType
from . import library
from .array_memory import bounded
from .aside import Job, too_many_left
from .context import UNLIMITED, Context
from .convert import new_tensor, release
from .failures import Place, error, memory_error
from .layout import CONTEXT, OBJECT, TRAP, WORD
from .memory import set_word, word

# Elements of all tensors of an operator that is done at once, by the calling thread
_TINY = 64  # even square loops of Python's are done within a millisecond
_SHORT = 1 << 16  # where nothing but Ctrl-C can end the call

Shape = tuple[Union[int, None], ...]  # None: a dimension that depends on elements


def perform(context: Context, evaluators: dict[int, library.Evaluate]) -> None:
    """Does the call or call_host that the context stands on, and moves it behind. Raises what the operator raises."""
    place = Place.current(context)
    instruction = place.instruction
    number, inputs = instruction.word("prim"), instruction.list("inputs")
    makes_results = instruction.operation.has("dst")
    outputs = instruction.list("dst" if makes_results else "outputs")
    primitive = context.image.program.primitives[number]
    sizes = [place.integer(operand) for operand in instruction.list("dims")]
    shapes = _shapes(place, primitive.name, primitive.definition, sizes)
    _check_room(place, primitive.definition, shapes)
    arrays = [place.array(register) for register in inputs]
    elements = sum(math.prod(1 if dim is None else max(0, dim) for dim in shape) for shape in shapes)
    results = _evaluate(place, number, arrays, sizes, evaluators, elements)
    if context.texts is not None:
        _check_room(place, primitive.definition, shapes)
    types = primitive.definition.values
    expected = [(types[value], shapes[value]) for value in primitive.definition.outputs]
    _check(primitive.name, results, expected, place)
    for register, result in zip(outputs, results, strict=True):
        if makes_results:
            _set_register(place, register, result)
        else:
            place.array(register)[...] = result
    context.words[CONTEXT.PC] += instruction.size * WORD
    context.words[CONTEXT.FUEL] -= 1


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
    place: Place,
    number: int,
    arrays: list[np.ndarray],
    sizes: list[int],
    evaluators: dict[int, library.Evaluate],
    elements: int,
) -> list[np.ndarray]:
    """What an operator gives, of which so many elements go in, come out or are computed on the way."""
    context = place.context
    primitive = context.image.program.primitives[number]
    words = context.words
    room = words[CONTEXT.MAX_LIVE] - max(0, words[CONTEXT.LIVE])
    is_bounded = words[CONTEXT.MAX_LIVE] != UNLIMITED

    texts = any(type_.dtype.is_string for type_ in primitive.definition.values)
    held = held_by(context.holder()) if texts else contextlib.nullcontext()

    def evaluate() -> list[np.ndarray] | None:
        """None where the arrays would pass the memory budget."""
        with np.errstate(all="ignore"), bounded(room) if is_bounded else contextlib.nullcontext() as account, held:
            try:
                return [np.asarray(result) for result in evaluators[number](arrays, sizes)]
            except MemoryError:
                if account is not None and account.was_refused:
                    return None
                raise

    for array in arrays:
        array.flags.writeable = False
    try:
        if number not in evaluators:
            evaluators[number] = library.compiler().evaluator(primitive.definition)
        results = _aside(context, evaluate) if _is_long(context, elements) else evaluate()
    except (BudgetExceededError, CancelledError):
        raise
    except Exception as failure:
        kind = next(ours for theirs, ours in _KINDS if isinstance(failure, theirs))
        reason = failure.message if isinstance(failure, TreadleError) else str(failure)
        raise kind(f"primitive {primitive.name}: {reason}", **place.where()) from failure

    if results is None:
        raise error(context, TRAP.MEMORY)
    return results


def _is_long(context: Context, elements: int) -> bool:
    """Whether an operator may take so long that it matters that the call can end meanwhile."""
    if context.clock.may_end:
        return elements > _TINY
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


def _shapes(place: Place, name: str, definition: PrimitiveDefinition, sizes: Sequence[int]) -> list[Shape]:
    """The shapes of a definition's values as far as they are known."""
    values = dict(zip(definition.variables, sizes, strict=True))
    try:
        return [
            tuple(None if dim is UNKNOWN else dims.evaluate(dim, values) for dim in type_.shape)  # type: ignore[arg-type]
            for type_ in definition.values
        ]
    except ZeroDivisionError:
        message = f"primitive {name}: a dimension is divided by zero for {values}"
        raise ExecutionError(message, **place.where()) from None


def _check_room(place: Place, definition: PrimitiveDefinition, shapes: Sequence[Shape]) -> None:
    """NumPy's memory is not the engine's, but counts for the budget all the same."""
    context = place.context
    types = definition.values[len(definition.params) :]
    texts = 0 if context.texts is None else context.texts.nbytes
    needed = texts + sum(
        math.prod(1 if dim is None else max(0, dim) for dim in shape) * type_.dtype.itemsize
        for type_, shape in zip(types, shapes[len(definition.params) :], strict=True)
    )
    if context.words[CONTEXT.LIVE] + needed > context.words[CONTEXT.MAX_LIVE]:
        raise memory_error(place, needed)


def _check(name: str, results: list[np.ndarray], expected: list[tuple[TensorType, Shape]], place: Place) -> None:
    """The verifier relies on what a definition says of its results; an operator that breaks its word stops here."""
    good = len(results) == len(expected) and all(
        result.dtype == type_.dtype.numpy
        and result.ndim == len(shape)
        and all(dim is None or dim == actual for dim, actual in zip(shape, result.shape, strict=True))
        for result, (type_, shape) in zip(results, expected, strict=True)
    )
    if not good:
        came = ", ".join(f"{result.dtype}{list(result.shape)}" for result in results)
        wanted = ", ".join(str(type_) for type_, _ in expected)
        raise ExecutionError(f"primitive {name} gave {came} in place of {wanted}", **place.where())


def _set_register(place: Place, register: int, value: np.ndarray) -> None:
    context = place.context

    def checked(address: int) -> int:
        if address < 0:
            raise error(context, -address)
        return address

    made = new_tensor(context, value, checked)
    refs = context.registers()[0]
    old = word(refs, 2 * register + 1)
    set_word(refs, 2 * register, word(made, OBJECT.DATA))
    set_word(refs, 2 * register + 1, made)
    if old:
        release(context, old)
