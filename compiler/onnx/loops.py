"""Loop and Scan: rounds written out one after the other, or a loop of the IR.

A loop of few and small rounds, whose number is known, is written out, so that passes see all of it. Outputs of every round grow
in a loop: a round's is appended to those of the last few rounds; when these are enough, they are appended to those of some more
rounds before, and so on. So the work grows with the rounds, and hardly with their square.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ...formats import dims
from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.messages.errors import ModelError
from ...formats.types import UNKNOWN, TensorType, TupleType, Type
from .. import effort, ir
from ..operators.shapes import axis_of
from .held import bound, choose, construct, converted, joined_tensors, length, turned
from .held_types import joined, of_rank, sequence_of, settled, type_of
from .operators.shapes import concatenated
from .values import GraphBuilder, HeldSequence, Imported, UnsupportedError, Value, present, tensors_of

if TYPE_CHECKING:
    import onnx

_T = TypeVar("_T")

# Imports the graph that a round is, of values for its inputs: gives its outputs. Raises NotImportedError.
Run = Callable[[Sequence[Imported]], list[Imported]]

_MOST_WRITTEN_OUT = 1024  # nodes of the graph that a round is, in all rounds together
_MOST_IMPORTED = 16 * _MOST_WRITTEN_OUT  # nodes, in all rounds together, those of functions and loops inside among them
_TOGETHER = 16  # outputs of this many rounds are collected before they are appended
_LEVELS = 3


@dataclass(frozen=True)
class Stack:
    """How the outputs of all rounds are put together: along a new axis, the last one first perhaps."""

    axis: int = 0
    is_reversed: bool = False


class _NotWrittenOutError(Exception):
    """Rounds become a loop of the program."""


@dataclass(frozen=True)
class Rounds:
    """`run(number, states)` imports a round: a truth value whether to go on, the next states, and an output for each of `stacks`.

    There are `count` rounds at most, if it is told, and as many as `is_wanted` and then each round want.
    """

    g: GraphBuilder
    run: Callable[[Value, Sequence[Imported]], tuple[Value, list[Imported], list[Value]]]
    count: Value | None
    is_wanted: Value
    states: tuple[Imported, ...]
    stacks: tuple[Stack, ...]
    nodes: int  # of the graph that a round is

    def results(self) -> list[Imported]:
        """The last states, then the outputs of all rounds."""
        count = self._known_count()
        is_short = 0 < count * self.nodes <= _MOST_WRITTEN_OUT and self.g.origin not in self.g.kept_loops
        if is_short:
            try:
                with self.g.attempt():
                    return self._written_out(count)
            except _NotWrittenOutError:
                self.g.kept_loops.add(self.g.origin)  # rounds of a loop around it need not find that out again
        return self._looped()

    def _known_count(self) -> int:
        """The number of rounds if no condition can end them; else 0."""
        elements = self.count.elements if self.count is not None and _is_true(self.is_wanted) else None
        count = elements.flat[0] if elements is not None and elements.size == 1 else 0
        return count if isinstance(count, int) else 0

    # ---- written out ----

    def _written_out(self, count: int) -> list[Imported]:
        """Raises _NotWrittenOutError if the rounds are longer than the number of their nodes tells: they call functions, or have
        loops inside."""
        with effort.attempting(_MOST_IMPORTED * effort.NODE_UNITS) as attempt:
            try:
                return self._all_rounds(count)
            except effort.AttemptError as error:
                if error.attempt is not attempt:
                    raise
                raise _NotWrittenOutError from None

    def _all_rounds(self, count: int) -> list[Imported]:
        """Raises _NotWrittenOutError if a round computes whether to go on."""
        states, rounds = list(self.states), list[list[Value]]()
        for number in range(count):
            is_wanted, states, outputs = self.run(self.g.constant(number, DType.int64), states)
            if not _is_true(is_wanted):
                raise _NotWrittenOutError
            rounds.append(outputs)
        return [*states, *map(self._stacked, self.stacks, zip(*rounds, strict=True))]

    def _stacked(self, stack: Stack, parts: Sequence[Value]) -> Value:
        axis = axis_of(stack.axis, parts[0].rank + 1)
        alike = self.g.same_sizes(parts, range(parts[0].rank))
        return self.g.op("stack", *(reversed(alike) if stack.is_reversed else alike), axis=axis)

    # ---- a loop ----

    def _looped(self) -> list[Imported]:
        """First a round is imported to learn the types, until those of the states hold for all rounds."""
        self.g.keeps_loop()
        g, known = self.g, self.g.dimension_names
        types = [type_of(state) for state in self.states]
        while True:
            with g.block():
                goes_on, states, outputs = self.run(self._named("round", _NUMBER), self._all_named(types))
            wider = [_wider(type_, type_of(state)) for type_, state in zip(types, states, strict=True)]
            if wider == types:
                break
            types = wider
        apart = [place for place, output in enumerate(outputs) if not _is_within(output.type, known)]
        if apart:
            return self._with_lists([output.type for output in outputs], apart, known)
        types = list(map(settled, types))
        initial = [
            state if isinstance(type_, TensorType) else bound(g, converted(g, state, type_), type_)
            for state, type_ in zip(self.states, types, strict=True)
        ]
        empty = [self._empty(stack, output.type) for stack, output in zip(self.stacks, outputs, strict=True)]
        grown = [_grown_type(part.type, stack) for part, stack in zip(empty, self.stacks, strict=True)]
        last = self._loop([*types, *grown * _LEVELS], [*initial, *empty * _LEVELS])
        levels = self._levels(present(last[len(initial) :]))
        collected = functools.reduce(self._joined, levels)
        if (rounds := self._rounds(goes_on)) is not None:
            collected = [
                self._of_length(each, stack, rounds) for each, stack in zip(collected, self.stacks, strict=True)
            ]
        return [*last[: len(initial)], *collected]

    def _rounds(self, goes_on: Value) -> Dim | None:
        """How many rounds there are, where nothing ends them before their count, and that is a size."""
        elements = self.count.elements if self.count is not None else None
        if elements is None or elements.size != 1 or not _is_true(self.is_wanted) or not _is_true(goes_on):
            return None
        count: Dim = elements.flat[0]
        is_size = not isinstance(count, int) and dims.is_variable(count)
        return count if is_size else dims.maximum(count, 0)

    def _of_length(self, collected: Value, stack: Stack, rounds: Dim) -> Value:
        shape = list(collected.shape)
        shape[axis_of(stack.axis, collected.rank)] = rounds
        return self.g.checked(collected, tuple(shape))

    def _with_lists(self, types: Sequence[TensorType], apart: Sequence[int], known: frozenset[str]) -> list[Imported]:
        """Outputs of sizes that only a round can tell, those in the places `apart`, are kept in lists, the last one first, and
        put together when all of them are there: a run ends where they are not of one size."""
        g, count = self.g, len(self.states)
        elements = [of_rank(types[place].dtype, types[place].rank) for place in apart]
        lists = [sequence_of(element) for element in elements]

        def run(number: Value, values: Sequence[Imported]) -> tuple[Value, list[Imported], list[Value]]:
            is_wanted, states, outputs = self.run(number, values[:count])
            for place, before, element, type_ in zip(apart, values[count:], elements, lists, strict=True):
                assert isinstance(before, HeldSequence)
                longer = construct(g, type_, 1, converted(g, outputs[place], element), before.atom)
                states = [*states, HeldSequence(longer, element)]
            return is_wanted, states, [output for place, output in enumerate(outputs) if place not in apart]

        nothing = [
            HeldSequence(construct(g, type_, 0), element) for type_, element in zip(lists, elements, strict=True)
        ]
        stacks = tuple(stack for place, stack in enumerate(self.stacks) if place not in apart)
        rounds = Rounds(g, run, self.count, self.is_wanted, (*self.states, *nothing), stacks, self.nodes)
        made = rounds._looped()
        others, outputs = iter(made[count + len(apart) :]), list[Imported]()
        for place, (stack, type_) in enumerate(zip(self.stacks, types, strict=True)):
            found = made[count + apart.index(place)] if place in apart else next(others)
            outputs.append(self._of_list(found, stack, type_, known) if isinstance(found, HeldSequence) else found)
        return [*made[:count], *outputs]

    def _of_list(self, items: HeldSequence, stack: Stack, type_: TensorType, known: frozenset[str]) -> Imported:
        """Outputs of all rounds, the last one first, put together. Of no rounds, sizes that only a round can tell are 0."""
        g = self.g
        shape = [dim if known.issuperset(dims.variables(dim)) else 0 for dim in type_.shape]  # type: ignore[arg-type]
        empty = TensorType(type_.dtype, tuple(shape))
        is_none = g.op("equal", length(g, items), g.constant(0, DType.int64))

        def joined() -> list[Imported]:
            return [joined_tensors(g, items if stack.is_reversed else turned(g, items), stack.axis, is_new=True)]

        (made,) = choose(g, is_none, lambda: [self._empty(stack, empty)], joined)
        return made

    def _levels(self, outputs: Sequence[_T]) -> list[list[_T]]:
        """Of the rounds' outputs those that wait together, the earliest rounds' first."""
        count = len(self.stacks)
        return [list(outputs[level * count : (level + 1) * count]) for level in range(_LEVELS)]

    def _joined(self, before: Sequence[Value], behind: Sequence[Value]) -> list[Value]:
        return list(map(self._appended, self.stacks, before, behind))

    def _loop(self, types: Sequence[Type], initial: Sequence[Imported]) -> list[Imported]:
        g, states = self.g, len(self.states)
        limit = None
        if self.count is not None:
            limit = g.op("reshape", g.op("cast", self.count, dtype=DType.int64), shape=())
            limit = replace(limit, atom=g.atom(limit))
        number, going, *others = (ir.Var(g.hint, type_) for type_ in (_NUMBER, _TRUTH, *types))
        with g.block() as before:
            goes_on = Value(_TRUTH, going)
            if limit is not None:
                goes_on = g.op("logical_and", goes_on, g.op("less", Value(_NUMBER, number), limit))
            condition = ir.Block(tuple(before), g.atom(goes_on))
        with g.block() as bindings:
            values = [bound(g, var, type_) for var, type_ in zip(others, types, strict=True)]
            is_wanted, next_states, outputs = self.run(Value(_NUMBER, number), values[:states])
            following = [converted(g, state, type_) for state, type_ in zip(next_states, types, strict=False)]
            counted = g.op("add", Value(_NUMBER, number), g.constant(1, DType.int64))
            if self.stacks:
                levels = self._levels(present(values[states:]))
                empty = present(initial[states : states + len(self.stacks)])
                grown: Any = types[states:]
                pushed = self._pushed(grown, levels, self._rows(outputs), empty, counted, _TOGETHER)
                following += map(g.atom, pushed)
            atoms = (g.atom(counted), g.atom(g.op("reshape", is_wanted, shape=())), *following)
            result = ir.Var("following", TupleType((_NUMBER, _TRUTH, *types)))
            bindings.append(ir.Binding(result, ir.MakeTuple(atoms), g.origin))
            body = ir.Block(tuple(bindings), result)
        first = (g.constant(0, DType.int64), g.op("reshape", self.is_wanted, shape=()))
        atoms = (
            *map(g.atom, first),
            *(converted(g, value, type_) for value, type_ in zip(initial, types, strict=True)),
        )
        loop = ir.Loop((number, going, *others), atoms, condition, body)
        last = ir.Var(g.hint, result.type)
        g.bindings.append(ir.Binding(last, loop, g.origin))
        return [bound(g, ir.GetItem(last, place), type_) for place, type_ in enumerate(types, 2)]

    def _rows(self, outputs: Sequence[Value]) -> list[Value]:
        """A round's outputs, as those of several rounds are put together."""
        axes = (axis_of(stack.axis, output.rank + 1) for stack, output in zip(self.stacks, outputs, strict=True))
        return [self.g.op("expand_dims", output, axes=(axis,)) for output, axis in zip(outputs, axes, strict=True)]

    def _pushed(
        self,
        types: Sequence[TensorType],
        levels: Sequence[Sequence[Value]],
        more: Sequence[Value],
        empty: Sequence[Value],
        counted: Value,
        period: int,
    ) -> list[Value]:
        """The levels' outputs of `counted` rounds, when `more` are appended to the last one's, which are appended to the level
        once every `period` rounds."""
        *before, last = levels
        last = self._joined(last, more)
        if not before:
            return last
        g, zero = self.g, self.g.constant(0, DType.int64)
        is_time = g.op("equal", g.op("remainder", counted, g.constant(period, DType.int64)), zero)
        with g.block() as together:
            pushed = self._pushed(types[: -len(last)], before, last, empty, counted, period * _TOGETHER)
            then = self._branch(together, [*pushed, *empty])
        with g.block() as apart:
            otherwise = self._branch(apart, [*itertools.chain(*before), *last])
        chosen = ir.Var(g.hint, TupleType(tuple(types)))
        g.bindings.append(ir.Binding(chosen, ir.If(g.atom(is_time), then, otherwise), g.origin))
        return [g.bind(ir.GetItem(chosen, place), type_) for place, type_ in enumerate(types)]

    def _branch(self, bindings: list[ir.Binding], values: Sequence[Value]) -> ir.Block:
        result = ir.Var("branch", TupleType(tuple(value.type for value in values)))
        bindings.append(ir.Binding(result, ir.MakeTuple(tuple(map(self.g.atom, values))), self.g.origin))
        return ir.Block(tuple(bindings), result)

    def _named(self, name: str, type_: TensorType) -> Value:
        """A value of that type, for a round that is imported on trial."""
        return self.g.bind(ir.Var(name, type_), type_)

    def _all_named(self, types: Sequence[Type]) -> list[Imported]:
        return [bound(self.g, ir.Var("state", type_), type_) for type_ in types]

    def _empty(self, stack: Stack, output: TensorType) -> Value:
        """The outputs of no rounds yet."""
        shape: list[Dim] = list(output.shape)  # type: ignore[arg-type]
        shape.insert(axis_of(stack.axis, output.rank + 1), 0)
        if output.dtype.is_string:
            return self.g.op("broadcast_to", self.g.constant("", DType.string), shape=tuple(shape))
        value = False if output.dtype is DType.bool else 0
        return self.g.op("full", shape=tuple(shape), value=value, dtype=output.dtype)

    def _appended(self, stack: Stack, parts: Value, more: Value) -> Value:
        both = (more, parts) if stack.is_reversed else (parts, more)
        return concatenated(self.g, *both, axis=axis_of(stack.axis, parts.rank))


