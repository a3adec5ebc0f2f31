"""Import with a symbolic batch, of a model that was exported with a batch of one size.

Exporters write sizes down as they were: a Reshape to [1, 2048], an Expand to [1, 1, 768], the states of an LSTM as a constant
of one row. `BatchBuilder` knows for each tensor where the batch lies in it, and has a rule for each operator
(`batch_rules.py`) that tells where it lies in the results. A size that was written down where the batch must be becomes
symbolic; what would mix the rows of a batch is refused. So row k of what the program gives is what the model, as it was
exported, gives for row k.

An axis may hold the batch among others, as after a reshape of [n, 12, 7, 7] to [12*n, 7, 7]: then it is `outer` times n times
`inner`, in the order of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...formats import dims
from ...formats.dims import Dim, SymbolicDim
from ...formats.messages.errors import ModelError
from .. import ir
from ..batch import Batch, BatchChange
from ..operators import lookup
from .values import GraphBuilder, UnsupportedError, Value, constant

if TYPE_CHECKING:
    import onnx

Dimensions = Sequence["int | str"]


@dataclass(frozen=True)
class Place:
    """The axis of a tensor that the batch lies in, and how many elements of the axis stand outside and inside of it."""

    axis: int
    outer: Dim = 1
    inner: Dim = 1

    @property
    def is_whole(self) -> bool:
        """Whether the axis is the batch and nothing else."""
        return self.outer == 1 and self.inner == 1

    def length(self, batch: Dim) -> Dim:
        return dims.product((self.outer, batch, self.inner))


class BatchBuilder(GraphBuilder):
    """A builder that follows the batch: see the module. Rules and importers call `refuse` for what cannot be."""

    finds_sizes = False

    def __init__(self, batch: Batch, size: int, rules: Rules) -> None:
        super().__init__()
        self._rules = rules
        self.batch, self.size = batch, size  # `size`: what the model was exported with
        self.symbol = dims.variable(batch.symbol)
        self._places: dict[ir.Atom, Place] = {}
        self._of_size: set[ir.Atom] = set()  # tensors whose elements follow from the batch's size

    # ---- where it is ----

    def place(self, value: Value) -> Place | None:
        return None if value.atom is None else self._places.get(value.atom)

    def follow(self, value: Value, place: Place | None) -> Value:
        """Remembers where the batch lies in a value; that is checked against its shape."""
        expected = [dim if place is None or axis != place.axis else None for axis, dim in enumerate(value.shape)]
        stray = any(dim is not None and self.has_batch(dim) for dim in expected)
        if stray or (place is not None and value.shape[place.axis] != place.length(self.symbol)):
            self.refuse(f"the sizes of {value.type} depend on it in another way than by its rows")
        if place is not None and value.atom is not None:
            self._places[value.atom] = place
        return value

    def has_batch(self, dim: object) -> bool:
        if isinstance(dim, tuple):
            return any(map(self.has_batch, dim))
        return isinstance(dim, SymbolicDim) and self.batch.symbol in dims.variables(dim)

    def exported(self, dim: Dim) -> Dim:
        """A dimension as the model was exported with."""
        return dims.substitute(dim, {self.batch.symbol: self.size})

    def exported_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(map(self.exported, shape))

    def change(self, what: str) -> None:
        """Reports a change at the node that is being imported."""
        change = BatchChange(self.origin, what)
        if change not in self.batch.changes:
            self.batch.changes.append(change)

    def refuse(self, why: str) -> NoReturn:
        """Raises UnsupportedError: the importer names the node."""
        raise UnsupportedError(f"with a batch of {self.batch.symbol} {why}")

    # ---- operators ----

    def ops(self, operator: str, *values: Value, **attributes: Any) -> tuple[Value, ...]:
        entry = lookup(operator)
        bound = entry.bind(entry.canonical(attributes))
        if not any(map(self.place, values)) and not any(map(self.has_batch, bound.values())):
            return self.plain(operator, *values, **bound)
        rule = self._rules.get(operator)
        if rule is None:
            self.refuse(f"the rows may mix: there is no rule for the operator {operator!r}")
        operands, place = rule(self, list(values), bound)
        results = self.plain(operator, *operands, **bound)
        if place is SIZES:
            self._of_size.update(result.atom for result in results if result.atom is not None)
            return results
        places = place if isinstance(place, list) else [place] * len(results)
        return tuple(map(self.follow, results, places))

    def plain(self, operator: str, *values: Value, **attributes: Any) -> tuple[Value, ...]:
        """The operator, by no rule; the caller tells with `follow` where the batch lies in the results."""
        return super().ops(operator, *values, **attributes)

    def atom(self, value: Value) -> ir.Atom:
        depends = value.atom in self._of_size if value.atom is not None else self.has_batch(tuple(value.dims.flat))  # type: ignore[union-attr]
        if depends:
            self.refuse(
                "rows would depend on how many there are: it computes with the batch's size, or with its rows' numbers"
            )
        return super().atom(value)

    # ---- what base builders make beside operators ----

    def checked(self, value: Value, shape: tuple[Dim, ...]) -> Value:
        """A size that was exported stays the batch's where it is, and a constant of the exported size is repeated."""
        place, wanted = self.place(value), list(shape)
        for axis, (have, want) in enumerate(zip(value.shape, shape, strict=True)):
            if have == want or (place is None and not self.has_batch(want)):
                continue
            if place is not None and axis == place.axis:
                if self.exported(have) != self.exported(want):
                    self.refuse(f"axis {axis} of {value.type} must have the size {want}")
                wanted[axis] = have
            elif self.has_batch(want):
                if place is not None or self.exported(want) != have:
                    self.refuse(f"axis {axis} of {value.type} must have the size {want}")
                value = self.grown(value, axis, Place(axis, 1, dims.floordiv(want, self.symbol)))
                place = self.place(value)
        return self.same_place(super().checked(value, tuple(wanted)), place)

    def same_place(self, value: Value, place: Place | None) -> Value:
        return value if place is None else self.follow(value, place)

    def aligned(self, values: Sequence[Value], axes: slice = slice(None)) -> list[Value]:
        met, _ = self.met(list(values), axes)
        return super().aligned(met, axes)

    def choose(self, condition: Value, *branches: Callable[[], Sequence[Value]]) -> tuple[Value, ...]:
        if self.place(condition) is not None:
            self.refuse("one branch would be taken for all rows")
        found: list[list[Place | None]] = []

        def noted(branch: Callable[[], Sequence[Value]]) -> Sequence[Value]:
            values = branch()
            found.append([self.place(value) for value in values])
            return values

        results = super().choose(condition, *(lambda branch=branch: noted(branch) for branch in branches))
        for place, other in zip(*found, strict=True):
            if place != other:
                self.refuse("its branches give results that hold the batch in different places")
        return tuple(map(self.follow, results, found[0]))

    def keeps_loop(self) -> None:
        self.refuse(
            "it cannot be followed: the loop has too many rounds, or an unknown number of them, to be written out"
        )

    # ---- operands that must agree ----

    def met(self, values: list[Value], axes: slice = slice(None)) -> tuple[list[Value], Place | None]:
        """Operands that broadcast, whose batch lies on one common axis, and that place in their common rank."""
        rank = max(value.rank for value in values)
        places = [
            None if place is None else replace(place, axis=place.axis + rank - value.rank)
            for value, place in ((value, self.place(value)) for value in values)
        ]
        held = list(dict.fromkeys(place for place in places if place is not None))
        if not held:
            return values, None
        if len({(place.outer, place.inner) for place in held}) > 1:
            self.refuse("its operands hold the batch among other axes, each in another way")
        fitting = (
            place for place in sorted(held, key=lambda place: place.axis) if self._meet(values, places, place, rank)
        )
        target = next(fitting, None)
        if target is None:
            self.refuse(f"its operands would not meet row by row: {self._told(values)}")
        if target.axis not in range(rank)[axes]:
            return values, target
        moved = [
            self._aligned(value, place, replace(target, axis=target.axis - (rank - value.rank)), rank)
            for value, place in zip(values, places, strict=True)
        ]
        return moved, target

    def _meet(self, values: Sequence[Value], places: Sequence[Place | None], target: Place, rank: int) -> bool:
        """Whether all operands have, or can have, the batch at `target`."""
        for value, place in zip(values, places, strict=True):
            own = target.axis - (rank - value.rank)
            if place == target:
                continue
            if place is not None and not (place.is_whole and self.size == 1 and (own < 0 or value.shape[own] == 1)):
                return False
            if place is None and own >= 0 and value.shape[own] not in (1, target.length(self.size)):
                return False
        return True

    def _aligned(self, value: Value, place: Place | None, target: Place, rank: int) -> Value:
        if place is not None:
            own = place.axis - (rank - value.rank)
            return value if own == target.axis else self.moved(value, target.axis)
        if target.axis < 0 or value.shape[target.axis] == 1:
            return value  # one row, for all
        return self.grown(value, target.axis, target)

    def _told(self, values: Sequence[Value]) -> str:
        parts = []
        for value in values:
            place = self.place(value)
            parts.append(f"{value.type}" + ("" if place is None else f" (the batch in axis {place.axis})"))
        return ", ".join(parts)

    def at(self, value: Value, axis: int, what: str) -> Value:
        """A value that holds the batch in this axis."""
        place = self.place(value)
        if place is not None and place.axis == axis:
            return value
        if place is None or self.size != 1 or not place.is_whole or value.shape[axis] != 1:
            where = "no axis" if place is None else f"axis {place.axis}"
            self.refuse(f"axis {axis} of {what} is to hold it, but {where} of {value.type} does")
        return self.moved(value, axis)

    def moved(self, value: Value, axis: int) -> Value:
        """A value whose batch, exported as one row, lies in another axis of size 1; a negative one is a new axis before all."""
        place = self.place(value)
        assert place is not None
        before = place.axis
        if axis < 0:
            self_axis, value = place.axis - axis, self.plain("expand_dims", value, axes=tuple(range(-axis)))[0]
            axis = 0
        else:
            self_axis = place.axis
        order = list(range(value.rank))
        order[axis], order[self_axis] = self_axis, axis
        (turned,) = self.plain("permute_dims", value, axes=tuple(order))
        self.change(
            f"the batch of an operand moves from axis {before} to axis {axis} of {list(map(str, turned.shape))}"
        )
        return self.follow(turned, Place(axis))

    def grown(self, value: Value, axis: int, place: Place) -> Value:
        """A value that is the same for all rows, repeated along an axis that has one row, or the exported number."""
        before, own = value.type, replace(place, axis=axis)
        if value.shape[axis] not in (1, own.length(self.size)):
            self.refuse(f"axis {axis} of {value.type} is to hold it")
        result = [*value.shape[:axis], own.length(self.symbol), *value.shape[axis + 1 :]]
        if value.shape[axis] != 1:
            row = self._one_row(value, axis, own)
            parts = [*value.shape[:axis], own.outer, 1, own.inner, *value.shape[axis + 1 :]]
            (value,) = self.plain("reshape", row, shape=tuple(parts))
            parts[axis + 1] = self.symbol
            (value,) = self.plain("broadcast_to", value, shape=tuple(parts))
            (value,) = self.plain("reshape", value, shape=tuple(result))
        else:
            (value,) = self.plain("broadcast_to", value, shape=tuple(result))
        self.change(f"an operand {before}, the same for all rows, becomes {value.type}")
        return self.follow(value, own)

    def _one_row(self, value: Value, axis: int, place: Place) -> Value:
        """The part of a constant that all exported rows have in common."""
        if self.size == 1:
            return value
        array = value.constant
        outer, inner = place.outer, place.inner
        if array is None or not isinstance(outer, int) or not isinstance(inner, int):
            self.refuse(f"an operand {value.type} has a row of its own for each of the {self.size} that were exported")
        parted = array.reshape(*array.shape[:axis], outer, self.size, inner, *array.shape[axis + 1 :])
        first = np.take(parted, [0], axis + 1)
        if not np.array_equal(parted, np.broadcast_to(first, parted.shape), equal_nan=array.dtype.kind == "f"):
            self.refuse(f"a constant {value.type} has a row of its own for each of the {self.size} that were exported")
        row = np.ascontiguousarray(first.reshape(*array.shape[:axis], outer * inner, *array.shape[axis + 1 :]))
        row.flags.writeable = False
        return constant(row)

    # ---- sizes that were written down ----

    def written(self, value: Value, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Of a shape to expand to: the exported size, or 1, in the batch's axis keeps that axis as it is."""
        place = self.place(value)
        axis = -1 if place is None else place.axis + len(shape) - value.rank
        if place is None or axis < 0 or self.exported(shape[axis]) not in (1, place.length(self.size)):
            return shape
        result = (*shape[:axis], value.shape[place.axis], *shape[axis + 1 :])
        if result != shape:
            self.change(f"its shape {_text(shape)} becomes {_text(result)}")
        return result

    def reshaped(self, value: Value, shape: tuple[Dim, ...]) -> tuple[tuple[Dim, ...], Place]:
        """The shape that a reshape means, and where the batch lies in its result."""
        place = self.place(value)
        assert place is not None
        old, new = self.exported_shape(value.shape), self.exported_shape(shape)
        if dims.product(old) != dims.product(new):
            self.refuse(f"{value.type} cannot be reshaped to {_text(shape)}; it may be that the model was exported with "
                        f"another batch than {self.size}")  # fmt: skip
        outer = dims.multiply(dims.product(old[: place.axis]), place.outer)
        inner = dims.multiply(place.inner, dims.product(old[place.axis + 1 :]))
        found = [each for axis in range(len(new)) if (each := self._parted(new, axis, outer, inner)) is not None]
        if not found:
            self.refuse(f"the reshape of {value.type} to {_text(new)} mixes it with other axes, or drops it")
        best = min(found, key=lambda each: self._rank_of(each, shape, place))
        result = (*new[: best.axis], best.length(self.symbol), *new[best.axis + 1 :])
        return result, best

    def _parted(self, shape: Sequence[Dim], axis: int, outer: Dim, inner: Dim) -> Place | None:
        """The place in an axis that has `outer` elements before the batch and `inner` after it, in the order of memory."""
        before, behind = dims.product(shape[:axis]), dims.product(shape[axis + 1 :])
        if before == 0 or behind == 0:
            return None
        place = Place(axis, dims.floordiv(outer, before), dims.floordiv(inner, behind))
        fits = dims.multiply(place.outer, before) == outer and dims.multiply(place.inner, behind) == inner
        return place if fits and place.length(self.size) == shape[axis] else None

    def _rank_of(self, found: Place, shape: Sequence[Dim], old: Place) -> tuple[bool, ...]:
        """Where several axes would do, as several of size 1 do: the one that the model says, then one that is the batch alone."""
        return (
            shape[found.axis] != self.symbol,
            not found.is_whole,
            found.axis != old.axis,
            not self.has_batch(shape[found.axis]),
            found.outer != 1,
        )


class _Sizes:
    """Of results whose elements follow from the batch's size."""


SIZES = _Sizes()
Attributes = dict[str, Any]
Made = tuple[list[Value], Any]  # operands, and a Place, a list of them, None or SIZES
Rule = Callable[[BatchBuilder, list[Value], Attributes], Made]
Rules = Mapping[str, Rule]  # by operator: see batch_rules.py


def _text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"


# ---- inputs ----


def batch_builder(
    inputs: Sequence[onnx.ValueInfoProto], shapes: Mapping[str, Dimensions], batch: Batch, rules: Rules
) -> tuple[BatchBuilder, dict[str, list[int | str]], dict[str, int]]:
    """A builder for a model of these inputs, their shapes with the batch's symbol, and which axis of which input it is.

    Inputs hold the batch where `shapes` or the model's own shapes name it; if the model has another name for the first axis of
    its first input, where that stands; else in the first axis of each input that `shapes` does not mention.
    Raises ModelError where they disagree about the size that was exported.
    """
    declared = {info.name: _dimensions(info) for info in inputs}
    given = {name: list(shapes.get(name, own)) for name, own in declared.items()}
    word = batch.symbol if any(batch.symbol in shape for shape in given.values()) else _own_name(declared)
    axes, sizes = dict[str, int](), dict[str, int]()
    for name, shape in given.items():
        places = [axis for axis, dim in enumerate(shape) if word and dim == word]
        if not word and name not in shapes and shape:
            places = [0]
        if len(places) > 1:
            raise ModelError(f"input {name!r}: {len(places)} of its axes are called {word!r}; one can be the batch")
        for axis in places:
            axes[name], shape[axis] = axis, batch.symbol
            exported = declared[name][axis] if axis < len(declared[name]) else ""
            sizes |= {name: exported} if isinstance(exported, int) else {}
    if not axes:
        raise ModelError(f"no input has an axis for the batch {batch.symbol!r}")
    if len(set(sizes.values())) > 1 and batch.size is None:
        told = ", ".join(f"{size} ({name!r}, axis {axes[name]})" for name, size in sizes.items())
        raise ModelError(
            f"the inputs were exported with batches of different sizes: {told}; shapes say which axes are the batch: "
            f"shapes={{{next(iter(sizes))!r}: (…, {batch.symbol!r}, …)}}"
        )
    size = batch.size if batch.size is not None else next(iter(sizes.values()), 1)
    return BatchBuilder(batch, size, rules), given, axes


def _dimensions(info: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in info.type.tensor_type.shape.dim]


def _own_name(declared: Mapping[str, list[int | str]]) -> str:
    """The model's own name of the batch: that of the first input's first axis, if it has one."""
    first = next((shape[0] for shape in declared.values() if shape), "")
    return first if isinstance(first, str) else ""
