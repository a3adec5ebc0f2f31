"""How much work a compilation may do: one count, shared by importing, folding and writing out.

A file of a few hundred bytes can ask for any amount of work: functions that call the next one ten times, sixteen levels deep; a
product of constants whose sizes stand in the file as two numbers. Work is counted before it is done, in units of about a
nanosecond, and memory that is kept in bytes; both bounds grow with the bytes of the model, so that large models are not refused.
What must be done raises CompileError when nothing is left; what may be left to the program, as folding, asks first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..formats import limits, strings
from ..formats.messages.errors import CompileError
from ..formats.types import TensorType
from . import bounds
from .operators.table import Operator
from .operators.work import elements, work_of

# Units, about a nanosecond each. Some seconds for any model; a byte of a model's graph, of which a node has thirty at least, pays
# for the import of what it says.
BASE_UNITS = 6_000_000_000
UNITS_A_BYTE = 4000
NODE_UNITS = 100_000  # to import a node, measured: 50 to 100 us
ROUND_UNITS = 500_000  # to import a round of a loop, its nodes aside
GRADIENT_UNITS = 10 * NODE_UNITS  # to import a node once more, and to take it backwards
CLAUSE_UNITS = 10_000_000  # to import and compile what a node makes of one rank of a tensor that may have several
ELEMENT_UNITS = 10  # to evaluate an elementwise operator by NumPy, exp or erf: 3 to 20 ns an element

TEXT_UNITS = 2000  # to look at a character of a text: a regular expression takes a microsecond or two

# Bytes of constants that folding may make in place of operators, all together
BASE_BYTES = limits.FOLDED_BYTES_IN_ALL
BYTES_A_BYTE = 16  # weights are cast, transposed, padded and packed, one after the other

PRINTED = 25  # characters of a number
TEXT_BYTES = 100  # a character may become a text, an object of Python's

# Units that evaluating one operator may take: what takes longer is left to the program, where calls are bounded. What goes
# through large weights takes longer, by as much for each of their bytes.
FOLD_UNITS = 4_000_000_000
FOLD_UNITS_A_BYTE = 100


@dataclass
class Effort:
    """The remaining effort of an attempt, or of the whole compilation, whose `parent` is None."""

    units: int
    bytes: int
    parent: Effort | None = None


class AttemptError(Exception):
    """An attempt took more than it was given."""

    def __init__(self, attempt: Effort) -> None:
        self.attempt = attempt


_current: ContextVar[Effort | None] = ContextVar("effort", default=None)


@contextlib.contextmanager
def bounded(nbytes: int) -> Iterator[None]:
    """Within this, work is counted for a model of `nbytes`. Within another one, it belongs to that one."""
    if _current.get() is not None:
        yield
        return
    token = _current.set(Effort(BASE_UNITS + UNITS_A_BYTE * nbytes, BASE_BYTES + BYTES_A_BYTE * nbytes))
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def attempting(units: int) -> Iterator[Effort]:
    """Within this, more than `units` raise AttemptError, which names what this gives: the caller then takes another way."""
    parent = _current.get()
    attempt = Effort(units, parent.bytes if parent else BASE_BYTES, parent)
    token = _current.set(attempt)
    try:
        yield attempt
    finally:
        _current.reset(token)


def spend(units: int, what: str) -> None:
    """Counts work that must be done. Raises CompileError, which says that it was `what`, where too little is left."""
    bounds.check(what)
    effort = _current.get()
    while effort is not None:
        effort.units -= units
        if effort.units < 0:
            if effort.parent is not None:
                raise AttemptError(effort)
            raise CompileError(
                f"{what}: the model asks for more work than its size explains, and would take minutes or for ever to compile"
            )
        effort = effort.parent


def _all() -> Iterator[Effort]:
    """The attempts that are going on, then the whole compilation."""
    effort = _current.get()
    while effort is not None:
        yield effort
        effort = effort.parent


def take(units: int, nbytes: int) -> bool:
    """Counts work that may be left undone, and memory; False, and nothing is counted, where too little is left."""
    efforts = list(_all())
    if any(units > effort.units or nbytes > effort.bytes for effort in efforts):
        return False
    for each in efforts:
        each.units -= units
        each.bytes -= nbytes
    return True


def may_fold(
    operator: Operator,
    inputs: Sequence[TensorType],
    results: Sequence[TensorType],
    attributes: Any,
    arrays: Sequence[np.ndarray],
    free_bytes: int = limits.FOLDED_BYTES,
) -> bool:
    """Whether an operator on constants of these types, and elements, may be evaluated now. Then it has been counted."""
    if operator.varies or not may_grow(inputs, results, free_bytes):
        return False
    scratch = operator.scratch * sum(elements(type_) for type_ in results if type_.is_static)
    if scratch > min((effort.bytes for effort in _all()), default=scratch):
        return False
    if operator.takes_texts and not _may_make_texts(inputs, results, attributes, arrays):
        return False
    units = evaluation_units(operator, inputs, results, attributes)
    most = max(FOLD_UNITS, FOLD_UNITS_A_BYTE * _bytes(inputs))
    return units <= most and take(units, _bytes(results))


def _may_make_texts(
    inputs: Sequence[TensorType], results: Sequence[TensorType], attributes: Any, arrays: Sequence[np.ndarray]
) -> bool:
    """The same for texts: an element's bytes are not its type's. Each result has at most what the longest texts have together,
    and a number as many characters as it is printed by."""
    longest = sum(
        strings.longest(array) if type_.dtype.is_string else PRINTED
        for array, type_ in zip(arrays, inputs, strict=True)
    ) + sum(len(value) for _, value in attributes if isinstance(value, str))
    count = max((elements(type_) for type_ in (*inputs, *results) if type_.is_static), default=1)
    nbytes = count * longest
    return nbytes <= limits.FOLDED_TEXT_BYTES and take(TEXT_UNITS * nbytes, TEXT_BYTES * nbytes)


def may_grow(
    inputs: Sequence[TensorType], results: Sequence[TensorType], free_bytes: int = limits.FOLDED_BYTES
) -> bool:
    """Whether constants of these types may take the place of those that they are made of: the one rule for all that folds.
    Raises CompileBudgetError where the caller gives less memory than the results take."""
    nbytes = _bytes(results)
    if nbytes > max(free_bytes, limits.FOLDED_TIMES * _bytes(inputs)):
        return False
    bounds.check_room(nbytes)
    return True


def evaluation_units(
    operator: Operator, inputs: Sequence[TensorType], results: Sequence[TensorType], attributes: Any
) -> int:
    """About how long the reference implementation of an operator takes on tensors of these types. Results whose shapes depend on
    elements are about as large as what they are made of."""
    moved = sum(elements(type_) for type_ in (*inputs, *results) if type_.is_static)
    is_known = all(type_.is_static for type_ in results)
    arithmetic = work_of(operator, inputs, results, operator.bind(attributes)).done if is_known else 0
    return ELEMENT_UNITS * moved + arithmetic


def _bytes(types: Sequence[TensorType]) -> int:
    return sum(type_.nbytes for type_ in types if type_.is_static)
