"""The primitives that run on the host since no template takes them, and the warning if one is in a loop."""

from __future__ import annotations

from collections.abc import Callable

from ..formats import host_work
from ..formats.host_work import HostPrimitive
from ..formats.messages.errors import TreadleError
from ..formats.primitive import Primitive, PrimitiveDefinition
from ..formats.program import Program


def host_primitives(program: Program, has_kernel: Callable[[PrimitiveDefinition], bool]) -> list[HostPrimitive]:
    """Those of a program, in its order, for which a target (`Backend.supports`) has no kernel. Devices have one for theirs."""
    return host_work.host_primitives(
        program, lambda primitive: bool(primitive.device) or _answer(has_kernel, primitive)
    )


def loop_warning(found: list[HostPrimitive]) -> str:
    """The warning about host operators in loops; "" if there are none."""
    slow = [str(each) for each in found if each.in_loop]
    return f"the host evaluates in each round of a loop, which may be slow: {'; '.join(slow)}" if slow else ""


def _answer(has_kernel: Callable[[PrimitiveDefinition], bool], primitive: Primitive) -> bool:
    try:
        return has_kernel(primitive.definition)
    except TreadleError:  # an unknown operator, or a fault of a template
        return False
