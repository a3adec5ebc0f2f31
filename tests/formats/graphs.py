"""Graphs for tests: a hand-written one, as TVM's tests have it, and one with every kind of node."""

from __future__ import annotations

import json
from typing import Any


def call(name: str, function: str, inputs: list[list[int]], outputs: int = 1, **attrs: str) -> dict[str, Any]:
    counts = {"num_inputs": str(len(inputs)), "num_outputs": str(outputs), "flatten_data": "0"}
    return {"op": "tvm_op", "name": name, "inputs": inputs, "attrs": {"func_name": function, **counts, **attrs}}


def parameter(name: str) -> dict[str, Any]:
    return {"op": "null", "name": name, "inputs": []}


def document(
    nodes: list[dict[str, Any]],
    heads: list[list[int]],
    shapes: list[list[int]],
    storage: list[int] | None = None,
    dltypes: list[str] | None = None,
) -> dict[str, Any]:
    row_ptr = [0]
    for node in nodes:
        row_ptr.append(row_ptr[-1] + int(node.get("attrs", {}).get("num_outputs", "1")))
    return {
        "nodes": nodes,
        "arg_nodes": [number for number, node in enumerate(nodes) if node["op"] == "null"],
        "node_row_ptr": row_ptr,
        "heads": heads,
        "attrs": {
            "shape": ["list_shape", shapes],
            "dltype": ["list_str", dltypes or ["float32"] * len(shapes)],
            "storage_id": ["list_int", list(range(len(shapes))) if storage is None else storage],
        },
    }


def simple() -> dict[str, Any]:
    """One call of a function of the user's."""
    nodes = [parameter("x"), call("add", "myadd", [[0, 0, 0]])]
    return document(nodes, [[1, 0, 0]], [[4], [4]])


def rich() -> dict[str, Any]:
    """Calls of primitives, with and without sizes, of a function of Python's, a reshape and a copy."""
    nodes = [
        parameter("x"),
        parameter("y"),
        call("sum", "add", [[0, 0, 0], [1, 0, 0]]),
        call("twice", "scale", [[2, 0, 0]], sizes="4"),
        call("flat", "__nop", [[3, 0, 0]]),
        call("square", "__nop", [[4, 0, 0]]),
        call("own", "python", [[5, 0, 0], [2, 0, 0]], outputs=2),
        call("moved", "__copy", [[6, 1, 0]]),
        call("last", "add", [[7, 0, 0], [6, 0, 0]]),
    ]
    nodes[8]["control_deps"] = [2]
    shapes = [[4, 8], [4, 8], [4, 8], [4, 8], [32], [4, 8], [4, 8], [4, 8], [4, 8], [4, 8]]
    found = document(nodes, [[8, 0, 0], [4, 0, 0]], shapes, [0, 1, 2, 3, 3, 3, 4, 5, 2, 6])
    found["attrs"]["device_index"] = ["list_int", [1] * 10]
    found["attrs"]["storage_scope"] = ["list_str", ["global"] * 10]
    found["attrs"]["more"] = ["size_t", 7]
    return found


def text(found: dict[str, Any]) -> str:
    return json.dumps(found)
