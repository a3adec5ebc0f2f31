"""A decoder's loop in the executable itself: `treadle.compile(…, decode_loop=True)`.

    generate(input_ids: int64[batch, length], max_new_tokens: int64[], stop: int64[ends], …) -> int64[batch, made]

Beside the decoder and its step, a function that takes a prompt and gives the likeliest tokens behind it, as `treadle.generate`
does with its usual sampler: the caches stay where the machine has made them, and Python is not asked between two tokens. Inputs
that an encoder makes (`encoder_hidden_states`, `encoder_attention_mask`) are its last parameters, the same in each round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ...formats import dims
from ...formats.decoders import NEW_ROWS, OF_ENCODERS, STEP, Roles
from ...formats.dims import Dim
from ...formats.limits import DIM_NAME
from ...formats.messages.errors import CompileError, TreadleError
from ...formats.types import TensorType, Type, substitute_dims
from .. import ir
from ..builder import programs
from ..builder.programs import Expression, op
from ..ir.analysis import dimension_names, function_type
from ..ir.infer import infer_types
from .step import roles_of, tensor_of

NAME = "generate"


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
    if entry + STEP not in module.functions:
        raise CompileError(
            f"decode_loop: {entry}({roles.ids}) is {roles.ports[roles.ids].type}; expected [batch, length] of a symbolic length"
        )
    loop = _Loop(module.functions[entry + STEP], roles, len(fed))
    made = programs.Module({NAME: loop.function()})
    return dataclasses.replace(module, functions={**module.functions, NAME: made.functions[NAME]})


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
    """The function in the making. Each round calls the step with all tokens that it has not seen: the prompt, then one."""

    def __init__(self, step: ir.Function, roles: Roles, fed: int) -> None:
        self._step = programs.global_function(step.name, function_type(step))
        ids, *others = step.params
        before = len(others) - len(roles.cache)
        self._ids_type: TensorType = ids.type  # type: ignore[assignment]
        self._batch: Dim = self._ids_type.shape[0]  # type: ignore[assignment]
        self._fed = [
            programs.var(param.name, self._fed_type(param.type))
            for param in others[-len(roles.cache) - fed : -len(roles.cache)]
        ]
        self._caches = [tensor_of(roles, name) for name, _ in roles.cache]
        self._grows = [name.startswith(NEW_ROWS) for name in step.result_names[1:]]
        self._empty: list[Any] = [roles.empty(name, self._batch) for name, _ in roles.cache]
        self._past: Any = self._caches[0].shape[self._empty[0].index(0)]
        self._has_held = before > fed

    def _fed_type(self, type_: Any) -> Type:
        """That of an encoder's result here, where the names of sizes have meanings of their own; the batch is the same one."""
        names = [name for name in dimension_names(type_) if dims.variable(name) != self._batch]
        others = (f"{OF_ENCODERS}{name}" for name in names)
        short = (each if len(each) <= DIM_NAME else f"{OF_ENCODERS}{at}" for at, each in enumerate(others))
        return substitute_dims(type_, dict(zip(names, map(dims.named, short), strict=True)))

    def function(self) -> programs.FunctionExpression:
        ids = programs.var("input_ids", (self._batch, "length"), "int64")
        count = programs.var("max_new_tokens", (), "int64")
        stop = programs.var("stop", ("ends",), "int64")

        def goes_on(number: Expression, over: Expression, *_: Expression) -> Expression:
            return (number < count) & op.logical_not(op.all(over))

        def body(
            number: Expression, over: Expression, new: Expression, made: Expression, *caches: Expression
        ) -> list[Expression]:
            over = programs.match_shape(over, (self._batch,))
            new = programs.match_shape(new, (self._batch, "new"))
            made = programs.match_shape(made, (self._batch, "made"))
            held = [programs.match_shape(each, type_.shape) for each, type_ in zip(caches, self._caches, strict=True)]  # type: ignore[arg-type]
            count_held = [_behind(held[:1], op.full(shape=(self._past, 0), value=False, dtype="bool"))]
            called = [*(count_held if self._has_held else []), *self._fed, *held]
            logits, *after = self._step(op.cast(new, dtype=self._ids_type.dtype), *called)
            after = [
                op.concat(before, each, axis=empty.index(0)) if grows else each
                for before, each, empty, grows in zip(held, after, self._empty, self._grows, strict=True)
            ]
            token = op.cast(op.argmax(logits, axis=-1), dtype="int64")
            token = op.where(over, op.take(new, programs.constant(-1), axis=1), token)
            column = op.reshape(token, shape=(self._batch, 1))
            over = op.logical_or(over, op.any(op.equal(column, stop), axes=(1,)))
            return [number + 1, over, column, op.concat(made, column, axis=1), *after]

        initial = [
            programs.constant(0),
            op.full(shape=(self._batch,), value=False, dtype="bool"),
            ids,
            op.full(shape=(self._batch, 0), value=0, dtype="int64"),
            *(
                op.full(shape=shape, value=0.0, dtype=type_.dtype)
                for shape, type_ in zip(self._empty, self._caches, strict=True)
            ),
        ]
        last = programs.while_loop(goes_on, body, initial)
        made = programs.match_shape(last[3], (self._batch, "made"))
        return programs.function([ids, count, stop, *self._fed], programs.named("generated_ids", made))


def _behind(sized: Sequence[Expression], made: Expression) -> Expression:
    """A tensor that is made of sizes alone, computed after the values that these are sizes of."""
    make = made.make
    assert make is not None
    return Expression(lambda atoms, blocks: make((), blocks), tuple(sized), type=made.type, name=made.name)
