"""Splits products whose columns are split after them: a gate and its operand; queries, keys and values.

    a, b = split(matmul(x, w) + c, axis=-1)    →  matmul(x, w₁) + c₁,  matmul(x, w₂) + c₂

Then nothing is copied, and operations on a part join its product. The columns may be split after a
reshape and a transposition, as for heads, when a part has some columns of each. If only attention uses the parts, which
it reads in place, the product stays whole.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from ...formats.types import UNKNOWN, ShapeDim
from .. import ir
from ..ir.analysis import atoms_in
from ..named_weights import computed
from ..operators.shapes import axis_of
from ..operators.table import lookup
from ..targets.base import Costs
from .rewriting import Emitter, is_row, order_of, rewriting, tensor_type

_VIEWS = ("reshape", "permute_dims", "squeeze", "expand_dims")


@dataclass(frozen=True)
class _Columns:
    """A view of a product's columns, which run along its `inner` axes: a shape, then an order of axes."""

    x: ir.Atom
    weights: ir.Constant
    bias: ir.Constant | None
    origin: str
    outer: tuple[ShapeDim, ...]
    inner: tuple[int, ...]
    order: tuple[int, ...] = ()  # empty: unchanged

    def inner_axis(self, axis: int) -> int | None:
        """The index of the tensor's axis among the inner axes; None for another one."""
        place = (self.order[axis] if self.order else axis) - len(self.outer)
        return place if place >= 0 else None


@dataclass(frozen=True)
class _Part:
    columns: _Columns
    axis: int  # among the inner ones
    start: int
    end: int

    @property
    def inner(self) -> tuple[int, ...]:
        inner = self.columns.inner
        return (*inner[: self.axis], self.end - self.start, *inner[self.axis + 1 :])

    def of(self, whole: ir.Constant) -> ir.Constant:
        """Selects its columns of the weights, or elements of the bias."""
        apart = computed("reshape", whole, shape=(-1, *self.columns.inner))
        chosen = computed("slice", apart, starts=(self.start,), ends=(self.end,), axes=(self.axis + 1,))
        return computed("reshape", chosen, shape=(*whole.array.shape[:-1], math.prod(self.inner)))


@dataclass(frozen=True)
class _Cut:
    axis: int
    ranges: Mapping[ir.Var, tuple[int, int]]


