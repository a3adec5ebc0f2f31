"""Maps, optional values and sequences: importers of what makes and takes them, and how they enter and leave a program.

While a model is imported, a map is its keys and values, and a sequence its tensors. The program has them as data types
(`formats/host_values.py`) where they are its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....formats.dtypes import DType
from ....formats.host_values import MAPS, OPTIONAL
from ....formats.messages.errors import DTypeError, ModelError
from ....formats.types import UNKNOWN, DataType, TensorType, TupleType
from ... import ir
from ..held import bound, converted, of_atom
from ..held_types import declared_type, is_open, joined, settled, type_of
from ..ml.scores import DOMAIN, only
from ..table import importer
from ..tensors import element_type
from ..values import GraphBuilder, Imported, Maps, OptionalTensor, UnsupportedError, Value

if TYPE_CHECKING:
    import onnx

# ---- how they enter and leave ----


def parameter(g: GraphBuilder, info: onnx.ValueInfoProto) -> tuple[ir.Var, Imported]:
    """A parameter for an input that is not a tensor. Raises UnsupportedError."""
    kind = info.type.WhichOneof("value")
    try:
        if kind == "map_type":
            value = info.type.map_type.value_type
            if value.HasField("tensor_type"):
                return _map_parameter(g, info.name, info.type.map_type.key_type, value.tensor_type.elem_type)
    except DTypeError as error:
        raise UnsupportedError(error.message) from None
    var = ir.Var(info.name, declared_type(info.type))
    g.hint = info.name
    return var, of_atom(g, var)


def _map_parameter(g: GraphBuilder, name: str, key: int, value: int) -> tuple[ir.Var, Imported]:
    types = tuple(TensorType(element_type(code), (UNKNOWN,)) for code in (key, value))
    var = ir.Var(name, DataType(MAPS.name, types))
    keys, values = ir.Var("keys", types[0]), ir.Var("values", types[1])
    with g.block() as bindings:
        both = ir.Var("both", TupleType(types))
        bindings.append(ir.Binding(both, ir.MakeTuple((keys, values)), name))
    pattern = ir.ConstructorPattern(MAPS.constructors[0].name, (ir.Bind(keys), ir.Bind(values)))
    found = ir.Var(name, TupleType(types))
    g.bindings.append(ir.Binding(found, ir.Match(var, ((pattern, ir.Block(tuple(bindings), both)),)), name))
    g.hint = name
    first, second = (g.bind(ir.GetItem(found, place), type_) for place, type_ in enumerate(types))
    return var, Maps(first, g.checked(second, first.shape))


def made(g: GraphBuilder, value: Imported, info: onnx.ValueInfoProto) -> ir.Atom:
    """The program's result for an output. Raises UnsupportedError."""
    if isinstance(value, Value):
        return g.atom(value)
    g.hint = info.name
    if isinstance(value, Maps):
        args = (g.atom(value.keys), g.atom(value.values))
        var = ir.Var(info.name)
        g.bindings.append(ir.Binding(var, ir.Construct(MAPS.name, MAPS.constructors[0].name, args), info.name))
        return var
    type_ = type_of(value)
    if is_open(type_) and info.type.WhichOneof("value") in ("sequence_type", "optional_type"):
        type_ = joined(type_, declared_type(info.type))
    return converted(g, value, settled(type_))


# ---- maps ----


@importer("ZipMap", domain=DOMAIN)
def _zip_map(
    g: GraphBuilder,
    x: Value,
    *,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
) -> Imported:
    """A map for each row: a list of dicts, where Python sees it."""
    labels = g.constant(only("labels", int64s=classlabels_int64s, strings=classlabels_strings))
    if x.rank == 1:
        x = g.op("expand_dims", x, axes=(0,))
    if x.rank != 2:
        raise ModelError(f"expected rows of numbers, got {x.type}")
    return Maps(labels, g.checked(x, (x.shape[0], labels.shape[0])))


@importer("DictVectorizer", domain=DOMAIN)
def _dict_vectorizer(
    g: GraphBuilder,
    x: Maps,
    *,
    int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
) -> Value:
    """[1, n]: the values of the words of a vocabulary, 0 or "" for those that the map lacks."""
    words = g.constant(only("words", int64s=int64_vocabulary, strings=string_vocabulary))
    if words.dtype is not x.keys.dtype:
        raise ModelError(f"the vocabulary is {words.dtype.name}, but the keys are {x.keys.dtype.name}")
    return g.op("expand_dims", g.op("look_up", words, x.keys, x.values, _nothing(g, x.values.dtype)), axes=(0,))


def _nothing(g: GraphBuilder, dtype: DType) -> Value:
    return g.constant("" if dtype.is_string else 0, dtype)


_CASTS = {"TO_FLOAT": DType.float32, "TO_STRING": DType.string, "TO_INT64": DType.int64}


@importer("CastMap", domain=DOMAIN)
def _cast_map(
    g: GraphBuilder, x: Maps, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Value:
    """[1, n]: the values in order of the keys; or of the keys 0, 1, … below `max_map`, 0 for those that are not there."""
    from .elementwise import converted

    if cast_to not in _CASTS or map_form not in ("DENSE", "SPARSE"):
        raise ModelError(f"cast_to={cast_to!r}, map_form={map_form!r}")
    if map_form == "SPARSE":
        if not 0 < max_map <= 1 << 24:
            raise ModelError(f"max_map is {max_map}")
        places = g.constant(np.arange(max_map))
        values = g.op("look_up", places, x.keys, x.values, _nothing(g, x.values.dtype))
    else:
        _, order = g.ops("top_k", x.keys, k=x.keys.shape[0], axis=0, largest=False, sorted=True)
        values = g.op("take", x.values, order, axis=0)
    return g.op("expand_dims", converted(g, values, _CASTS[cast_to]), axes=(0,))


# ---- optional values ----


@importer("Optional")
def _optional(g: GraphBuilder, x: Imported | None = None, *, type: Any = None) -> Imported:
    """An optional that is known to hold a value is that value."""
    if x is not None or type is None:
        return OptionalTensor(None) if x is None else x
    return OptionalTensor(None, declared_type(type) if not type.HasField("tensor_type") else None)


def _match(
    g: GraphBuilder, x: OptionalTensor, then: ir.Block, pattern: ir.Pattern, otherwise: ir.Block | None
) -> ir.Match:
    assert x.atom is not None
    present = ir.ConstructorPattern(OPTIONAL.constructors[1].name, (pattern,))
    clauses: tuple[tuple[ir.Pattern, ir.Block], ...] = ((present, then),)
    return ir.Match(x.atom, clauses if otherwise is None else (*clauses, (ir.Wildcard(), otherwise)))


@importer("OptionalHasElement")
def _has_element(g: GraphBuilder, x: Imported | None = None) -> Value:
    if not isinstance(x, OptionalTensor) or x.atom is None:
        return g.constant(not (x is None or isinstance(x, OptionalTensor)))
    true, false = (ir.Block((), ir.Constant(np.asarray(value))) for value in (True, False))
    return g.bind(_match(g, x, true, ir.Wildcard(), false), TensorType(DType.bool, ()))


@importer("OptionalGetElement")
def _get_element(g: GraphBuilder, x: Imported) -> Imported:
    """A run in which it is not there ends."""
    if not isinstance(x, OptionalTensor):
        return x
    if x.atom is None or x.type is None:
        raise ModelError("the element of an optional value that is not there")
    element = ir.Var("element", x.type)
    return bound(g, _match(g, x, ir.Block((), element), ir.Bind(element), None), x.type)
