"""What random programs (`modules.py`) know of their values."""

from __future__ import annotations

from dataclasses import dataclass

from .....compiler.builder.programs import Expression
from .....formats import dims
from .....formats.dtypes import DType
from .....formats.types import TensorType

N, M = dims.variable("n"), dims.variable("m")
INT = TensorType(DType.int64, ())
LARGEST = 8.0  # the magnitude of floats that enter a function or a loop


class Dead(Exception):
    """A step that cannot be made here."""


@dataclass(frozen=True)
class Value:
    """What the walk knows of an expression: its type, its shape in the witness, a bound of its magnitude, and how many binary
    places behind the point it has if it is exact."""

    made: Expression
    type: TensorType
    shape: tuple[int, ...]
    bound: float = LARGEST
    places: int | None = None

    @property
    def is_exact(self) -> bool:
        return not self.type.dtype.is_float or self.places is not None

    @property
    def is_float(self) -> bool:
        return self.type.dtype.is_float

    @property
    def concrete(self) -> TensorType:
        return TensorType(self.type.dtype, self.shape)
