"""Several masks of attention become one: the part of `recognise.py` that looks at what softmax is taken of.

    softmax(q k + bias + mask)  →  softmax(q k + (bias + mask))

What is added in another view of the scores, as in windows that belong to images, is brought to the scores' own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ...formats.types import TensorType
from .. import ir
from .patterns import number_of
from .rewriting import tensor_type

Definitions = Mapping[ir.Var, ir.OperatorCall]
Emit = Callable[..., ir.Var]  # operator, operands, attributes → the variable of a new binding
Mask = Callable[[Emit], ir.Atom]  # makes a mask where it is wanted


def with_one_mask(call: ir.OperatorCall, definitions: Definitions, emit: Emit) -> ir.OperatorCall:
    """The call, or, of a softmax of scores with several masks, one of scores with their sum."""
    if call.operator != "softmax":
        return call
    whole = tensor_type(call.args[0])
    scores, masks = next(_parts(call.args[0], definitions), (None, []))
    if scores is None or (len(masks) < 2 and _is_plain(call.args[0], definitions)):
        return call
    first, *others = (mask(emit) for mask in masks)
    for other in others:
        first = emit("add", first, other)
    masked = emit("add", scores, first)
    return dataclasses.replace(call, args=(masked,)) if masked.type == whole else call


def _is_plain(atom: ir.Atom, definitions: Definitions) -> bool:
    """Whether scores are masked in one view alone."""
    call = _definition(atom, definitions)
    return call is None or call.operator != "reshape"


def _definition(atom: ir.Atom, definitions: Definitions) -> ir.OperatorCall | None:
    return definitions.get(atom) if isinstance(atom, ir.Var) else None


def _parts(atom: ir.Atom, definitions: Definitions) -> Iterator[tuple[ir.Atom, list[Mask]]]:
    """The products of queries and keys that an atom is made of by adding masks, and these masks."""
    call = _definition(atom, definitions)
    if call is None:
        return
    if _are_products(call, definitions):
        yield atom, []
    elif call.operator == "add":
        for scores, mask in (call.args, call.args[::-1]):
            if tensor_type(scores) == tensor_type(atom):
                for source, masks in _parts(scores, definitions):
                    yield source, [*masks, partial(_itself, mask)]
    elif call.operator == "reshape":
        yield from _parts_in_view(call.args[0], tensor_type(atom), definitions)


def _parts_in_view(view: ir.Atom, type_: TensorType, definitions: Definitions) -> Iterator[tuple[ir.Atom, list[Mask]]]:
    """The same of scores of that type to which a mask is added while their first axis is seen as two."""
    added, seen = _definition(view, definitions), tensor_type(view)
    if added is None or added.operator != "add" or seen.rank != type_.rank + 1 or seen.shape[2:] != type_.shape[1:]:
        return
    for scores, mask in (added.args, added.args[::-1]):
        apart = _definition(scores, definitions)
        if apart is not None and apart.operator == "reshape" and tensor_type(apart.args[0]) == type_:
            for source, masks in _parts(apart.args[0], definitions):
                yield source, [*masks, partial(_merged, mask, seen, type_)]


def _itself(mask: ir.Atom, emit: Emit) -> ir.Atom:
    return mask


def _merged(mask: ir.Atom, seen: TensorType, type_: TensorType, emit: Emit) -> ir.Atom:
    """A mask of scores whose first axis is seen as two, where it is one."""
    shape = tensor_type(mask).shape
    shape = (1,) * (seen.rank - len(shape)) + shape
    if shape[:2] == (1, 1):
        return emit("reshape", mask, shape=(1, *shape[2:]))
    if shape[:2] != seen.shape[:2]:
        mask = emit("broadcast_to", mask, shape=(*seen.shape[:2], *shape[2:]))
    return emit("reshape", mask, shape=(type_.shape[0], *shape[2:]))


def _are_products(call: ir.OperatorCall, definitions: Definitions) -> bool:
    """Whether a call makes products of queries and keys, perhaps scaled."""
    while call.operator in ("multiply", "divide"):
        scaled = [_definition(each, definitions) for each, other in (call.args, call.args[::-1]) if number_of(other)]
        if not scaled or scaled[0] is None:
            return False
        call = scaled[0]
    return call.operator == "matmul"
