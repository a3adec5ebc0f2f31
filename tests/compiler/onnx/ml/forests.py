"""Random ensembles of trees as ONNX models, and what runs models here and elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import treadle
from onnx import helper
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx

onnxruntime.set_default_logger_severity(4)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
CODES = {"float32": 1, "int32": 6, "int64": 7, "float64": 11, "string": 8}


def model(
    node: onnx.NodeProto, inputs: dict[str, tuple[str, Sequence[Any]]], outputs: Sequence[str], version: int
) -> Any:
    """A model of one node. `inputs`: element types and shapes."""
    infos = [helper.make_tensor_value_info(name, CODES[dtype], shape) for name, (dtype, shape) in inputs.items()]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=name) for name in outputs])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets)


def by_onnxruntime(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)


def by_evaluator(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    """By the reference implementations."""
    results = evaluate(from_onnx(model), "main", *feeds.values())
    return list(results) if isinstance(results, (list, tuple)) else [results]


def by_machine(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    """Compiled."""
    results = treadle.VirtualMachine(treadle.compile(model))["main"](*feeds.values())
    results = results if isinstance(results, (list, tuple)) else [results]
    return [np.asarray(result) for result in results]


def tree(random: np.random.Generator, depth: int, features: int, modes: Sequence[str], number: int) -> list[dict]:
    """Nodes of a tree that ends at random, some thresholds and features alike."""
    nodes: list[dict] = []

    def grow(level: int) -> int:
        here = len(nodes)
        nodes.append({"treeids": number, "nodeids": here, "featureids": 0, "values": 0.0, "modes": "LEAF"})
        nodes[here].update(truenodeids=0, falsenodeids=0, missing_value_tracks_true=0)
        if level < depth and random.random() < 0.8:
            value = float(random.choice([-1, -0.5, 0, 0.25, 1, np.float32(random.standard_normal())]))
            nodes[here].update(featureids=int(random.integers(features)), modes=str(random.choice(modes)), values=value)
            nodes[here].update(missing_value_tracks_true=int(random.integers(2)))
            nodes[here].update(truenodeids=grow(level + 1), falsenodeids=grow(level + 1))
        return here

    grow(0)
    return nodes


def forest(
    random: np.random.Generator, trees: int, depth: int, features: int, modes: Sequence[str] = MODES
) -> tuple[dict[str, list], list[tuple[int, int]]]:
    """The attributes of nodes, and tree and node of each leaf."""
    nodes = [node for number in range(trees) for node in tree(random, depth, features, modes, number)]
    leaves = [(node["treeids"], node["nodeids"]) for node in nodes if node["modes"] == "LEAF"]
    return {f"nodes_{key}": [node[key] for node in nodes] for key in nodes[0]}, leaves


def features(random: np.random.Generator, rows: int, columns: int, dtype: str = "float32") -> np.ndarray:
    """Numbers that are thresholds now and then, NaN and infinities among them."""
    x = random.standard_normal((rows, columns))
    known = random.choice([-1, -0.5, 0, 0.25, 1, np.nan, np.inf, -np.inf, -0.0], x.shape)
    return np.where(random.random(x.shape) < 0.5, known, x).astype(dtype)
