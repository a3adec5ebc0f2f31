"""Attention among products, softmax and transpositions, and rotary embeddings among slices: the part of `recognise.py` that
looks at the surroundings of several operators. Transpositions of attention's operands and result become the order of its
axes.
"""

from __future__ import annotations

import dataclasses
import math
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.types import TensorType
from .. import ir
from ..operators.shapes import axes_of, lift
from ..operators.table import lookup
from .patterns import Found, Matcher, number_of, parse
from .recognise_places import Places
from .rewriting import operator_call, order_of, tensor_type

_SCORES = (
    "matmul(q * scale, k * factor)",
    "matmul(q * scale, k) * factor",
    "matmul(q * scale, k)",
    "matmul(q, k * scale)",
    "matmul(q, k) * scale",
    "matmul(q, k)",
)
_BIASED_LAST = "where(mask, {}, masked) + bias"
_MASKED = ("where(mask, {}, masked)", "where(mask, {} + bias, masked)", _BIASED_LAST, "{} + mask", "{}")
_PATTERNS = tuple(
    (f"matmul(softmax({masked.format(scores)}), v)", masked == _BIASED_LAST) for masked in _MASKED for scores in _SCORES
)

# Of these there is a kernel over pages alone.
_CAPPED = tuple(
    f"matmul(softmax({masked.format(f'tanh({inner}) * cap')}), v)"
    for masked in _MASKED
    for scores in _SCORES
    for inner in (scores, f"{scores} * inverse")
)
_FACTORS = ("scale", "factor", "inverse", "cap")

_SLICE = ("starts", "ends", "axes", "steps")
_WITHOUT_NAN = parse("where(isnan(weights), 0, weights)")
_ROTARY = parse("x * cosine + concat(-second, first) * sine")


def candidates(
    call: ir.OperatorCall, matcher: Matcher, uses: Mapping[Any, int], places: Places, longest_row: int
) -> Iterator[ir.OperatorCall]:
    """Replacements of a call that ends an attention or a rotary embedding. `uses`: use counts of variables; weights that
    something else needs are computed anyway, and stay. Rows of queries or values have at most `longest_row` elements."""
    definitions = matcher.definitions
    if call.operator == "add":
        for found in matcher.find(_ROTARY, call):
            if _are_halves(found, places):
                yield operator_call("rotary", found["x"], found["cosine"], found["sine"])
    if call.operator == "permute_dims" and uses[call.args[0]] == 1:
        inner = definitions.get(call.args[0])  # type: ignore[arg-type]
        if inner is not None and inner.operator == "attention":
            yield from _with_result_axes(inner, order_of(call))
    if call.operator != "matmul" or uses[call.args[0]] != 1:
        return
    weights, nan_to_zero = _weights(call.args[0], matcher, uses)
    if not _is_along_rows(definitions.get(weights)):  # type: ignore[arg-type]
        return
    product = dataclasses.replace(call, args=(weights, call.args[1]))
    for pattern, bias_last in _PATTERNS:
        for found in matcher.find(parse(pattern), product):
            if not all(_is_possible(tensor_type(found[name]), longest_row) for name in "qv"):
                continue
            made = _attention(found, definitions, places, bias_last=bias_last, nan_to_zero=nan_to_zero)
            if made is not None:
                yield made


def beyond(
    call: ir.OperatorCall, matcher: Matcher, places: Places, longest_row: int
) -> Iterator[tuple[ir.OperatorCall, float, ir.Atom | None]]:
    """What a product is of which there is no `attention`: such a call, the bound of its scores (0: none), and the column of
    scores of no value beside them."""
    definitions = matcher.definitions
    weights, column = _without_column(call.args[0], definitions)
    if not _is_along_rows(weights):
        return
    joined = {call.args[0]: dataclasses.replace(weights, args=(_less_greatest(weights.args[0], definitions),))}  # type: ignore[type-var,union-attr]
    known = Matcher(ChainMap(joined, definitions))  # type: ignore[arg-type]
    plain = [pattern for pattern, bias_last in _PATTERNS if not bias_last] if column is not None else []
    for pattern in (*_CAPPED, *plain):
        for found in known.find(parse(pattern), call):
            if all(_is_possible(tensor_type(found[name]), longest_row) for name in "qv"):
                made = _attention(found, definitions, places)
                if made is not None:
                    yield made, number_of(found.get("cap")) or 0.0, column


