"""The metaclass of enumerations that are public names: a call that is none is refused by name."""

from __future__ import annotations

from enum import EnumMeta
from typing import Any

from .errors import ArgumentError, TreadleError, UnknownAttributeError
from .names import near


class Choices(EnumMeta):
    """Calls take one value. With more, Python's own would make a new enumeration of the arguments. An unknown member is
    an error that suggests a known one."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        instead_of = cls.__dict__.get("instead_of")  # where a class knows better
        raise UnknownAttributeError(
            f"{cls.__name__} has no {name!r}",
            lambda: near(name, cls.__members__) if instead_of is None else instead_of(name),
        )

    def __call__(cls, *values: Any, **options: Any) -> Any:
        if len(values) != 1 or options:
            got = len(values) + len(options)
            raise ArgumentError(
                f"{cls.__name__}: expected one value, such as {cls.__name__}({next(iter(cls)).name!r}), got {got}"
            )
        try:
            return super().__call__(*values)
        except TreadleError:
            raise
        except (TypeError, ValueError):  # of what cannot be compared with the members, too
            known = ", ".join(cls.__members__)
            raise ArgumentError(f"{cls.__name__}: {values[0]!r} is none; there is {known}") from None
