"""Normal form of what is applied to the scores (q k) before softmax, as the attention operator takes it: the
part of `recognise.py` that looks at masks.

    softmax(q k + bias + mask)                      →  softmax(q k + (bias + mask))
    softmax((q k + bias) * 0.5)                     →  softmax(q k * 0.5 + bias * 0.5)
    softmax(max(q k + mask, lowest))                →  softmax(q k + max(mask, lowest))
    softmax(where(hidden, -10000, q k) + mask)      →  softmax(where(not hidden, q k, -10000) + mask)
    softmax(q k * factor_of_heads)                  →  softmax((q * factor_of_heads) k)

Operations in another view of the scores, as on windows of images, are mapped to the scores' own view.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Union

import numpy as np

from ...formats.dtypes import DType
from ...formats.types import TensorType
from .. import ir
from ..operators.shapes import is_unknown
from .patterns import number_of
from .rewriting import constant, tensor_type

Definitions = Mapping[ir.Var, ir.OperatorCall]
Emit = Callable[..., ir.Var]  # operator, operands, attributes → the variable of a new binding
Make = Callable[[Emit], ir.Atom]  # makes a mask when called
Bring = Callable[[Make], Make]  # from a view of the scores to their own

_LOWEST = -1e30  # a number from which on sums with finite scores are that number, or one next to it
_MOST_STEPS = 8  # from products to softmax: what is made of more is something else


@dataclass(frozen=True)
class _Scores:
    """where(holds, products * factors + before, masked) + behind."""

    products: ir.Atom
    factors: tuple[ir.Atom, ...] = ()  # numbers, and tensors of one element for each matrix
    before: tuple[Make, ...] = ()
    holds: Union[Make, None] = None
    masked: float = 0.0
    behind: tuple[Make, ...] = ()
    fresh: tuple[Make, ...] = ()  # the last addends, in the current view
    is_plain: bool = True  # whether there is at most a mask

    def added(self, mask: ir.Atom) -> _Scores:
        is_plain = self.is_plain and self.holds is None and not self.before and not self.fresh
        return replace(self, fresh=(*self.fresh, lambda emit: mask), is_plain=is_plain)

    def settled(self, bring: Bring) -> _Scores:
        """The same with fresh addends merged."""
        if not self.fresh:
            return self
        masks = (bring(partial(_sum, self.fresh)),)
        if self.holds is None:
            return replace(self, before=self.before + masks, fresh=())
        return replace(self, behind=self.behind + masks, fresh=())

    def hidden(self, holds: Make, masked: float, is_turned: bool) -> _Scores | None:
        if self.behind or (self.holds is not None and self.masked != masked):
            return None
        made = partial(_turned, holds) if is_turned else holds
        is_plain = self.is_plain and self.holds is None and not self.before and not is_turned
        if self.holds is not None:
            made = partial(_both, self.holds, made)
        return replace(self, holds=made, masked=masked, is_plain=is_plain)

    def at_least(self, lowest: float) -> _Scores | None:
        if lowest > _LOWEST or self.behind or (self.holds is not None and self.masked < lowest):
            return None
        before = (partial(_maximum, self.before, lowest),) if self.before else ()
        return replace(self, before=before, is_plain=False)

    def times(self, factor: ir.Atom) -> _Scores | None:
        number = number_of(factor)
        if number is None and self.holds is not None:
            return None
        before, behind = (
            tuple(partial(_product, mask, factor) for mask in masks) for masks in (self.before, self.behind)
        )
        masked = self.masked * (1.0 if number is None else number)
        return replace(
            self, factors=(*self.factors, factor), before=before, behind=behind, masked=masked, is_plain=False
        )

    def emitted(self, emit: Emit, definitions: Definitions) -> ir.Atom:
        scores = _multiplied(self.products, self.factors, emit, definitions)
        if self.before:
            scores = emit("add", scores, _sum(self.before, emit))
        if self.holds is not None:
            scores = emit("where", self.holds(emit), scores, _number(self.masked))
        return emit("add", scores, _sum(self.behind, emit)) if self.behind else scores


def with_one_mask(call: ir.OperatorCall, definitions: Definitions, emit: Emit, longest_row: int) -> ir.OperatorCall:
    """The call, or, of a softmax of scores that something else than one mask was done to, one of scores in attention's form."""
    if call.operator != "softmax":
        return call
    whole = tensor_type(call.args[0])
    scores = next(_Search(definitions, whole, longest_row).of(call.args[0], _as_it_is, _MOST_STEPS), None)
    scores = scores and scores.settled(_as_it_is)
    if scores is None or scores.is_plain or (scores.before and scores.behind):
        return call
    masked = scores.emitted(emit, definitions)
    return dataclasses.replace(call, args=(masked,)) if tensor_type(masked) == whole else call


