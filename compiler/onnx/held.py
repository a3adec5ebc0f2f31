"""Values of a model whose length, presence or rank is known only at run time: sequences, optional values, tensors of any rank.

They are data types of the program (`formats/host_values.py`), and what is done with them are functions of the IR, here as its
text. Two values that stand for one, as the results of both branches or a loop's state before and after a round, meet in the
narrowest type that holds either (`joined`), which each is made one of (`converted`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.host_values import MOST_RANKS, OPTIONAL, RANKED, SEQUENCE
from ...formats.messages.errors import InferenceError, ModelError
from ...formats.types import UNKNOWN, DataType, TensorType, TupleType, Type, replace_dims
from .. import effort, ir
from ..ir.analysis import called
from ..operators.shapes import axis_of
from .held_types import NOTHING, RANKS, content_of, is_of, joined, of_rank, optional_of, sequence_of, settled, type_of
from .operators.shapes import concatenated
from .values import (
    AnyRank,
    AnySequence,
    GraphBuilder,
    HeldSequence,
    Imported,
    LengthError,
    NotImportedError,
    OptionalTensor,
    TensorSequence,
    UnsupportedError,
    Value,
)

if TYPE_CHECKING:
    pass

LIBRARY = """
data Sequence[a] = End | Item(a, Sequence[a])

func @sequence_length(xs: Sequence[a]) -> int64[] {
  last = loop (count: int64[] = int64(0), rest: Sequence[a] = xs) while {
    more = match rest { End() => { bool(false) } _ => { bool(true) } }
    more
  } do {
    others = match rest { Item(_, tail) => { tail } }
    longer = add(count, int64(1))
    next = (longer, others)
    next
  }
  count = last[0]
  count
}

# xs, the last one first, and behind that what comes
func @sequence_turned(xs: Sequence[a], behind: Sequence[a]) -> Sequence[a] {
  last = loop (rest: Sequence[a] = xs, made: Sequence[a] = behind) while {
    more = match rest { End() => { bool(false) } _ => { bool(true) } }
    more
  } do {
    next = match rest {
      Item(first, others) => {
        longer = Sequence::Item(first, made)
        both = (others, longer)
        both
      }
    }
    next
  }
  made = last[1]
  made
}

# the first `count`, the last one first, and the others; fails if there are fewer
func @sequence_parted(xs: Sequence[a], count: int64[]) -> (Sequence[a], Sequence[a]) {
  none = Sequence::End()
  last = loop (left: int64[] = count, front: Sequence[a] = none, rest: Sequence[a] = xs) while {
    more = greater(left, int64(0))
    more
  } do {
    next = match rest {
      Item(first, others) => {
        fewer = subtract(left, int64(1))
        longer = Sequence::Item(first, front)
        all = (fewer, longer, others)
        all
      }
    }
    next
  }
  front = last[1]
  rest = last[2]
  both = (front, rest)
  both
}

func @sequence_at(xs: Sequence[a], place: int64[]) -> a {
  parts = @sequence_parted(xs, place)
  rest = parts[1]
  found = match rest { Item(first, _) => { first } }
  found
}

func @sequence_insert(xs: Sequence[a], value: a, place: int64[]) -> Sequence[a] {
  parts = @sequence_parted(xs, place)
  front = parts[0]
  rest = parts[1]
  longer = Sequence::Item(value, rest)
  made = @sequence_turned(front, longer)
  made
}

func @sequence_erase(xs: Sequence[a], place: int64[]) -> Sequence[a] {
  parts = @sequence_parted(xs, place)
  front = parts[0]
  rest = parts[1]
  fewer = match rest { Item(_, others) => { others } }
  made = @sequence_turned(front, fewer)
  made
}

