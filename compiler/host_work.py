"""What of a program runs on the host because no template takes it, and the warning where that stands in a loop."""

from __future__ import annotations

from ..formats import host_work
from ..formats.errors import TreadleError
from ..formats.host_work import HostPrimitive
from ..formats.primitive import Primitive
from ..formats.program import Program
from .kernels.lower import supports
from .kernels.target import Target, host


def host_primitives(program: Program, target: Target | None = None) -> list[HostPrimitive]:
    """Those of a program, in its order."""
    target = target or host()
    return host_work.host_primitives(program, lambda primitive: _has_kernel(primitive, target))


def loop_warning(found: list[HostPrimitive]) -> str:
    """What to tell of host operators in loops; "" if there are none."""
    slow = [str(each) for each in found if each.in_loop]
    return f"the host evaluates in each round of a loop, which may be slow: {'; '.join(slow)}" if slow else ""


def _has_kernel(primitive: Primitive, target: Target) -> bool:
    try:
        return supports(primitive.definition, target)
    except TreadleError:  # an operator that is not defined here, a template's fault
        return False
