"""Writes an ONNX graph node by node, with names in the manner of exporters and weights from a seed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple["int | str", ...]  # a string is a symbolic dimension

_ELEMENT_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


class GraphWriter:
    """Collects a graph's nodes, weights, inputs and outputs; values are known by their names."""

    def __init__(self, name: str, *, seed: int, opset: int = 18) -> None:
        self.name, self.opset = name, opset
        self.rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._used: Counter[str] = Counter()
        self._constants: dict[bytes, str] = {}

    def input(self, name: str, shape: Shape, dtype: str = "float32") -> str:
        self._inputs.append(helper.make_tensor_value_info(name, _ELEMENT_TYPES[dtype], shape))
        return name

    def output(self, value: str, name: str, shape: Shape, dtype: str = "float32") -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name], f"/{name}"))
        self._outputs.append(helper.make_tensor_value_info(name, _ELEMENT_TYPES[dtype], shape))

    def op(self, op_type: str, *inputs: str, scope: str = "", **attributes: Any) -> str:
        """Appends a node with one output, named like "/layer1/Conv_2", and gives the output's name."""
        (output,) = self.ops(op_type, *inputs, outputs=1, scope=scope, **attributes)
        return output

    def ops(self, op_type: str, *inputs: str, outputs: int, scope: str = "", **attributes: Any) -> list[str]:
        """The same for a node with several outputs."""
        base = f"{scope}/{op_type}"
        count = self._used[base]
        self._used[base] += 1
        name = f"{base}_{count}" if count else base
        results = [f"{name}_output_{index}" for index in range(outputs)]
        self._nodes.append(helper.make_node(op_type, inputs, results, name, **attributes))
        return results

    def weight(self, name: str, array: np.ndarray) -> str:
        """An initializer."""
        self._initializers.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, name: str, *shape: int, deviation: float) -> str:
        """An initializer of normally distributed float32."""
        return self.weight(name, self.rng.standard_normal(shape, np.float32) * np.float32(deviation))

    def integers(self, *values: int) -> str:
        """A Constant node, int64 of rank 1."""
        return self.constant(np.array(values, np.int64))

    def integer(self, value: int) -> str:
        """A Constant node, int64 of rank 0."""
        return self.constant(np.array(value, np.int64))

    def scalar(self, value: float) -> str:
        """A Constant node, float32 of rank 0."""
        return self.constant(np.array(value, np.float32))

    def constant(self, array: np.ndarray) -> str:
        """A Constant node; equal arrays share one."""
        key = f"{array.dtype}{array.shape}".encode() + array.tobytes()
        if key not in self._constants:
            self._constants[key] = self.op("Constant", value=numpy_helper.from_array(array))
        return self._constants[key]

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._initializers)
        others = sorted({node.domain for node in self._nodes if node.domain})
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in others)]
        return helper.make_model(graph, producer_name="treadle.tools.dev.zoo", ir_version=8, opset_imports=opsets)