func @sequence_map(f: fn(a) -> b, xs: Sequence[a]) -> Sequence[b] {
  none = Sequence::End()
  last = loop (rest: Sequence[a] = xs, made: Sequence[b] = none) while {
    more = match rest { End() => { bool(false) } _ => { bool(true) } }
    more
  } do {
    next = match rest {
      Item(first, others) => {
        changed = call f(first)
        longer = Sequence::Item(changed, made)
        both = (others, longer)
        both
      }
    }
    next
  }
  turned = last[1]
  made = @sequence_turned(turned, none)
  made
}
"""


# ---- the library ----


def with_sequences(module: ir.Module) -> ir.Module:
    """The module with those functions of the library that it calls."""
    library = _library()
    wanted, waiting = dict[str, None](), [function.body for function in module.functions.values()]
    while waiting:
        for name in called(waiting.pop()):
            if name in library and name not in wanted:
                wanted[name] = None
                waiting.append(library[name].body)
    return replace(module, functions={**module.functions, **{name: library[name] for name in wanted}})


def _library() -> Mapping[str, ir.Function]:
    from ..ir.text import parse_module

    return parse_module(LIBRARY).functions


# ---- values ----


def bound(g: GraphBuilder, expression: ir.Expr, type_: Type, types: Sequence[TensorType] = ()) -> Imported:
    """An expression as a value of that type; `types` are what a tensor of any rank may be, where that is known."""
    if isinstance(type_, TensorType):
        return g.bind(expression, type_)
    g.has_data = True
    if type_ == sequence_of(NOTHING):
        return TensorSequence()
    if type_ == optional_of(NOTHING):
        return OptionalTensor(None)
    var = ir.Var(g.hint, type_)
    g.bindings.append(ir.Binding(var, expression, g.origin))
    if is_of(type_, SEQUENCE):
        return HeldSequence(var, content_of(type_))
    return (
        OptionalTensor(var, content_of(type_)) if is_of(type_, OPTIONAL) else AnyRank(var, tuple(types) or _any(type_))
    )


def of_atom(g: GraphBuilder, var: ir.Var) -> Imported:
    """The value that a variable of a data type holds."""
    type_ = var.type
    assert type_ is not None
    g.has_data = True
    if is_of(type_, RANKED):
        return AnyRank(var, _any(type_))
    return HeldSequence(var, content_of(type_)) if is_of(type_, SEQUENCE) else OptionalTensor(var, content_of(type_))


def _any(type_: Type) -> tuple[TensorType, ...]:
    """The types of a tensor of any rank."""
    assert isinstance(type_, DataType)
    return type_.arguments  # type: ignore[return-value]


def construct(g: GraphBuilder, type_: Type, place: int, *args: ir.Atom) -> ir.Var:
    """A value of a data type by the constructor in that place."""
    assert isinstance(type_, DataType)
    g.has_data = True
    definition = next(each for each in (SEQUENCE, OPTIONAL, RANKED) if is_of(type_, each))
    var = ir.Var(g.hint, type_)
    constructor = definition.constructors[place].name
    g.bindings.append(ir.Binding(var, ir.Construct(definition.name, constructor, args), g.origin))
    return var


def converted(g: GraphBuilder, value: Imported, type_: Type) -> ir.Atom:
    """A value as one of a wider type."""
    if is_of(type_, OPTIONAL):
        return _optional(g, value, type_)
    if isinstance(value, HeldSequence):
        if value.element == content_of(type_):
            return value.atom
        return _call(g, "sequence_map", _widening(g, value.element, content_of(type_)), value.atom, type_=type_)
    if isinstance(value, TensorSequence):
        chain = construct(g, type_, 0)
        for tensor in reversed(value.tensors):
            chain = construct(g, type_, 1, converted(g, tensor, content_of(type_)), chain)
        return chain
    if isinstance(value, AnyRank):
        return value.atom
    assert isinstance(value, Value)
    if isinstance(type_, TensorType):
        return g.atom(value)
    if value.rank >= MOST_RANKS:
        raise UnsupportedError(f"a tensor of {value.rank} axes, whose number is known only at run time")
    return construct(g, type_, value.rank, g.atom(value))


def _optional(g: GraphBuilder, value: Imported, type_: Type) -> ir.Atom:
    inner = content_of(type_)
    if not isinstance(value, OptionalTensor):
        return construct(g, type_, 1, converted(g, value, inner))
    if value.atom is None or value.type is None:
        return construct(g, type_, 0)
    if value.type == inner:
        return value.atom
    element = ir.Var("element", value.type)
    with g.block() as there:
        found = construct(g, type_, 1, converted(g, bound(g, element, value.type), inner))
        present = ir.Block(tuple(there), found)
    with g.block() as missing:
        nothing = construct(g, type_, 0)
        absent = ir.Block(tuple(missing), nothing)
    pattern = ir.ConstructorPattern(OPTIONAL.constructors[1].name, (ir.Bind(element),))
    var = ir.Var(g.hint, type_)
    match = ir.Match(value.atom, ((pattern, present), (ir.Wildcard(), absent)))
    g.bindings.append(ir.Binding(var, match, g.origin))
    return var


def _widening(g: GraphBuilder, element: Type, wider: Type) -> ir.Atom:
    """A function that makes an element one of a wider type."""
    param = ir.Var("element", element)
    with g.block() as bindings:
        result = converted(g, bound(g, param, element), wider)
        body = ir.Block(tuple(bindings), result)
    function = ir.Var("widened")
    g.bindings.append(ir.Binding(function, ir.Function((param,), body, result_type=wider), g.origin))
    return function


def _call(g: GraphBuilder, name: str, *args: ir.Atom, type_: Type) -> ir.Var:
    """A call of a function of the library."""
    g.has_data = True
    var = ir.Var(g.hint, type_)
    g.bindings.append(ir.Binding(var, ir.Call(ir.GlobalRef(name), args), g.origin))
    return var


# ---- sequences ----


def held(g: GraphBuilder, sequence: AnySequence) -> HeldSequence:
    """Any sequence as one of the program."""
    if isinstance(sequence, HeldSequence):
        return sequence
    type_ = settled(type_of(sequence))
    return HeldSequence(converted(g, sequence, type_), content_of(type_))


def length(g: GraphBuilder, sequence: HeldSequence) -> Value:
    return g.bind(ir.Call(ir.GlobalRef("sequence_length"), (sequence.atom,)), of_rank(DType.int64, 0))


def turned(g: GraphBuilder, sequence: HeldSequence) -> HeldSequence:
    """The last one first."""
    type_ = type_of(sequence)
    nothing = construct(g, type_, 0)
    return HeldSequence(_call(g, "sequence_turned", sequence.atom, nothing, type_=type_), sequence.element)


def element_at(g: GraphBuilder, sequence: HeldSequence, position: Value) -> Imported:
    place = _place(g, sequence, position)
    return bound(g, ir.Call(ir.GlobalRef("sequence_at"), (sequence.atom, place)), sequence.element)


def inserted(g: GraphBuilder, sequence: AnySequence, tensor: Value | AnyRank, position: Value | None) -> HeldSequence:
    type_ = joined(type_of(sequence), type_of(TensorSequence((tensor,))))
    wide = HeldSequence(converted(g, sequence, type_), content_of(type_))
    place = _place(g, wide, position) if position is not None else g.atom(length(g, wide))
    value = converted(g, tensor, wide.element)
    return HeldSequence(_call(g, "sequence_insert", wide.atom, value, place, type_=type_), wide.element)


def erased(g: GraphBuilder, sequence: HeldSequence, position: Value | None) -> HeldSequence:
    last = g.constant(-1, DType.int64) if position is None else position
    place = _place(g, sequence, last)
    return HeldSequence(_call(g, "sequence_erase", sequence.atom, place, type_=type_of(sequence)), sequence.element)


def joined_tensors(g: GraphBuilder, sequence: HeldSequence, axis: int, is_new: bool) -> Imported:
    """The tensors of a sequence, joined along an axis or a new one. A run ends in which there are none, or of several ranks."""
    if isinstance(sequence.element, TensorType):
        return _joined_tensors(g, sequence, sequence.element, axis, is_new)

    def of_one_rank(values: Sequence[Imported | None]) -> Sequence[Imported | None]:
        (first,) = values
        assert isinstance(first, Value)
        element = of_rank(first.dtype, first.rank)
        narrow = _call(
            g, "sequence_map", _narrowing(g, sequence.element, element), sequence.atom, type_=sequence_of(element)
        )
        return [_joined_tensors(g, HeldSequence(narrow, element), element, axis, is_new)]

    (made,) = by_rank(g, [element_at(g, sequence, g.constant(0, DType.int64))], of_one_rank)
    return made


def _narrowing(g: GraphBuilder, wide: Type, element: TensorType) -> ir.Atom:
    """A function of a tensor of any rank that ends the run where it is another one."""
    param, tensor, found = ir.Var("element", wide), ir.Var("tensor", element), ir.Var("found", element)
    pattern = ir.ConstructorPattern(RANKED.constructors[element.rank].name, (ir.Bind(tensor),))
    match = ir.Match(param, ((pattern, ir.Block((), tensor)),))
    body = ir.Block((ir.Binding(found, match, g.origin),), found)
    function = ir.Var("narrowed")
    g.bindings.append(ir.Binding(function, ir.Function((param,), body, result_type=element), g.origin))
    return function


def _joined_tensors(g: GraphBuilder, sequence: HeldSequence, element: TensorType, axis: int, is_new: bool) -> Value:
    along = axis_of(axis, element.rank + is_new)

    def part(atom: ir.Atom) -> Value:
        tensor = bound(g, atom, element)
        assert isinstance(tensor, Value)
        return g.op("expand_dims", tensor, axes=(along,)) if is_new else tensor

    first, rest = ir.Var("first", element), ir.Var("rest", sequence_of(element))
    whole = of_rank(element.dtype, element.rank + is_new)
    with g.block() as opening:
        begun = ir.Var("begun", TupleType((whole, rest.type)))  # type: ignore[arg-type]
        opening.append(ir.Binding(begun, ir.MakeTuple((g.atom(part(first)), rest)), g.origin))
        start = ir.Block(tuple(opening), begun)
    item = SEQUENCE.constructors[1].name
    both = ir.Var(g.hint, begun.type)
    pattern = ir.ConstructorPattern(item, (ir.Bind(first), ir.Bind(rest)))
    g.bindings.append(ir.Binding(both, ir.Match(sequence.atom, ((pattern, start),)), g.origin))
    parts = [ir.Var(g.hint, type_) for type_ in (whole, rest.type)]
    for place, var in enumerate(parts):
        g.bindings.append(ir.Binding(var, ir.GetItem(both, place), g.origin))
    made, left = ir.Var("made", whole), ir.Var("left", rest.type)
    yes, no = (ir.Block((), ir.Constant(np.asarray(value))) for value in (True, False))
    some = ir.ConstructorPattern(item, (ir.Wildcard(), ir.Wildcard()))
    more = ir.Var("more", of_rank(DType.bool, 0))
    condition = ir.Block((ir.Binding(more, ir.Match(left, ((some, yes), (ir.Wildcard(), no))), g.origin),), more)
    head, tail = ir.Var("head", element), ir.Var("tail", rest.type)
    with g.block() as inner:
        before = bound(g, made, whole)
        assert isinstance(before, Value)
        longer = concatenated(g, before, part(head), axis=along)
        following = ir.Var("following", begun.type)
        inner.append(ir.Binding(following, ir.MakeTuple((g.atom(longer), tail)), g.origin))
        clause = ir.Block(tuple(inner), following)
    advanced = ir.Var("advanced", begun.type)
    step = ir.Match(left, ((ir.ConstructorPattern(item, (ir.Bind(head), ir.Bind(tail))), clause),))
    body = ir.Block((ir.Binding(advanced, step, g.origin),), advanced)
    last = ir.Var(g.hint, begun.type)
    g.bindings.append(ir.Binding(last, ir.Loop((made, left), tuple(parts), condition, body), g.origin))
    return g.bind(ir.GetItem(last, 0), whole)


def _place(g: GraphBuilder, sequence: HeldSequence, position: Value) -> ir.Atom:
    """A position, counted from the end if it is negative, as one from the beginning: the run fails where it is below 0."""
    place = g.op("reshape", g.op("cast", position, dtype=DType.int64), shape=())
    known = place.constant
    if known is None or known < 0:
        zero = g.constant(0, DType.int64)
        from_end = g.op("add", place, length(g, sequence))
        place = g.op("where", g.op("less", place, zero), from_end, place)
        place = g.from_dims(g.sizes(place, "places")[0])
    return g.atom(place)


# ---- where values meet ----


def choose(g: GraphBuilder, condition: Value, *branches: Callable[[], Sequence[Imported]]) -> list[Imported]:
    """The first branch's results if the condition holds, else the second's; their exceptions are passed on."""
    atom = g.atom(g.op("reshape", condition, shape=()) if condition.rank else condition)
    arms, known = [], g.dimension_names
    for branch in branches:
        with g.block() as bindings:
            arms.append((bindings, branch()))
    return _met(g, arms, known, lambda blocks: ir.If(atom, *blocks))


def by_rank(
    g: GraphBuilder,
    inputs: Sequence[Imported | None],
    run: Callable[[Sequence[Imported | None]], Sequence[Imported | None]],
) -> list[Imported]:
    """A node's results for tensors whose ranks are known only at run time: a clause for each rank that suits it. A run with
    another rank fails."""
    place = next((place for place, value in enumerate(inputs) if isinstance(value, AnyRank)), None)
    if place is None:
        results = run(inputs)
        made = [result for result in results if result is not None]
        if len(made) < len(results):
            raise NotImportedError
        return made
    tensor: Any = inputs[place]
    arms, patterns, failure, names = [], [], None, g.dimension_names
    for type_ in tensor.types:
        effort.spend(effort.CLAUSE_UNITS, g.origin)  # of several tensors, each rank with each
        var = ir.Var(g.hint, of_rank(type_.dtype, type_.rank))
        with g.block() as bindings:
            try:
                found = _of_type(g, var, type_)
                known = [found if value is tensor else value for value in inputs]
                results = by_rank(g, known, run)
                _check_ranks(results)
                arms.append((bindings, results))
            except (ModelError, InferenceError) as error:
                failure = error
                continue
        patterns.append(ir.ConstructorPattern(RANKED.constructors[type_.rank].name, (ir.Bind(var),)))
    if not arms:
        raise failure or ModelError("a tensor of no rank")
    return _met(g, arms, names, lambda blocks: ir.Match(tensor.atom, tuple(zip(patterns, blocks, strict=True))))


def by_length(
    g: GraphBuilder,
    inputs: Sequence[Imported | None],
    run: Callable[[Sequence[Imported | None]], Sequence[Imported | None]],
) -> Sequence[Imported | None]:
    """A node's results for a vector whose length is known only at run time and determines a rank, or for rows of such
    a length: a block for each length that suits it. A run with another length fails."""
    try:
        with g.attempt():
            return run(inputs)
    except LengthError as error:
        vector = error.value
        place = next((place for place, value in enumerate(inputs) if value is vector), None)
        if place is None or not vector.rank:
            raise
    symbol, before = vector.shape[-1], vector.shape[:-1]
    choices = g.choices(symbol)
    arms, lengths, failure, names = [], [], None, g.dimension_names
    for length in RANKS if choices is None else sorted(choices):
        effort.spend(effort.CLAUSE_UNITS, g.origin)
        with g.block() as bindings:
            try:
                known = g.checked(vector, (*before, length))
                results = by_length(g, [known if value is vector else value for value in inputs], run)
                present = [result for result in results if result is not None]
                if len(present) < len(results):
                    raise NotImportedError
                _check_ranks(present)
            except (ModelError, InferenceError) as error:
                failure = error
                continue
        arms.append((bindings, present))
        lengths.append(length)
    if not arms:
        raise failure or ModelError("a vector of no length")
    count = g.from_dims(np.array(symbol, object))
    conditions = [g.atom(g.op("equal", count, g.constant(length, DType.int64))) for length in lengths[:-1]]

    def chosen(blocks: Sequence[ir.Block]) -> ir.Expr:
        expression: ir.Expr | None = None
        for block, condition in zip(blocks[-2::-1], conditions[::-1], strict=True):
            other = blocks[-1]
            if expression is not None:
                var = ir.Var("branch")
                other = ir.Block((ir.Binding(var, expression, g.origin),), var)
            expression = ir.If(condition, block, other)
        assert expression is not None
        return expression

    if len(arms) == 1:  # a run checks
        ((bindings, results),) = arms
        g.bindings.extend(bindings)
        return results
    return _met(g, arms, names, chosen)


def _check_ranks(results: Sequence[Imported]) -> None:
    """Raises ModelError for too many axes of a tensor whose rank is known only at run time."""
    ranks = [each.rank for each in results if isinstance(each, Value)]
    if (most := max(ranks, default=0)) >= MOST_RANKS:
        raise ModelError(f"a tensor of {most} axes, whose number is known only at run time")


def _of_type(g: GraphBuilder, var: ir.Var, type_: TensorType) -> Value:
    """A tensor of any rank, where it has that one: what is known of its sizes holds."""
    shape = tuple(g.new_dimension() if dim is UNKNOWN else dim for dim in type_.shape)
    if not shape:
        return Value(type_, var)
    named = TensorType(type_.dtype, shape)
    return g.bind(ir.MatchShape(var, shape), named)


def _met(
    g: GraphBuilder,
    arms: Sequence[tuple[list[ir.Binding], Sequence[Imported]]],
    names: frozenset[str],
    expression: Callable[[Sequence[ir.Block]], ir.Expr],
) -> list[Imported]:
    """The results of an expression of several blocks, of which each gives its arm's; `names` are of the dimensions around it."""
    counts = {len(values) for _, values in arms}
    if len(counts) != 1:
        raise ModelError(f"its branches give {' and '.join(map(str, sorted(counts)))} results")
    columns = list(zip(*(values for _, values in arms), strict=True))
    types = [_outside(settled(_least(column)), names) for column in columns]
    blocks = []
    for bindings, values in arms:
        with g.block() as more:
            atoms = tuple(converted(g, value, type_) for value, type_ in zip(values, types, strict=True))
            result = ir.Var("branch", TupleType(tuple(types)))
            more.append(ir.Binding(result, ir.MakeTuple(atoms), g.origin))
        blocks.append(ir.Block((*bindings, *more), result))
    chosen = ir.Var(g.hint, TupleType(tuple(types)))
    g.bindings.append(ir.Binding(chosen, expression(blocks), g.origin))
    results = [
        bound(g, ir.GetItem(chosen, place), type_, _by_rank(column, names))
        for place, (type_, column) in enumerate(zip(types, columns, strict=True))
    ]
    for made, type_, column in zip(results, types, columns, strict=True):
        if isinstance(made, Value):
            _note_choices(g, made, type_, column)
    return results


