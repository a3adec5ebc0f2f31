"""Inputs for low-rank adapters in a model's graph: `treadle.compile(…, adapters=True)` (Hu et al., LoRA, 2021).

    y = x W    becomes    y = x W + (x A where mask) B

A [inputs, rank] and B [rank, outputs] of each linear module in the model's numbered layers, and the mask [batch, length, rank],
are inputs. Adapters of several texts lie beside one another along the rank; the mask of a token has its own. It chooses, and does
not multiply: what overflows by one text's adapter is not seen by others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats.decoders import ADAPTER_IN, ADAPTER_MASK, ADAPTER_OUT, ADAPTER_RANK, IDS
from ...formats.messages.errors import CompileError
from ...formats.messages.names import near
from .choice import ChosenGraph, Graph
from .given_shapes import dimensions

if TYPE_CHECKING:
    import onnx

_LAYER = re.compile(r"(^|\.)\d+\.")
_WEIGHT = re.compile(r"(\.MatMul)?\.(q?weight\w*|kernel)$")
_ZERO = "adapter.zero"
_FLOAT = 1  # onnx.TensorProto.FLOAT


class _Module(NamedTuple):
    name: str
    inputs: int
    outputs: int
    dtype: int  # ONNX's number of the element type of what the module takes and gives


def with_adapters(
    graph: Graph, wanted: bool | Sequence[str], shapes: Mapping[str, Any]
) -> tuple[ChosenGraph, dict[str, Any]]:
    """The graph with the inputs, and the shapes that are given for it. `wanted` are the last parts of modules' names, True: all.
    Raises CompileError for a model without such modules, or without token ids [batch, length]."""
    from onnx import TensorProto, helper

    ids = _ids(graph)
    sizes = _sizes(ids, shapes)
    finder = _Finder(graph)
    nodes: list[onnx.NodeProto] = []
    found: dict[str, _Module] = {}
    for node in graph.node:
        module = finder.module(node)
        if module is None or not (wanted is True or any(_ends(module.name, each) for each in wanted)):  # type: ignore[union-attr]
            nodes.append(node)
        elif (known := found.setdefault(module.name, module)) != module:
            raise CompileError(f"adapters: two modules {module.name!r}, {known[1:3]} and {module[1:3]}", node=node.name)
        else:
            nodes += _adapted(node, module)
    if missing := [] if wanted is True else [each for each in wanted if not any(_ends(name, each) for name in found)]:  # type: ignore[union-attr]
        names = {name.rpartition(".")[2]: None for name in finder.names}
        raise CompileError(
            f"adapters: no linear module {missing[0]!r} in the model's numbered layers; they have {', '.join(names) or 'none'}"
            f"{near(missing[0], names)}"
        )
    if not found:
        raise CompileError(
            "adapters: the model has no linear modules in numbered layers, such as model.layers.0.self_attn.q_proj"
        )
    declared: list[tuple[str, list[Any]]] = []
    for module in found.values():
        declared.append((ADAPTER_IN.format(module.name), [module.inputs, ADAPTER_RANK]))
        declared.append((ADAPTER_OUT.format(module.name), [ADAPTER_RANK, module.outputs]))
    inputs = [helper.make_tensor_value_info(name, _FLOAT, shape) for name, shape in declared]
    mask = helper.make_tensor_value_info(ADAPTER_MASK, TensorProto.BOOL, [*sizes, ADAPTER_RANK])
    shapes = {**shapes, **({ADAPTER_MASK: (*shapes[ids.name], ADAPTER_RANK)} if ids.name in shapes else {})}
    zero = helper.make_node("Constant", [], [_ZERO], value_float=0.0)
    nodes, inputs = [zero, *nodes], [*graph.input, mask, *inputs]
    return ChosenGraph(graph.name, nodes, inputs, graph.output, graph.initializer, graph.sparse_initializer), shapes


def _ends(name: str, part: str) -> bool:
    return name == part or name.endswith("." + part)


def _ids(graph: Graph) -> onnx.ValueInfoProto:
    inputs = {info.name: info for info in graph.input}
    ids = next((inputs[name] for name in IDS if name in inputs), None)
    if ids is None:
        raise CompileError(f"adapters: the model has no token ids; expected an input {' or '.join(IDS[:3])}")
    return ids


def _sizes(ids: onnx.ValueInfoProto, shapes: Mapping[str, Any]) -> Sequence[Any]:
    """Batch and length, as the model calls them."""
    sizes = shapes.get(ids.name) or dimensions(ids) or ()
    if len(sizes) != 2 or not all(sizes):
        raise CompileError(
            f"adapters: {ids.name} is {list(sizes)}; expected [batch, length], by shapes={{{ids.name!r}: ('batch', 'length')}}"
        )
    return sizes


class _Finder:
    """Linear modules by their nodes."""

    def __init__(self, graph: Graph) -> None:
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._makers = {made: node for node in graph.node for made in node.output}
        self.names: dict[str, None] = {}

    def module(self, node: onnx.NodeProto) -> _Module | None:
        """The linear module that a node computes, but for its bias."""
        found = self._found(node)
        if found is None:
            return None
        names, inputs, outputs, dtype = found
        scope = ".".join(filter(None, node.name.split("/")[:-1]))
        for name in (scope, *(_WEIGHT.sub("", each) for each in names if _WEIGHT.search(each))):
            if _LAYER.search(name) and min(inputs, outputs) > 1:
                self.names[name] = None
                return _Module(name, inputs, outputs, dtype)
        return None

    def _found(self, node: onnx.NodeProto) -> tuple[list[str], int, int, int] | None:
        """Names of its weights, and the sizes and the type of the module."""
        attributes = {each.name: each for each in node.attribute}
        if node.op_type == "MatMulNBits" and len(node.input) > 2 and {"K", "N"} <= attributes.keys():
            scale = self._weights.get(node.input[2])
            return scale and ([node.input[1]], attributes["K"].i, attributes["N"].i, scale.data_type)
        if (
            node.op_type not in ("MatMul", "Gemm")
            or len(node.input) < 2
            or ("transA" in attributes and attributes["transA"].i)
        ):
            return None
        names: list[str] = []
        found = self._weight(node.input[1], names)
        if found is None or len(found[0]) != 2:
            return None
        (inputs, outputs), dtype = found
        if "transB" in attributes and attributes["transB"].i:
            inputs, outputs = outputs, inputs
        return names, inputs, outputs, dtype

    def _weight(self, name: str, names: list[str], depth: int = 4) -> tuple[list[int], int] | None:
        """The shape and the element type of a value that is made of one initializer, whose name joins `names`."""
        if (tensor := self._weights.get(name)) is not None:
            names.append(name)
            return list(tensor.dims), tensor.data_type
        node = self._makers.get(name)
        if node is None or not depth or not node.input:
            return None
        found = self._weight(node.input[0], names, depth - 1)
        if found is None:
            return None
        shape, dtype = found
        if node.op_type == "Transpose" and len(shape) == 2:
            return shape[::-1], dtype
        if node.op_type == "Identity":
            return found
        if node.op_type == "Cast":
            return shape, next((each.i for each in node.attribute if each.name == "to"), dtype)
        if (
            node.op_type == "DequantizeLinear"
            and len(node.input) > 1
            and (scale := self._weights.get(node.input[1])) is not None
        ):
            return shape, scale.data_type
        return None


def _adapted(node: onnx.NodeProto, module: _Module) -> Iterator[onnx.NodeProto]:
    from onnx import NodeProto, helper

    def made(operator: str, *operands: str, **attributes: Any) -> str:
        name = f"{node.output[0]}.{len(nodes)}.adapter"
        nodes.append(helper.make_node(operator, operands, [name], f"{node.name}/adapter/{operator}", **attributes))
        return name

    nodes: list[NodeProto] = []
    is_float = module.dtype == _FLOAT
    taken = node.input[0] if is_float else made("Cast", node.input[0], to=_FLOAT)
    inner = made("MatMul", taken, ADAPTER_IN.format(module.name))
    chosen = made("Where", made("Reshape", ADAPTER_MASK, made("Shape", inner)), inner, _ZERO)
    delta = made("MatMul", chosen, ADAPTER_OUT.format(module.name))
    delta = delta if is_float else made("Cast", delta, to=module.dtype)
    own = NodeProto()
    own.CopyFrom(node)
    own.output[0] = f"{node.output[0]}.adapter"
    yield own
    yield from nodes
    yield helper.make_node("Add", [own.output[0], delta], [node.output[0]], f"{node.name}/adapter/Add")