_NUMBER, _TRUTH = TensorType(DType.int64, ()), TensorType(DType.bool, ())


def _loop(g: GraphBuilder, run: Run, inputs: Sequence[Imported | None], attributes: dict[str, Any]) -> list[Imported]:
    """A round takes its number, whether it is wanted, and states; it gives whether the next one is, states, outputs."""
    count, is_wanted = tensors_of([*inputs, None, None][:2])
    states, body = _given(inputs[2:]), attributes["body"]
    if len(body.input) != 2 + len(states) or len(body.output) <= len(states):
        raise ModelError(f"Loop: a graph of {len(body.input)} inputs does not suit {len(states)} states")
    true, known = g.constant(True, DType.bool), g.dimension_names
    declared = body.output[1 + len(states) :]

    def round_(number: Value, values: Sequence[Imported]) -> tuple[Value, list[Imported], list[Value]]:
        wanted, *results = run([number, true, *values])
        outputs = zip(present(results[len(states) :]), declared, strict=True)
        sized = [_of_declared_size(g, value, info, known) for value, info in outputs]
        return present([wanted])[0], results[: len(states)], sized

    stacks = (Stack(),) * (len(body.output) - 1 - len(states))
    wanted = true if is_wanted is None else is_wanted
    return Rounds(g, round_, count, wanted, states, stacks, len(body.node)).results()


