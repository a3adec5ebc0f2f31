"""Other weights for a machine that is running: its constants are made again, as the compiler made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..formats.constants import check_replacements
from ..formats.errors import ArgumentError
from ..formats.names import near
from ..formats.types import TensorType
from ..formats.weights import NamedWeight, WeightTable, digest
from . import library


def constants_of(table: WeightTable, given: Mapping[str, Any]) -> dict[int, np.ndarray]:
    """The constants, by their places, that are made of the weights in `given`.

    Raises ArgumentError for a name that no weight has, for another type, for a settled weight that is another, and where
    weights are needed that are not given.
    """
    numbers = {weight.name: number for number, weight in enumerate(table.weights)}
    if unknown := [name for name in given if name not in numbers]:
        raise ArgumentError(f"there is no weight {unknown[0]!r}; {_known(table)}{near(unknown[0], numbers)}")
    arrays = {numbers[name]: _checked(table.weights[numbers[name]], value) for name, value in given.items()}
    free = {number for number in arrays if not table.weights[number].digest}
    of = needs(table)
    places = [place for place, number in table.constants if of[number] & free]
    missing = dict.fromkeys(
        table.weights[each].name
        for place, number in table.constants
        if of[number] & free
        for each in sorted(of[number] - free)
    )
    if missing:
        raise ArgumentError(
            f"weights that are made into one constant with those that came are missing: {_listed(list(missing))}; give them too"
        )
    return library.compiler().remade(table, arrays, places) if places else {}


def _checked(weight: NamedWeight, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype != weight.type.dtype.numpy or array.shape != weight.type.shape:
        came = TensorType(weight.type.dtype, array.shape) if array.dtype == weight.type.dtype.numpy else array.dtype
        raise ArgumentError(f"weight {weight.name!r}: expected {weight.type}, but {came} came")
    array = np.ascontiguousarray(array).reshape(array.shape)
    if weight.digest and digest(array) != weight.digest:
        raise ArgumentError(
            f"weight {weight.name!r} decided about the program when it was compiled, and cannot be another now: compile anew"
        )
    return array


def needs(table: WeightTable) -> list[frozenset[int]]:
    """The weights that each value of a table is made of."""
    found = [frozenset([number]) for number in range(len(table.weights))]
    found += [frozenset[int]()] * len(table.literals)
    for node in table.nodes:
        found += [frozenset().union(*(found[number] for number in node.inputs))] * len(node.results)
    return found


def _known(table: WeightTable) -> str:
    if not table.weights:
        return "the program remembers none: compile it with named_weights=True"
    return f"the program has {_listed([weight.name for weight in table.weights])}"


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def check_constants(table: WeightTable, old: Sequence[np.ndarray], made: Mapping[int, Any]) -> None:
    """Raises ArgumentError where constants would become ones of other types, and for one that is made of no weight."""
    places = {place for place, _ in table.constants}
    for place in made:
        if place not in places:
            raise ArgumentError(f"constant {place!r:.40} is made of no weight that has a name")
    check_replacements(old, made)
