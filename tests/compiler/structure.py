"""When two modules are the same program."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from treadle.compiler import ir
from treadle.compiler.ir import nodes


def structurally_equal(left: ir.Module, right: ir.Module) -> bool:
    """True for modules that differ at most in the names of variables. Constants are compared by bits."""
    if list(left.functions) != list(right.functions) or dict(left.data_types) != dict(right.data_types):
        return False
    if dict(left.imports) != dict(right.imports):
        return False
    return all(_same_function(function, right.functions[name]) for name, function in left.functions.items())


def _same_function(left: ir.Function, right: ir.Function) -> bool:
    partner: dict[ir.Var, ir.Var] = {}
    # a global function's name is the module's for it, whatever it was before
    waiting: list[tuple[Any, Any]] = [(dataclasses.replace(left, name=""), dataclasses.replace(right, name=""))]
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
    """The parts of a value that are compared one by one; None if it is compared as a whole."""
    if isinstance(value, (tuple, list)):
        return list(value)
    if dataclasses.is_dataclass(value) and type(value).__module__ == nodes.__name__:
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return None
