"""Where two objects of the runtime begin to differ, as a path in each: `tvm.ir.get_first_structural_mismatch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...vm.tensor import Tensor
from ..modules.containers import FloatImm, IntImm, ShapeTuple
from ..runtime.object_path import ObjectPath

Mismatch = tuple[ObjectPath, ObjectPath]
CONTAINERS = (list, tuple, dict, str, int, float, Tensor, ShapeTuple)


def get_first_structural_mismatch(lhs: Any, rhs: Any) -> Mismatch | None:
    """The paths to the first difference; None where there is none."""
    return _mismatch(lhs, rhs, ObjectPath.root(), ObjectPath.root())


def _mismatch(a: Any, b: Any, at: ObjectPath, there: ObjectPath) -> Mismatch | None:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return _of_maps(a, b, at, there)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return _of_lists(a, b, at, there)
    numbers = (IntImm, FloatImm)
    if isinstance(a, numbers) and isinstance(b, numbers) and type(a) is type(b):
        part = "dtype" if a.dtype != b.dtype else "value" if a != b else None
        return None if part is None else (at.attr(part), there.attr(part))
    return None if _equal(a, b) else (at, there)


def _of_maps(a: Mapping, b: Mapping, at: ObjectPath, there: ObjectPath) -> Mismatch | None:
    for key, value in a.items():
        if key not in b:
            return at.map_value(key), there.missing_map_entry()
        if found := _mismatch(value, b[key], at.map_value(key), there.map_value(key)):
            return found
    more = next((key for key in b if key not in a), None)
    return None if more is None else (at.missing_map_entry(), there.map_value(more))


def _of_lists(a: Sequence, b: Sequence, at: ObjectPath, there: ObjectPath) -> Mismatch | None:
    for index, (mine, other) in enumerate(zip(a, b, strict=False)):
        if found := _mismatch(mine, other, at.array_index(index), there.array_index(index)):
            return found
    shorter = min(len(a), len(b))
    if len(a) > shorter:
        return at.array_index(shorter), there.missing_array_element(shorter)
    return (at.missing_array_element(shorter), there.array_index(shorter)) if len(b) > shorter else None


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.array.dtype == b.array.dtype and np.array_equal(a.array, b.array)
    if isinstance(a, CONTAINERS) or isinstance(b, CONTAINERS):
        return bool(a == b)
    from ..relay.structural import structural_equal

    return structural_equal(a, b)
