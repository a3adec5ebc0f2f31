"""Locations of attention's operands: the part of `recognise.py` for the ways in which exporters split queries, keys and values
from one product.

    take(permute_dims(reshape(x)), 0)                       an index of an axis of parts
    squeeze(split(permute_dims(reshape(x)))[0])
    reshape(split(x)[0])                                    a run of the last axis
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import ir
from ..operators.table import lookup
from .rewriting import order_of, tensor_type


@dataclass(frozen=True)
class Place:
    """A tensor, the order of its axes, and, if it has one more, that axis and the index on it."""

    source: ir.Atom
    order: tuple[int, ...]
    part: tuple[int, int] | None = None


@dataclass(frozen=True)
class Places:
    """`definitions`: the defining calls of variables; `fields`: the tuple fields that others are. `emit` makes a new
    binding."""

    definitions: Mapping[ir.Var, ir.OperatorCall]
    fields: Mapping[ir.Var, ir.GetItem]
    emit: Callable[..., ir.Var]

    def of(self, atom: ir.Atom, row: int = -1) -> Place | None:
        """The place of an operand whose axis number `row` must be the last one in memory; None if it is not."""
        rank = tensor_type(atom).rank
        turned = self._turned(atom)
        part = self._part(turned.source)
        found = [turned, Place(atom, tuple(range(rank)))]
        if part is not None:
            found.insert(0, Place(part.source, tuple(part.order[axis] for axis in turned.order), part.part))
        return next((place for place in found if place.order[row] == rank - 1), None)

    def _turned(self, atom: ir.Atom) -> Place:
        call = self._definition(atom)
        if call is None or call.operator != "permute_dims":
            return Place(atom, tuple(range(tensor_type(atom).rank)))
        return Place(call.args[0], order_of(call))

    def _part(self, atom: ir.Atom) -> Place | None:
        """The whole of which an atom is a part, if a kernel can read it in place."""
        call = self._definition(atom)
        if call is None:
            return None
        attributes = lookup(call.operator).bind(call.attributes)
        if call.operator == "take":
            rank = tensor_type(call.args[0]).rank
            return self._at_index(call.args[0], attributes["axis"] % rank, _number(call.args[1]))
        if call.operator not in ("squeeze", "reshape"):
            return None
        field = self.fields.get(call.args[0])  # type: ignore[arg-type]
        split = self._definition(field.tuple) if field else None
        if field is None or split is None or split.operator != "split":
            return None
        joined, sizes = split.args[0], lookup("split").bind(split.attributes)
        rank = tensor_type(joined).rank
        axis = sizes["axis"] % rank
        if call.operator == "reshape":
            return self._run(joined, field.index, sizes["sizes"], tensor_type(atom).shape) if axis == rank - 1 else None
        is_axis = [each % rank for each in attributes["axes"]] == [axis]
        return self._at_index(joined, axis, field.index) if is_axis else None

    def _at_index(self, atom: ir.Atom, axis: int, index: int | None) -> Place | None:
        """The place at that index of an axis of an atom, which may be a transposition."""
        turned, size = self._turned(atom), tensor_type(atom).shape[axis]
        if index is None or not isinstance(size, int):
            return None
        at = turned.order[axis]
        if at == len(turned.order) - 1:
            return None
        order = tuple(each - (each > at) for each in turned.order if each != at)
        return Place(turned.source, order, (at, index % size))

    def _run(self, joined: ir.Atom, index: int, sizes: tuple[Any, ...], shape: tuple[Any, ...]) -> Place | None:
        """One of equal runs of the last axis, seen as heads."""
        outer = tensor_type(joined).shape[:-1]
        if shape[:-2] != outer or not all(isinstance(size, int) and size == sizes[0] for size in sizes):
            return None
        view = self.emit("reshape", joined, shape=(*outer, len(sizes), *shape[-2:]))
        return Place(view, tuple(range(len(shape))), (len(outer), index))

    def _definition(self, atom: ir.Atom) -> ir.OperatorCall | None:
        return self.definitions.get(atom) if isinstance(atom, ir.Var) else None


def _number(atom: ir.Atom) -> int | None:
    """The value of an integer constant without axes."""
    if isinstance(atom, ir.Constant) and np.ndim(atom.array) == 0 and atom.array.dtype.kind in "iu":
        return int(atom.value)
    return None