def _of_declared_size(g: GraphBuilder, value: Value, info: onnx.ValueInfoProto, known: frozenset[str]) -> Value:
    """An output of a round, whose sizes that only the round could tell are those that the model declares: a run checks them."""
    declared = info.type.tensor_type.shape.dim
    if len(declared) != value.rank:
        return value
    shape = tuple(
        told.dim_value if told.HasField("dim_value") and not known.issuperset(dims.variables(dim)) else dim
        for told, dim in zip(declared, value.shape, strict=True)
    )
    return g.checked(value, shape)


def _scan(g: GraphBuilder, run: Run, inputs: Sequence[Imported | None], attributes: dict[str, Any]) -> list[Imported]:
    """A round takes states, and a part of each tensor that is read; it gives states, outputs."""
    if g.opset < 9:
        return _scan_before_9(g, run, inputs, attributes)
    return _scanned(g, run, inputs, attributes)


def _scanned(
    g: GraphBuilder, run: Run, inputs: Sequence[Imported | None], attributes: dict[str, Any]
) -> list[Imported]:
    body, given, read = attributes["body"], present(_given(inputs)), attributes["num_scan_inputs"]
    if not 0 < read <= len(given) or len(body.input) != len(given) or len(body.output) < len(given) - read:
        raise ModelError(f"Scan: a graph of {len(body.input)} inputs does not suit {len(given)}")
    states, tensors = given[:-read], given[-read:]
    outputs = len(body.output) - len(states)
    sources = _stacks(attributes, "input", read)
    stacks = _stacks(attributes, "output", outputs)
    true = g.constant(True, DType.bool)

    def round_(number: Value, values: Sequence[Imported]) -> tuple[Value, list[Imported], list[Value]]:
        results = run([*values, *(_part(g, x, number, source) for x, source in zip(tensors, sources, strict=True))])
        return true, results[: len(states)], present(results[len(states) :])

    along = [axis_of(source.axis, x.rank) for x, source in zip(tensors, sources, strict=True)]
    lengths = [x.shape[axis] for x, axis in zip(tensors, along, strict=True)]
    length = next((each for each in lengths if isinstance(each, int)), lengths[0])
    tensors = [
        g.checked(x, (*x.shape[:axis], length, *x.shape[axis + 1 :])) for x, axis in zip(tensors, along, strict=True)
    ]
    count = g.from_dims(length)
    return Rounds(g, round_, count, true, tuple(states), stacks, len(body.node)).results()


