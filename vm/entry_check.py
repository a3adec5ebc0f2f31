"""Which argument does not fit the others, in the words of the function's own signature.

A function's first instructions read the sizes of its arguments, and check those that the signature names twice. Where such a
check fails, what a user needs is not the instruction but the argument, the axis, and the argument that its size is by.
"""

from __future__ import annotations

from ..formats import dims
from ..formats.dims import SymbolicDim
from ..formats.types import TensorType
from .places import Place

_READS_SIZES = frozenset({"shape_of", "match_shape", "integers"})  # instructions, and the group of those on integers


def explain_argument(place: Place, register: int, expected: list[int]) -> str:
    """Why a `match_shape` that is a function's entry check fails; "" for one that is anything else."""
    function = place.function
    if register >= len(function.param_names) or not _is_at_entry(place):
        return ""
    declared, actual = function.type.params[register], place.shape(register)
    if not isinstance(declared, TensorType) or declared.rank != len(expected):
        return ""
    sizes = _sizes(place)
    reasons = []
    for axis, (dim, wanted, got) in enumerate(zip(declared.shape, expected, actual, strict=True)):
        if wanted == got:
            continue
        names = dims.variables(dim) if isinstance(dim, (int, SymbolicDim)) else None
        if names is None or not sizes.keys() >= set(names):
            return ""
        if dims.evaluate(dim, {name: sizes[name][0] for name in names}) != wanted:  # type: ignore[arg-type]
            return ""  # the program's own check, not the signature's
        reasons.append(f"axis {axis} is {_told(dim, wanted, sizes, function.param_names[register])}, got {got}")  # type: ignore[arg-type]
    return f"{function.name}({function.param_names[register]}): {'; '.join(reasons)}"


def _is_at_entry(place: Place) -> bool:
    return all(
        found.operation.name in _READS_SIZES or found.operation.group in _READS_SIZES for found in place.before()
    )


def _sizes(place: Place) -> dict[str, tuple[int, str]]:
    """The values of the signature's symbols, and which argument each is by: the first that has it as an axis."""
    found: dict[str, tuple[int, str]] = {}
    function = place.function
    for register, (name, type_) in enumerate(zip(function.param_names, function.type.params, strict=True)):
        if isinstance(type_, TensorType):
            for dim, size in zip(type_.shape, place.shape(register), strict=True):
                if isinstance(dim, SymbolicDim) and dims.is_variable(dim):
                    found.setdefault(str(dim), (size, name))
    return found


def _told(dim: dims.Dim, value: int, sizes: dict[str, tuple[int, str]], of: str) -> str:
    """A dimension and its value, and by which arguments that is so."""
    if isinstance(dim, int):
        return str(dim)
    by = {
        name: (sizes[name][0], "another axis" if sizes[name][1] == of else sizes[name][1])
        for name in dims.variables(dim)
    }
    if dims.is_variable(dim):
        return f"{dim} = {value} by {by[str(dim)][1]}"
    return f"{dim} = {value} ({', '.join(f'{name} = {size} by {owner}' for name, (size, owner) in by.items())})"
