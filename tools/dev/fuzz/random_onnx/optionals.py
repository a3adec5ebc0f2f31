"""Steps of random graphs: optional values, of tensors and of sequences, there or not."""

from __future__ import annotations

import onnx
from onnx import helper

from .elementwise import code_of
from .sequences import KINDS, sequence, sequence_type
from .walk import Value, Walk, step


def _is_optional(value: Value) -> bool:
    return value.held is not None and value.held.HasField("optional_type")


def _of_tensor(w: Walk, kind: str, rank: int) -> onnx.TypeProto:
    shape = None if w.chance(0.15) else (None,) * rank
    return helper.make_optional_type_proto(helper.make_tensor_type_proto(code_of(kind), shape))


def optional(w: Walk, there: bool | None = None) -> Value:
    """An optional value of the graph, or a new one: an input, or what Optional makes of a tensor, a sequence, or a type. `there`:
    whether it has to have a value."""
    known = w.standing(lambda v: _is_optional(v) and there in (None, v.array is not None))
    if known:
        return known
    has = w.chance(0.6) if there is None else there
    if w.outer or w.chance(0.4):
        return _made(w, has)
    kind = w.random.choice(KINDS)
    if w.chance(0.25):
        shape = w.shape((0, 1, 2))
        type_ = helper.make_optional_type_proto(sequence_type(kind, (None,) * len(shape)))
        return w.put([w.array(kind, shape)] * w.random.randrange(3) if has else None, held=type_)
    array = w.array(kind, w.shape((0, 1, 1, 2, 3)))
    return w.put(array if has else None, held=_of_tensor(w, kind, array.ndim))


def _made(w: Walk, has: bool) -> Value:
    value = sequence(w) if w.chance(0.25) else w.tensor(KINDS)
    inner = value.held or helper.make_tensor_type_proto(code_of(value.dtype), None)
    held = [helper.make_optional_type_proto(inner)]
    return w.add("Optional", [value] if has else [], exact=True, held=held, type=None if has else inner)[0]


@step("Optional")
def _optional(w: Walk, op: str) -> None:
    _made(w, w.chance(0.6))


@step("OptionalHasElement")
def _has(w: Walk, op: str) -> None:
    takes_others = w.opset >= 18
    if takes_others and w.chance(0.15):
        w.add(op, [w.one(None, w.tensor(KINDS), sequence(w))])
    else:
        w.add(op, [optional(w)])


@step("OptionalGetElement")
def _get(w: Walk, op: str) -> None:
    if w.opset >= 18 and w.chance(0.15):
        w.add(op, [w.tensor(KINDS)], exact=True)
        return
    source = optional(w, there=True)
    inner = source.type.optional_type.elem_type
    w.add(op, [source], exact=True, held=[inner if inner.HasField("sequence_type") else None])