def _definition(atom: ir.Atom, definitions: Definitions) -> ir.OperatorCall | None:
    return definitions.get(atom) if isinstance(atom, ir.Var) else None


@dataclass(frozen=True)
class _Search:
    """The search for products of the type `whole`."""

    definitions: Definitions
    whole: TensorType
    longest_row: int  # of queries

    def of(self, atom: ir.Atom, bring: Bring, most: int) -> Iterator[_Scores]:
        """The scores that an atom is, at most `most` steps after their product; `bring` maps its view to theirs."""
        call, type_ = _definition(atom, self.definitions), tensor_type(atom)
        if call is None or most == 0:
            return
        if type_ == self.whole and _are_products(call, self.definitions, self.longest_row):
            yield _Scores(atom)
        elif call.operator == "reshape":
            yield from self._of_view(call.args[0], type_, bring, most - 1)
        for scores, step in _steps(call):
            if tensor_type(scores) == type_:
                for found in self.of(scores, bring, most - 1):
                    made = step(found, bring)
                    if made is not None:
                        yield made

    def _of_view(self, source: ir.Atom, type_: TensorType, bring: Bring, most: int) -> Iterator[_Scores]:
        """The scores of `source` reshaped to that type: into a view, or back."""
        seen = tensor_type(source)
        if any(map(is_unknown, (*seen.shape, *self.whole.shape))):
            return
        if bring is _as_it_is and type_ == self.whole:
            inward = partial(_from_view, seen=seen, whole=self.whole)
            yield from (replace(found.settled(inward), is_plain=False) for found in self.of(source, inward, most))
        elif bring is not _as_it_is and seen == self.whole:
            yield from (found.settled(_as_it_is) for found in self.of(source, _as_it_is, most))


_Step = Callable[[_Scores, Bring], Union[_Scores, None]]


def _steps(call: ir.OperatorCall) -> Iterator[tuple[ir.Atom, _Step]]:
    """The operands of a call that may be scores, and its effect on them."""
    if call.operator == "add":
        for scores, mask in (call.args, call.args[::-1]):
            yield scores, lambda found, bring, mask=mask: found.added(mask)  # type: ignore[misc]
    elif call.operator == "where":
        holds, seen, hidden = call.args
        for scores, other, is_turned in ((seen, hidden, False), (hidden, seen, True)):
            masked = number_of(other)
            if masked is not None:
                yield scores, partial(_hidden, holds=holds, masked=masked, is_turned=is_turned)
    elif call.operator in ("maximum", "multiply", "divide"):
        for scores, other in (call.args, call.args[::-1])[: 1 if call.operator == "divide" else 2]:
            number = number_of(other)
            if call.operator == "maximum" and number is not None:
                yield scores, partial(_at_least, lowest=number)
            elif call.operator == "multiply" and (number is not None or _is_of_matrices(other)):
                yield scores, partial(_times, factor=other)
            elif call.operator == "divide" and number:
                yield scores, partial(_times, factor=_number(1 / number))


def _hidden(found: _Scores, bring: Bring, holds: ir.Atom, masked: float, is_turned: bool) -> _Scores | None:
    return found.settled(bring).hidden(bring(lambda emit: holds), masked, is_turned)


def _at_least(found: _Scores, bring: Bring, lowest: float) -> _Scores | None:
    return found.settled(bring).at_least(lowest)


def _times(found: _Scores, bring: Bring, factor: ir.Atom) -> _Scores | None:
    if bring is not _as_it_is and number_of(factor) is None:
        return None
    return found.settled(bring).times(factor)


def _is_of_matrices(factor: ir.Atom) -> bool:
    """Whether a factor is one number for each matrix of scores."""
    return not isinstance(factor, ir.GlobalRef) and tensor_type(factor).shape[-2:] == (1, 1)


