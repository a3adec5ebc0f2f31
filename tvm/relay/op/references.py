"""References: memory that a function makes, reads and writes. Lowering follows them (`lower.py`): programs have values alone."""

from __future__ import annotations

from ....compiler.builder.programs import Expression
from ....formats.messages.errors import InferenceError
from .table import Tensor, operator

CREATE, READ, WRITE = "ref", "ref_read", "ref_write"


class Cell(Expression):
    """A reference while a function is lowered: what it holds by now. `depth` is that of the function that made it."""

    def __init__(self, value: Expression, depth: int) -> None:
        super().__init__(name="a reference")
        self.value, self.depth = value, depth


def _followed(name: str) -> InferenceError:
    return InferenceError(f"{name}: a reference has no form of its own here")


@operator(CREATE)
def ref(value: Tensor) -> Expression:
    """A reference that holds a value."""
    raise _followed(CREATE)


@operator(READ)
def ref_read(ref: Tensor) -> Expression:
    """What a reference holds."""
    raise _followed(READ)


@operator(WRITE)
def ref_write(ref: Tensor, value: Tensor) -> Expression:
    """Makes a reference hold another value; gives the empty tuple."""
    raise _followed(WRITE)
