"""Other weights for a machine that is running: its constants are made again, as the compiler made them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..formats.constants import check_replacements
from ..formats.messages.calling import told
from ..formats.messages.errors import ArgumentError, UnknownWeightError
from ..formats.messages.names import near
from ..formats.types import TensorType
from ..formats.weight_table import NamedWeight, WeightTable, digest
from . import library
from .tensor import Tensor, tensor_of


def constants_of(
    table: WeightTable, given: Mapping[str, Any], constant: Callable[[int], np.ndarray] | None = None
) -> dict[int, np.ndarray]:
    """The constants, by their places, that are made of the weights in `given`, and of others, which `constant` knows by their
    places among the constants.

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
    if constant is not None:
        needed = frozenset[int]().union(*(of[number] for _, number in table.constants if of[number] & free)) - free
        arrays |= {number: constant(place) for number, place in table.held.items() if number in needed}
    have = frozenset(arrays)
    missing = dict.fromkeys(
        table.weights[each].name
        for place, number in table.constants
        if of[number] & free
        for each in sorted(of[number] - have)
    )
    if missing:
        raise ArgumentError(
            f"weights that are made into one constant with the given ones are missing: {_listed(list(missing))}; give them too"
        )
    return library.compiler().remade(table, arrays, places) if places else {}


def _checked(weight: NamedWeight, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype != weight.type.dtype.numpy or array.shape != weight.type.shape:
        got = TensorType(weight.type.dtype, array.shape) if array.dtype == weight.type.dtype.numpy else array.dtype
        raise ArgumentError(f"weight {weight.name!r}: expected {weight.type}, got {got}")
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
    """Raises ArgumentError where constants would become ones of other types, since what is verified is the type, and for one
    that is made of no weight."""
    of = needs(table)
    settled = {number for number, weight in enumerate(table.weights) if weight.digest}
    places = {place for place, number in table.constants if not of[number] & settled}
    for place in made:
        if place not in places:
            raise ArgumentError(f"constant {place!r:.40} is made of no weight that has a name and can be another")
    check_replacements(old, made)


class Weights(Mapping[str, Tensor]):
    """The weights that a machine has now, by their names in the model; `types` says what each is, and reads none."""

    def __init__(self, table: WeightTable, constant: Callable[[int], np.ndarray]) -> None:
        self.types: dict[str, TensorType] = {weight.name: weight.type for weight in table.weights}
        self._table, self._constant = table, constant
        self._numbers = {name: number for number, name in enumerate(self.types)}

    def __getitem__(self, name: str) -> Tensor:
        """The elements, read-only, where they lie. Raises UnknownWeightError, which is a KeyError."""
        if name not in self._numbers:
            raise UnknownWeightError(f"there is no weight {name!r}; {_known(self._table)}{near(name, self._numbers)}")
        place = self._table.held.get(self._numbers[name])
        if place is None:
            raise UnknownWeightError(
                f"the file does not hold weight {name!r}, but only what was made of it; compile the model anew"
            )
        return tensor_of(self._constant(place))

    def __iter__(self) -> Iterator[str]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)

    def __repr__(self) -> str:
        return f"Weights({', '.join(f'{name}: {type_}' for name, type_ in self.types.items())})"


def _is_numeric(array: np.ndarray) -> bool:
    return array.dtype.kind in "fiub" or (array.dtype.kind == "V" and array.dtype.fields is None)  # of ml_dtypes


def changed(name: str, base: np.ndarray, delta: Any, scale: float) -> np.ndarray:
    """`base + scale * delta`, where a pair (B, A) is the product B @ A: in float32 where `base` has fewer bits, rounded once.
    Raises ArgumentError for a delta of another shape."""
    where, dtype = f"load_deltas: {name!r}", base.dtype
    parts = [np.asarray(part) for part in (delta if isinstance(delta, (tuple, list)) else (delta,))]
    wide = np.result_type(dtype, np.float32) if dtype.kind == "f" else np.dtype(np.float32)
    if len(parts) not in (1, 2) or not all(map(_is_numeric, parts)):
        raise ArgumentError(f"{where}: expected an array, or a pair of arrays B, A, got {told(delta)}")
    wanted = list(base.shape)
    if len(parts) == 2:
        b, a = parts
        shape = [b.shape[0], a.shape[1]] if b.ndim == a.ndim == 2 and b.shape[1] == a.shape[0] else None
        if shape != wanted:
            turned = "; the model holds it transposed: give A.T, B.T" if shape == wanted[::-1] else ""
            raise ArgumentError(
                f"{where}: the weight is {wanted}, and B {list(b.shape)}, A {list(a.shape)} give "
                f"{shape or 'no product'}{turned}"
            )
        parts = [b.astype(wide) @ a.astype(wide)]
    (whole,) = parts
    if list(whole.shape) != wanted:
        raise ArgumentError(f"{where}: the weight is {wanted}, and the delta {list(whole.shape)}")
    return (base.astype(wide) + wide.type(scale) * whole.astype(wide)).astype(dtype)