def _note_choices(g: GraphBuilder, result: Value, type_: Type, column: Sequence[Imported]) -> None:
    """Of sizes that differ from arm to arm, and are known in each of them: all of them."""
    assert isinstance(type_, TensorType)
    for axis, dim in enumerate(type_.shape):
        found = [g.choices(value.shape[axis]) for value in column if isinstance(value, Value)]
        if dim is UNKNOWN and None not in found:
            g.is_one_of(result.shape[axis], frozenset[int]().union(*(each for each in found if each is not None)))


def _outside(type_: Type, names: frozenset[str]) -> Type:
    """A result's type, in which dimensions that only a block knows are not known."""
    return replace_dims(type_, lambda dim: dim if names.issuperset(dims.variables(dim)) else UNKNOWN)


def _least(values: Sequence[Imported]) -> Type:
    type_: Type = NOTHING
    for value in values:
        type_ = joined(type_, type_of(value))
    return type_


def _by_rank(values: Sequence[Imported], names: frozenset[str]) -> list[TensorType]:
    """The types of tensors, one for each rank, outside of the blocks that made them."""
    found: dict[int, TensorType] = {}
    for value in values:
        types = (value.type,) if isinstance(value, Value) else value.types if isinstance(value, AnyRank) else ()
        for type_ in types:
            wider = _outside(joined(found.get(type_.rank, type_), type_), names)
            assert isinstance(wider, TensorType)
            found[type_.rank] = wider
    return [found[rank] for rank in sorted(found)]
