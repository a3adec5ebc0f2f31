"""A decoder's function of many texts (`decoders/batch.py`): attention to a cache becomes attention to pages.

    attention(q, concat(past_key, k), concat(past_value, v), causal mask)
        →  paged_attention(q, k, v, keys, values, texts, tables)

The function arrives as that of one text, whose new tokens are those of all texts. Each of its values has a row for each token,
made of that token's rows alone; or depends on no token; or is refused, since it depends on the tokens before, or on their number.
Masks and positions are such. A mask is evaluated at some numbers of tokens, and at those around each number in it: it must show
each token itself and all those before it, or a fixed number of them. What is the token's place in its text, at all these, becomes
`positions`, the parameter. A function whose results need something refused is removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.decoders import (
    ADAPTER_MASK,
    BATCH,
    BATCH_INPUTS,
    ENCODED_INPUTS,
    NEW_ROWS,
    OF_ADAPTERS,
    PAGE,
    is_cache,
)
from ...formats.dtypes import DType
from ...formats.messages.errors import TreadleError
from ...formats.types import TensorType, TupleType
from .. import ir
from ..ir.analysis import atoms_in, dimension_names, expressions
from ..ir.evaluate import evaluate
from ..operators.paged import LANES, STORED, Stored
from ..operators.shapes import axes_of, axis_of, is_unknown
from ..operators.table import Fusion, lookup
from .page_windows import Windows, is_plain_convolution
from .patterns import Matcher
from .recognise_attention import beyond, unrepeated
from .recognise_places import Places
from .rewriting import Emitter, tensor_type
from .unread_rows import Narrower, row_axes

_FREE = -1  # in the place of the tokens' axis: of what depends on no token
_HIDING = -1e4  # what is added to a score, or put in its place, from which on a key counts as hidden
_PLAIN = (0, 1, 2, 3)  # the order of axes 1, heads, tokens, depth
_SMALL = ((0, 1), (0, 2), (0, 7), (1, 1), (3, 4), (5, 1), (17, 16))  # earlier tokens, and new ones
_MOST_NUMBERS, _LARGEST_NUMBER = 8, 1 << 20
_MOST_ELEMENTS = 1 << 25  # of a tensor that is evaluated
_APART = frozenset({"top_k", "argmax", "argmin", "cumulative_sum", "cumulative_prod"})  # along one axis


@dataclasses.dataclass(frozen=True)
class PageAttention:
    longest_row: int = 0  # of a head that kernels take
    dtype: DType | None = None  # of keys and values in pages, None: as they are computed
    name: str = "page_attention"

    def __call__(self, module: ir.Module) -> ir.Module:
        functions: dict[str, ir.Function] = {}
        for name, function in module.functions.items():
            if not name.endswith(BATCH) or tuple(param.name for param in function.params[:5]) != BATCH_INPUTS:
                functions[name] = function
            elif (made := _Paging(module, function, self.longest_row, self.dtype).made()) is not None:
                functions[name] = Narrower(module, few=made.params[2]).function(made)
        return dataclasses.replace(module, functions=functions)


class _TooLargeError(Exception):
    """What a mask is made of is too large to be evaluated."""


class _Paging(Emitter):
    """`rows`: of each value that is understood, the axis along which the tokens lie, or _FREE."""

    def __init__(self, module: ir.Module, function: ir.Function, longest_row: int, dtype: DType | None) -> None:
        super().__init__(module)
        self.source, self.longest_row, self.dtype = function, longest_row, dtype
        self.kept: dict[ir.Atom, ir.Atom] = {}  # new rows as pages have them
        self.new_states: dict[ir.Atom, ir.Atom] = {}
        self.remembering: set[ir.Atom] = set()  # linear attentions: what they make, and new states
        self.windows: dict[int, Windows] = {}  # of convolutions, by their length
        ids, self.positions, self.wanted, self.texts, self.tables, *others = function.params
        self.encoded_places = [param for param in others if param.name in ENCODED_INPUTS]
        presents = {name.removeprefix(NEW_ROWS) for name in function.result_names[1:]}  # caches and states given anew
        encoded = [each for each in others if is_cache(each.name) and each.name not in presents]
        # an encoder's keys and values, and their pages
        self.encoded: dict[ir.Atom, ir.Var | None] = dict.fromkeys(encoded)
        self.tokens: Any = tensor_type(ids).shape[0]
        self.adapters = [param for param in others if param.name.startswith(OF_ADAPTERS)]
        caches = [each for each in others if each not in (*self.adapters, *self.encoded, *self.encoded_places)]
        self.caches: dict[ir.Atom, ir.Var | None] = dict.fromkeys(caches)  # and the pages that take their place
        self.rows: dict[ir.Atom, int] = {ids: 0, self.positions: 0}
        for param in self.adapters:
            self.rows[param] = 1 if param.name == ADAPTER_MASK else _FREE
        sizes = {dim for param in self.adapters for dim in tensor_type(param).shape if not isinstance(dim, int)}
        self.ranks = sizes - {self.tokens}  # a size of adapters alone
        self.picks: set[ir.Atom] = set()  # numbers of some tokens, which an expert computes for one
        self.counts: set[Any] = set()  # of such tokens
        self.definitions: dict[Any, ir.OperatorCall] = {}
        self.fields: dict[ir.Var, ir.GetItem] = {}
        self.places = Places(self.definitions, self.fields, self.emit)
        self.seen: dict[ir.Atom, ir.Binding] = {}  # with operands of now
        self.probes: dict[tuple[ir.Atom, ...], int | None] = {}

    def made(self) -> ir.Function | None:
        """The function over pages; None if its results need what is not understood."""
        try:
            return self._made()
        except _TooLargeError:
            return None

    def _made(self) -> ir.Function | None:
        bindings: list[ir.Binding] = []
        *others, last = self.source.body.bindings
        if not isinstance(last.value, ir.MakeTuple) or self.source.body.result is not last.var:
            return None
        for binding in others:
            bindings += self.binding(binding)
        logits, *presents = last.value.fields
        results = [self.atom(logits)]
        for cache, present in zip(self.caches, presents, strict=True):
            made = self._new_rows(cache, present) or self.new_states.get(present)
            if made is None or self.caches[cache] is None:
                return None
            results.append(made)
        if not isinstance(results[0], ir.Constant) and self.rows.get(results[0]) != _FREE:
            return None
        types = TupleType(tuple(tensor_type(result) for result in results))
        result = ir.Binding(ir.Var(last.var.name, types), ir.MakeTuple(tuple(results)), last.origin)
        pages: list[Any] = [*self.caches.values(), *filter(None, self.encoded.values())]
        return dataclasses.replace(
            self.source,
            params=(*self.source.params[:5], *self.encoded_places, *pages, *self.adapters),
            body=ir.Block((*bindings, result), result.var),
            result_type=types,
        )

    # ---- bindings ----

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        """The binding of what is understood, or what takes its place; else none."""
        binding = self.with_new_operands(binding)
        value, var = binding.value, binding.var
        self.seen[var] = binding
        if isinstance(value, ir.GetItem):
            self.fields[var] = value
            if value.tuple in self.remembering:
                self.begin(binding)
                self.atoms[var] = field = self.bind(value, value.tuple.type.fields[value.index], var.name)  # type: ignore[union-attr]
                if value.index:
                    self.new_states[var] = self.new_states[field] = field
                else:
                    self.rows[field] = 1
                return self.new
            if value.tuple not in self.rows:
                return ()
            self.rows[var] = self.rows[value.tuple]
            return (binding,)
        if isinstance(value, ir.MatchShape):
            is_same = value.value in self.rows and value.value.type == var.type  # type: ignore[union-attr]
            if is_same or value.value in self.caches:  # whose sizes are the new rows'
                self.atoms[var] = value.value
        if isinstance(value, ir.MatchShape) and value.value in self.picks:
            self.rows[var] = 1
            self.picks.add(var)
            self.counts.add(tensor_type(var).shape[1])
            return (binding,)
        if not isinstance(value, ir.OperatorCall):
            return ()
        self.definitions[var] = value
        self.begin(binding)
        if value.operator == "nonzero" and self.rows.get(value.args[0]) == 0 and tensor_type(value.args[0]).rank == 1:
            self.picks.add(var)
            return (binding,)
        row = None if value.operator == "attention" else self._row(value, var)
        if row is not None:
            self.rows[var] = row
            return (binding,)
        attended = next(filter(None, (self._paged(*each) for each in self._attentions(value))), None)
        made = attended or self._gone_on(value, var) or self._at_positions(value)
        if made is not None:
            self.atoms[var] = made
            return self.new
        if self._is_position(var):
            shape, dtype = tensor_type(var).shape, tensor_type(var).dtype
            self.atoms[var] = self.emit("cast", self.emit("reshape", self.positions, shape=shape), dtype=dtype)
            for each in self.new:
                self.rows[each.var] = shape.index(self.tokens)
                self.seen[each.var] = each
            return self.new
        return ()

    def block(self, block: ir.Block) -> ir.Block:
        """Blocks within are evaluated, if at all."""
        bindings = (super(_Paging, self).with_new_operands(binding) for binding in block.bindings)
        return ir.Block(tuple(bindings), self.atom(block.result))

    def _row(self, call: ir.OperatorCall, var: ir.Var) -> int | None:
        """Along which axis of a result the tokens lie; None where it is not made of each token alone."""
        if lookup(call.operator).varies:
            return None
        rows = [_FREE if isinstance(arg, ir.Constant) else self.rows.get(arg) for arg in call.args]
        if call.operator == "take" and call.args[1] is self.wanted:
            axis = axis_of(lookup("take").bind(call.attributes)["axis"], tensor_type(call.args[0]).rank)
            return _FREE if rows[0] == axis and tensor_type(call.args[0]).shape[axis] == self.tokens else None
        if call.operator in ("take", "scatter_nd") and call.args[1] in self.picks:
            return self._row_of_some(call, rows)
        types = var.type.fields if isinstance(var.type, TupleType) else (var.type,)
        if None in rows or not all(isinstance(type_, TensorType) for type_ in types):
            return None
        mentioned = _names_in(call.attributes) | {name for type_ in types for name in dimension_names(type_)}  # type: ignore[arg-type]
        others = (*dimension_names(tensor_type(self.wanted)), *map(str, (*self.ranks, *self.counts)))
        own = str(self.tokens)
        if mentioned - {own, *others}:  # how many tokens there are before, for one
            return None
        if all(row == _FREE for row in rows):
            return self._filled(call) if mentioned & {own, *map(str, self.counts)} else _FREE
        if call.operator in ("reshape", "expand_dims") and call.args[0] in self.picks:
            self.picks.add(var)
        return self._row_of_tokens(call, var, rows, types)  # type: ignore[arg-type]

    def _row_of_some(self, call: ir.OperatorCall, rows: list[int | None]) -> int | None:
        """The same where rows of some tokens are taken, or put back."""
        first, indices = tensor_type(call.args[0]), tensor_type(call.args[1]).shape
        axis = axis_of(lookup("take").bind(call.attributes)["axis"], first.rank) if call.operator == "take" else 0
        is_of_rows = len(indices) == 1 if call.operator == "take" else indices[1:] == (1,) and rows[2] == 0
        return axis if rows[0] == axis and first.shape[axis] == self.tokens and is_of_rows else None

    def _row_of_tokens(
        self, call: ir.OperatorCall, var: ir.Var, rows: list[int | None], types: Sequence[TensorType]
    ) -> int | None:
        axes = {self._only_axis(type_.shape) for type_ in types}
        if len(axes) != 1 or None in axes:
            return None
        (axis,) = axes
        assert axis is not None
        needed = row_axes(call, var, axis) if isinstance(var.type, TensorType) else None
        if needed is None:
            needed = _more_axes(call, types[0], axis, rows)
        if needed is None:
            return None
        if any(row != _FREE and row != place for row, place in zip(rows, needed, strict=True)):
            return None
        dims_there = {
            tensor_type(arg).shape[row] for arg, row in zip(call.args, rows, strict=True) if row not in (None, _FREE)
        }
        is_same = call.operator == "reshape" or dims_there == {types[0].shape[axis]}
        return axis if is_same else None

    def _only_axis(self, shape: Sequence[Any]) -> int | None:
        """The only axis with the tokens, each of which may have several rows there; None where several have to do with them."""
        held = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int) and dim not in self.ranks]
        of = (self.tokens, *self.counts)
        return held[0] if len(held) == 1 and any(_times(shape[held[0]], each) for each in of) else None

    def _filled(self, call: ir.OperatorCall) -> int | None:
        """The axis of what is the same for all tokens."""
        if call.operator not in ("full", "broadcast_to"):
            return None
        return self._only_axis(lookup(call.operator).bind(call.attributes)["shape"])

    def _at_positions(self, call: ir.OperatorCall) -> ir.Var | None:
        """The rows of a table at the tokens' places, of a slice of it."""
        if call.operator != "slice" or not isinstance(call.args[0], ir.Constant):
            return None
        options = lookup("slice").bind(call.attributes)
        starts, axes = options["starts"], options["axes"] or range(len(options["starts"]))
        past: Any = next(
            (dim for each in self.caches for dim in tensor_type(each).shape if not isinstance(dim, int)), None
        )
        is_it = len(starts) == 1 and starts[0] == past and options["ends"] == (dims.add(past, self.tokens),)
        if not is_it or (options["steps"] or (1,)) != (1,):
            return None
        (axis,) = axes
        made = self.emit("take", call.args[0], self.positions, axis=axis)
        self.rows[made] = axis_of(axis, tensor_type(call.args[0]).rank)
        return made

    # ---- states ----

    def _gone_on(self, call: ir.OperatorCall, var: ir.Var) -> ir.Var | None:
        """A convolution that begins with each text's state, or the new states."""
        if call.operator == "linear_attention":
            return self._remembered(call)
        if call.operator == "cast" and call.args[0] in self.new_states:
            made = self.emit("cast", call.args[0], **lookup("cast").bind(call.attributes))
            self.new_states[var] = self.new_states[made] = made
            return made
        if call.operator not in ("conv", "slice"):
            return None
        whole = call.args[0]
        if call.operator == "conv" and (cast := self.definitions.get(whole)) is not None and cast.operator == "cast":
            whole = cast.args[0]
        joined = self._joined_to(whole)
        if joined is None:
            return None
        cache, new, axis = joined
        _, channels, before = tensor_type(cache).shape if tensor_type(cache).rank == 3 else (0, None, None)
        if axis != 2 or not isinstance(channels, int) or not isinstance(before, int) or before < 1:
            return None
        options, count = lookup(call.operator).bind(call.attributes), dims.add(self.tokens, before)
        if call.operator == "slice":
            (start, *_), (end, *_), step = options["starts"], options["ends"], options["steps"] or (1,)
            is_it = options["axes"] == (2,) and start in (self.tokens, -before) and end == count and step == (1,)
        else:
            weights = call.args[1:]
            is_it = is_plain_convolution(call, (channels, 1, before + 1)) and all(
                isinstance(each, ir.Constant) for each in weights
            )
        if not is_it:
            return None
        if before not in self.windows:
            self.windows[before] = Windows.of(self.emit, self.texts, self.tokens, before)
        windows, state = self.windows[before], self._state(cache)
        if call.operator == "slice":
            made = windows.last(self.emit, state, new)
            self.new_states[var] = self.new_states[made] = made
        else:
            made = windows.convolved(self.emit, state, new, *weights)
            self.rows[made] = 2
        return made

    def _remembered(self, call: ir.OperatorCall) -> ir.Var | None:
        state, *others = call.args[3], *call.args[:3], *call.args[4:]
        cast = self.definitions.get(state)
        cache = cast.args[0] if cast is not None and cast.operator == "cast" else state
        if cache not in self.caches or len(call.args) > 6 or any(self.rows.get(each) != 1 for each in others):
            return None
        held: ir.Var = self._state(cache)
        held = held if cache is state else self.emit("cast", held, dtype=DType.float32)
        attributes = lookup("linear_attention").bind(call.attributes)
        made = self.emit("linear_attention", *call.args[:3], held, *call.args[4:], self.texts, **attributes)
        self.remembering.add(made)
        return made

    def _state(self, cache: ir.Atom) -> ir.Var:
        """The parameter with the state of each text."""
        known = self.caches[cache]
        if known is None:
            assert isinstance(cache, ir.Var)
            type_ = tensor_type(cache)
            known = ir.Var(cache.name, TensorType(type_.dtype, (tensor_type(self.texts).shape[0], *type_.shape[1:])))
            self.caches[cache] = known
        return known

    # ---- attention ----

    def _new_rows(self, cache: ir.Atom, present: ir.Atom) -> ir.Atom | None:
        new = self._joined_to(present)
        return self.kept.get(new[1]) if new is not None and new[0] is cache else None

    def _joined_to(self, atom: ir.Atom) -> tuple[ir.Atom, ir.Atom, int] | None:
        """The cache that an atom is with new rows behind it, these rows, and their axis."""
        call = self.definitions.get(atom)
        if call is None or call.operator != "concat" or len(call.args) != 2 or call.args[0] not in self.caches:
            return None
        axis = axis_of(lookup("concat").bind(call.attributes)["axis"], tensor_type(call.args[1]).rank)
        return (call.args[0], call.args[1], axis) if self.rows.get(call.args[1]) == axis else None

    def _attentions(self, call: ir.OperatorCall) -> Iterable[tuple[ir.OperatorCall, float, ir.Atom | None]]:
        """What a call may be: an attention, the bound of its scores, and a column beside them."""
        if call.operator == "attention":
            yield call, 0.0, None
        elif call.operator == "matmul":
            yield from beyond(call, Matcher(self.definitions), self.places, self.longest_row)

    def _paged(self, call: ir.OperatorCall, softcap: float, column: ir.Atom | None) -> ir.Var | None:
        attributes = lookup("attention").bind(call.attributes)
        orders = {name: tuple(axis % 4 for axis in attributes[f"{name}_axes"] or range(4)) for name in "qkv"}
        if (
            tensor_type(call.args[1]).rank != 4
            or attributes["narrow"]
            or any(attributes[f"{name}_part"] for name in "kv")
        ):
            return None
        (keys, times), (values, same) = (
            self._one_for_each(arg, orders[name][1]) for name, arg in zip("kv", call.args[1:3], strict=True)
        )
        q = self._queries(call.args[0], attributes["q_part"])
        sinks = [] if column is None else [self._same_for_all(column)]
        if q is None or times != same or None in sinks:
            return None
        kept = {name: attributes[name] for name in ("scale", "result_axes")}
        kept |= {"repeat": attributes["repeat"] * times, "softcap": softcap}
        if keys in self.encoded and values in self.encoded and not sinks:
            return self._crossed(q, keys, values, call.args[3:], orders, kept)
        of_keys, of_values = self._joined_to(keys), self._joined_to(values)
        if of_keys is None or of_values is None or (window := self._window(call.args[3:], attributes)) is None:
            return None
        at = {"q": self.rows[q], "k": of_keys[2], "v": of_values[2]}
        if any(order[2] != at[name] or order[3] != 3 for name, order in orders.items()):
            return None
        pages = [
            self._pages(cache, orders[name], self._kept(new), name == "k")
            for name, (cache, new, _) in (("k", of_keys), ("v", of_values))
        ]
        if pages[0] is None or pages[1] is None:
            return None
        k, v = (
            kept if STORED[tensor_type(kept).dtype].facts else self._as_float32(kept)
            for kept in (self.kept[new] for _, new, _ in (of_keys, of_values))
        )
        return self._attended(q, k, v, *pages, self.texts, self.tables, *sinks, orders=orders, window=window, **kept)  # type: ignore[arg-type]

    def _attended(self, *args: ir.Atom, orders: Mapping[str, tuple[int, ...]], **attributes: Any) -> ir.Var | None:
        """The call of `paged_attention`; None for shapes of another attention."""
        axes = {f"{name}_axes": None if order == _PLAIN else order for name, order in orders.items()}
        try:
            made = self.emit("paged_attention", *args, **axes, **attributes)
        except TreadleError:
            return None
        self.rows[made] = (attributes["result_axes"] or _PLAIN).index(2)
        return made

    def _crossed(
        self,
        q: ir.Atom,
        keys: ir.Atom,
        values: ir.Atom,
        masks: Sequence[ir.Atom],
        orders: Mapping[str, tuple[int, ...]],
        attributes: Mapping[str, Any],
    ) -> ir.Var | None:
        """Attention to what an encoder has made of each text: without a mask, or with one that hides nothing."""
        for mask in masks:
            seen = [self._evaluated(mask, *sizes) for sizes in self._sizes([mask])]
            if any(each is None or not (each if each.dtype == bool else each == 0).all() for each in seen):
                return None
        if orders["q"][2] != self.rows[q] or orders["q"][3] != 3 or any(orders[name] != _PLAIN for name in "kv"):
            return None
        pages = [self._pages(each, _PLAIN, tensor_type(each), each is keys, self.encoded) for each in (keys, values)]
        if None in pages:
            return None
        shapes: list[Any] = [tensor_type(each).shape for each in (keys, values)]
        nothing = [ir.Constant(ir.frozen(np.zeros((*shape[:2], 0, shape[3]), np.float32))) for shape in shapes]
        return self._attended(q, *nothing, *pages, *self.encoded_places, orders=orders, **attributes)  # type: ignore[arg-type]

    def _queries(self, q: ir.Atom, part: tuple[int, int] | None) -> ir.Atom | None:
        row = self.rows.get(q)
        if row is None or part is None:
            return None if row is None else q
        taken = self.emit("take", q, ir.Constant(ir.frozen(np.array(part[1], np.int64))), axis=part[0])
        self.rows[taken] = row - (row > part[0])
        return taken

    def _one_for_each(self, atom: ir.Atom, axis: int) -> tuple[ir.Atom, int]:
        """Keys or values before they were made float32 and repeated for several heads of queries; and how often that was."""
        call = self.definitions.get(atom)
        if call is not None and call.operator == "cast" and STORED.get(tensor_type(call.args[0]).dtype) == Stored():
            atom = call.args[0]
        return unrepeated(atom, axis, self.definitions)

    def _kept(self, new: ir.Atom) -> TensorType:
        """The type of new rows as pages have them."""
        if new not in self.kept:
            if self.dtype in (None, tensor_type(new).dtype):
                self.kept[new] = new
            elif STORED[self.dtype].facts:
                self.kept[new] = self.emit("quantize_rows", self._as_float32(new))
            else:
                self.kept[new] = self.emit("cast", new, dtype=self.dtype)
        return tensor_type(self.kept[new])

    def _as_float32(self, new: ir.Atom) -> ir.Atom:
        return new if tensor_type(new).dtype is DType.float32 else self.emit("cast", new, dtype=DType.float32)

    def _pages(
        self,
        cache: ir.Atom,
        order: Sequence[int],
        new: TensorType,
        is_key: bool,
        caches: dict[ir.Atom, ir.Var | None] | None = None,
    ) -> ir.Var | None:
        """The parameter of the pages that take a cache's place."""
        caches = self.caches if caches is None else caches
        one, heads, _, size = (new.shape[axis] for axis in order)
        if one != 1 or new.dtype not in STORED or not isinstance(heads, int) or not isinstance(size, int):
            return None
        stored = STORED[new.dtype]
        elements, unit = size - stored.facts, stored.together
        if elements % LANES or not 0 < elements <= self.longest_row:
            return None
        inner = (PAGE // LANES, size // unit, LANES * unit) if is_key else (PAGE, size)
        type_ = TensorType(new.dtype, (self._count(caches is self.encoded), heads, *inner))
        known = caches[cache]
        if known is None:
            assert isinstance(cache, ir.Var)
            caches[cache] = known = ir.Var(cache.name, type_)
        return known if known.type == type_ else None

    def _count(self, is_encoded: bool) -> Any:
        """The number of pages."""
        taken = {name for param in self.source.params for name in dimension_names(tensor_type(param))}
        name = "encoded_pages" if is_encoded else "pages"
        return dims.variable(next(each for each in (name, f"{name}_", f"{name}__") if each not in taken))

    # ---- what sizes tell ----

    def _same_for_all(self, column: ir.Atom) -> ir.Atom | None:
        """A number of each head, if that is what a column of scores, [1, heads, tokens, 1], says of all tokens."""
        made = [self._evaluated(column, *sizes) for sizes in _SMALL]
        if any(each is None or (each != made[0][:, :, :1]).any() for each in made):  # type: ignore[index]
            return None
        return ir.Constant(ir.frozen(made[0][0, :, 0, 0].astype(np.float32)))  # type: ignore[index]

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
            mask, bias = made[0], made[1] if len(made) > 1 else np.array(0)
            if mask is None or bias is None:
                if (past, count) in _SMALL and (not past or count == 1):
                    return None
                continue  # more tokens than the decoder takes, or a piece of a text where it takes whole ones and single tokens
            added = np.where(mask, bias, attributes["masked"]) if mask.dtype == bool else mask
            added = np.broadcast_to(added, np.broadcast_shapes(added.shape, shape))
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
        for past, count in self._sizes([var]):
            found = self._evaluated(var, past, count)
            if found is None or not np.array_equal(found.ravel(), np.arange(past, past + count)):
                return False
        return True

    def _sizes(self, atoms: Sequence[ir.Atom]) -> list[tuple[int, int]]:
        """Numbers of tokens at which values may differ: small ones, and those around each number that they are made of."""
        numbers: set[int] = set()
        made = self._made_of(atoms) or []
        inner = [each for binding in made for block in ir.blocks_of(binding.value) for each in expressions(block)]
        for binding in (*made, *inner):
            if isinstance(binding.value, ir.OperatorCall):
                numbers |= {number for number in _integers(binding.value.attributes) if number > 1}
                numbers |= {number for arg in binding.value.args for number in _number(arg)}
        large = sorted(number for number in numbers if number <= _LARGEST_NUMBER)[-_MOST_NUMBERS:]
        return [*_SMALL, *((max(0, number - 2), 4) for number in large)]

    def _made_of(self, atoms: Sequence[ir.Atom]) -> list[ir.Binding] | None:
        """The bindings that make some values of sizes and positions; None if they need anything else."""
        needed, pending = {self.positions: None}, [atom for atom in atoms if isinstance(atom, ir.Var)]
        made: dict[ir.Atom, ir.Binding] = {}
        while pending:
            var = pending.pop()
            if var in needed:
                continue
            if var not in self.seen:
                return None
            needed[var] = None
            made[var] = binding = self.seen[var]
            inner = [each for block in ir.blocks_of(binding.value) for each in (*atoms_in(block), block.result)]
            own = {each.var for block in ir.blocks_of(binding.value) for each in expressions(block)}
            used = (*ir.atoms_of(binding.value), *inner)
            pending += [each for each in used if isinstance(each, ir.Var) and each not in own]
        return [binding for var, binding in self.seen.items() if var in made]

    def _evaluated(self, atom: ir.Atom, past: int, count: int) -> np.ndarray | None:
        """An atom's value for `count` tokens behind `past`, if sizes and positions tell it."""
        made = self._made_of([atom])
        if made is None:
            return None
        names = dict.fromkeys(name for cache in self.caches for name in dimension_names(tensor_type(cache)))
        frames = dict.fromkeys(name for each in self.encoded for name in dimension_names(tensor_type(each)))
        numbers = {**dict.fromkeys(frames, past + 3), **dict.fromkeys(names, past), str(self.tokens): count}
        if any(_elements(binding.var.type, numbers) > _MOST_ELEMENTS for binding in made):
            raise _TooLargeError
        names |= frames
        sizes = [ir.Var(name, TensorType(DType.bool, (dims.variable(name), 0))) for name in names]
        function = ir.Function((self.positions, *sizes), ir.Block(tuple(made), atom))
        with contextlib.suppress(TreadleError):
            given = np.arange(past, past + count), *(np.zeros((numbers[name], 0), bool) for name in names)
            return np.asarray(evaluate(ir.Module({"main": function}), "main", *given))
        return None


def _causal(past: int, count: int, window: int) -> np.ndarray:
    distance = np.arange(past, past + count)[:, None] - np.arange(past + count)
    return (distance >= 0) & ((distance < window) if window else True)


def _elements(type_: Any, sizes: Mapping[str, int]) -> int:
    """How many elements a tensor has, as far as these sizes tell."""
    count = 1 if isinstance(type_, TensorType) else 0
    shape: Sequence[Any] = type_.shape if isinstance(type_, TensorType) else ()
    for dim in shape:
        if not is_unknown(dim) and {*dims.variables(dim)} <= {*sizes}:
            count *= dims.evaluate(dim, sizes)
    return count


def _integers(value: Any) -> Iterable[int]:
    if isinstance(value, tuple):
        for each in value:
            yield from _integers(each)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield abs(value)


def _number(atom: ir.Atom) -> Iterable[int]:
    """What a constant of one element says."""
    if isinstance(atom, ir.Constant) and atom.array.size == 1 and atom.array.dtype.kind in "iuf":
        number = float(atom.array.item())
        if 1 < abs(number) <= _LARGEST_NUMBER and (atom.array.dtype.kind != "f" or number > _HIDING):
            yield math.ceil(abs(number))


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
        is_kept = dims.product(first.shape[:at]) == dims.product(made.shape[:axis])  # type: ignore[arg-type]  # and so what is behind it
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
