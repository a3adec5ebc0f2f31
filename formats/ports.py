"""What goes into a function and comes out of it, by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .program import Function
from .readable import Readable
from .types import TensorType, TupleType, Type


@dataclass(frozen=True, repr=False)
class Port(Readable):
    """A parameter or result. `dtype` and `shape` are None where it is no tensor; of a shape, what is symbolic is a string, such
    as "n" or "2 * n", and what is unknown None."""

    name: str
    type: Type

    def _shown(self) -> str:
        return f"{self.name}: {self.type}"

    @property
    def dtype(self) -> np.dtype | None:
        return self.type.dtype.users if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> tuple[int | str | None, ...] | None:
        if not isinstance(self.type, TensorType):
            return None
        return tuple(dim if isinstance(dim, int) else None if str(dim) == "?" else str(dim) for dim in self.type.shape)


def inputs_of(function: Function) -> tuple[Port, ...]:
    """The parameters of a function, without the values that a closure has captured."""
    own = len(function.param_names) - function.captured
    return tuple(map(Port, function.param_names[:own], function.type.params[:own]))


def outputs_of(function: Function) -> tuple[Port, ...]:
    """The result, or the fields of a tuple, by the names that the model has for them; else "output", or "output_0", "output_1",
    … of a tuple."""
    result = function.type.result
    if not isinstance(result, TupleType):
        return (Port(function.result_names[0] if function.result_names else "output", result),)
    names = function.result_names or [f"output_{number}" for number in range(len(result.fields))]
    return tuple(map(Port, names, result.fields))
