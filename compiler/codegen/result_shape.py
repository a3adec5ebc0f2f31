"""Makes a function's result in its returned shape, if its last step is a reshape.

    alloc_tensor a, float32[2, 3]             alloc_tensor b, float32[6]
    call f (x) -> (a)                    →    reshape a, b [2, 3]
    reshape b, a [6]                          call f (x) -> (a)
    ret b                                     ret b

The machine then writes it straight into the caller's array; a view of another tensor would need more checks.
"""

from __future__ import annotations

from collections.abc import Callable

from ...formats.types import TensorType
from ..operators.shapes import integer
from .virtual import Instruction, Label, Register, VirtualFunction, instruction


def make_in_last_shape(function: VirtualFunction, type_index: Callable[[TensorType], int]) -> None:
    """Rewrites `function`, whose memory is not planned yet. `type_index` gives a type's place in the program's table."""
    reshape, end = [None, None, *function.items][-2:]
    if not isinstance(reshape, Instruction) or not isinstance(end, Instruction):
        return
    if (reshape.name, end.name) != ("reshape", "ret") or list(end.reads()) != list(reshape.writes()):
        return
    (result,), made = reshape.writes(), next(reshape.reads())
    allocation = _allocation(function, made)
    if allocation is None or not isinstance(result.type, TensorType) or not result.type.is_static:
        return
    assert isinstance(made.type, TensorType)
    shape, origin = tuple(map(integer, made.type.shape)), allocation.origin
    function.items.remove(reshape)
    position = function.items.index(allocation)
    function.items[position : position + 1] = [
        instruction("alloc_tensor", result, type_index(result.type), origin=origin),
        instruction("reshape", made, result, shape, origin=origin),
    ]


def _allocation(function: VirtualFunction, register: Register) -> Instruction | None:
    """The instruction that allocates a tensor of static type, if straight-line code leads from it to the function's end."""
    for item in reversed(function.items):
        if isinstance(item, Label):
            return None
        if register in item.writes():
            return item if item.name == "alloc_tensor" else None
    return None
