"""When two modules are the same program."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import ir


def structurally_equal(left: Any, right: Any) -> bool:
    """True for two modules, or parts of modules, that differ at most in the names of variables. Bits of constants count."""
    partner: dict[ir.Var, ir.Var] = {}
    waiting = [(left, right)]
    while waiting:
        a, b = waiting.pop()
        if type(a) is not type(b):
            return False
        if isinstance(a, ir.Var):
            if partner.setdefault(a, b) is not b or a.type != b.type:
                return False
        elif isinstance(a, np.ndarray):
            if (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes()):
                return False
        elif (parts := _parts(a)) is not None:
            others = _parts(b)
            if others is None or len(parts) != len(others):
                return False
            waiting.extend(zip(parts, others, strict=True))
        elif a != b and repr(a) != repr(b):  # NaN is not equal to itself
            return False
    return len(set(partner.values())) == len(partner)


def _parts(value: Any) -> list[Any] | None:
    """What is compared one by one of a value, None if it is compared as a whole."""
    if isinstance(value, Mapping):
        return [part for item in value.items() for part in item]
    if isinstance(value, (tuple, list)):
        return list(value)
    if dataclasses.is_dataclass(value) and type(value).__module__ == ir.__name__:
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return None
