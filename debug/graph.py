"""Graphs of a compiled program, for viewers: what makes what each instruction reads, whichever way the control goes.

    treadle.debug.save_graph(executable, "model.netron.json")    # Netron opens it
    treadle.debug.save_graph(executable, "model.explorer.json")  # Model Explorer opens it

A node is an instruction that makes tensors or other objects; a call of a primitive holds the operators that are fused in it.
Buffers, releases and integers are left out. Where control flows together, a value has several makers, and as many edges.

Netron's format is that of its messages (`source/message.js`, signature `netron:`), Model Explorer's its graph collection
(github.com/google-ai-edge/model-explorer, `GraphCollection`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..formats.bytecode import Decoded, function_words, jump_target, scan
from ..formats.dtypes import DType
from ..formats.executable import Executable
from ..formats.isa import Kind, Role
from ..formats.messages.calling import public
from ..formats.messages.errors import ArgumentError, naming
from ..formats.program import Function
from ..formats.text.disassembly import OperandPrinter
from ..formats.types import TensorType, Type
from .files import path_of
from .subject import executable_of

_CALL, _CONSTANT, _RETURN = "call", "load_const", "ret"
_Value = tuple[int, int]  # a node's number, and which of its results; parameters are the results of node -1
_PARAMETERS = -1
_Makers = Mapping[int, frozenset[_Value]]  # of what lies in each register


@dataclass(frozen=True)
class Node:
    """An instruction that makes something, or ends the function."""

    operation: str  # the primitive's name, of a call; else the instruction's
    offset: int  # words from the function's start
    origin: str  # the model's nodes that it comes from, or ""
    details: dict[str, str]
    inputs: list[frozenset[_Value]]  # the makers of each
    results: list[Type | None]  # as far as they are known
    operators: tuple[str, ...] = ()  # that a primitive computes


@dataclass(frozen=True)
class Graph:
    """A function as a graph."""

    name: str
    parameters: dict[str, Type]
    nodes: list[Node] = field(default_factory=list)


@public
def save_graph(model: Any, path: str | os.PathLike, *, function: str | None = None) -> None:
    """Writes the graph of each function, or of one, of an executable, of a file of one, or of a model, which is compiled. A path
    ends in `.netron.json` or `.explorer.json`. Raises ArgumentError, UnknownFunctionError, FileError, CompileError."""
    target = path_of(path, "save_graph: path")
    writer = next((write for suffix, write in _WRITERS.items() if target.name.endswith(suffix)), None)
    if writer is None:
        raise ArgumentError(f"save_graph: the path {str(target)!r} ends in neither {' nor '.join(_WRITERS)}")
    content = json.dumps(writer(target.name, graphs(executable_of(model, "save_graph"), function)))
    with naming(f"the graph in {str(target)!r}"):
        target.write_text(content)


def graphs(executable: Executable, function: str | None = None) -> list[Graph]:
    """Those of all functions, or of one. Raises UnknownFunctionError."""
    program = executable.program
    functions = program.functions if function is None else [executable.function(function)]
    return [_graph(executable, each) for each in functions]


def _graph(executable: Executable, function: Function) -> Graph:
    program = executable.program
    code = list(scan(function_words(program, function), function.name))
    number = next(i for i, each in enumerate(program.functions) if each.name == function.name)
    origins = {at.offset: at.node for at in program.source_map if at.function == number}
    makers = _makers(code, len(function.type.params))
    printer = OperandPrinter(program)
    nodes = [
        _node(executable, each, makers[at], origins.get(each.offset, ""), printer)
        for at, each in enumerate(code)
        if _is_node(each)
    ]
    return Graph(function.name, dict(zip(function.param_names, function.type.params, strict=True)), nodes)


def _is_node(each: Decoded) -> bool:
    roles = each.operation.roles
    if each.operation.name in (_CALL, _RETURN):
        return True
    return bool(each.written(Kind.REF)) and Role.BUFFER not in roles and Role.COPIES not in roles


def _outputs(each: Decoded) -> tuple[int, ...]:
    """The registers whose values are other ones afterwards."""
    return each.list("outputs") if each.operation.name == _CALL else each.written(Kind.REF)


def _inputs(each: Decoded) -> list[int]:
    found: list[int] = []
    for part, value in zip(each.operation.fields, each.values, strict=True):
        if (
            part.kind is Kind.REF
            and not part.is_written
            and not (each.operation.name == _CALL and part.name == "outputs")
        ):
            found += value if isinstance(value, tuple) else (value,)
    return found


def _makers(code: list[Decoded], parameters: int) -> list[_Makers]:
    """Reaching definitions of each register before each instruction, by a work list over the instructions."""
    places = {each.offset: at for at, each in enumerate(code)}
    numbers: dict[int, int] = {}
    for at, each in enumerate(code):
        if _is_node(each):
            numbers[at] = len(numbers)
    before: list[dict[int, frozenset[_Value]]] = [{} for _ in code]
    before[0] = {register: frozenset([(_PARAMETERS, register)]) for register in range(parameters)}
    waiting, seen = [0], {0}
    while waiting:
        at = waiting.pop()
        each, after = code[at], dict(before[at])
        if at in numbers:
            after |= {register: frozenset([(numbers[at], i)]) for i, register in enumerate(_outputs(each))}
        elif Role.COPIES in each.operation.roles:
            read = frozenset(maker for register in _inputs(each) for maker in after.get(register, ()))
            after |= dict.fromkeys(each.written(Kind.REF), read)
        following = [] if each.operation.ends_block else [at + 1]
        target = jump_target(each)
        for place in following + ([places[target]] if target is not None else []):
            known = before[place]
            grown = {register: known.get(register, frozenset()) | made for register, made in after.items()}
            if place not in seen or any(grown[register] != known.get(register) for register in grown):
                known |= grown
                seen.add(place)
                waiting.append(place)
    return list(before)


def _node(executable: Executable, each: Decoded, makers: _Makers, origin: str, printer: OperandPrinter) -> Node:
    inputs = [makers.get(register, frozenset()) for register in _inputs(each)]
    details = {"instruction": printer.text(each)}
    if each.operation.name == _CONSTANT:
        array = executable.constants[each.word("const")]
        type_ = TensorType(DType.of(array.dtype), array.shape)
        return Node(_CONSTANT, each.offset, origin, details, inputs, [type_])
    if each.operation.name != _CALL:
        return Node(each.operation.name, each.offset, origin, details, inputs, [None] * len(_outputs(each)))
    primitive = executable.program.primitives[each.word("prim")]
    definition = primitive.definition
    return Node(
        primitive.name,
        each.offset,
        origin,
        details,
        inputs,
        list(definition.results),
        tuple(node.operator for node in definition.nodes),
    )


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
    results = sorted({_value(graph, v) for node in graph.nodes if node.operation == _RETURN for v in node.inputs[0]})
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


def _value(graph: Graph, value: _Value) -> str:
    node, result = value
    if node == _PARAMETERS:
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


def _explorer_source(graph: Graph, value: _Value) -> tuple[str, str]:
    node, result = value
    return (_value(graph, value), "0") if node == _PARAMETERS else (str(node), str(result))


_WRITERS = {".netron.json": as_netron, ".explorer.json": as_explorer}