def _without_column(weights: ir.Atom, definitions: Mapping) -> tuple[ir.OperatorCall | None, ir.Atom | None]:
    """The softmax that weights are, before a column is taken from its result, and that column among the scores."""
    call = definitions.get(weights)
    if call is None or call.operator != "slice":
        return call, None
    softmax = definitions.get(call.args[0])
    if softmax is None or softmax.operator != "softmax":
        return None, None
    joined = definitions.get(_less_greatest(softmax.args[0], definitions))
    if joined is None or joined.operator != "concat" or len(joined.args) != 2:
        return None, None
    scores, column = joined.args
    row, shape = tensor_type(scores).shape, tensor_type(weights).shape
    options = lookup("slice").bind(call.attributes)
    is_whole = shape == row and options["starts"] == (0,) and (options["steps"] or (1,)) == (1,)
    if not is_whole or tensor_type(column).shape != (*row[:-1], 1):
        return None, None
    return dataclasses.replace(softmax, args=(scores,)), column


def _less_greatest(scores: ir.Atom, definitions: Mapping) -> ir.Atom:
    """Scores before the greatest of each row was subtracted, which changes no weight."""
    call = definitions.get(scores)
    if call is None or call.operator != "subtract":
        return scores
    greatest, last = definitions.get(call.args[1]), tensor_type(scores).rank - 1
    if greatest is None or greatest.operator != "max" or greatest.args[0] is not call.args[0]:
        return scores
    axes = axes_of(lookup("max").bind(greatest.attributes)["axes"], last + 1)
    return call.args[0] if axes == (last,) else scores


def _weights(atom: ir.Atom, matcher: Matcher, uses: Mapping[Any, int]) -> tuple[ir.Atom, bool]:
    """The weights that multiply the values, before a replacement of NaN by zeros; and whether there is one."""
    call = matcher.definitions.get(atom)  # type: ignore[arg-type]
    for found in matcher.find(_WITHOUT_NAN, call) if call is not None else ():
        if uses[found["weights"]] == 2:
            return found["weights"], True
    return atom, False


