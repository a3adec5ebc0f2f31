"""Exceptions for traps, with the function, the instruction, the model node and the values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..formats import dims
from ..formats.dtypes import DType
from ..formats.messages.errors import (
    BudgetExceededError,
    ExecutionError,
    IndexOutOfRangeError,
    OutOfMemoryError,
    ShapeError,
    TreadleError,
)
from ..formats.types import TensorType
from . import library
from .context import Context
from .entry_check import explain_argument
from .layout import CONTEXT, OBJECT, TRAP
from .memory import word
from .places import Place


def error(context: Context, trap: int) -> TreadleError:
    """The exception for a trap that ends the call."""
    place = Place.current(context)
    return _ERRORS[trap](place)


def start_error(trap: int, context: Context, number: int) -> TreadleError:
    """The error of a call for whose first frame there is no room."""
    function = context.image.program.functions[number]
    if trap == TRAP.NO_MEMORY:
        return OutOfMemoryError("the system has no memory for the first frame", function=function.name)
    if trap == TRAP.MEMORY:
        left = max(0, context.words[CONTEXT.MAX_LIVE] - context.words[CONTEXT.LIVE])
        size = context.image.frame_bytes(number)
        message = f"the first frame takes {size} bytes, of the memory budget {left} are left; raise max_memory"
        return BudgetExceededError(message, budget="memory", function=function.name)
    return BudgetExceededError("the first frame passes max_depth", budget="depth", function=function.name)


def _shape(place: Place) -> TreadleError:
    instruction = place.instruction
    expected = tuple(map(place.integer, instruction.list("shape")))
    register = instruction.word("tensor")
    if message := explain_argument(place, register, list(expected)):
        refused = ShapeError(message)  # which says where itself
        refused.function, refused.instruction = place.function.name, place.index
        return refused
    actual = place.shape(register)
    return ShapeError(f"expected a tensor of shape {list(expected)}, got {list(actual)}", **place.where())


def _reshape(place: Place) -> TreadleError:
    instruction = place.instruction
    expected = list(map(place.integer, instruction.list("shape")))
    actual = list(place.shape(instruction.word("src")))
    return ShapeError(f"a tensor of shape {actual} does not have the elements for {expected}", **place.where())


def _size(place: Place) -> TreadleError:
    instruction = place.instruction
    sizes = [
        place.integer(operand)
        for field, value in zip(instruction.operation.fields, instruction.values, strict=True)
        if field.name in ("shape", "size")
        for operand in (value if isinstance(value, tuple) else (value,))
    ]
    return ShapeError(f"{instruction.operation.name} of the size {sizes}, which no tensor has", **place.where())


def _storage(place: Place) -> TreadleError:
    instruction = place.instruction
    size = word(place.reference(instruction.word("storage")), OBJECT.ITEMS)
    at = place.integer(instruction.word("offset"))
    wanted = list(map(place.integer, instruction.list("shape")))
    message = (
        f"a tensor of shape {wanted} at byte {at} is not in the {size} bytes of its storage, or not at a multiple of 64"
    )
    return ExecutionError(message, **place.where())


def _tag(place: Place) -> TreadleError:
    instruction = place.instruction
    tag = instruction.word("tag")
    actual = word(place.reference(instruction.word("object")) & ~1, OBJECT.TAG)
    return ExecutionError(f"expected a data value with tag {tag}, got one with tag {actual}", **place.where())


def _division(place: Place) -> TreadleError:
    return ExecutionError(f"{place.instruction.operation.name} by zero", **place.where())


def _overflow(place: Place) -> TreadleError:
    a, b = (place.integer(place.instruction.word(name)) for name in ("a", "b"))
    values = f"{a} and {b}"
    message = f"{place.instruction.operation.name} of {values} does not fit into 64 bits"
    return ExecutionError(message, **place.where())


KERNEL_FAILURES = {  # by what a kernel returns
    1: "an index is out of range",
    2: "division of an integer by zero",
    3: "an axis of size 0 has no greatest or least element",
    4: "sizes do not fit: channels that groups do not divide, a negative pad, a slice beyond its axis, or a product beyond "
    "64 bits",
}


def _kernel(place: Place) -> TreadleError:
    code = place.context.words[CONTEXT.DETAIL]
    name = place.context.image.program.primitives[place.instruction.word("prim")].name
    if code == 1:
        reason = _by_reference(place) or (
            f"{KERNEL_FAILURES[code]}; `treadle step MODEL {name}`, or treadle.debug.step, finds the line"
        )
        return IndexOutOfRangeError(f"primitive {name}: {reason}", **place.where())
    if code == 4:
        return ShapeError(f"primitive {name}: {KERNEL_FAILURES[code]}", **place.where())
    reason = KERNEL_FAILURES.get(code, f"it failed with code {code}")
    return ExecutionError(f"primitive {name}: {reason}", **place.where())


# Elements of all tensors of a primitive that is evaluated again to say what is wrong with them: some 50 ms
_EXPLAINED = 1 << 20


def _by_reference(place: Place) -> str:
    """The error of the primitive's reference implementation for the same tensors: the index, the axis and its size. "" if it
    would take long, or raises none, as after a kernel that has overwritten its input."""
    instruction = place.instruction
    definition = place.context.image.program.primitives[instruction.word("prim")].definition
    sizes = [place.integer(operand) for operand in instruction.list("dims")]
    known = dict(zip(definition.variables, sizes, strict=True))
    try:
        shapes = [[dims.evaluate(dim, known) for dim in type_.shape] for type_ in definition.values]  # type: ignore[arg-type]
        if sum(map(math.prod, shapes)) > _EXPLAINED:
            return ""
        arrays = [place.array(register).copy() for register in instruction.list("inputs")]
        with np.errstate(all="ignore"):
            library.compiler().evaluator(definition)(arrays, sizes)
    except IndexOutOfRangeError as found:
        return found.message
    except Exception:  # whatever else the reference finds, the kernel has failed first
        return ""
    return ""


def _fatal(place: Place) -> TreadleError:
    reasons = {0: "no clause of a match fits the value", 1: "code was reached that cannot be"}
    reason = place.instruction.word("reason")
    return ExecutionError(reasons.get(reason, f"fatal error {reason}"), **place.where())


def _depth(place: Place) -> TreadleError:
    most = place.context.words[CONTEXT.MAX_DEPTH]
    message = f"more than {most} calls are nested; raise max_depth, or look for a recursion that never ends"
    return BudgetExceededError(message, budget="depth", **place.where())


def _memory(place: Place) -> TreadleError:
    return memory_error(place, _asked(place))


def memory_error(place: Place, asked: int | None) -> BudgetExceededError:
    """The call would exceed its memory budget by `asked` bytes (None: unknown)."""
    words, clock = place.context.words, place.context.clock
    most = None if clock is None else clock.max_memory
    message = "the call's memory budget is passed"
    if most is not None:
        held = words[CONTEXT.LIVE] - (words[CONTEXT.MAX_LIVE] - most)
        more = "more" if asked is None else f"{asked} more"
        message += f": it has {most} bytes, {held} are held, and {more} are needed here"
    return BudgetExceededError(f"{message}; raise max_memory", budget="memory", **place.where())


def _asked(place: Place) -> int | None:
    """The bytes that an instruction wants for what it makes, as far as it says so itself."""
    instruction = place.instruction
    name, program = instruction.operation.name, place.context.image.program
    if name == "alloc_tensor":
        type_ = program.types[instruction.word("type")]
        return type_.nbytes if isinstance(type_, TensorType) else None
    if name in ("alloc_dynamic", "alloc_on"):
        itemsize = DType.from_code(instruction.word("dtype")).itemsize
        return itemsize * math.prod(map(place.integer, instruction.list("shape")))
    if name == "alloc_storage":
        return place.integer(instruction.word("size"))
    if name == "invoke":
        return place.context.image.frame_bytes(instruction.word("func"))
    return None


def _no_memory(place: Place) -> TreadleError:
    return OutOfMemoryError("the system has no more memory", **place.where())


_ERRORS: dict[int, Callable[[Place], TreadleError]] = {
    TRAP.SHAPE: _shape,
    TRAP.RESHAPE: _reshape,
    TRAP.SIZE: _size,
    TRAP.STORAGE: _storage,
    TRAP.TAG: _tag,
    TRAP.DIVISION: _division,
    TRAP.OVERFLOW: _overflow,
    TRAP.KERNEL: _kernel,
    TRAP.FATAL: _fatal,
    TRAP.DEPTH: _depth,
    TRAP.MEMORY: _memory,
    TRAP.NO_MEMORY: _no_memory,
}
