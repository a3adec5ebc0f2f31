"""The primitives that run on the host since no template takes them, and the warning if one is in a loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....formats import host_work
from ....formats.host_work import HostPrimitive
from ....formats.messages.errors import TreadleError
from ....formats.primitive import Primitive, PrimitiveDefinition
from ....formats.program import Program
from .kernels.lower import supports
from .target import host


def host_primitives(
    program: Program, has_kernel: Callable[[PrimitiveDefinition], bool] | None = None
) -> list[HostPrimitive]:
    """A program's host primitives, in order. `has_kernel` may cache earlier answers; by default it asks this CPU's templates."""
    asked = has_kernel or partial(supports, target=host())
    return host_work.host_primitives(program, lambda primitive: _answer(asked, primitive))


def loop_warning(found: list[HostPrimitive]) -> str:
    """The warning about host operators in loops; "" if there are none."""
    slow = [str(each) for each in found if each.in_loop]
    return f"the host evaluates in each round of a loop, which may be slow: {'; '.join(slow)}" if slow else ""


def _answer(has_kernel: Callable[[PrimitiveDefinition], bool], primitive: Primitive) -> bool:
    try:
        return has_kernel(primitive.definition)
    except TreadleError:  # an unknown operator, or a fault of a template
        return False
