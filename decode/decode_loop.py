"""A decoder's loop in the executable itself: `treadle.compile(…, decode_loop=True)`.

    generate(input_ids: int64[batch, length], max_new_tokens: int64[], stop: int64[ends], …) -> int64[batch, made]

Beside the decoder, a function that takes a prompt and gives the likeliest tokens after it, as `treadle.generate` does with its
usual sampler: the caches stay where the machine has made them, and Python is not asked between two tokens. Inputs that an encoder
makes (`encoder_hidden_states`, `encoder_attention_mask`) are its last parameters, the same in each round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..compiler import ir
from ..compiler.builder import programs
from ..compiler.builder.programs import Expression, op
from ..compiler.ir.analysis import dimension_names
from ..compiler.ir.infer import infer_types
from ..formats import dims
from ..formats.dims import Dim
from ..formats.dtypes import DType
from ..formats.limits import DIM_NAME
from ..formats.messages.errors import CompileError, TreadleError
from ..formats.ports import Port
from ..formats.types import FunctionType, TensorType, TupleType, Type, substitute_dims
from .generation import OF_ENCODERS, Roles

NAME = "generate"


def with_decode_loop(module: ir.Module, entry: str) -> ir.Module:
    """The module with a function `generate`. Raises CompileError for a function that is not a decoder."""
    if NAME in module.functions:
        raise CompileError(f"decode_loop: the module has a function {NAME!r} already")
    if entry not in module.functions:
        raise CompileError(f"decode_loop: there is no function {entry!r}; the module has {', '.join(module.functions)}")
    module = infer_types(module)
    decoder = module.functions[entry]
    inputs = [Port(param.name, param.type) for param in decoder.params if param.type is not None]
    type_ = FunctionType(tuple(port.type for port in inputs), decoder.result_type)  # type: ignore[arg-type]
    results = type_.result.fields if isinstance(type_.result, TupleType) else (type_.result,)
    names = decoder.result_names or [f"output_{number}" for number in range(len(results))]
    try:
        fed = [port.name for port in inputs if port.name.startswith(OF_ENCODERS)]
        roles = Roles.of(inputs, list(map(Port, names, results)), entry, fed)
    except TreadleError as error:
        message = error.message.replace("generate:", "decode_loop:", 1)
        raise CompileError(message.replace("given by name:", "taken by treadle.generate alone:")) from None
    loop = _Loop(entry, type_, roles, fed)
    made = programs.Module({NAME: loop.function()})
    return dataclasses.replace(module, functions={**module.functions, NAME: made.functions[NAME]})


class _Loop:
    """The function in the making. Each round calls the decoder with all tokens that it has not seen: the prompt, then one."""

    def __init__(self, entry: str, type_: FunctionType, roles: Roles, fed: Sequence[str]) -> None:
        if not roles.cache:
            raise CompileError(f"decode_loop: {entry} has no cache: a loop would compute the whole text for each token")
        self._main, self._type, self._roles = programs.global_function(entry, type_), type_, roles
        self._ids_type = self._tensor(roles.ids)
        self._batch: Dim = self._ids_type.shape[0]  # type: ignore[assignment]
        self._caches = [self._tensor(name) for name, _ in roles.cache]
        self._fed = {name: programs.var(name, self._fed_type(name)) for name in fed}

    def _fed_type(self, name: str) -> Type:
        """That of an encoder's result here, where the names of sizes have meanings of their own; the batch is the same one."""
        type_ = self._tensor(name)
        names = [name for name in dimension_names(type_) if dims.variable(name) != self._batch]
        others = (f"{OF_ENCODERS}{name}" for name in names)
        short = (each if len(each) <= DIM_NAME else f"{OF_ENCODERS}{at}" for at, each in enumerate(others))
        return substitute_dims(type_, dict(zip(names, map(dims.named, short), strict=True)))

    def _tensor(self, name: str, least: int = 1) -> TensorType:
        """The type of an input with at least `least` axes. Raises CompileError."""
        type_ = self._roles.ports[name].type
        if not isinstance(type_, TensorType) or type_.rank < least:
            raise CompileError(
                f"decode_loop: {name!r} is {type_}; expected a tensor with the batch as its first dimension"
            )
        return type_

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
            logits, caches_after = self._called(new, caches)
            token = op.cast(op.argmax(logits, axis=-1), dtype="int64")
            token = op.where(over, op.take(new, programs.constant(-1), axis=1), token)
            column = op.reshape(token, shape=(self._batch, 1))
            over = op.logical_or(over, op.any(op.equal(column, stop), axes=(1,)))
            return [number + 1, over, column, op.concat(made, column, axis=1), *caches_after]

        initial = [
            programs.constant(0),
            op.full(shape=(self._batch,), value=False, dtype="bool"),
            ids,
            op.full(shape=(self._batch, 0), value=0, dtype="int64"),
            *(
                op.full(shape=self._empty(name), value=0.0, dtype=type_.dtype)
                for (name, _), type_ in zip(self._roles.cache, self._caches, strict=True)
            ),
        ]
        last = programs.while_loop(goes_on, body, initial)
        made = programs.match_shape(last[3], (self._batch, "made"))
        return programs.function([ids, count, stop, *self._fed.values()], programs.named("generated_ids", made))

    def _empty(self, name: str) -> list[Any]:
        """The shape of a cache of no tokens."""
        shape = self._roles.empty(name, self._batch)
        if shape is None:
            raise CompileError(
                f"decode_loop: the cache {self._tensor(name)} is of a fixed length; it must be empty before the first token, so "
                "one dimension must be symbolic: shapes={…} of `compile` name it"
            )
        return shape

    def _called(self, new: Expression, caches: Sequence[Expression]) -> tuple[Expression, list[Expression]]:
        """The logits after the last token, and the caches that follow."""
        roles = self._roles
        held = [programs.match_shape(each, type_.shape) for each, type_ in zip(caches, self._caches, strict=True)]  # type: ignore[arg-type]
        by_name = {**self._fed, **dict(zip([name for name, _ in roles.cache], held, strict=True))}
        by_name[roles.ids] = op.cast(new, dtype=self._ids_type.dtype)
        past: Any = self._caches[0].shape[self._empty(roles.cache[0][0]).index(0)]
        length = dims.variable("new")
        total = dims.add(past, length)
        sized = new, held[0]
        if roles.mask:
            by_name[roles.mask] = _behind(sized, self._filled(roles.mask, (self._batch, total), 1))
        for name in filter(None, (roles.positions, roles.counter)):
            type_ = self._tensor(name)
            places = _behind(sized, op.arange(start=past, stop=total, step=1, dtype=type_.dtype))
            by_name[name] = op.broadcast_to(places, shape=(self._batch, length)) if type_.rank == 2 else places
        if roles.kept:
            kept = self._tensor(roles.kept, 0)
            by_name[roles.kept] = self._filled(
                roles.kept, [dim if isinstance(dim, int) else 1 for dim in kept.shape], 1
            )
        if roles.zeros:
            by_name[roles.zeros] = _behind(sized, self._filled(roles.zeros, (self._batch, length), 0))
        if roles.switch:
            raise CompileError(
                f"decode_loop: {roles.switch!r} chooses between two decoders; export the one with a cache"
            )
        results = self._main(*(by_name[name] for name in roles.ports))
        fields = list(results) if isinstance(self._type.result, TupleType) else [results]
        logits = fields[roles.logits]
        if isinstance(logits.type, TensorType) and logits.type.rank == 3:
            logits = op.take(logits, programs.constant(-1), axis=1)
        return logits, [fields[number] for _, number in roles.cache]

    def _filled(self, name: str, shape: Sequence[Any], value: int) -> Expression:
        dtype = self._tensor(name, 0).dtype
        return op.full(shape=shape, value=bool(value) if dtype is DType.bool else value, dtype=dtype)


def _behind(sized: Sequence[Expression], made: Expression) -> Expression:
    """A tensor that is made of sizes alone, computed after the values that these are sizes of."""
    make = made.make
    assert make is not None
    return Expression(lambda atoms, blocks: make((), blocks), tuple(sized), type=made.type, name=made.name)