def _are_halves(found: Found, places: Places) -> bool:
    """Whether `first` and `second` are the halves of x along its last axis. The type shows that they are joined there."""
    type_ = tensor_type(found["x"])
    depth = type_.shape[-1] if type_.rank else 0
    if not isinstance(depth, int):
        return False
    row = range(depth)
    halves = {"first": row[: depth // 2], "second": row[depth // 2 :]}
    return all(_part_of_row(found[name], found["x"], row, places) == half for name, half in halves.items())


def _part_of_row(atom: Any, source: ir.Atom, row: range, places: Places) -> range | None:
    """The range of a tensor's last axis that an atom is cut from, by a slice or a split."""
    field = places.fields.get(atom)
    call = places.definitions.get(atom if field is None else field.tuple)  # type: ignore[arg-type]
    if call is None or call.operator not in ("slice", "split") or call.args != (source,):
        return None
    attributes = lookup(call.operator).bind(call.attributes)
    last = tensor_type(source).rank - 1
    if field is not None:
        sizes = attributes["sizes"]
        if attributes["axis"] not in (-1, last) or not all(isinstance(size, int) for size in sizes):
            return None
        begin = sum(sizes[: field.index])
        return row[begin : begin + sizes[field.index]]
    starts, ends, axes, steps = (attributes[each] for each in _SLICE)
    return row[starts[0] : ends[0] : (steps or (1,))[0]] if axes in ((-1,), (last,)) else None


def _is_along_rows(softmax: ir.OperatorCall | None) -> bool:
    if softmax is None or softmax.operator != "softmax":
        return False
    rank = tensor_type(softmax.args[0]).rank
    return lookup("softmax").bind(softmax.attributes)["axis"] % rank == rank - 1


def _attention(
    found: Found, definitions: Mapping[ir.Var, ir.OperatorCall], places: Places, **ways: bool
) -> ir.OperatorCall | None:
    """`ways`: the boolean attributes."""
    numbers = {name: number_of(found[name]) for name in (*_FACTORS, "masked") if name in found}
    if None in numbers.values():
        return None
    scale, masked = math.prod(numbers.get(name) or 1.0 for name in _FACTORS), numbers.get("masked", -math.inf)
    operands: list[Any] = []
    attributes: dict[str, Any] = {"scale": scale, "masked": masked, **ways}
    repeats: dict[str, tuple[Any, int]] = {}
    for name in "qkv":
        # rows of k are the columns of the product's operand
        place = places.of(found[name], row=-2 if name == "k" else -1)
        if place is None:
            return None
        source, order = place.source, place.order
        if name == "k":
            order = (*order[:-2], order[-1], order[-2])
        operands.append(source)
        attributes |= {f"{name}_axes": order, f"{name}_part": place.part}
        repeats[name] = (source, 1) if place.part else unrepeated(source, order[-3], definitions)
    (key, times), (value, same) = repeats["k"], repeats["v"]
    if times == same > 1:
        operands[1:], attributes["repeat"] = [key, value], times
    masks = [found[name] for name in ("mask", "bias") if name in found]
    return _call([*operands, *masks], attributes)


def _is_possible(type_: TensorType, longest_row: int) -> bool:
    """Whether there is a kernel for such queries or values."""
    if type_.rank < 3 or type_.dtype is not DType.float32:
        return False
    row = type_.shape[-1]
    return isinstance(row, int) and 0 < row <= longest_row


def unrepeated(atom: Any, axis: int, definitions: Mapping[ir.Var, ir.OperatorCall]) -> tuple[Any, int]:
    """The operand before each element was repeated along an axis, and how often it was: 1 if not at all.

    Exporters insert an axis after it, broadcast along that, and merge the two: so groups of heads share keys and values.
    """
    merged = definitions.get(atom)
    spread = _maker(merged, ("reshape",), definitions)
    inserted = _maker(spread, ("broadcast_to",), definitions)
    source = None if inserted is None or inserted.operator not in ("expand_dims", "reshape") else inserted.args[0]
    if source is None or merged is None or spread is None:
        return atom, 1
    shape, wide = tensor_type(source).shape, tensor_type(merged.args[0]).shape
    before, behind = shape[: axis + 1], shape[axis + 1 :]
    times = wide[axis + 1] if len(wide) == len(shape) + 1 else 1
    if not isinstance(times, int) or times < 2 or tensor_type(spread.args[0]).shape != (*before, 1, *behind):
        return atom, 1
    whole = lift(lambda dim: dims.multiply(dim, times), shape[axis])
    is_merged = wide == (*before, times, *behind) and tensor_type(atom).shape == (*shape[:axis], whole, *behind)
    return (source, times) if is_merged else (atom, 1)


def _maker(
    call: ir.OperatorCall | None, operators: tuple[str, ...], definitions: Mapping[ir.Var, ir.OperatorCall]
) -> ir.OperatorCall | None:
    """The call that makes the first operand, if it is of one of these operators."""
    if call is None or call.operator not in operators:
        return None
    return definitions.get(call.args[0])  # type: ignore[arg-type]


def _with_result_axes(attention: ir.OperatorCall, order: tuple[int, ...]) -> Iterator[ir.OperatorCall]:
    attributes = lookup("attention").bind(attention.attributes)
    if attributes["result_axes"] is None and order[-1] == len(order) - 1:
        yield _call(attention.args, attributes | {"result_axes": order})


def _call(args: Any, attributes: dict[str, Any]) -> ir.OperatorCall:
    """The call, without orders of axes that change nothing."""
    for name, value in attributes.items():
        if name.endswith("_axes") and value == tuple(range(len(value or ()))):
            attributes = attributes | {name: None}
    return operator_call("attention", *args, **attributes)
