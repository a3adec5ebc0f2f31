"""Parameters and results of a function, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

import numpy as np

from .messages.calling import Suggesting
from .messages.errors import UnknownPortError
from .messages.names import near
from .messages.readable import Readable
from .program import Function
from .types import TensorType, TupleType, Type


@dataclass(frozen=True, repr=False)
class Port(Readable, Suggesting):
    """A parameter or result. `dtype` and `shape` are None if it is not a tensor; of a shape, what is symbolic is a string, such
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


class Ports(tuple[Port, ...], Suggesting):
    """Ports in order; `ports["x"]` is the one of that name."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(port.name for port in self)

    @overload
    def __getitem__(self, place: SupportsIndex | str) -> Port: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Port, ...]: ...

    def __getitem__(self, place: Any) -> Any:
        """By number, or by name. Raises UnknownPortError for a name that no port has."""
        if not isinstance(place, str):
            return super().__getitem__(place)
        for port in self:
            if port.name == place:
                return port
        known = ", ".join(self.names) or "none"
        raise UnknownPortError(f"there is no port {place!r}; there are {known}{near(place, self.names)}")

    def _instead_of(self, name: str) -> str:
        return f"; the port of that name is ports[{name!r}]" if name in self.names else super()._instead_of(name)


def inputs_of(function: Function) -> Ports:
    """The parameters of a function, without the values that a closure has captured."""
    own = len(function.param_names) - function.captured
    return Ports(map(Port, function.param_names[:own], function.type.params[:own]))


def outputs_of(function: Function) -> Ports:
    """The result, or the fields of a tuple, by the names that the model has for them; else "output", or "output_0", "output_1",
    … of a tuple."""
    result = function.type.result
    if not isinstance(result, TupleType):
        return Ports((Port(function.result_names[0] if function.result_names else "output", result),))
    names = function.result_names or [f"output_{number}" for number in range(len(result.fields))]
    return Ports(map(Port, names, result.fields))
