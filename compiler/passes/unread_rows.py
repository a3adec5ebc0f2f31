"""Rows that nobody reads are not computed: what picks rows moves before the operators that compute each row by itself.

    take(matmul(rms_normalization(x), w), [-1])    →  matmul(rms_normalization(take(x, [-1])), w)

So the head of a language model is computed for the last token alone, and the last layer of a classifier for the token that it
looks at. Attention stays whole: a row among few is summed in another order than one among many.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable
from typing import NamedTuple, Union

import numpy as np

from ...formats import dims
from ...formats.dims import Dim
from ...formats.primitive import Attributes
from ...formats.types import TensorType
from .. import ir
from ..ir.analysis import atoms_in
from ..operators.shapes import is_unknown
from ..operators.table import Fusion, lookup
from .rewriting import Emitter, constant, order_of, rewriting, tensor_type

_PRODUCTS = frozenset({"matmul", "matmul_integer", "matmul_dequantized"})
_SOFTMAX = frozenset({"softmax", "log_softmax"})  # over one axis; normalisations of layers, over one and all behind it
_NORMALISATIONS = _SOFTMAX | {"layer_normalization", "rms_normalization"}
_COSTLY = _PRODUCTS | _NORMALISATIONS
_MOST_INDICES = 1 << 12


class _Rows(NamedTuple):
    """Those that an operator picks along an axis: `take` by indices, or `slice` by its bounds."""

    axis: int
    indices: ir.Atom | None
    bounds: Attributes = ()

    def at(self, axis: int) -> _Rows:
        return self._replace(axis=axis)


class _All:
    """All rows are read."""


_ALL = _All()
_Read = Union[_Rows, _All]


class Narrower(Emitter):
    """What is read of each variable of a block is found from the last binding to the first, what is computed of it from the first
    to the last: an elementwise operator for some rows only where that saves a product or a normalisation before it. `few`: a
    list of rows that is known not to be longer than all of them."""

    def __init__(self, module: ir.Module, few: ir.Atom | None = None) -> None:
        super().__init__(module)
        self.few = few
        self.read: dict[ir.Atom, _Read] = {}
        self.narrow: ChainMap[ir.Atom, ir.Var] = ChainMap()  # what is computed for some rows: by variables, these rows
        self.picked: ChainMap[tuple[ir.Atom, _Rows], ir.Var] = ChainMap()
        self.indices: dict[bytes, ir.Constant] = {}  # constants, by their elements: equal ones pick the same rows

    def block(self, block: ir.Block) -> ir.Block:
        self._read_in(block)
        around = self.narrow, self.picked
        self.narrow, self.picked = self.narrow.new_child(), self.picked.new_child()
        made = super().block(block)
        self.narrow, self.picked = around
        return made

    # ---- what is read ----

    def _read_in(self, block: ir.Block) -> None:
        own = {binding.var for binding in block.bindings}
        for var in own:
            self.read.pop(var, None)  # around this block all that it reads was taken for read whole
        self._reads(block.result, _ALL)
        for binding in reversed(block.bindings):
            call = binding.value
            if isinstance(call, ir.OperatorCall):
                if binding.var not in self.read:
                    continue
                for atom, rows in zip(call.args, self._operands(call, binding.var, own), strict=True):
                    self._reads(atom, rows)
                continue
            inner = (atom for each in ir.blocks_of(call) for atom in atoms_in(each))
            for atom in (*ir.atoms_of(call), *inner):
                self._reads(atom, _ALL)

    def _reads(self, atom: ir.Atom, rows: _Read) -> None:
        self.read[atom] = rows if self.read.get(atom, rows) == rows else _ALL

    def _operands(self, call: ir.OperatorCall, var: ir.Var, own: set[ir.Var]) -> list[_Read]:
        """What an operator reads of each operand."""
        if (picked := self._picked_by(call)) is not None and picked.indices not in own:
            return [picked, *(_ALL for _ in call.args[1:])]
        rows = self.read.get(var)
        axes = row_axes(call, var, rows.axis) if isinstance(rows, _Rows) else None
        if axes is None or not isinstance(rows, _Rows):
            return [_ALL] * len(call.args)
        return [_ALL if axis is None else rows.at(axis) for axis in axes]

    # ---- what is computed ----

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        call, var = binding.value, binding.var
        if not isinstance(call, ir.OperatorCall):
            return (self.with_new_operands(binding),)
        self.begin(binding)
        if self._picked_by(call) is not None and (made := self.narrow.get(call.args[0])) is not None:
            shape = tensor_type(var).shape
            self.atoms[var] = made if tensor_type(made).shape == shape else self.emit("reshape", made, shape=shape)
            return self.new
        rows = self.read.get(var)
        axes = row_axes(call, var, rows.axis) if isinstance(rows, _Rows) else None
        saves = call.operator in _COSTLY or any(arg in self.narrow for arg in call.args)
        if not isinstance(rows, _Rows) or axes is None or not saves:
            return (self.with_new_operands(binding),)
        operands = [
            self.atom(arg) if axis is None else self._rows_of(arg, rows.at(axis))
            for arg, axis in zip(call.args, axes, strict=True)
        ]
        attributes = lookup(call.operator).bind(call.attributes)
        if call.operator == "reshape":
            count = tensor_type(operands[0]).shape[rows.axis]
            attributes["shape"] = (*attributes["shape"][: rows.axis], count, *attributes["shape"][rows.axis + 1 :])
        self.narrow[var] = self.emit(call.operator, *operands, **attributes)
        return self.new

    def _rows_of(self, atom: ir.Atom, rows: _Rows) -> ir.Var:
        if atom in self.narrow:
            return self.narrow[atom]
        key = self.atom(atom), rows
        if key not in self.picked:
            if rows.indices is not None:
                self.picked[key] = self.emit("take", key[0], rows.indices, axis=rows.axis)
            else:
                self.picked[key] = self.emit("slice", key[0], axes=(rows.axis,), **dict(rows.bounds))
        return self.picked[key]

    def _picked_by(self, call: ir.OperatorCall) -> _Rows | None:
        """The rows that an operator picks, if it does nothing else. One that picks a single row may leave its axis out."""
        if not call.args or not isinstance(call.args[0], ir.Var) or call.operator not in ("take", "slice"):
            return None
        type_ = tensor_type(call.args[0])
        if any(map(is_unknown, type_.shape)):
            return None
        options = lookup(call.operator).bind(call.attributes)
        if call.operator == "take":
            axis = options["axis"] % type_.rank
            indices = self._indices(call.args[1], type_.shape[axis])
            return None if indices is None else _Rows(axis, indices)
        if len(options["starts"]) != 1:
            return None
        axis = 0 if options["axes"] is None else options["axes"][0] % type_.rank
        bounds = {name: options[name] for name in ("starts", "ends", "steps")}
        known = _names(type_.shape[axis])
        if any(_names(each) - known for each in (*bounds["starts"], *bounds["ends"])):
            return None  # a size that may be known only behind what is to be narrowed
        return _Rows(axis, None, tuple(bounds.items()))

    def _indices(self, atom: ir.Atom, size: Dim) -> ir.Atom | None:
        """A list of rows that is no longer than all `size` rows, whatever the sizes of a run; None for anything else: rows
        that are picked several times would be computed as often."""
        type_ = tensor_type(atom)
        if not isinstance(atom, ir.Constant) or isinstance(atom, ir.Weight):
            if atom is self.few:
                return atom
            (count,) = type_.shape if type_.rank == 1 else (None,)
            is_fewer = count == 1 or (isinstance(count, int) and isinstance(size, int) and count <= size)
            return atom if is_fewer else None
        if type_.rank > 1 or not 0 < atom.array.size <= _MOST_INDICES:
            return None
        vector = constant(np.atleast_1d(atom.value))
        rows, distinct = len(vector.value), np.unique(vector.value)  # of one sign, that many rows are there
        if len(distinct) < rows or (distinct[0] < 0 <= distinct[-1] and not (isinstance(size, int) and rows <= size)):
            return None
        return self.indices.setdefault(vector.value.astype(np.int64).tobytes(), vector)


def _names(dim: object) -> set[str]:
    return set() if isinstance(dim, int) else set(dims.variables(dim))  # type: ignore[arg-type]


def row_axes(call: ir.OperatorCall, var: ir.Var, axis: int) -> list[int | None] | None:
    """Along which axis of each operand the rows lie that make those of the result along `axis`, None for an operand of which all
    is needed. None where rows do not make rows."""
    if not isinstance(var.type, TensorType) or lookup(call.operator).varies:
        return None
    types, rank, size = [tensor_type(arg) for arg in call.args], var.type.rank, var.type.shape[axis]
    if any(is_unknown(dim) for type_ in (var.type, *types) for dim in type_.shape):
        return None
    options = lookup(call.operator).bind(call.attributes)
    if call.operator in _PRODUCTS:
        a, b, *others = types
        if a.rank != rank or axis > rank - 2 or b.rank > (rank if axis == rank - 2 else 2):
            return None
        if call.operator == "matmul_integer" and others and others[0].rank:
            return None  # a zero point for each row
        return [axis, *(None for _ in types[1:])]
    if call.operator in _NORMALISATIONS:
        over = options["axis"] % rank
        is_apart = axis != over if call.operator in _SOFTMAX else axis < over
        return [axis, *(None for _ in types[1:])] if is_apart else None
    if call.operator == "permute_dims":
        return [order_of(call)[axis]]
    if call.operator == "reshape":
        return [axis] if types[0].shape[: axis + 1] == var.type.shape[: axis + 1] else None
    if lookup(call.operator).fusion is not Fusion.ELEMENTWISE:
        return None
    places: list[int | None] = []
    for arg, type_ in zip(call.args, types, strict=True):
        at = axis - rank + type_.rank
        is_same = at < 0 or type_.shape[at] == 1 != size
        if not is_same and (type_.shape[at] != size or isinstance(arg, ir.Constant)):
            return None
        places.append(None if is_same else at)
    return places if any(place is not None for place in places) else None


UnreadRows = rewriting("unread_rows", Narrower)
