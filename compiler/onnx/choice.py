"""A part of a model's graph, as its user asks for it: other results, and other element types of inputs.

The model itself stays as it is: it may be the user's own object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from ...formats.dtypes import DType
from ...formats.messages.errors import CompileError, DTypeError, ModelError
from ...formats.messages.names import near
from .order import names_taken

if TYPE_CHECKING:
    import onnx


class ChosenGraph(NamedTuple):
    """The parts of a graph that an importer reads, under the protobuf message's names."""

    name: str
    node: Sequence[onnx.NodeProto]
    input: Sequence[onnx.ValueInfoProto]
    output: Sequence[onnx.ValueInfoProto]
    initializer: Sequence[onnx.TensorProto]  # all of them: they are known by their positions
    sparse_initializer: Sequence[onnx.SparseTensorProto]


Graph = Union["onnx.GraphProto", ChosenGraph]


def chosen(graph: onnx.GraphProto, dtypes: Mapping[str, Any], outputs: Sequence[str] | None) -> Graph:
    """The graph with inputs of these element types, and with the values of these names as its results, if they are given: then
    nodes and inputs that these do not depend on are left out, whatever they are. Raises ModelError for unknown names,
    CompileError for anything but an element type."""
    if not dtypes and outputs is None:
        return graph
    inputs = [_retyped(info, dtypes) for info in graph.input]
    if unknown := dtypes.keys() - {info.name for info in inputs}:
        hint = near(min(unknown), (info.name for info in inputs))
        raise ModelError(f"dtypes are given for {sorted(unknown)}, but the model has no such inputs{hint}")
    if outputs is None:
        return ChosenGraph(graph.name, graph.node, inputs, graph.output, graph.initializer, graph.sparse_initializer)
    infos = [_info(graph, name) for name in outputs]
    nodes, needed = _needed(graph, set(outputs))
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in inputs if info.name in needed or info.name in weights]
    return ChosenGraph(graph.name, nodes, inputs, infos, graph.initializer, graph.sparse_initializer)


def check_choice(dtypes: object, outputs: object) -> None:
    """Raises CompileError for options of the wrong kind."""
    if dtypes is not None and not isinstance(dtypes, Mapping):
        raise CompileError(f"dtypes={dtypes!r}: expected element types by the names of inputs, or None")
    is_list = isinstance(outputs, Sequence) and not isinstance(outputs, (str, bytes))
    if outputs is not None and not (is_list and outputs and all(isinstance(name, str) for name in outputs)):  # type: ignore[attr-defined]
        raise CompileError(f"outputs={outputs!r}: expected a list of names of values, or None")


def _retyped(info: onnx.ValueInfoProto, dtypes: Mapping[str, Any]) -> onnx.ValueInfoProto:
    if info.name not in dtypes:
        return info
    import onnx

    try:
        asked = dtypes[info.name]
        is_code = isinstance(asked, int) and not isinstance(asked, bool)  # onnx.TensorProto.FLOAT16, for instance
        code = (DType.from_onnx(asked) if is_code else DType.of(asked)).value.onnx
    except DTypeError as error:
        raise CompileError(f"dtypes[{info.name!r}]: {error.message}") from None
    if not info.type.HasField("tensor_type"):
        raise ModelError(f"dtypes[{info.name!r}]: this input of the model is not a tensor")
    other = onnx.ValueInfoProto()
    other.CopyFrom(info)
    other.type.tensor_type.elem_type = code
    return other


def _info(graph: onnx.GraphProto, name: str) -> onnx.ValueInfoProto:
    """The graph's own, or a new one for a value that is not an output of it. Raises ModelError where there is no such value."""
    import onnx

    for info in graph.output:
        if info.name == name:
            return info
    values = {made for node in graph.node for made in node.output} | {info.name for info in graph.input}
    values |= {tensor.name for tensor in graph.initializer}
    if not name or name not in values:
        known = [info.name for info in graph.output]
        made = next((list(filter(None, node.output)) for node in graph.node if name and node.name == name), None)
        hint = f"; {name!r} is a node, whose values are {made}" if made else near(name, values)
        raise ModelError(f"the model has no value {name!r} to be an output; its outputs are {known}{hint}")
    return onnx.ValueInfoProto(name=name)


def _needed(graph: onnx.GraphProto, names: set[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes that values depend on, and the names of all values that these take. A node in the wrong place counts, too: the
    importer says so."""
    makers = {made: node for node in graph.node for made in node.output if made}
    found: dict[int, None] = {}
    needed, pending = set(names), list(names)
    while pending:
        node = makers.get(pending.pop())
        if node is not None and id(node) not in found:
            found[id(node)] = None
            fresh = set(names_taken([node])) - needed
            needed |= fresh
            pending += fresh
    return [node for node in graph.node if id(node) in found], needed