def _scan_before_9(
    g: GraphBuilder, run: Run, inputs: Sequence[Imported | None], attributes: dict[str, Any]
) -> list[Imported]:
    """One scan for each row of a batch, which is the first axis of everything; the rounds are along the second one."""
    if inputs and inputs[0] is not None:
        raise UnsupportedError("sequences of different lengths, in Scan before opset 9")
    given, read = present(_given(inputs[1:])), attributes["num_scan_inputs"]
    batch = given[0].shape[0] if given and given[0].rank else None
    if not isinstance(batch, int) or batch < 1:
        raise UnsupportedError("a batch whose size is known only at run time, in Scan before opset 9")
    directions = attributes.get("directions", (0,) * read)
    options = {"body": attributes["body"], "num_scan_inputs": read, "scan_input_directions": directions}
    rows = []
    for row in range(batch):
        own = [g.op("take", value, g.constant(row, DType.int64), axis=0) for value in given]
        rows.append(present(_scanned(g, run, own, options)))
    return [g.op("stack", *parts, axis=0) for parts in zip(*rows, strict=True)]


LOOPS = {"Loop": _loop, "Scan": _scan}


def _given(values: Sequence[Imported | None]) -> tuple[Imported, ...]:
    given = tuple(value for value in values if value is not None)
    if len(given) < len(values):
        raise ModelError("a state of a loop is left out")
    return given


