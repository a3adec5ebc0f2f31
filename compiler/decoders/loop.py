"""A decoder's loop in the executable itself: `treadle.compile(…, decode_loop=True)`.

    generate(input_ids: int64[batch, length], max_new_tokens: int64[], stop: int64[ends], …) -> int64[batch, made]

Beside the decoder and its step, a function that takes a prompt and gives the likeliest tokens behind it, as `treadle.generate`
does with its usual sampler: the caches stay where the machine has made them, and Python is not asked between two tokens. Inputs
that an encoder makes (`encoder_hidden_states`, `encoder_attention_mask`) are its last parameters, the same in each round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ...formats import dims
from ...formats.decoders import NEW_ROWS, OF_ADAPTERS, OF_ENCODERS, STEP, Roles
from ...formats.dims import Dim
from ...formats.limits import DIM_NAME
from ...formats.messages.errors import CompileError, TreadleError
from ...formats.types import TensorType, Type, substitute_dims
from .. import ir
from ..builder import programs
from ..builder.programs import Expression, op
from ..ir.analysis import dimension_names, dimension_uses, function_type
from ..ir.infer import infer_types
from .step import fresh_names, roles_of, tensor_of, with_inlined

NAME = "generate"
_SIZES = ("length", "ends", "made", "new", "first", "full", "more")


def with_decode_loop(module: ir.Module, entry: str) -> ir.Module:
    """The module, which has the decoder's step, with a function `generate`. Raises CompileError for anything but a decoder."""
    if NAME in module.functions:
        raise CompileError(f"decode_loop: the module has a function {NAME!r} already")
    if entry not in module.functions:
        raise CompileError(f"decode_loop: there is no function {entry!r}; the module has {', '.join(module.functions)}")
    module = infer_types(module)
    try:
        roles, _, fed = roles_of(module.functions[entry], entry)
    except TreadleError as error:
        message = error.message.replace("generate:", "decode_loop:", 1)
        raise CompileError(message.replace("given by name:", "taken by treadle.generate alone:")) from None
    _check(roles, entry)
    if any(name.startswith(OF_ADAPTERS) for name in fed):
        raise CompileError("decode_loop: adapters are taken by treadle.generate alone; compile without one of the two")
    if entry + STEP not in module.functions:
        raise CompileError(
            f"decode_loop: {entry}({roles.ids}) is {roles.ports[roles.ids].type}; expected [batch, length] of a symbolic length"
        )
    loop = _Loop(module.functions[entry + STEP], roles, len(fed))
    return dataclasses.replace(module, functions={**module.functions, NAME: loop.inlined()})


def _check(roles: Roles, entry: str) -> None:
    """Raises CompileError for a decoder that no loop can call."""
    if not roles.cache:
        raise CompileError(f"decode_loop: {entry} has no cache: a loop would compute the whole text for each token")
    if roles.switch:
        raise CompileError(f"decode_loop: {roles.switch!r} chooses between two decoders; export the one with a cache")
    batch = tensor_of(roles, roles.ids).shape[0]
    for name, _ in roles.cache:
        if roles.empty(name, batch) is None:
            raise CompileError(
                f"decode_loop: the cache {tensor_of(roles, name)} is of a fixed length; it must be empty before the first token, "
                "so one dimension is to be symbolic: shapes={…} of `compile` name it"
            )


