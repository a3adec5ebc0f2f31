"""`relay.backend.interpreter`: the values of data types that executors give and take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime.container import ADT
from ..adt import Constructor
from ..build_module import Executor


class _OfValues(type):
    """`isinstance(value, ConstructorValue)` asks for a value of a data type."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, ADT) and bool(instance.constructor)

    def __call__(cls, tag: int, fields: Sequence[Any] | None = None, constructor: Constructor | None = None) -> ADT:
        if constructor is None:
            return ADT(tag, tuple(fields or ()))
        return ADT(tag, tuple(fields or ()), constructor.belong_to.name_hint, constructor.name_hint)


class ConstructorValue(metaclass=_OfValues):
    """A value of a data type: an `ADT` that knows its constructor."""


class RefValue:
    """Not supported: references are followed within functions, and no value goes in or out."""

    def __init__(self, value: object) -> None:
        raise NotImplementedError("RefValue: references live within a function; pass values")


Interpreter = Executor