def _stacks(attributes: dict[str, Any], side: str, count: int) -> tuple[Stack, ...]:
    axes = attributes.get(f"scan_{side}_axes", (0,) * count)
    directions = attributes.get(f"scan_{side}_directions", (0,) * count)
    if len(axes) != count or len(directions) != count:
        raise ModelError(f"Scan: {len(axes)} axes and {len(directions)} directions for {count} {side}s")
    return tuple(Stack(axis, bool(way)) for axis, way in zip(axes, directions, strict=True))


def _part(g: GraphBuilder, x: Value, number: Value, source: Stack) -> Value:
    """The part of x that an iteration reads; x has one for each iteration along an axis."""
    along = axis_of(source.axis, x.rank)
    if source.is_reversed:
        number = g.op("subtract", g.from_dims(dims.add(x.shape[along], -1)), number)
    if number.constant is None:
        return g.op("take", x, number, axis=along)
    place = int(number.constant)
    cut = g.op("slice", x, starts=(place,), ends=(place + 1,), axes=(along,))
    return g.op("squeeze", cut, axes=(along,))


def _is_within(type_: TensorType, known: frozenset[str]) -> bool:
    """Whether dimensions of these names tell all sizes of a tensor."""
    return all(known.issuperset(dims.variables(dim)) for dim in type_.shape)  # type: ignore[arg-type]


def _is_true(value: Value) -> bool:
    return value.constant is not None and bool(value.constant.all())


def _wider(state: Type, following: Type) -> Type:
    """The type of a state before and after a round. Dimensions that differ are not known, nor is a rank that does."""
    if isinstance(state, TensorType) and isinstance(following, TensorType) and state.dtype is not following.dtype:
        raise ModelError(f"a state of a loop is {state}, then {following}")
    return joined(state, following)


def _grown_type(parts: TensorType, stack: Stack) -> TensorType:
    """The type of the outputs of any number of rounds."""
    axis = axis_of(stack.axis, parts.rank)
    return TensorType(parts.dtype, (*parts.shape[:axis], UNKNOWN, *parts.shape[axis + 1 :]))