def _as_it_is(mask: Make) -> Make:
    return mask


def _from_view(mask: Make, seen: TensorType, whole: TensorType) -> Make:
    return partial(_viewed, mask, seen.shape, whole.shape)


def _viewed(mask: Make, seen: Sequence, whole: Sequence, emit: Emit) -> ir.Atom:
    """A mask for scores of the shape `seen` as one for `whole`: equal axes at both ends stay."""
    atom = mask(emit)
    shape = tensor_type(atom).shape
    shape = (1,) * (len(seen) - len(shape)) + shape
    first = _same(seen, whole)
    last = _same(seen[:first:-1], whole[:first:-1])
    inner, outer = slice(first, len(seen) - last), slice(first, len(whole) - last)
    ends = shape[:first], shape[inner.stop :]
    if all(dim == 1 for dim in shape[inner]):
        return emit("reshape", atom, shape=(*ends[0], *(1,) * len(whole[outer]), *ends[1]))
    if shape[inner] != tuple(seen[inner]):
        atom = emit("broadcast_to", atom, shape=(*ends[0], *seen[inner], *ends[1]))
    return emit("reshape", atom, shape=(*ends[0], *whole[outer], *ends[1]))


def _same(left: Sequence, right: Sequence) -> int:
    """The number of equal leading dimensions."""
    pairs = list(zip(left, right))  # noqa: B905 - of any lengths
    return next((number for number, (one, other) in enumerate(pairs) if one != other), len(pairs))


def _are_products(call: ir.OperatorCall, definitions: Definitions, longest_row: int) -> bool:
    """Whether a call makes products of queries and keys that attention may take, perhaps scaled."""
    while call.operator in ("multiply", "divide"):
        place = _scaled_place(call)
        scaled = None if place is None else _definition(call.args[place], definitions)
        if scaled is None:
            return False
        call = scaled
    if call.operator != "matmul":
        return False
    queries = tensor_type(call.args[0])
    row = queries.shape[-1]
    return queries.rank > 2 and queries.dtype is DType.float32 and isinstance(row, int) and row <= longest_row


def _scaled_place(call: ir.OperatorCall) -> int | None:
    """The index of the operand that a multiplication or division scales by a number other than zero, if any."""
    places = (0,) if call.operator == "divide" else (0, 1)
    return next((place for place in places if number_of(call.args[1 - place])), None)


# ---- construction ----


def _number(value: float) -> ir.Constant:
    return constant(np.array(value, np.float32))


def _sum(masks: Sequence[Make], emit: Emit) -> ir.Atom:
    first, *others = (mask(emit) for mask in masks)
    for other in others:
        first = emit("add", first, other)
    return first


def _turned(holds: Make, emit: Emit) -> ir.Atom:
    return emit("logical_not", holds(emit))


def _both(left: Make, right: Make, emit: Emit) -> ir.Atom:
    return emit("logical_and", left(emit), right(emit))


def _maximum(masks: Sequence[Make], lowest: float, emit: Emit) -> ir.Atom:
    return emit("maximum", _sum(masks, emit), _number(lowest))


def _product(mask: Make, factor: ir.Atom, emit: Emit) -> ir.Atom:
    return emit("multiply", mask(emit), factor)


def _multiplied(products: ir.Atom, factors: Sequence[ir.Atom], emit: Emit, definitions: Definitions) -> ir.Atom:
    """Products times factors: those of matrices multiply the queries, the others are combined into one."""
    if not factors:
        return products
    scale, call = 1.0, definitions[products]  # type: ignore[index]
    while call.operator != "matmul":
        place = _scaled_place(call)
        assert place is not None  # they are products that attention may take
        number = number_of(call.args[1 - place]) or 1.0
        scale *= number if call.operator == "multiply" else 1 / number
        products = call.args[place]
        call = definitions[products]  # type: ignore[index]
    queries, keys = call.args
    for factor in factors:
        each = number_of(factor)
        if each is None:
            queries = emit("multiply", queries, factor)
        else:
            scale *= each
    if queries is not call.args[0]:
        products = emit("matmul", queries, keys)
    return products if scale == 1 else emit("multiply", products, _number(scale))