class _Loop:
    """The function in the making. Each round calls the step with all tokens that it has not seen: the prompt, then one.

    Caches of which the step gives new rows have room, into which each round puts them. Where it is full, an outer loop doubles
    it, up to what the text can need, so that rows are copied once more on average; the inner loop copies none.
    """

    def __init__(self, step: ir.Function, roles: Roles, fed: int) -> None:
        self._inlined = step
        self._step = programs.global_function(step.name, function_type(step))
        ids, *others = step.params
        self._caches: list[TensorType] = [param.type for param in others[-len(roles.cache) :]]  # type: ignore[misc]
        self._ids_type: TensorType = ids.type  # type: ignore[assignment]
        shape: Any = self._ids_type.shape
        self._batch, length = shape
        own = {str(length)}  # of what the step calls its tokens, which are new ones here
        names = iter(fresh_names(_SIZES, {*dimension_uses(ir.Binding(ir.Var(""), step))} - own))
        self._length, self._ends, self._made, self._new, self._first, self._full, self._more = names
        self._sizes: dict[str, Dim] = dict.fromkeys(own, self._new)
        self._fed = [
            programs.var(param.name, self._fed_type(param.type))
            for param in others[-len(roles.cache) - fed : -len(roles.cache)]
        ]
        self._grows = [name.startswith(NEW_ROWS) for name in step.result_names[1:]]
        self._empty: list[Any] = [roles.empty(name, self._batch) for name, _ in roles.cache]
        self._axes = [shape.index(0) if 0 in shape else 0 for shape in self._empty]  # of states none
        pasts = zip(roles.cache, self._empty, self._axes, strict=True)
        grown: list[Any] = [tensor_of(roles, name).shape[axis] for (name, _), empty, axis in pasts if 0 in empty]
        self._past = grown[0]
        lengths = [type_.shape[axis] for type_, axis in zip(self._caches, self._axes, strict=True)]
        roomy: list[Any] = [length for length, grows in zip(lengths, self._grows, strict=True) if grows]
        self._has_room = bool(roomy)
        self._room = dims.add(roomy[0], dims.multiply(self._past, -1)) if roomy else 0  # as the step calls it

    def _fed_type(self, type_: Any) -> Type:
        """That of an encoder's result here, where the names of sizes have meanings of their own; the batch is the same one."""
        names = [name for name in dimension_names(type_) if dims.variable(name) != self._batch]
        others = (f"{OF_ENCODERS}{name}" for name in names)
        short = (each if len(each) <= DIM_NAME else f"{OF_ENCODERS}{at}" for at, each in enumerate(others))
        here: dict[str, Dim] = dict(zip(names, map(dims.named, short), strict=True))
        self._sizes.update(here)
        return substitute_dims(type_, here)

    def inlined(self) -> ir.Function:
        """The function with the step's own bindings: only then are the caches nobody's but its own."""
        made = programs.Module({NAME: self.function()}).functions[NAME]
        return with_inlined(made, self._inlined, self._inlined.name, lambda _: self._sizes)

    def function(self) -> programs.FunctionExpression:
        ids = programs.var("input_ids", (self._batch, self._length), "int64")
        self._count = programs.var("max_new_tokens", (), "int64")
        self._stop = programs.var("stop", (self._ends,), "int64")
        initial = [
            programs.constant(0),
            op.full(shape=(self._batch,), value=False, dtype="bool"),
            ids,
            op.full(shape=(self._batch, 0), value=0, dtype="int64"),
            *([_rows(0, 0)] if self._has_room else []),
            *(
                op.full(shape=shape, value=0.0, dtype=type_.dtype)
                for shape, type_ in zip(self._empty, self._caches, strict=True)
            ),
        ]
        body = self._until_full if self._has_room else self._round
        last = programs.while_loop(self._before(self._count), body, initial)
        made = programs.match_shape(last[3], (self._batch, self._made))
        return programs.function([ids, self._count, self._stop, *self._fed], programs.named("generated_ids", made))

    def _before(self, limit: Expression) -> Callable[..., Expression]:
        """The condition of a loop: the number of the round is below a limit, and not all texts are over."""

        def goes_on(number: Expression, over: Expression, *_: Expression) -> Expression:
            return (number < limit) & op.logical_not(op.all(over))

        return goes_on

    def _until_full(
        self,
        number: Expression,
        over: Expression,
        new: Expression,
        made: Expression,
        held: Expression,
        *caches: Expression,
    ) -> Expression:
        """Rounds until there is no room left, after some has been made: in the first one for its tokens, and then for as many as
        there are by then, unless the text ends before."""
        new = programs.match_shape(new, (self._batch, self._first))
        held = programs.match_shape(held, (self._full, 0, 0))
        rows = _behind([new, held], op.shape_tensor(dims=(dims.add(self._full, self._first),)))
        more = op.minimum(rows, self._count - number - 1)
        room = _behind([new], programs.match_shape(op.extents(more), (0, self._more)))
        roomy = [
            self._with_room(each, at, room) if grows else each
            for at, (each, grows) in enumerate(zip(caches, self._grows, strict=True))
        ]
        held = _behind([held, room], _rows(self._full, dims.add(self._first, self._more)))
        limit = number + op.reshape(more, shape=()) + 1
        return programs.while_loop(self._before(limit), self._round, [number, over, new, made, held, *roomy])

    def _with_room(self, cache: Expression, number: int, room: Expression) -> Expression:
        """A full cache, and room behind its rows."""
        shape, axis = list(self._caches[number].shape), self._axes[number]
        shape[axis] = self._full
        full = programs.match_shape(cache, shape)  # type: ignore[arg-type]
        pads = [0] * (2 * len(shape))
        pads[len(shape) + axis] = dims.add(self._first, self._more)  # type: ignore[assignment]
        return _behind([room], op.pad(full, pads=pads))

    def _round(
        self, number: Expression, over: Expression, new: Expression, made: Expression, *kept: Expression
    ) -> list[Expression]:
        over = programs.match_shape(over, (self._batch,))
        new = programs.match_shape(new, (self._batch, self._new))
        made = programs.match_shape(made, (self._batch, self._made))
        held = [programs.match_shape(each, (self._past, self._room, 0)) for each in kept[: self._has_room]]
        counted = [_behind([each], op.full(shape=(self._past, 0), value=False, dtype="bool")) for each in held]
        caches = [
            programs.match_shape(each, type_.shape)  # type: ignore[arg-type]
            for each, type_ in zip(kept[self._has_room :], self._caches, strict=True)
        ]
        logits, *after = self._step(op.cast(new, dtype=self._ids_type.dtype), *counted, *self._fed, *caches)
        after = [
            op.put_slice(before, each, start=self._past, axis=axis) if grows else each
            for before, each, axis, grows in zip(caches, after, self._axes, self._grows, strict=True)
        ]
        left = dims.add(self._room, dims.multiply(self._new, -1))
        held = [_behind([each, new], _rows(dims.add(self._past, self._new), left)) for each in held]
        token = op.cast(op.argmax(logits, axis=-1), dtype="int64")
        token = op.where(over, op.take(new, programs.constant(-1), axis=1), token)
        column = op.reshape(token, shape=(self._batch, 1))
        over = op.logical_or(over, op.any(op.equal(column, self._stop), axes=(1,)))
        return [number + 1, over, column, op.concat(made, column, axis=1), *held, *after]


def _rows(held: Dim, room: Dim) -> Expression:
    """What says how many rows the caches hold, and have room for."""
    return op.full(shape=(held, room, 0), value=False, dtype="bool")


def _behind(sized: Sequence[Expression], made: Expression) -> Expression:
    """An expression computed after the values that its sizes are those of."""
    make, count = made.make, len(sized)
    assert make is not None
    return Expression(
        lambda atoms, blocks: make(atoms[count:], blocks), (*sized, *made.operands), type=made.type, name=made.name
    )
