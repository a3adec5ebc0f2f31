"""Graphs of a compiled program, for viewers: what makes what each instruction reads, whichever way the control goes.

    treadle.debug.save_graph(executable, "model.netron")         # Netron opens it
    treadle.debug.save_graph(executable, "model.explorer.json")  # Model Explorer opens it

`formats/pictures/program.py` says what a node is. Netron's format is that of its messages (`source/message.js`, signature
`netron:`), which it takes from files of that ending alone; Model Explorer's its graph collection
(github.com/google-ai-edge/model-explorer, `GraphCollection`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from ..formats.messages.calling import public
from ..formats.messages.errors import ArgumentError
from ..formats.pictures.program import PARAMETERS, RETURN, Graph, Value, graphs
from ..formats.types import TensorType, Type
from .files import path_of, write
from .subject import executable_of


@public
def save_graph(model: Any, path: str | os.PathLike, *, function: str | None = None) -> None:
    """Writes the graph of each function, or of one, of an executable, of a file of one, or of a model, which is compiled. A path
    ends in `.netron` or `.explorer.json`. Raises ArgumentError, UnknownFunctionError, FileError, CompileError."""
    target = path_of(path, "save_graph: path")
    writer = next((each for suffix, each in _WRITERS.items() if target.name.endswith(suffix)), None)
    if writer is None:
        raise ArgumentError(
            f"save_graph: the path {str(target)!r} ends in neither {' (Netron) nor '.join(_WRITERS)} (Model Explorer)"
        )
    content = json.dumps(writer(target.name, graphs(executable_of(model, "save_graph"), function)))
    write(target, content.encode())


# ---- Netron ----


def as_netron(name: str, found: list[Graph]) -> dict[str, Any]:
    """A message. Values are named by what makes them; where there are several makers, an argument has several values."""
    return {
        "signature": "netron:treadle",
        "format": "Treadle",
        "description": name,
        "modules": [_netron_graph(each) for each in found],
    }


def _netron_graph(graph: Graph) -> dict[str, Any]:
    types: dict[str, Type | None] = {f"%{name}": type_ for name, type_ in graph.parameters.items()}
    types |= {_value(graph, (i, k)): each for i, node in enumerate(graph.nodes) for k, each in enumerate(node.results)}
    nodes = []
    for i, node in enumerate(graph.nodes):
        inputs = [
            {"name": str(k), "value": sorted(_value(graph, v) for v in each)} for k, each in enumerate(node.inputs)
        ]
        outputs = [{"name": str(k), "value": [_value(graph, (i, k))]} for k in range(len(node.results))]
        facts = {**node.details, "operators": ", ".join(node.operators), "offset": str(node.offset)}
        attributes = [{"name": key, "value": text, "type": "string"} for key, text in facts.items() if text]
        kind = {"name": node.operation, "category": ""}
        name = node.origin or node.operation
        nodes.append({"name": name, "type": kind, "inputs": inputs, "outputs": outputs, "attributes": attributes})
    results = sorted({_value(graph, v) for node in graph.nodes if node.operation == RETURN for v in node.inputs[0]})
    return {
        "name": graph.name,
        "arguments": [{"name": value} | _netron_type(type_) for value, type_ in types.items()],
        "inputs": [{"name": name, "value": [f"%{name}"]} for name in graph.parameters],
        "outputs": [{"name": "result", "value": results}],
        "nodes": nodes,
    }


def _netron_type(type_: Type | None) -> dict[str, Any]:
    """Of a tensor; of what else there is, nothing."""
    if not isinstance(type_, TensorType):
        return {}
    sizes = [size if isinstance(size, int) else str(size) for size in type_.shape]
    return {"type": {"dataType": type_.dtype.name, "shape": {"dimensions": sizes}}}


def _value(graph: Graph, value: Value) -> str:
    node, result = value
    if node == PARAMETERS:
        return f"%{list(graph.parameters)[result]}" if result < len(graph.parameters) else f"captured {result}"
    return f"{graph.nodes[node].offset}:{result}"


# ---- Model Explorer ----


def as_explorer(name: str, found: list[Graph]) -> dict[str, Any]:
    """A graph collection. The operators of a primitive stand in its namespace, in a row: what they pass to each other is the
    kernel's own."""
    return {"label": name, "graphs": [{"id": each.name, "nodes": list(_explorer_nodes(each))} for each in found]}


def _explorer_nodes(graph: Graph) -> Iterator[dict[str, Any]]:
    for name, type_ in graph.parameters.items():
        yield {"id": f"%{name}", "label": name, "namespace": "inputs", "outputsMetadata": [_explorer_result(0, type_)]}
    for i, node in enumerate(graph.nodes):
        edges = [
            {"sourceNodeId": source, "sourceNodeOutputId": output, "targetNodeInputId": str(k)}
            for k, each in enumerate(node.inputs)
            for source, output in sorted(_explorer_source(graph, value) for value in each)
        ]
        facts = {**node.details, "model nodes": node.origin, "primitive": node.operation if node.operators else ""}
        attributes = [{"key": key, "value": text} for key, text in facts.items() if text]
        rows = node.operators or (node.operation,)
        namespace = f"{node.operation} {node.offset}" if len(rows) > 1 else ""
        for k, operator in enumerate(rows):
            is_last = k == len(rows) - 1
            within = [{"sourceNodeId": f"{i}.{k - 1}", "sourceNodeOutputId": "0", "targetNodeInputId": "0"}]
            yield {
                "id": str(i) if is_last else f"{i}.{k}",
                "label": operator,
                "namespace": namespace,
                "attrs": attributes,
                "incomingEdges": edges if k == 0 else within,
                "outputsMetadata": [_explorer_result(*each) for each in enumerate(node.results)] if is_last else [],
            }


def _explorer_result(number: int, type_: Type | None) -> dict[str, Any]:
    return {"id": str(number), "attrs": [] if type_ is None else [{"key": "type", "value": str(type_)}]}


def _explorer_source(graph: Graph, value: Value) -> tuple[str, str]:
    node, result = value
    return (_value(graph, value), "0") if node == PARAMETERS else (str(node), str(result))


_WRITERS = {".netron": as_netron, ".explorer.json": as_explorer}
