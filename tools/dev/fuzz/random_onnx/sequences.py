"""Steps of random graphs: sequences of tensors, of lengths and at places that the model tells, or a run alone."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from .elementwise import code_of
from .walk import SIZES, Value, Walk, step

KINDS = ("float32", "float32", "int64", "float64", "int32", "bool", "string")
_OPERATIONS = ("Identity", "Shape", "Size")


def sequence_type(kind: str, shape: tuple[int | None, ...] | None = None) -> onnx.TypeProto:
    """The type of a sequence of tensors, of that shape or of any."""
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(code_of(kind), shape))


def kind_of(type_: onnx.TypeProto) -> str:
    """The element type of a sequence's tensors."""
    code = type_.sequence_type.elem_type.tensor_type.elem_type
    return "string" if code == onnx.TensorProto.STRING else helper.tensor_dtype_to_np_dtype(code).name


def is_sequence(value: Value) -> bool:
    return value.held is not None and value.held.HasField("sequence_type")


def _shapes(w: Walk) -> list[tuple[int, ...]]:
    """Those of a new sequence's tensors: mostly the same, or some that differ in one size, or in their ranks."""
    count, first = w.one(0, 1, 1, 2, 2, 3, 4), w.shape((0, 1, 1, 2, 2, 3))
    if w.chance(0.15):
        return [w.shape((0, 1, 2, 3)) for _ in range(count)]
    if not first or w.chance(0.6):
        return [first] * count
    axis = w.random.randrange(len(first))
    return [(*first[:axis], w.random.choice(SIZES[:8]), *first[axis + 1 :]) for _ in range(count)]


def _declared(w: Walk, kind: str, shapes: list[tuple[int, ...]]) -> onnx.TypeProto:
    """A type that fits an input: with the rank that all its tensors have, now and then with the sizes, too."""
    if len({len(shape) for shape in shapes}) != 1 or w.chance(0.15):
        return sequence_type(kind)
    if len(set(shapes)) == 1 and w.chance(0.3):
        return sequence_type(kind, shapes[0])
    return sequence_type(kind, (None,) * len(shapes[0]))


def sequence(w: Walk, kind: str | None = None, least: int = 0) -> Value:
    """A sequence with at least that number of tensors: an existing one, or a new one, which is an input or is made of tensors."""
    known = w.standing(lambda v: is_sequence(v) and len(v.array) >= least and kind in (None, kind_of(v.type)))
    if known:
        return known
    kind, shapes = kind or w.random.choice(KINDS), _shapes(w)
    while len(shapes) < least:
        shapes.append(shapes[-1] if shapes else w.shape((1, 2)))
    if not w.outer and w.chance(0.5):
        return w.put([w.array(kind, shape) for shape in shapes], held=_declared(w, kind, shapes))
    if not shapes:
        return _empty(w, kind)
    return w.add(
        "SequenceConstruct", [w.tensor(kind, shape) for shape in shapes], exact=True, held=[sequence_type(kind)]
    )[0]


def _place(w: Walk, first: int, last: int) -> Value | None:
    """A place, which the model tells or an input does; None: the last one."""
    if w.chance(0.2):
        return None
    return w.put(np.asarray(w.random.randrange(first, last), w.one("int64", "int32")), w.chance(0.6))


@step("SequenceConstruct")
def _construct(w: Walk, op: str) -> None:
    kind, shapes = w.random.choice(KINDS), _shapes(w)
    shapes = shapes or [w.shape()]
    w.add(op, [w.tensor(kind, shape) for shape in shapes], exact=True, held=[sequence_type(kind)])


def _empty(w: Walk, kind: str) -> Value:
    return w.add("SequenceEmpty", [], exact=True, held=[sequence_type(kind)], dtype=code_of(kind))[0]


@step("SequenceEmpty")
def _empty_of_any(w: Walk, op: str) -> None:
    _empty(w, w.random.choice(KINDS))


@step("SequenceAt")
def _at(w: Walk, op: str) -> None:
    source = sequence(w, least=1)
    count = len(source.array)
    w.add(op, [source, _place(w, -count, count) or w.setting(-1)], exact=True)


@step("SequenceErase")
def _erase(w: Walk, op: str) -> None:
    source = sequence(w, least=1)
    count = len(source.array)
    w.add(op, [source, _place(w, -count, count)], exact=True, held=[source.type])


@step("SequenceInsert")
def _insert(w: Walk, op: str) -> None:
    source = sequence(w)
    kind, count = kind_of(source.type), len(source.array)
    like = source.array[0].shape if count and w.chance(0.8) else None
    w.add(op, [source, w.tensor(kind, like), _place(w, -count, count + 1)], exact=True, held=[sequence_type(kind)])


@step("SequenceLength")
def _length(w: Walk, op: str) -> None:
    w.add(op, [sequence(w)])


@step("ConcatFromSequence")
def _concat(w: Walk, op: str) -> None:
    source = sequence(w, least=1)
    shapes = {tensor.shape for tensor in source.array}
    rank = len(min(shapes))
    differ = [axis for axis in range(rank) if len({shape[axis] for shape in shapes if len(shape) == rank}) > 1]
    new_axis = w.one(None, 0, 1) if rank and not differ else None if rank else 1
    axis = differ[0] if differ else w.axis(rank + (new_axis or 0))
    w.add(op, [source], exact=True, axis=axis, new_axis=new_axis)


@step("SplitToSequence")
def _split(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op, among=KINDS), rank=(1, 2, 3), fits=lambda shape: 0 not in shape)
    axis = w.axis(x.rank)
    size = x.shape[axis]
    first = w.random.randrange(size + 1)
    way = w.one(None, [first, size - first], w.random.randrange(1, size + 1))
    sizes = None if way is None else w.put(np.asarray(way, w.one("int64", "int32")), w.chance(0.7))
    keepdims = (
        w.one(None, 0, 1) if way is None or w.chance(0.1) else None
    )  # onnxruntime heeds it, where it does not count
    w.add(op, [x, sizes], exact=True, held=[sequence_type(x.dtype)], axis=axis, keepdims=keepdims)


@step("SequenceMap")
def _map(w: Walk, op: str) -> None:
    """Of each tensor one that an operator makes of it, now and then of a tensor that is the same for each."""
    source = sequence(w, least=1)
    kind = kind_of(source.type)
    inner = Walk(w.random, w.opset, outer=w)
    element = Value(w.new_name(), source.array[0])
    inner.values += (params := [element])
    operator = w.random.choice(_OPERATIONS if kind in ("bool", "string") else ("Neg", "Abs", *_OPERATIONS))
    others: list[Value] = []
    if kind not in ("bool", "string") and w.chance(0.4):
        others, operator = [w.tensor(kind, ())], w.one("Add", "Mul", "Sub")
        params.append(Value(w.new_name(), others[0].array, exact=others[0].exact))
        inner.values.append(params[1])
    result = inner.add(operator, params, exact=True)[0]
    body = inner.graph([result], "body", inputs=params)
    body.input[0].type.tensor_type.ClearField("shape")  # each tensor has its own
    w.add(op, [source, *others], exact=True, held=[sequence_type(result.dtype)], body=body)