class _Splitter(Emitter):
    def __init__(self, module: ir.Module, costs: Costs) -> None:
        super().__init__(module)
        self.costs = costs
        self.users: Mapping[ir.Atom, list[ir.Binding | None]] = {}  # in the present block; None: its result
        self.parts: dict[ir.Var, _Part] = {}  # by their variables in the whole product
        self.gone: set[ir.Var] = set()

    def block(self, block: ir.Block) -> ir.Block:
        before, self.users = self.users, _users(block)
        result = super().block(block)
        self.users = before
        return result

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        if binding.var in self.gone:
            return ()
        if binding.var in self.parts:
            return self._product(binding, self.parts[binding.var])
        binding = self.with_new_operands(binding)
        parts = self._parts(binding)
        if parts:
            self.parts.update(parts)
            return ()
        return (binding,)

    def _product(self, binding: ir.Binding, part: _Part) -> Iterable[ir.Binding]:
        columns = part.columns
        self.begin(replace(binding, origin=columns.origin))
        result = self.emit("matmul", columns.x, part.of(columns.weights))
        if columns.bias is not None:
            result = self.emit("add", result, part.of(columns.bias))
        shape = (*columns.outer, *part.inner)
        if shape != tensor_type(result).shape:
            result = self.emit("reshape", result, shape=shape)
        if columns.order:
            result = self.emit("permute_dims", result, axes=columns.order)
        self.atoms[binding.var] = result
        return self.new

    def _parts(self, binding: ir.Binding) -> dict[ir.Var, _Part]:
        """The parts into which splitting a product pays; empty if it does not."""
        call = binding.value
        if not isinstance(call, ir.OperatorCall) or call.operator != "matmul":
            return {}
        x, weights = call.args
        if not isinstance(weights, ir.Constant) or weights.type.rank != 2 or tensor_type(x).rank < 2:
            return {}
        shape, chain = tensor_type(binding.var).shape, [binding.var]
        columns = _Columns(x, weights, None, binding.origin, shape[:-1], weights.array.shape[1:])
        while (following := self._followed(chain[-1], columns)) is not None:
            var, columns = following
            chain.append(var)
        parts = self._found(chain[-1], columns)
        if UNKNOWN in columns.outer or not self._is_worth(parts, columns):
            return {}
        self.gone.update(chain)
        self.gone.update(user.var for user in self.users[chain[-1]] if user is not None and user.var not in parts)
        return parts

    def _followed(self, var: ir.Var, columns: _Columns) -> tuple[ir.Var, _Columns] | None:
        """The sole user of a tensor, if it is a bias or a view of the columns, and its columns."""
        users = self.users[var]
        if len(users) != 1 or users[0] is None or not isinstance(users[0].value, ir.OperatorCall):
            return None
        user, call = users[0].var, users[0].value
        if call.operator == "add" and columns.bias is None and len(columns.inner) == 1 and not columns.order:
            (other,) = [arg for arg in call.args if arg is not var] or (var,)
            if isinstance(other, ir.Constant) and is_row(other, columns.inner[0]):
                return user, replace(columns, bias=other, outer=tensor_type(user).shape[:-1])
        if call.operator == "reshape" and not columns.order and len(columns.inner) == 1:
            inner = _last_axes(tensor_type(user).shape, columns.inner[0])
            if inner:
                return user, replace(columns, outer=tensor_type(user).shape[: -len(inner)], inner=inner)
        if call.operator == "permute_dims" and not columns.order:
            return user, replace(columns, order=order_of(call))
        return None

    def _found(self, var: ir.Var, columns: _Columns) -> dict[ir.Var, _Part]:
        """The parts of the columns, if they are the only uses; else none."""
        parts: dict[ir.Var, _Part] = {}
        for user in self.users[var]:
            cut = self._cut(user)
            place = columns.inner_axis(cut.axis) if cut else None
            if cut is None or place is None:
                return {}
            parts |= {name: _Part(columns, place, start, end) for name, (start, end) in cut.ranges.items()}
        return parts

    def _cut(self, user: ir.Binding | None) -> _Cut | None:
        """The part that a user cuts from a tensor; None if it is not a slice along one axis or a split, or of unknown sizes."""
        call = user.value if user is not None else None
        if user is None or not isinstance(call, ir.OperatorCall) or call.operator not in ("slice", "split"):
            return None
        attributes, shape = lookup(call.operator).bind(call.attributes), tensor_type(call.args[0]).shape
        if call.operator == "split":
            axis, bounds = attributes["axis"], (0, *attributes["sizes"])
            items = [each for each in self.users[user.var] if each is not None and isinstance(each.value, ir.GetItem)]
            if not _are_integers(bounds) or len(items) < len(self.users[user.var]):
                return None
            ranges = list(itertools.pairwise(itertools.accumulate(bounds)))
            return _Cut(axis_of(axis, len(shape)), {each.var: ranges[_index(each)] for each in items})
        starts, ends, axes = attributes["starts"], attributes["ends"], attributes["axes"]
        if len(starts) != 1 or attributes["steps"] not in (None, (1,)):
            return None
        axis = axis_of(axes[0], len(shape)) if axes else 0
        bounds = (*starts, *ends, shape[axis])
        if not _are_integers(bounds):
            return None
        start, end, _ = slice(*bounds[:2]).indices(bounds[2])
        return _Cut(axis, {user.var: (start, end)})

    def _is_worth(self, parts: Mapping[ir.Var, _Part], columns: _Columns) -> bool:
        depth, width = columns.weights.array.shape
        ranges = sorted((part.start, part.end) for part in parts.values())
        return (
            len(parts) > 1
            and len({part.axis for part in parts.values()}) == 1
            and all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
            and all(depth * math.prod(part.inner) >= self.costs.part_weights for part in parts.values())
            and (len(parts) - 1) * depth <= self.costs.reads_a_column * width
            and len(self.users[columns.weights]) == 1
            and any(self._is_copied(var) for var in parts)
        )

    def _is_copied(self, var: ir.Var) -> bool:
        """Whether a part has users other than attention, which reads parts in place."""
        for user in self.users[var]:
            call = user.value if user is not None else None
            if user is None or not isinstance(call, ir.OperatorCall):
                return True
            is_read = call.operator == "attention" and var in call.args[:3]
            if not is_read and not (call.operator in _VIEWS and not self._is_copied(user.var)):
                return True
        return False


def _users(block: ir.Block) -> dict[ir.Atom, list[ir.Binding | None]]:
    """A block's bindings by the atoms that they use, inner blocks included; None for its result."""
    users: defaultdict[ir.Atom, list[ir.Binding | None]] = defaultdict(list)
    for binding in block.bindings:
        for atom in dict.fromkeys(atoms_in(ir.Block((binding,), binding.var))):
            if atom is not binding.var:
                users[atom].append(binding)
    users[block.result].append(None)
    return users


def _index(item: ir.Binding) -> int:
    assert isinstance(item.value, ir.GetItem)
    return item.value.index


def _last_axes(shape: Sequence[ShapeDim], columns: int) -> tuple[int, ...]:
    """The last axes of a shape that together are the columns; empty if there are none."""
    for count in range(1, len(shape) + 1):
        inner = shape[-count:]
        if _are_integers(inner) and math.prod(inner) == columns:
            return inner
    return ()


def _are_integers(numbers: Sequence[ShapeDim]) -> TypeGuard[tuple[int, ...]]:
    return all(isinstance(number, int) for number in numbers)


SplitProducts = rewriting("split_products", _Splitter)
