"""The graph JSON: a model as a list of nodes in the order in which they run, each a call of a function by its name.

    graph = parse_graph(text)
    text = graph.as_text()

Entries are the tensors that nodes give; entry `row_ptr[node] + index` is result `index` of a node. For each, the file says shape,
element type and storage: entries of one storage lie in the same memory. A graph that was read has been checked: every index
lies in its range, every node reads what nodes before it give, every list is as long as it must be. What its functions are is not
known here (`graphs/executor.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar, Union

from ...formats import limits
from ...formats.dtypes import DType
from ...formats.messages.errors import DTypeError, FormatError, LimitError
from ...formats.types import TensorType

NOP, COPY = "__nop", "__copy"  # names of functions: the same memory in another shape; a copy, on another device perhaps

_SECTION = "graph JSON"
_KEYS = ("nodes", "arg_nodes", "node_row_ptr", "heads", "attrs")
_NODE_KEYS = ("op", "name", "inputs")
_FUNCTION_KEYS = ("func_name", "num_inputs", "num_outputs", "flatten_data")
# The lists that `attrs` must have and may have, by entry, and what the file calls their elements.
_REQUIRED_LISTS = {"shape": "list_shape", "storage_id": "list_int", "dltype": "list_str"}
_OPTIONAL_LISTS = {"device_index": "list_int", "storage_scope": "list_str"}
_MOST_INTEGER = (1 << 63) - 1

_T = TypeVar("_T")


@dataclass(frozen=True)
class Entry:
    """Result `index` of a node. `version` is kept, and means nothing."""

    node: int
    index: int = 0
    version: int = 0


@dataclass(frozen=True)
class Node:
    """A parameter of the graph (`function` is None), or a call of a function."""

    name: str
    function: str | None = None
    inputs: tuple[Entry, ...] = ()
    outputs: int = 1
    flatten: bool = False  # the function takes its tensors with one axis
    attrs: Mapping[str, str] = field(default_factory=dict)  # others than those that the fields above are made of
    control_deps: tuple[int, ...] = ()  # nodes that must have run, though nothing of theirs is read

    @property
    def is_input(self) -> bool:
        return self.function is None


@dataclass(frozen=True)
class Graph:
    """A graph JSON, checked. Lists by entry are `shapes`, `storage_ids`, `dltypes`, and, where there are any, `device_types`
    (DLPack's numbers) and `storage_scopes`."""

    nodes: tuple[Node, ...]
    arg_nodes: tuple[int, ...]  # the parameters, in the order of their indices
    heads: tuple[Entry, ...]  # the outputs
    shapes: tuple[tuple[int, ...], ...]
    storage_ids: tuple[int, ...]
    dltypes: tuple[str, ...]
    device_types: tuple[int, ...] | None = None
    storage_scopes: tuple[str, ...] | None = None
    extra: Mapping[str, Union[int, tuple[int, ...]]] = field(default_factory=dict)  # other attrs: size_t, list_int
    metadata: Any = None  # whatever the file has there

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def row_ptr(self) -> tuple[int, ...]:
        """For each node the number of its first entry, then the number of entries."""
        return (0, *accumulate(node.outputs for node in self.nodes))

    @cached_property
    def types(self) -> tuple[TensorType, ...]:
        """The type of each entry. Raises DTypeError for elements that Treadle does not have."""
        return tuple(
            TensorType(dtype_of(text, number), shape)
            for number, (text, shape) in enumerate(zip(self.dltypes, self.shapes, strict=True))
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(self.nodes[number].name for number in self.arg_nodes)

    def number(self, entry: Entry) -> int:
        """The number of an entry."""
        return self.row_ptr[entry.node] + entry.index

    def as_text(self) -> str:
        """The JSON. Equal graphs give equal text, and `parse_graph` reads it back."""
        return json.dumps(_document(self), indent=2)

    def without(self, *extra: str) -> Graph:
        """This graph without some of its extra attributes."""
        return replace(self, extra={key: value for key, value in self.extra.items() if key not in extra})


def dtype_of(text: str, entry: int = 0) -> DType:
    """The element type that an entry's `dltype` names; graphs have no texts. Raises DTypeError."""
    found = DType.bool if text == "uint1" else DType.__members__.get(text)
    if found is None or found.is_string:  # what lies in a graph's memory is nobody's text
        known = ", ".join(dtype.name for dtype in DType if not dtype.is_string)
        raise DTypeError(f"graph JSON: entry {entry} has elements of type {_show(text)}; a graph may have {known}")
    return found


# ---- reading ----


def parse_graph(text: str) -> Graph:
    """The graph that a JSON text describes. Raises FormatError, LimitError."""
    if not isinstance(text, str):
        raise FormatError(f"expected the JSON as a str, got a {type(text).__name__}", section=_SECTION)
    if len(text) > limits.GRAPH_JSON_BYTES:
        raise LimitError(f"{len(text)} characters; at most {limits.GRAPH_JSON_BYTES} are allowed", section=_SECTION)
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except FormatError:
        raise
    except RecursionError:
        raise LimitError("lists and objects are nested too deep", section=_SECTION) from None
    except ValueError as error:  # not JSON, or an integer of thousands of digits
        raise FormatError(f"not JSON: {error}", section=_SECTION) from None
    return _graph(document)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise FormatError(f"the key {_show(twice)} stands twice in one object", section=_SECTION)
    return found


def _no_number(text: str) -> Any:
    raise FormatError(f"{text} is not a JSON number", section=_SECTION)


def _graph(document: Any) -> Graph:
    keys = _mapping(document, "the graph")
    _need(keys, _KEYS, (*_KEYS, "metadata"), "the graph")
    nodes = tuple(
        _node(value, number) for number, value in enumerate(_list(keys["nodes"], "nodes", limits.GRAPH_NODES))
    )
    attrs = _mapping(keys["attrs"], "attrs")
    for name in _REQUIRED_LISTS:
        if name not in attrs:
            raise _error(f"attrs has no {name!r}; it needs {', '.join(_REQUIRED_LISTS)}")
    tables = {name: _attribute(name, value) for name, value in attrs.items()}
    known = {name: tables.pop(name, None) for name in (*_REQUIRED_LISTS, *_OPTIONAL_LISTS)}
    graph = Graph(
        nodes,
        _integers(keys["arg_nodes"], "arg_nodes", limits.GRAPH_NODES),
        tuple(_entry(value, "heads") for value in _list(keys["heads"], "heads", limits.GRAPH_ENTRIES)),
        known["shape"],
        known["storage_id"],
        known["dltype"],
        known["device_index"],
        known["storage_scope"],
        tables,
        keys.get("metadata"),
    )
    row_ptr = _integers(keys["node_row_ptr"], "node_row_ptr", limits.GRAPH_NODES + 1)
    if row_ptr != graph.row_ptr:
        at = next((i for i, pair in enumerate(zip(row_ptr, graph.row_ptr, strict=False)) if pair[0] != pair[1]), -1)
        reason = f"it has {len(row_ptr)} numbers, expected {len(graph.row_ptr)}"
        if at >= 0:
            reason = f"number {at} is {row_ptr[at]}, but the nodes before have {graph.row_ptr[at]} outputs"
        raise _error(f"node_row_ptr does not count the nodes' outputs: {reason}")
    return graph


def _node(value: Any, number: int) -> Node:
    place = f"node {number}"
    keys = _mapping(value, place)
    _need(keys, _NODE_KEYS, (*_NODE_KEYS, "attr", "attrs", "control_deps"), place)
    op, name = _string(keys["op"], f"{place}: op"), _string(keys["name"], f"{place}: name")
    inputs = tuple(
        _entry(item, f"{place}: inputs") for item in _list(keys["inputs"], f"{place}: inputs", limits.OPERANDS)
    )
    control = _integers(keys.get("control_deps", []), f"{place}: control_deps", limits.GRAPH_NODES)
    attrs = _mapping(keys.get("attrs", keys.get("attr", {})), f"{place}: attrs")
    for key, text in attrs.items():
        _string(text, f"{place}: attrs: {_show(key)}")
    if op == "null":
        return Node(name, None, inputs, 1, False, attrs, control)
    if op != "tvm_op":
        raise _error(f"{place} has op {_show(op)}; expected 'null', a parameter, or 'tvm_op', a call of a function")
    _need(attrs, _FUNCTION_KEYS, tuple(attrs), f"{place}: attrs")
    count, outputs, flatten = (_number(attrs[key], f"{place}: {key}") for key in _FUNCTION_KEYS[1:])
    if count != len(inputs):
        raise _error(f"{place}: num_inputs is {count}, but {len(inputs)} inputs are listed")
    if outputs > limits.GRAPH_OUTPUTS:
        raise _error(f"{place}: num_outputs is {outputs}; at most {limits.GRAPH_OUTPUTS} are allowed", LimitError)
    rest = {key: text for key, text in attrs.items() if key not in _FUNCTION_KEYS}
    return Node(name, attrs["func_name"], inputs, outputs, bool(flatten), rest, control)


def _attribute(name: str, value: Any) -> Any:
    """The value of one of `attrs`: a pair of its kind's name and the value itself."""
    place = f"attrs: {_show(name)}"
    pair = _list(value, place, 2)
    if len(pair) != 2:
        raise _error(f"{place}: expected the name of a kind and a value, got {len(pair)} values")
    kind = _string(pair[0], f"{place}: kind")
    wanted = {**_REQUIRED_LISTS, **_OPTIONAL_LISTS}.get(name)
    if kind != wanted if wanted is not None else kind not in ("list_int", "size_t"):
        raise _error(f"{place} is of kind {_show(kind)}, expected {wanted or 'list_int or size_t'}")
    if kind == "size_t":
        return _integer(pair[1], place)
    if kind == "list_int":
        return _integers(pair[1], place, limits.GRAPH_ENTRIES)
    elements = _list(pair[1], place, limits.GRAPH_ENTRIES)
    if kind == "list_str":
        return tuple(_string(element, place) for element in elements)
    return tuple(_integers(element, f"{place}: entry {at}", limits.RANK) for at, element in enumerate(elements))


def _entry(value: Any, place: str) -> Entry:
    numbers = _integers(value, place, 3)
    if len(numbers) < 2:
        raise _error(f"{place}: expected an entry [node, index] or [node, index, version], got {list(numbers)}")
    return Entry(*numbers)


# ---- values of JSON ----


def _error(message: str, kind: type[FormatError] = FormatError) -> FormatError:
    return kind(message, section=_SECTION)


def _show(value: object) -> str:
    text = repr(value) if not isinstance(value, (list, dict)) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "…"


def _mapping(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _error(f"{place}: expected an object, got {_show(value)}")
    return value


def _list(value: Any, place: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise _error(f"{place}: expected a list, got {_show(value)}")
    if len(value) > most:
        raise _error(f"{place}: {len(value)} elements; at most {most} are allowed", LimitError)
    return value


def _string(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise _error(f"{place}: expected a string, got {_show(value)}")
    if len(value) > limits.STRING_BYTES:
        raise _error(f"{place}: {len(value)} characters; at most {limits.STRING_BYTES} are allowed", LimitError)
    return value


def _integer(value: Any, place: str) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_INTEGER:
        raise _error(f"{place}: expected an integer from 0 on, of 63 bits at most, got {_show(value)}")
    return value


def _integers(value: Any, place: str, most: int) -> tuple[int, ...]:
    return tuple(_integer(element, place) for element in _list(value, place, most))


def _number(text: str, place: str) -> int:
    """An integer that the file has as a string."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise _error(f"{place}: expected a number as a string, got {_show(text)}")
    return int(text)


def _need(keys: Mapping[str, Any], needed: Sequence[str], allowed: Sequence[str], place: str) -> None:
    if missing := [key for key in needed if key not in keys]:
        raise _error(f"{place} has no {missing[0]!r}; it needs {', '.join(needed)}")
    if unknown := [key for key in keys if key not in allowed]:
        raise _error(f"{place}: the key {_show(unknown[0])} is not known; known are {', '.join(allowed)}")


# ---- checking ----


def _check(graph: Graph) -> None:
    """Raises FormatError unless every index lies in its range."""
    entries = graph.row_ptr[-1]
    if entries > limits.GRAPH_ENTRIES:
        raise _error(f"the nodes have {entries} outputs; at most {limits.GRAPH_ENTRIES} are allowed", LimitError)
    for number, node in enumerate(graph.nodes):
        place = f"node {number} ({_show(node.name)})"
        if node.is_input and node.inputs:
            raise _error(f"{place} is a parameter, and has inputs")
        for entry in node.inputs:
            _check_entry(graph, entry, number, f"{place}: an input")
        for dep in node.control_deps:
            if not 0 <= dep < number:
                raise _error(f"{place}: control_deps has node {dep}; nodes wait for nodes before them")
    _check_parameters(graph)
    for entry in graph.heads:
        _check_entry(graph, entry, len(graph.nodes), "heads: an output")
    lists = {"shape": graph.shapes, "storage_id": graph.storage_ids, "dltype": graph.dltypes}
    optional = {"device_index": graph.device_types, "storage_scope": graph.storage_scopes}
    for name, values in {**lists, **{name: values for name, values in optional.items() if values is not None}}.items():
        if len(values) != entries:
            raise _error(f"attrs: {name} has {len(values)} elements, but the nodes have {entries} outputs")
    for number, shape in enumerate(graph.shapes):
        if len(shape) > limits.RANK:
            raise _error(f"entry {number} has {len(shape)} axes; at most {limits.RANK} are allowed", LimitError)
        count = 8  # bytes of the largest element
        for size in shape:
            count *= max(1, size)
        if count > limits.DIMENSION:
            raise _error(f"entry {number}: a tensor of shape {list(shape)} is larger than any memory", LimitError)


def _check_entry(graph: Graph, entry: Entry, before: int, place: str) -> None:
    if not 0 <= entry.node < before:
        where = f"{before} nodes come before it" if before < len(graph.nodes) else f"the graph has {before} nodes"
        raise _error(f"{place} is of node {entry.node}, but {where}")
    outputs = graph.nodes[entry.node].outputs
    if not 0 <= entry.index < outputs:
        raise _error(f"{place} is output {entry.index} of node {entry.node}, which has {outputs}")


def _check_parameters(graph: Graph) -> None:
    seen: set[int] = set()
    names: set[str] = set()
    for number in graph.arg_nodes:
        if not 0 <= number < len(graph.nodes) or not graph.nodes[number].is_input:
            raise _error(f"arg_nodes has {number}, which is not a node with op 'null'")
        if number in seen:
            raise _error(f"arg_nodes has node {number} twice")
        name = graph.nodes[number].name
        if name in names:
            raise _error(f"two parameters are called {_show(name)}")
        seen.add(number)
        names.add(name)
    lost = next((number for number, node in enumerate(graph.nodes) if node.is_input and number not in seen), None)
    if lost is not None:
        raise _error(f"node {lost} ({_show(graph.nodes[lost].name)}) has op 'null', but arg_nodes lacks it")


# ---- writing ----


def _document(graph: Graph) -> dict[str, Any]:
    attrs: dict[str, Any] = {
        "dltype": ["list_str", graph.dltypes],
        "shape": ["list_shape", graph.shapes],
        "storage_id": ["list_int", graph.storage_ids],
    }
    if graph.device_types is not None:
        attrs["device_index"] = ["list_int", graph.device_types]
    if graph.storage_scopes is not None:
        attrs["storage_scope"] = ["list_str", graph.storage_scopes]
    for name, value in graph.extra.items():
        attrs[name] = ["size_t", value] if isinstance(value, int) else ["list_int", value]
    document = {
        "nodes": [_node_document(node) for node in graph.nodes],
        "arg_nodes": graph.arg_nodes,
        "heads": [_entry_document(entry) for entry in graph.heads],
        "attrs": attrs,
        "node_row_ptr": graph.row_ptr,
    }
    return document if graph.metadata is None else {**document, "metadata": graph.metadata}


def _entry_document(entry: Entry) -> list[int]:
    return [entry.node, entry.index, entry.version]


def _node_document(node: Node) -> dict[str, Any]:
    attrs = dict(node.attrs)
    if node.function is not None:
        attrs = {
            "func_name": node.function,
            "num_inputs": str(len(node.inputs)),
            "num_outputs": str(node.outputs),
            "flatten_data": str(int(node.flatten)),
            **attrs,
        }
    document: dict[str, Any] = {"op": "null" if node.is_input else "tvm_op", "name": node.name}
    document["inputs"] = [_entry_document(entry) for entry in node.inputs]
    if attrs:
        document["attrs"] = attrs
    if node.control_deps:
        document["control_deps"] = node.control_deps
    return document
