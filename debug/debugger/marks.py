"""`breakpoint`: a place in a program, built in Python, at which debuggers stop."""

from __future__ import annotations

from ...compiler.builder.expressions import Expression
from ...compiler.builder.programs import op
from ...formats.messages.calling import public, told
from ...formats.messages.errors import ArgumentError


@public
def breakpoint(x: Expression | None = None) -> Expression:
    """x, at which a debugger stops; without one nothing happens, in some ten microseconds. What makes x and what reads it stay
    two kernels. The program has the place only if its result is made of what this gives. Raises ArgumentError.

        hidden = treadle.debug.breakpoint(x @ weights)
    """
    if not isinstance(x, Expression):
        raise ArgumentError(
            f"breakpoint(x): expected an expression of a program, got {'nothing' if x is None else told(x)}; a program is made "
            "of values, so the place is that of one: y = treadle.debug.breakpoint(y)"
        )
    return op.breakpoint(x)
