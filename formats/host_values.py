"""Data types that Python has values of its own for: maps, sequences, optional values. The machine has them as any data type.

data Maps[k, v] = Maps(k, v)                       dict, or a list of dicts of the same keys: keys [n], values [n] or [rows, n]
data Sequence[a] = End | Item(a, Sequence[a])      list
data Optional[a] = Absent | Present(a)             None, or the value
data Ranked[r0, …] = Rank0(r0) | Rank1(r1) | …     an array of any rank, known only at run time
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .messages.errors import ExecutionError
from .strings import ELEMENT, listed, to_texts
from .types import Constructor, DataType, DataTypeDefinition, TensorType, TypeVariable

_A, _K, _V = map(TypeVariable, "akv")
MAPS = DataTypeDefinition("Maps", ("k", "v"), (Constructor("Maps", (_K, _V)),))
SEQUENCE = DataTypeDefinition(
    "Sequence", ("a",), (Constructor("End", ()), Constructor("Item", (_A, DataType("Sequence", (_A,)))))
)
OPTIONAL = DataTypeDefinition("Optional", ("a",), (Constructor("Absent", ()), Constructor("Present", (_A,))))
MOST_RANKS = 9  # arrays of up to 8 axes
_R = tuple(TypeVariable(f"r{rank}") for rank in range(MOST_RANKS))
RANKED = DataTypeDefinition(
    "Ranked",
    tuple(each.name for each in _R),
    tuple(Constructor(f"Rank{rank}", (each,)) for rank, each in enumerate(_R)),
)
DEFINITIONS = {definition.name: definition for definition in (MAPS, SEQUENCE, OPTIONAL, RANKED)}


def form_of(definition: DataTypeDefinition) -> str:
    """The name of the one of these that a data type of an executable is an instance of; "" for any other: names come from
    anywhere, so what its constructors are decides."""
    name = definition.name.partition("[")[0]
    if name not in DEFINITIONS or name == definition.name:
        return ""
    fields = [[constructor.name, *constructor.fields] for constructor in definition.constructors]
    expected: dict[str, Callable[[], bool]] = {
        "Maps": lambda: len(fields) == 1 and [*map(len, fields)] == [3] and _are_maps(*fields[0][1:]),
        "Sequence": lambda: [*map(len, fields)] == [1, 3] and str(fields[1][2]) == definition.name,
        "Optional": lambda: [*map(len, fields)] == [1, 2],
        "Ranked": lambda: [*map(len, fields)] == [2] * MOST_RANKS and _are_ranked([each[1] for each in fields]),
    }
    return name if expected[name]() else ""


def _are_maps(keys: Any, values: Any) -> bool:
    both = isinstance(keys, TensorType) and isinstance(values, TensorType)
    return both and keys.rank == 1 and values.rank in (1, 2)


def _are_ranked(types: list[Any]) -> bool:
    return all(isinstance(type_, TensorType) and type_.rank == rank for rank, type_ in enumerate(types))


def as_dicts(keys: np.ndarray, values: np.ndarray) -> dict | list[dict]:
    """Maps as Python has them, of arrays or of string tensors' elements. Raises ExecutionError where a key lacks a value."""
    count = len(keys)
    if count != values.shape[-1]:
        raise ExecutionError(f"maps of {count} keys have {values.shape[-1]} values")
    names = listed(keys)
    if values.ndim == 1:
        return dict(zip(names, listed(values), strict=True))
    rows = values.tolist() if values.dtype != ELEMENT else to_texts(values).tolist()
    if 0 < count <= _MOST_WRITTEN:
        return _dicts(count)(names, rows)
    return [dict(zip(names, row, strict=True)) for row in rows]


_MOST_WRITTEN = 64  # keys of a dict that is written out


@functools.lru_cache(_MOST_WRITTEN)
def _dicts(count: int) -> Callable[[list, list[list]], list[dict]]:
    """A function that makes a dict of `count` names for each row: written out, `{k0: v0, k1: v1}` takes a fifth of the time of
    `dict(zip(names, row))` (three keys: 0.14 and 0.7 us)."""
    keys, values = ([f"{letter}{place}" for place in range(count)] for letter in "kv")
    items = ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True))
    scope: dict[str, Any] = {}
    exec(
        f"def make(names, rows):\n    [{', '.join(keys)}] = names\n"
        f"    return [{{{items}}} for [{', '.join(values)}] in rows]",
        scope,
    )
    return scope["make"]
