"""The JSON in which TVM keeps objects of programs: a table of nodes that refer to each other by number, and tensors in base64.

    {"root": 1, "nodes": [{"type_key": ""}, {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
                          {"type_key": "Array", "data": [3]}, {"type_key": "relay.Constant", "attrs": {"data": "0", …}}],
     "b64ndarrays": ["…"], "attrs": {"tvm_version": "0.14.0"}}

Of what Relay's text keeps here, tensors and symbolic dimensions are read; other nodes are known by their names alone.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...formats import limits
from ...formats.constants import constant_type
from ...formats.dims import SymbolicDim, is_variable, named, parse
from ...formats.messages.errors import FormatError, LimitError, ParseError
from ...formats.param_dict import ELEMENT_TYPES, TensorReader, tensor_pieces
from ...formats.text.notation import Scanner, print_tensor, scan_tensor, scan_tensor_type

CONSTANT = "relay.Constant"
DIMENSION = "treadle.Dim"  # an expression of dimensions, as text
TENSOR = "treadle.Tensor"  # one of an element type that TVM's files lack, as text
VARIABLES = ("tir.SizeVar", "tir.Var")
VERSION = "0.14.0"  # of TVM, whose layout is written


class UnknownNode:
    """A node that is not read: its kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


def dump(lists: Mapping[str, Sequence[np.ndarray | SymbolicDim]]) -> str:
    """The text of lists of tensors and of dimensions' variables by their kinds. Raises FormatError."""
    nodes: list[dict[str, Any]] = [{"type_key": ""}]
    tensors: list[str] = []
    places: dict[int, int] = {}  # of tensors, by identity

    def add(node: dict[str, Any]) -> int:
        nodes.append(node)
        return len(nodes) - 1

    root: dict[str, Any] = {"type_key": "Map", "keys": list(lists), "data": []}
    add(root)
    for values in lists.values():
        members: list[int] = []
        root["data"].append(add({"type_key": "Array", "data": members}))
        for value in values:
            if isinstance(value, np.ndarray):
                if value.dtype.name not in ELEMENT_TYPES:
                    members.append(
                        add({"type_key": TENSOR, "repr_str": f"{constant_type(value)} {print_tensor(value)}"})
                    )
                    continue
                if id(value) not in places:
                    places[id(value)] = len(tensors)
                    tensors.append(base64.b64encode(b"".join(map(bytes, tensor_pieces("a constant", value)))).decode())
                fields = {"_checked_type_": "0", "data": str(places[id(value)]), "span": "0", "virtual_device_": "0"}
                members.append(add({"type_key": CONSTANT, "attrs": fields}))
            elif not is_variable(value):
                members.append(add({"type_key": DIMENSION, "repr_str": str(value)}))
            else:
                name = add({"type_key": "runtime.String", "repr_str": str(value)})
                fields = {"dtype": "int32", "name": str(name), "span": "0", "type_annotation": "0"}
                members.append(add({"type_key": VARIABLES[0], "attrs": fields}))
    found = {"root": 1, "nodes": nodes, "b64ndarrays": tensors, "attrs": {"tvm_version": VERSION}}
    return json.dumps(found, indent=2)


def load(text: str) -> dict[str, list[np.ndarray | SymbolicDim | UnknownNode]]:
    """The lists by their kinds. Raises FormatError for any other text, and names the node that is wrong."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"metadata: this is not JSON: {error}") from None
    reader = _Reader(found)
    root = reader.node(reader.number(found.get("root"), "root"))
    if root.get("type_key") != "Map":
        raise FormatError(f"metadata: the root must be a Map, it is {str(root.get('type_key'))[:40]!r}")
    keys, data = reader.array(root, "keys"), reader.array(root, "data")
    if len(keys) != len(data):
        raise FormatError(f"metadata: {len(keys)} keys and {len(data)} lists")
    return {str(key): reader.members(number) for key, number in zip(keys, data, strict=True)}


def _tensor_of(text: str) -> np.ndarray:
    """`string[2] ["a", "b"]` as an array. Raises ParseError."""
    scanner = Scanner(text)
    return scan_tensor(scanner, scan_tensor_type(scanner))


class _Reader:
    """What many nodes name is made once: what is read takes no more time and memory than the text has characters."""

    def __init__(self, found: Any) -> None:
        if not isinstance(found, dict):
            raise FormatError("metadata: expected an object of JSON")
        self._lists: dict[int, list[Any]] = {}
        self._tensors: dict[int, np.ndarray] = {}
        self.nodes, self.tensors = self.array(found, "nodes"), self.array(found, "b64ndarrays", [])
        if len(self.nodes) > limits.GRAPH_NODES:
            raise LimitError(f"metadata: {len(self.nodes)} nodes; the limit is {limits.GRAPH_NODES}")

    def array(self, node: Mapping[str, Any], key: str, default: Any = None) -> list:
        value = node.get(key, default)
        if not isinstance(value, list):
            raise FormatError(f"metadata: expected a list as {key}, got {type(value).__name__}")
        return value

    def number(self, value: Any, what: str) -> int:
        """References are numbers, or the text of one."""
        text = str(value)
        if isinstance(value, bool) or not isinstance(value, (int, str)) or not text.isdecimal() or len(text) > 9:
            raise FormatError(f"metadata: {what} must be a number, got {text[:40]!r}")
        return int(text)

    def node(self, number: int) -> dict[str, Any]:
        if number >= len(self.nodes) or not isinstance(self.nodes[number], dict):
            raise FormatError(f"metadata: there is no node {number}; there are {len(self.nodes)}")
        return self.nodes[number]

    def members(self, reference: Any) -> list[Any]:
        number = self.number(reference, "a list")
        if number not in self._lists:
            data = self.array(self.node(number), "data")
            self._lists[number] = [self.value(self.number(each, "a member")) for each in data]
        return self._lists[number]

    def value(self, number: int) -> Any:
        node = self.node(number)
        kind, fields = str(node.get("type_key")), node.get("attrs")
        if kind in (DIMENSION, TENSOR):
            text = str(node.get("repr_str"))
            try:
                return parse(text) if kind == DIMENSION else _tensor_of(text)
            except ParseError as error:
                raise FormatError(f"metadata: node {number}: {error.message}") from None
        if not isinstance(fields, dict):
            return UnknownNode(kind)
        if kind == CONSTANT:
            return self._tensor(number, self.number(fields.get("data"), f"node {number}: data"))
        if kind in VARIABLES:
            name = self.node(self.number(fields.get("name"), f"node {number}: name")).get("repr_str")
            try:
                return named(name)
            except ParseError as error:
                raise FormatError(f"metadata: node {number}: {error.message}") from None
        return UnknownNode(kind)

    def _tensor(self, number: int, place: int) -> np.ndarray:
        if place >= len(self.tensors) or not isinstance(self.tensors[place], str):
            raise FormatError(f"metadata: node {number}: there is no tensor {place}; there are {len(self.tensors)}")
        if place not in self._tensors:
            try:
                data = base64.b64decode(self.tensors[place], validate=False)
            except (binascii.Error, ValueError) as error:
                raise FormatError(f"metadata: tensor {place} is not base64: {error}") from None
            reader = TensorReader(memoryview(data), what=f"tensor {place} of the metadata")
            self._tensors[place] = reader.tensor(f"node {number}")
        return self._tensors[place]
