"""The weights of a graph by their names in the model: what the compiler made of them are the graph's own parameters p0, p1, …"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ...formats import limits
from ...formats.constants import aligned_copy
from ...formats.types import TensorType
from ...formats.weight_table import WeightTable
from ...vm.replaced_weights import constants_of, needs
from ...vm.tensor import Tensor


class GraphWeights:
    """Makes parameters of a graph anew of other weights, as the compiler made them of the first ones."""

    def __init__(self, table: WeightTable, places: Mapping[int, str]) -> None:
        """`places` says which parameter a constant of the program has become."""
        self._table, self._places = table, places
        self.types: dict[str, TensorType] = {weight.name: weight.type for weight in table.weights}

    def __contains__(self, name: str) -> bool:
        return name in self.types

    def made(self, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The parameters that are made of these weights. Raises ArgumentError, as `constants_of`."""
        fitting = {name: _converted(value, self.types[name]) for name, value in given.items()}
        made = constants_of(self._table, fitting)
        return {self._places[place]: _aligned(array) for place, array in made.items() if place in self._places}

    def made_of(self, names: Collection[str]) -> set[str]:
        """The parameters that are made of some of these weights."""
        numbers = {number for number, weight in enumerate(self._table.weights) if weight.name in names}
        of = needs(self._table)
        places = (place for place, value in self._table.constants if of[value] & numbers)
        return {self._places[place] for place in places if place in self._places}

    def is_like(self, other: GraphWeights | None) -> bool:
        """Whether both make the same parameters in the same way."""
        return other is not None and self._table.is_like(other._table) and self._places == other._places


def _converted(value: Any, type_: TensorType) -> np.ndarray:
    """An array of the weight's element type, where the kind of number allows it."""
    array = value.array if isinstance(value, Tensor) else np.asarray(value)
    dtype = type_.dtype.numpy
    can_be = array.dtype != dtype and not isinstance(value, Tensor) and np.can_cast(array.dtype, dtype, "same_kind")
    return array.astype(dtype) if can_be else array


def _aligned(array: np.ndarray) -> np.ndarray:
    """Kernels read what begins a cache line faster."""
    is_aligned = array.flags.c_contiguous and array.ctypes.data % limits.ALIGNMENT == 0
    return array if is_aligned else aligned_copy(array)
