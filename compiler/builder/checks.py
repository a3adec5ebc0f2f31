"""Checks of the builder's arguments, one for each kind; an error says which argument, what it got, and what to do.

A mistake is refused on the line that makes it, not where something tries to use what it made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.limits import DIMENSION
from ...formats.messages.errors import DTypeError, InferenceError
from ...formats.types import UNKNOWN, DataType, DataTypeDefinition, ShapeDim, Type, TypeVariable, types_in
from .anf import Node

_SHOWN = 40  # characters of a value in a message


def told(value: object) -> str:
    """A value in a message, at the end of a clause."""
    if isinstance(value, Node):
        name = getattr(value.atom, "name", "")  # of a variable
        return f"the variable {name!r}" if name else f"an expression, {value.name!r}"
    if value is None:
        return "None"
    if isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    if inspect.isroutine(value):
        return f"the Python function {getattr(value, '__name__', '?')}"
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in tuple('aeiou') else 'a'} {kind}"


def subject(value: object) -> str:
    """As `told`, before a verb: an expression's name is set off by commas."""
    text = told(value)
    return f"{text}," if text.startswith("an expression, ") else text


def refuse(where: str, expected: str, got: object, advice: str = "") -> InferenceError:
    """The error for an argument of the wrong kind."""
    return InferenceError(f"{where}: expected {expected}, got {told(got)}{f'; {advice}' if advice else ''}")


def text(where: str, value: Any, expected: str = "a name") -> str:
    """Raises InferenceError for anything but a string, or an empty one."""
    if not isinstance(value, str) or not value:
        raise refuse(where, f"{expected}, a string that is not empty", value)
    return value


def several(where: str, values: Any, expected: str) -> list[Any]:
    """The elements of a list or tuple. Raises InferenceError for what is neither: strings and expressions have parts, too."""
    if isinstance(values, (str, bytes, Node, Mapping)) or not isinstance(values, Iterable):
        raise refuse(where, f"a list of {expected}", values)
    try:
        return list(values)
    except TypeError:  # an array of rank 0
        raise refuse(where, f"a list of {expected}", values) from None


def mapping(where: str, value: Any, expected: str) -> Mapping[Any, Any]:
    """Raises InferenceError for anything but a mapping."""
    if not isinstance(value, Mapping):
        raise refuse(where, f"a mapping of {expected}", value)
    return value


def shape(where: str, values: Any) -> tuple[ShapeDim, ...]:
    """The sizes of a shape: integers that are not negative, names, "n + 1", "?". Raises InferenceError, ParseError."""
    return tuple(_size(f"{where}[{axis}]", size) for axis, size in enumerate(several(where, values, "sizes")))


def _size(where: str, size: Any) -> ShapeDim:
    if size is UNKNOWN or isinstance(size, dims.SymbolicDim):
        return size
    if isinstance(size, str):
        return UNKNOWN if size == "?" else dims.parse(size)
    if isinstance(size, np.integer):
        size = int(size)
    if isinstance(size, bool) or not isinstance(size, int):
        raise refuse(where, 'an integer, or a name such as "n"', size)
    if not 0 <= size <= DIMENSION:
        expected = f"a size from 0 to {DIMENSION}"
        raise refuse(where, expected, size, 'a size that is not known is a name, such as "n"')
    return size


def array(where: str, value: Any, dtype: Any, default: np.dtype | None) -> np.ndarray:
    """A value as a NumPy array, with an element type that Treadle has. Raises InferenceError, DTypeError."""
    if value is None or (advice := _no_tensor(value)):
        if value is None:
            advice = "a Python function that makes it must return it" if "result" in where else ""
        raise refuse(where, "an expression, an array or a number", value, advice)
    wanted = default if dtype is None else DType.of(dtype).numpy
    try:
        made = np.array(value, wanted, order="C")
    except (ValueError, TypeError, OverflowError) as error:
        raise InferenceError(f"{where}: {subject(value)} is not a tensor: {str(error).partition('. ')[0]}") from None
    if made.dtype == object:
        raise refuse(where, "an expression, an array or a number", value)
    try:
        return made.astype(DType.of(made.dtype).numpy)
    except DTypeError as error:
        raise DTypeError(f"{where}: {error.message}") from None


def _no_tensor(value: Any) -> str:
    """Advice about a value that is often mistaken for a tensor; "" for one that may be one."""
    if isinstance(value, str):
        return f"var({value!r}, shape) makes a variable"
    if isinstance(value, Mapping):
        return "results by name are a tuple: tuple_(…)"
    if isinstance(value, Node):
        return "it is an expression already"
    if isinstance(value, (list, tuple)) and any(isinstance(part, Node) for part in value):
        return "tuple_(*values) makes a tuple of tensors, op.concat(*values, axis=0) one tensor"
    if callable(value) and not hasattr(value, "__array__"):
        return "call it, or make a function of the program with function([…], …)"
    return ""


def arity(where: str, body: Callable[..., Any], count: int) -> None:
    """Raises InferenceError for a Python function that cannot be called with `count` arguments."""
    try:
        signature = inspect.signature(body)
    except (ValueError, TypeError):  # of some built-in functions Python does not know the parameters
        return
    try:
        signature.bind(*range(count))
    except TypeError:
        name = getattr(body, "__name__", "it")
        got = "1 argument" if count == 1 else f"{count} arguments"
        raise InferenceError(f"{where}: {name}{signature} cannot take {got}") from None


def is_text_of_type(value: Any) -> bool:
    """Whether it is a text that can only be a type's: a name alone may be a size's."""
    return isinstance(value, str) and ("[" in value or "(" in value)


def no_element_type(where: str, type_: Type) -> None:
    """Raises InferenceError where the name of an element type stands for a type."""
    for each in types_in(type_):
        if isinstance(each, (DataType, TypeVariable)) and each.name in DType.__members__:
            raise InferenceError(f"{where}: {each.name} is an element type; the type of a scalar is {each.name}[]")


def matched(where: str, value: Node, definitions: Sequence[DataTypeDefinition]) -> DataTypeDefinition | None:
    """The data type whose constructors are clauses; None for clauses without any. Raises InferenceError for constructors of
    several, and for a value that is known to be something else."""
    if not definitions:
        return None
    first, name = definitions[0], definitions[0].name
    if other := next((each for each in definitions if each != first), None):
        raise InferenceError(f"{where}: the clauses are of two data types, {first} and {other}; a value is of one")
    type_ = value.type
    if type_ is not None and not isinstance(type_, TypeVariable) and getattr(type_, "name", "") != name:
        raise InferenceError(f"{where}: value: expected {name}, whose constructors are the clauses, got {type_}")
    return first


def constructors(definition: DataTypeDefinition) -> None:
    """Raises InferenceError for a data type whose constructors are not told apart, or whose fields have no type."""
    where = f"data_type: {definition.name}"
    seen: set[str] = set()
    for case in definition.constructors:
        if case.name in seen:
            raise InferenceError(f"{where} has two constructors {case.name}")
        seen.add(case.name)
        for field in case.fields:
            no_element_type(f"{where}: {case.name}", field)


def numbers_of(values: Iterable[Any]) -> Iterator[bool | int | float | None]:
    """Python's numbers in lists of lists; None for anything else."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from numbers_of(value)
        else:
            yield value if type(value) in (bool, int, float) else None
