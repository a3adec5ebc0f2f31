"""A decoder's texts in one call: what the engine calls with new tokens of many texts, each of its own length.

    main.batch(input_ids: int64[tokens], positions: int64[tokens], wanted: int64[wanted], texts: int64[texts, 4],
               tables: int64[entries], …, past_key_values.0.key: float32[pages, heads, blocks, size, 16], …,
               adapter.mask: bool[1, tokens, rank], …)
        -> (logits: float32[wanted, words], new.past_key_values.0.key: float32[1, heads, tokens, size], …)

It is the decoder of one text whose new tokens are those of all texts, one after another: all of it but attention computes each
token by itself. The pass `passes/page_attention.py` makes sure of that, and makes attention to each text's pages of attention;
where it does not understand a decoder there is no such function. New keys and values are results: their holder puts them into
pages, as it has put an encoder's keys and values of each text. States, [texts, …], are arguments and results.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...formats import dims
from ...formats.decoders import (
    BATCH,
    BATCH_INPUTS,
    ENCODED_INPUTS,
    ENCODER_MASK,
    NEW_ROWS,
    OF_ADAPTERS,
    Roles,
    is_cache,
)
from ...formats.dims import SymbolicDim
from ...formats.types import TensorType, TupleType
from .. import ir
from ..builder import programs
from ..builder.programs import Expression, op
from ..ir.analysis import dimension_uses
from ..ir.infer import infer_types
from ..passes.rewriting import tensor_type
from .step import decided, fresh_names, made_inputs, roles_of, sizes_of, tensor_of, with_inlined


def batch_of(module: ir.Module, entry: str) -> ir.Function | None:
    """The function of one text of which the pass makes that of many; None if there can be none. Raises ArgumentError for what is
    no decoder."""
    decoder = module.functions[entry]
    roles, type_, fed = roles_of(decoder, entry)
    ids = roles.ports[roles.ids].type
    adapters = [name for name in fed if name.startswith(OF_ADAPTERS)]
    encoded = [name for name in fed if is_cache(name)]
    masks = [name for name in fed if name == ENCODER_MASK]  # rows that it hides are not put into pages
    is_fed = len(adapters) + len(encoded) + len(masks) == len(fed) and bool(encoded) >= bool(masks)
    if not is_fed or roles.switch or not roles.cache or not isinstance(ids, TensorType) or ids.rank != 2:
        return None
    batch, length = ids.shape
    if not all(isinstance(dim, SymbolicDim) and dims.is_variable(dim) for dim in (batch, length)) and batch != 1:
        return None
    caches = {name: tensor_of(roles, name) for name, _ in roles.cache}
    lengths = {name: _length(roles, name) for name in caches}
    symbols = [dim for dim in lengths.values() if dim != 0]
    if not symbols or not all(isinstance(dim, SymbolicDim) and dims.is_variable(dim) for dim in (*symbols, length)):
        return None
    past = symbols[0]
    tokens, wanted, texts, entries, frames = fresh_names(
        ("tokens", "wanted", "texts", "entries", "frames"), {*dimension_uses(ir.Binding(ir.Var(""), decoder))}
    )
    shapes = ((tokens,), (tokens,), (wanted,), (texts, 4), (entries,), (texts, 4), (frames,))
    inputs = (*BATCH_INPUTS, *(ENCODED_INPUTS if encoded else ()))
    new = [programs.var(name, shape, "int64") for name, shape in zip(inputs, shapes, strict=False)]
    others = {**caches, **{name: tensor_of(roles, name) for name in (*encoded, *adapters)}}
    # caches that are empty at first, and get the rows of each token, are of one length whatever they call it
    sizes: dict[Any, Any] = {batch: 1, length: tokens, **dict.fromkeys(symbols, past)}
    one_text: dict[str, Any] = {name: [sizes.get(dim, dim) for dim in each.shape] for name, each in others.items()}
    held = [programs.var(name, shape, others[name].dtype) for name, shape in one_text.items()]
    row = op.cast(op.reshape(new[0], shape=(1, tokens)), dtype=ids.dtype)
    given = {**made_inputs(roles, (1, tokens), past), **_places(roles, new[1], tokens), roles.ids: row}
    given |= dict(zip(others, held, strict=True))
    for name in masks:
        given[name] = op.full(shape=(1, *one_text[encoded[0]][2:3]), value=1, dtype=tensor_of(roles, name).dtype)
    called = programs.global_function(entry, type_)(*(given[name] for name in roles.ports))
    fields = list(called) if isinstance(type_.result, TupleType) else [called]
    logits = fields[roles.logits]
    if not isinstance(logits.type, TensorType) or logits.type.rank != 3:
        return None
    chosen = op.squeeze(op.take(logits, new[2], axis=1), axes=(0,))
    results = programs.tuple_(chosen, *(fields[number] for _, number in roles.cache))
    name = entry + BATCH
    made = programs.Module({name: programs.function([*new, *held], results)})
    whole = infer_types(dataclasses.replace(module, functions={**module.functions, name: made.functions[name]}))
    function = with_inlined(whole.functions[name], decoder, entry, lambda args: sizes_of(decoder, args))
    *before, last = decided(function, [tokens]).body.bindings
    assert isinstance(last.value, ir.MakeTuple)
    types = TupleType(tuple(tensor_type(field) for field in last.value.fields))
    result = ir.Var(last.var.name, types)
    return dataclasses.replace(
        function,
        name=name,
        body=ir.Block((*before, dataclasses.replace(last, var=result)), result),
        result_type=types,
        result_names=("logits", *(NEW_ROWS * bool(lengths[name]) + name for name in caches)),
    )


def _length(roles: Roles, name: str) -> Any:
    """How many tokens a cache has, as its type says; 0 of a state, None if the type does not."""
    shape = roles.empty(name, 1)
    return None if shape is None else tensor_of(roles, name).shape[shape.index(0)] if 0 in shape else 0


def _places(roles: Roles, positions: Expression, tokens: Any) -> dict[str, Expression]:
    """The inputs that are made of the tokens' places."""
    made: dict[str, Expression] = {}
    for name in filter(None, (roles.positions, roles.counter)):
        type_ = tensor_of(roles, name)
        places = op.cast(positions, dtype=type_.dtype)
        outer = type_.shape[:-2]  # 3: in time, height and width, which are one in a text
        made[name] = op.broadcast_to(places, shape=(*outer, 1, tokens)) if type_.rank > 1 else places
    if roles.kept:
        kept = tensor_of(roles, roles.kept, 0)
        made[roles.kept] = op.cast(op.shape_tensor(dims=(tokens,)), dtype=kept.dtype)
        if kept.rank == 0:
            made[roles.kept] = op.reshape(made[roles.kept], shape=())
    return made
