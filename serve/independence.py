"""Which functions take several requests in one call.

All inputs and outputs must begin with one dimension, the rows, that nothing else depends on, and no row of a result may depend on
another row of the inputs. The first is read off the function's type; where that leaves an output's first size open, calls say it.
The second is tried when the model is loaded: whatever other rows hold, NaN and infinities too, a row's result must be the same to
the bit. Where code branches, as exporters leave it in masks, more is tried, and merged calls go only where the trials have been
(`branches.py`); code that loops is not merged. A model's configuration can say otherwise.

Nor may an answer depend on what else is asked: where one row alone, or a few, are computed in another order than many, which is
seen in the last bits, they are called with as many as that takes. Rows of short texts differ in that from those of long ones, and
are tried apart.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..formats import dims
from ..formats.messages.errors import TreadleError
from ..formats.ports import Port
from ..formats.types import UNKNOWN, TensorType
from .branches import Sides
from .endpoint import SMALL, Endpoint
from .errors import DeadlineError, as_serve_error
from .texts import is_texts, packed

_SMALL_SIZES = (1, 2, 3)  # of dimensions that are not the rows
_TRIED_SIZES = (8, 5, 16, 32)  # one that vectors and tiles divide, and one that they do not
_SIZES = 2  # of these that code with open dimensions is tried with
_ROWS = 5  # of the call that others are compared with: more than what kernels of few rows take
_TRIED_TEXTS = ("", "0", "1", "2.5", "a", "B", "a b", "é")
_TRY_SECONDS = 20.0  # that trying a model may take; then its requests are not merged
_FILLS = (None, None, np.nan, np.inf, -np.inf, 1e30, 0.0, 1.0)  # what other rows hold; None: numbers at random
_OWN_FILLS = (None, 1.0, 0.0)  # what the row itself holds, where code branches


@dataclass(frozen=True)
class Merging:
    """Whether requests of a function become one call, and why.

    `least` is how many rows a call must have so that a row's result is the same to the bit in any call: more than 1 where few
    rows are computed in another order; None: requests are not merged. `least_small` is the same where a dimension is small.
    """

    least: int | None
    reason: str
    least_small: int = 1

    @property
    def text(self) -> str:
        return f"{'merged' if self.least else 'not merged'}: {self.reason}"


def rows_of(endpoint: Endpoint) -> str | None:
    """The variable that is the first dimension of all inputs and outputs, and of no other; None if there is none."""
    return None if _problem_of_types(endpoint) else _rows(endpoint.inputs[0])


def _rows(port: Port) -> str:
    shape = port.type.shape if isinstance(port.type, TensorType) else ()
    return str(shape[0]) if shape and dims.is_variable(shape[0]) else ""  # type: ignore[arg-type]


def _problem_of_types(endpoint: Endpoint) -> str:
    """Why a function has no rows; empty if it has."""
    if not endpoint.inputs:
        return "it has no inputs"
    name = _rows(endpoint.inputs[0])
    for port in (*endpoint.inputs, *endpoint.outputs):
        shape: Sequence = port.type.shape if isinstance(port.type, TensorType) else ()
        is_open = bool(shape) and shape[0] is UNKNOWN and port in endpoint.outputs
        if not name or not (is_open or _rows(port) == name):
            wanted = f"the dimension {name!r}" if name else "a symbolic dimension"
            return f"{port.name} is {port.type}, and does not begin with {wanted}"
        if any(name in dims.variables(dim) for dim in shape[1:]):
            return f"{port.name} is {port.type}: {name!r} is not its first dimension alone"
    return ""


def merging(endpoint: Endpoint, most: int) -> Merging:
    """Whether calls of up to `most` rows may answer several requests: see above. Has the endpoint guard such calls."""
    if problem := _problem_of_types(endpoint):
        return Merging(None, problem)
    if endpoint.flow.loop:
        return Merging(None, f"{endpoint.flow.loop}, and how often it runs may depend on other rows")
    deadline, sides, failure = time.monotonic() + _TRY_SECONDS, Sides(), ""
    is_open = any(not isinstance(size, int) for port in endpoint.inputs for size in (port.shape or ())[1:])
    fitting, least, least_small = 0, 1, 1
    with endpoint.watching(sides):
        for size in (*_SMALL_SIZES, *_TRIED_SIZES) if is_open else _TRIED_SIZES[:1]:
            try:
                found = _tried(endpoint, size, most, deadline)
            except TreadleError as error:  # these sizes do not suit the model
                if isinstance(as_serve_error(error), DeadlineError):
                    return Merging(None, f"trying it took more than {_TRY_SECONDS:g} seconds")
                failure = failure or error.message
                continue
            if found.least is None:
                return found
            if size < SMALL and is_open:
                least_small = max(least_small, found.least)
                continue
            fitting, least = fitting + 1, max(least, found.least)
            if fitting == _SIZES:
                break
    if not fitting:
        return Merging(None, f"it could not be tried: {failure}")
    endpoint.guard(sides)
    return Merging(least, _reason(endpoint, max(least, least_small)), max(least, least_small))


def _reason(endpoint: Endpoint, least: int) -> str:
    parts = ["a row's result is the same to the bit, whatever other rows hold"]
    if least > 1:
        parts.append(f"few rows are called as {least}")
    if endpoint.flow.branches:
        parts.append("calls that take a branch which was not tried are made one by one")
    if any(not isinstance(dim, int) for port in endpoint.inputs for dim in (port.shape or ())[1:]):
        parts.append("with rows of the same shape")
    return "; ".join(parts)


def _tried(endpoint: Endpoint, size: int, most: int, deadline: float) -> Merging:
    """The result of trials with rows of this size. Raises TreadleError if there can be none."""
    rng, least = np.random.default_rng(0), 1
    fewer = range(_ROWS - 1, 0, -1)
    more = sorted({most, 2 * _ROWS} - {*fewer, _ROWS})
    for own_fill in _OWN_FILLS if endpoint.flow.branches else _OWN_FILLS[:1]:
        row = [_filled(_row(port, size, rng), own_fill) for port in endpoint.inputs]
        expected = _result(endpoint, row, _ROWS, None, size, rng, deadline)
        for fill in _FILLS:
            if _result(endpoint, row, _ROWS, fill, size, rng, deadline) != expected:
                beside = "others" if fill is None else f"rows of {fill:g}"
                return Merging(None, f"a row's result depends on other rows: it is another one beside {beside}")
        for count in more:
            if _result(endpoint, row, count, None, size, rng, deadline) != expected:
                return Merging(None, f"a row's result is another one in a call of {count} rows than in one of {_ROWS}")
        for count in fewer:
            if count >= least and _result(endpoint, row, count, None, size, rng, deadline) != expected:
                least = count + 1
    return Merging(least, "")


def _result(
    endpoint: Endpoint,
    row: Sequence[np.ndarray],
    count: int,
    fill: float | None,
    size: int,
    rng: np.random.Generator,
    deadline: float,
) -> list[bytes]:
    """The bits of the row's result in the middle of a call of `count` rows."""
    before, arguments = count // 2, []
    for port, own in zip(endpoint.inputs, row, strict=True):
        others = [_filled(_row(port, size, rng), fill) for _ in range(count - 1)]
        arguments.append(np.concatenate([*others[:before], own, *others[before:]]))
    outputs = endpoint.run(arguments, deadline)
    return [
        _bits(array[before : before + 1]) if len(array) == count else b"another number of rows" for array in outputs
    ]


def _filled(row: np.ndarray, fill: float | None) -> np.ndarray:
    """The row with one number everywhere, where its element type has it."""
    if fill is None or row.dtype.kind not in "fbiu" or (row.dtype.kind in "biu" and fill not in (0, 1)):
        return row
    with np.errstate(over="ignore"):
        return np.full_like(row, fill)


def _bits(array: np.ndarray) -> bytes:
    return packed(array) if is_texts(array) else array.tobytes()


def _row(port: Port, size: int, rng: np.random.Generator) -> np.ndarray:
    """A row of an input: small whole numbers, which are places in any table, or floats around 0."""
    type_ = port.type
    assert isinstance(type_, TensorType)
    shape = (1, *(dim if isinstance(dim, int) else size for dim in type_.shape[1:]))
    if type_.dtype.is_string:
        return rng.choice(_TRIED_TEXTS, shape).astype(object)
    if type_.dtype.is_float:
        return rng.standard_normal(shape).astype(type_.dtype.numpy)
    return rng.integers(0, 2, shape).astype(type_.dtype.numpy)
