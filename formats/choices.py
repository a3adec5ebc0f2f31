"""The metaclass of enumerations that are public names: a call that is none is refused by name."""

from __future__ import annotations

from enum import EnumMeta
from typing import Any

from .errors import ArgumentError


class Choices(EnumMeta):
    """Calls take one value. With more, Python's own would make a new enumeration of the arguments."""

    def __call__(cls, *values: Any, **options: Any) -> Any:
        if len(values) != 1 or options:
            came = len(values) + len(options)
            raise ArgumentError(
                f"{cls.__name__}: expected one value, such as {cls.__name__}({next(iter(cls)).name!r}), but {came} came"
            )
        return super().__call__(*values)
