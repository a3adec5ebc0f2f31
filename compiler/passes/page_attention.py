"""A decoder's function of many texts (`decoders/batch.py`): attention to a cache becomes attention to pages.

    attention(q, concat(past_key, k), concat(past_value, v), causal mask)
        →  paged_attention(q, k, v, keys, values, texts, tables)

The function arrives as that of one text, whose new tokens are those of all texts. Each of its values either has a row for each token,
made of that token's rows alone; or depends on no token; or is refused: it depends on the tokens before, or on how many there are.
Masks and positions are such. A mask is evaluated at some numbers of tokens, at those around each number in it too: it must show each
token itself and all those before it, or so many of them. What is the token's place in its text, at all these numbers, is the
parameter `positions` instead. A function whose results need something refused is removed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.decoders import ADAPTER_MASK, BATCH, BATCH_INPUTS, NEW_ROWS, OF_ADAPTERS, PAGE
from ...formats.dtypes import DType
from ...formats.messages.errors import TreadleError
from ...formats.types import TensorType, TupleType
from .. import ir
from ..ir.analysis import dimension_names
from ..ir.evaluate import apply_operator
from ..operators.paged import LANES
from ..operators.shapes import axes_of, axis_of, is_unknown
from ..operators.table import Fusion, lookup
from .rewriting import Emitter, tensor_type
from .unread_rows import Narrower, row_axes

_FREE = -1  # in the place of the tokens' axis: of what depends on no token
_HIDING = -1e4  # what is added to a score, or put in its place, from which on a key counts as hidden
_SMALL = ((0, 1), (0, 2), (0, 7), (1, 1), (3, 4), (5, 1), (17, 16))  # earlier tokens, and new ones
_MOST_NUMBERS, _LARGEST_NUMBER = 8, 1 << 20
_APART = frozenset({"top_k", "argmax", "argmin", "cumulative_sum", "cumulative_prod"})  # along one axis


@dataclasses.dataclass(frozen=True)
class PageAttention:
    longest_row: int  # of a head that kernels take
    name: str = "page_attention"

    def __call__(self, module: ir.Module) -> ir.Module:
        functions: dict[str, ir.Function] = {}
        for name, function in module.functions.items():
            if not name.endswith(BATCH) or tuple(param.name for param in function.params[:5]) != BATCH_INPUTS:
                functions[name] = function
            elif (made := _Paging(module, function, self.longest_row).made()) is not None:
                functions[name] = Narrower(module, few=made.params[2]).function(made)
        return dataclasses.replace(module, functions=functions)


class _Paging(Emitter):
    """`rows`: of each value that is understood, the axis along which the tokens lie, or _FREE."""

    def __init__(self, module: ir.Module, function: ir.Function, longest_row: int) -> None:
        super().__init__(module)
        self.came, self.longest_row = function, longest_row
        ids, self.positions, self.wanted, self.texts, self.tables, *others = function.params
        (self.tokens,) = tensor_type(ids).shape
        self.adapters = [param for param in others if param.name.startswith(OF_ADAPTERS)]
        caches = [param for param in others if param not in self.adapters]
        self.caches: dict[ir.Atom, ir.Var | None] = dict.fromkeys(caches)  # and the pages that take their place
        self.rows: dict[ir.Atom, int] = {ids: 0, self.positions: 0}
        for param in self.adapters:
            self.rows[param] = 1 if param.name == ADAPTER_MASK else _FREE
        sizes = {dim for param in self.adapters for dim in tensor_type(param).shape if not isinstance(dim, int)}
        self.ranks = sizes - {self.tokens}  # a size of adapters alone
        self.definitions: dict[ir.Atom, ir.OperatorCall] = {}
        self.fields: dict[ir.Atom, ir.GetItem] = {}
        self.probes: dict[tuple[ir.Atom, ...], int | None] = {}

    def made(self) -> ir.Function | None:
        """The function over pages; None if its results need what is not understood."""
        bindings: list[ir.Binding] = []
        *others, last = self.came.body.bindings
        if not isinstance(last.value, ir.MakeTuple) or self.came.body.result is not last.var:
            return None
        for binding in others:
            bindings += self.binding(binding)
        logits, *presents = last.value.fields
        results = [self.atom(logits)]
        for cache, present in zip(self.caches, presents, strict=True):
            new = self._joined_to(present)
            if new is None or new[0] is not cache or self.caches[cache] is None:
                return None
            results.append(self.atom(new[1]))
        if any(result not in self.rows and not isinstance(result, ir.Constant) for result in results):
            return None
        if self.rows.get(results[0], _FREE) != _FREE:
            return None
        types = TupleType(tuple(tensor_type(result) for result in results))
        result = ir.Binding(ir.Var(last.var.name, types), ir.MakeTuple(tuple(results)), last.origin)
        pages: list[Any] = list(self.caches.values())
        names = ("logits", *(NEW_ROWS + cache.name for cache in pages))
        return dataclasses.replace(
            self.came,
            params=(*self.came.params[:5], *pages, *self.adapters),
            body=ir.Block((*bindings, result), result.var),
            result_type=types,
            result_names=names,
        )

    # ---- bindings ----

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        """The binding of what is understood, or what takes its place; else none."""
        binding = self.with_new_operands(binding)
        value, var = binding.value, binding.var
        if isinstance(value, ir.GetItem):
            self.fields[var] = value
            if value.tuple not in self.rows:
                return ()
            self.rows[var] = self.rows[value.tuple]
            return (binding,)
        if isinstance(value, ir.MatchShape) and value.value in self.caches:  # whose sizes are the new rows'
            self.atoms[var] = value.value
        if not isinstance(value, ir.OperatorCall):
            return ()
        self.definitions[var] = value
        self.begin(binding)
        if value.operator == "attention":
            made = self._paged(value)
            if made is None:
                return ()
            self.atoms[var] = made
            return self.new
        row = self._row(value, var)
        if row is not None:
            self.rows[var] = row
            return (binding,)
        if self._is_position(var):
            shape, dtype = tensor_type(var).shape, tensor_type(var).dtype
            self.atoms[var] = self.emit("cast", self.emit("reshape", self.positions, shape=shape), dtype=dtype)
            for each in self.new:
                self.rows[each.var] = shape.index(self.tokens)
                self.definitions[each.var] = each.value  # type: ignore[assignment]
            return self.new
        return ()

    def _row(self, call: ir.OperatorCall, var: ir.Var) -> int | None:
        """Along which axis of a result the tokens lie; None where it is not made of each token alone."""
        if lookup(call.operator).varies:
            return None
        rows = [_FREE if isinstance(arg, ir.Constant) else self.rows.get(arg) for arg in call.args]
        if call.operator == "take" and call.args[1] is self.wanted:
            axis = axis_of(lookup("take").bind(call.attributes)["axis"], tensor_type(call.args[0]).rank)
            return _FREE if rows[0] == axis and tensor_type(call.args[0]).shape[axis] == self.tokens else None
        types = var.type.fields if isinstance(var.type, TupleType) else (var.type,)
        if None in rows or not all(isinstance(type_, TensorType) for type_ in types):
            return None
        mentioned = _names_in(call.attributes) | {name for type_ in types for name in dimension_names(type_)}  # type: ignore[arg-type]
        own, *others = str(self.tokens), *dimension_names(tensor_type(self.wanted)), *map(str, self.ranks)
        if mentioned - {own, *others}:  # how many tokens there are before, for one
            return None
        if all(row == _FREE for row in rows):
            return _FREE if own not in mentioned else self._filled(call)
        axes = {self._axis_of_tokens(type_) for type_ in types}  # type: ignore[arg-type]
        if len(axes) != 1 or None in axes:
            return None
        (axis,) = axes
        assert axis is not None
        needed = row_axes(call, var, axis) if isinstance(var.type, TensorType) else None
        if needed is None:
            needed = _more_axes(call, types[0], axis, rows)  # type: ignore[arg-type]
        if needed is None:
            return None
        if any(row != _FREE and row != place for row, place in zip(rows, needed, strict=True)):
            return None
        dims_there = {
            tensor_type(arg).shape[row] for arg, row in zip(call.args, rows, strict=True) if row not in (None, _FREE)
        }
        is_same = call.operator == "reshape" or dims_there == {types[0].shape[axis]}  # type: ignore[union-attr]
        return axis if is_same else None

    def _axis_of_tokens(self, type_: TensorType) -> int | None:
        """The only axis with the tokens, each of which may have several rows there; None if others have to do with them, too."""
        return self._only_axis(type_.shape)

    def _only_axis(self, shape: Sequence[Any]) -> int | None:
        held = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int) and dim not in self.ranks]
        return held[0] if len(held) == 1 and _times(shape[held[0]], self.tokens) else None

    def _filled(self, call: ir.OperatorCall) -> int | None:
        """The axis of what is the same for all tokens."""
        if call.operator not in ("full", "broadcast_to"):
            return None
        return self._only_axis(lookup(call.operator).bind(call.attributes)["shape"])

    # ---- attention ----

    def _joined_to(self, atom: ir.Atom) -> tuple[ir.Atom, ir.Atom, int] | None:
        """The cache that an atom is with new rows behind it, these rows, and their axis."""
        call = self.definitions.get(atom)
        if call is None or call.operator != "concat" or len(call.args) != 2 or call.args[0] not in self.caches:
            return None
        axis = axis_of(lookup("concat").bind(call.attributes)["axis"], tensor_type(call.args[1]).rank)
        return (call.args[0], call.args[1], axis) if self.rows.get(call.args[1]) == axis else None

    def _paged(self, call: ir.OperatorCall) -> ir.Var | None:
        attributes = lookup("attention").bind(call.attributes)
        q, *joined = (call.args[0], *map(self._joined_to, call.args[1:3]))
        if None in joined or attributes["narrow"] or any(attributes[f"{name}_part"] for name in "kv"):
            return None
        if self.rows.get(q) is None or tensor_type(call.args[1]).rank != 4:
            return None
        if (part := attributes["q_part"]) is not None:
            index = ir.Constant(ir.frozen(np.array(part[1], np.int64)))
            row = self.rows[q]
            q = self.emit("take", q, index, axis=part[0])
            self.rows[q] = row - (row > part[0])
        orders = {name: tuple(axis % 4 for axis in attributes[f"{name}_axes"] or range(4)) for name in "qkv"}
        at = dict(zip("qkv", (self.rows[q], *(each[2] for each in joined)), strict=True))  # type: ignore[index]
        if any(order[2] != at[name] or order[3] != 3 for name, order in orders.items()):
            return None
        window = self._window(call.args[3:], attributes)
        if window is None:
            return None
        pages = [
            self._pages(each[0], orders[name], tensor_type(each[1]), name == "k")  # type: ignore[index]
            for name, each in zip("kv", joined, strict=True)
        ]
        if None in pages:
            return None
        kept = {name: attributes[name] for name in ("scale", "repeat", "result_axes")}
        kept |= {f"{name}_axes": None if order == (0, 1, 2, 3) else order for name, order in orders.items()}
        new = [each[1] for each in joined]  # type: ignore[index]
        try:
            made = self.emit("paged_attention", q, *new, *pages, self.texts, self.tables, window=window, **kept)  # type: ignore[arg-type]
        except TreadleError:  # such shapes are another attention's
            return None
        self.rows[made] = (attributes["result_axes"] or (0, 1, 2, 3)).index(2)
        return made

    def _pages(self, cache: ir.Atom, order: Sequence[int], new: TensorType, is_key: bool) -> ir.Var | None:
        """The parameter of the pages that take a cache's place."""
        shape = [new.shape[axis] for axis in order]
        one, heads, _, size = shape
        if one != 1 or new.dtype is not DType.float32 or not isinstance(heads, int) or not isinstance(size, int):
            return None
        if size % LANES or not 0 < size <= self.longest_row:
            return None
        inner = (PAGE // LANES, size, LANES) if is_key else (PAGE, size)
        type_ = TensorType(DType.float32, (self._count, heads, *inner))
        known = self.caches[cache]
        if known is None:
            assert isinstance(cache, ir.Var)
            self.caches[cache] = known = ir.Var(cache.name, type_)
        return known if known.type == type_ else None

    @property
    def _count(self) -> Any:
        """The number of pages."""
        taken = {name for param in self.came.params for name in dimension_names(tensor_type(param))}
        return dims.variable(next(name for name in ("pages", "pages_", "pages__") if name not in taken))

    # ---- what sizes tell ----

    def _window(self, masks: Sequence[ir.Atom], attributes: Mapping[str, Any]) -> int | None:
        """How many keys a token sees, its own the last, 0 for all; None for any other mask."""
        key = (*masks,)
        if key not in self.probes:
            self.probes[key] = self._probed(masks, attributes)
        return self.probes[key]

    def _probed(self, masks: Sequence[ir.Atom], attributes: Mapping[str, Any]) -> int | None:
        if not masks or attributes["masked"] > _HIDING:
            return None
        sees: dict[tuple[int, int], np.ndarray] = {}
        for past, count in self._sizes(masks):
            made = [self._evaluated(mask, past, count) for mask in masks]
            shape = (count, past + count)
            if any(each is None for each in made):
                if (past, count) in _SMALL:
                    return None
                continue  # more tokens than the decoder takes
            mask, bias = made[0], made[1] if len(made) > 1 else None
            added = np.where(mask, 0 if bias is None else bias, attributes["masked"]) if mask.dtype == bool else mask  # type: ignore[union-attr]
            added = np.broadcast_to(added, np.broadcast_shapes(added.shape, shape))  # type: ignore[union-attr]
            is_seen = added.reshape(-1, *shape)
            if not ((is_seen == 0) | (is_seen <= _HIDING)).all() or (is_seen != is_seen[:1]).any():
                return None
            sees[past, count] = is_seen[0] == 0
        largest = max(sees, key=sum)
        seen = int(sees[largest][-1].sum())
        window = 0 if seen == sum(largest) else seen
        return window if all(np.array_equal(found, _causal(*sizes, window)) for sizes, found in sees.items()) else None

    def _is_position(self, var: ir.Var) -> bool:
        """Whether a value is each token's place in its text."""
        type_ = var.type
        if not isinstance(type_, TensorType) or type_.dtype is DType.bool or any(map(is_unknown, type_.shape)):
            return False
        if [dim for dim in type_.shape if dim != 1] != [self.tokens]:
            return False
        axis = type_.shape.index(self.tokens)
        for past, count in self._sizes([var]):
            found = self._evaluated(var, past, count)
            if found is None or not np.array_equal(found.ravel(), np.arange(past, past + count)):
                return False
        return axis >= 0

    def _sizes(self, atoms: Sequence[ir.Atom]) -> list[tuple[int, int]]:
        """Numbers of tokens at which values may differ: small ones, and those around each number that they are made of."""
        numbers: set[int] = set()
        pending, known = list(atoms), set(atoms)
        while pending:
            call = self.definitions.get(pending.pop())
            if call is None:
                continue
            numbers |= {number for number in _integers(call.attributes) if number > 1}
            for arg in call.args:
                if isinstance(arg, ir.Constant) and arg.array.size == 1 and arg.array.dtype.kind in "iuf":
                    number = abs(float(arg.array.item()))
                    numbers |= {math.ceil(number)} if 1 < number <= _LARGEST_NUMBER else set()
                if arg not in known:
                    known.add(arg)
                    pending.append(arg)
        large = sorted(number for number in numbers if number <= _LARGEST_NUMBER)[-_MOST_NUMBERS:]
        return [*_SMALL, *((max(0, number - 2), 4) for number in large)]

    def _evaluated(self, atom: ir.Atom, past: int, count: int) -> np.ndarray | None:
        """An atom's value, if sizes alone tell it."""
        sizes = {name: count if dims.variable(name) == self.tokens else past for name in self._size_names}
        known: dict[ir.Atom, np.ndarray] = {self.positions: np.arange(past, past + count)}

        def value(atom: ir.Atom) -> np.ndarray:
            if isinstance(atom, ir.Constant):
                return atom.array
            if atom not in known:
                call = self.definitions[atom]
                known[atom] = apply_operator(call.operator, [value(arg) for arg in call.args], call.attributes, sizes)[
                    0
                ]
            return known[atom]

        try:
            return value(atom)
        except (KeyError, TreadleError, RecursionError):
            return None

    @property
    def _size_names(self) -> list[str]:
        caches = [name for cache in self.caches for name in dimension_names(tensor_type(cache))]
        return list(dict.fromkeys([str(self.tokens), *caches]))


def _causal(past: int, count: int, window: int) -> np.ndarray:
    distance = np.arange(past, past + count)[:, None] - np.arange(past + count)
    return (distance >= 0) & ((distance < window) if window else True)


def _integers(value: Any) -> Iterable[int]:
    if isinstance(value, tuple):
        for each in value:
            yield from _integers(each)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield abs(value)


def _names_in(value: Any) -> set[str]:
    """The names of sizes in attributes."""
    if isinstance(value, tuple):
        return set().union(*map(_names_in, value))
    return set(dims.variables(value)) if isinstance(value, dims.SymbolicDim) else set()


def _more_axes(
    call: ir.OperatorCall, made: TensorType, axis: int, rows: Sequence[int | None]
) -> list[int | None] | None:
    """As `row_axes`, of operators that no rows are picked before."""
    options, types = lookup(call.operator).bind(call.attributes), [tensor_type(arg) for arg in call.args]
    first, operator = types[0], call.operator
    others: list[int | None] = [None] * (len(types) - 1)
    if operator == "rotary":
        return [
            None if each == _FREE else axis - made.rank + type_.rank for each, type_ in zip(rows, types, strict=True)
        ]
    if operator == "matmul" and rows[0] == _FREE:  # of columns
        return [None, types[1].rank - 1] if axis == made.rank - 1 and types[1].rank > 1 else None
    if operator in ("concat", "stack"):
        where = axis_of(options["axis"], made.rank)
        if where == axis:
            return None
        at = axis - (operator == "stack" and where < axis)
        return [None if each == _FREE else at for each in rows] if _FREE not in rows else None
    if operator in ("split", "slice"):
        gone = [options["axis"]] if operator == "split" else options["axes"] or range(len(options["starts"]))
        return None if axis in [axis_of(each, first.rank) for each in gone] else [axis, *others]
    if operator == "expand_dims":
        new = axes_of(options["axes"], made.rank)
        return None if axis in new else [axis - sum(each < axis for each in new)]
    if operator == "squeeze":
        kept = [each for each in range(first.rank) if each not in axes_of(options["axes"], first.rank)]
        return [kept[axis]]
    if operator == "broadcast_to":
        return [axis - made.rank + first.rank]
    if operator == "reshape":
        at = next((place for place, dim in enumerate(first.shape) if not isinstance(dim, int)), 0)
        is_kept = math.prod(first.shape[:at]) == math.prod(made.shape[:axis])  # and so what is behind it
        return [at] if is_kept else None
    if operator == "take":
        where = axis_of(options["axis"], first.rank)
        if rows[0] == _FREE:
            return [None, axis - where]
        at = axis if axis < where else axis - types[1].rank + 1
        return None if rows[1] != _FREE or at == where else [at, None]
    if operator == "take_along_axis":
        return None if axis_of(options["axis"], first.rank) == axis else [axis, axis]
    if lookup(operator).fusion is Fusion.REDUCTION:
        gone = axes_of(options["axes"], first.rank)
        kept = [each for each in range(first.rank) if options["keepdims"] or each not in gone]
        return None if kept[axis] in gone else [kept[axis], *others]
    if operator in _APART and made.rank == first.rank:
        return None if axis_of(options["axis"], first.rank) == axis else [axis, *others]
    return None


def _times(dim: Any, tokens: Any) -> bool:
    """Whether a size is that many rows for each token."""
    return isinstance(dim, dims.SymbolicDim) and dims.content(dim)[1] == tokens
