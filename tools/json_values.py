"""Values of data types as JSON, on the command line: `{"Node": ["Leaf", 1.5, "Leaf"]}`.

A value is its constructor's name, with a list of its fields if it has any; a tensor is a number or nested lists, a tuple a list.
Python's own forms are themselves: null for no optional value, a list for a sequence, an object for a map.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..formats.host_values import form_of
from ..formats.messages.names import near
from ..formats.types import DataType, DataTypeDefinition, FunctionType, TensorType, TupleType, Type
from ..vm.data_types import DataTypes
from ..vm.values import DataValue
from .errors import UsageError


def value_of(text: str, type_: Type, types: DataTypes, where: str) -> Any:
    """The value of that type that JSON text says. Raises UsageError, which shows how one is written."""
    try:
        return _value(json.loads(text), type_, types)
    except RecursionError:
        raise UsageError(f"{where}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{where}: expected {type_} as JSON, {how(type_, types)}; {error}") from None


def how(type_: Type, types: DataTypes) -> str:
    """An example of a value of a type, as it is written."""
    return f"such as '{json.dumps(_example(type_, types, set()))}'"


def _value(found: Any, type_: Type, types: DataTypes) -> Any:
    if isinstance(type_, TupleType):
        if not isinstance(found, list) or len(found) != len(type_.fields):
            raise ValueError(f"{_told(found)} is not a list of {len(type_.fields)} fields")
        return tuple(_value(each, inner, types) for each, inner in zip(found, type_.fields, strict=True))
    if isinstance(type_, DataType):
        return _data(found, types[str(type_)].definition, types)
    if isinstance(type_, FunctionType):
        raise ValueError("a function cannot be written")
    return found


def _data(found: Any, definition: DataTypeDefinition, types: DataTypes) -> Any:
    form, made = form_of(definition), types[definition.name]
    if form == "Optional":
        return None if found is None else _value(found, definition.constructors[1].fields[0], types)
    if form == "Sequence" and isinstance(found, list):
        return [_value(each, definition.constructors[1].fields[0], types) for each in found]
    if form == "Maps" and isinstance(found, dict):
        keys = definition.constructors[0].fields[0]
        is_number = isinstance(keys, TensorType) and keys.dtype.is_integer
        return {int(key) if is_number else key: value for key, value in found.items()}
    if form in ("Sequence", "Maps", "Ranked"):
        return found
    name, fields = (
        (found, []) if isinstance(found, str) else next(iter(found.items()), ("", [])) if _is_one(found) else ("", [])
    )
    constructors = {each.constructor.name: each for each in made}
    if name not in constructors or not isinstance(fields, list):
        raise ValueError(
            f"{_told(found)} is none of {', '.join(constructors)}{near(name, constructors) if name else ''}"
        )
    wanted = constructors[name].constructor.fields
    if len(fields) != len(wanted):
        raise ValueError(f"{name} has {len(wanted)} fields, got {len(fields)}")
    return constructors[name](*(_value(each, inner, types) for each, inner in zip(fields, wanted, strict=True)))


def _is_one(found: Any) -> bool:
    return isinstance(found, dict) and len(found) == 1


def _told(found: Any) -> str:
    text = json.dumps(found)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _example(type_: Type, types: DataTypes, within: set[str]) -> Any:
    if isinstance(type_, TupleType):
        return [_example(each, types, within) for each in type_.fields]
    if isinstance(type_, TensorType):
        element: Any = "a" if type_.dtype.is_string else 1 if type_.dtype.is_integer else 0.5
        for size in reversed(type_.shape):
            element = [element] * (min(size, 2) if isinstance(size, int) else 2)
        return element
    if not isinstance(type_, DataType):
        return None
    definition = types[str(type_)].definition
    form = form_of(definition)
    if form:
        return {"Optional": None, "Sequence": [], "Maps": {}}.get(form, 0.5)
    ordered = sorted(definition.constructors, key=lambda each: len(each.fields))
    chosen = ordered[0] if definition.name in within else ordered[-1]
    if not chosen.fields:
        return chosen.name
    if definition.name in within and any(str(each) == definition.name for each in chosen.fields):
        return "…"  # no constructor ends it
    return {chosen.name: [_example(each, types, within | {definition.name}) for each in chosen.fields]}


def as_json(value: Any) -> Any:
    """A result as JSON has it. Raises RecursionError for one that is nested too deeply."""
    if isinstance(value, DataValue):
        fields = [as_json(each) for each in value.fields]
        return {value.constructor: fields} if fields else value.constructor
    if isinstance(value, (tuple, list)):
        return [as_json(each) for each in value]
    if isinstance(value, dict):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
        return np.asarray(value).tolist()
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
