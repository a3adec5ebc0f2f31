"""A function of a program as a graph: what makes what each instruction reads, whichever way the control goes.

A node is an instruction that makes tensors or other objects; a call of a primitive holds the operators that are fused in it.
Buffers, releases and integers are left out. Where control flows together, a value has several makers, and as many edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..bytecode import Decoded, function_words, jump_target, loops, scan
from ..dtypes import DType
from ..isa import Kind, Role, with_role
from ..program import Function, Program
from ..text.disassembly import OperandPrinter
from ..types import TensorType, Type

CALL, CONSTANT, RETURN = "call", "load_const", "ret"
_BUFFERS = with_role(Role.BUFFER) | {"frame_tensor", "alloc_storage", "storage_tensor"}
Value = tuple[int, int]  # a node's number, and which of its results; parameters are the results of node -1
PARAMETERS = -1
_Makers = Mapping[int, frozenset[Value]]  # of what lies in each register


class Held(Protocol):
    """What is read of an executable."""

    @property
    def program(self) -> Program: ...
    @property
    def constants(self) -> tuple[np.ndarray, ...]: ...
    def function(self, name: str) -> Function: ...


@dataclass(frozen=True)
class Node:
    """An instruction that makes something, or ends the function."""

    operation: str  # the primitive's name, of a call; else the instruction's
    offset: int  # words from the function's start
    origin: str  # the model's nodes that it comes from, or ""
    details: dict[str, str]
    inputs: list[frozenset[Value]]  # the makers of each
    results: list[Type | None]  # as far as they are known
    operators: tuple[str, ...] = ()  # that a primitive computes
    callee: str = ""  # the function that it calls, or makes a closure of


@dataclass(frozen=True)
class Graph:
    """A function as a graph."""

    name: str
    parameters: dict[str, Type]
    nodes: list[Node] = field(default_factory=list)
    loops: list[tuple[int, int]] = field(default_factory=list)  # offsets of their first and last instructions


def graphs(executable: Held, function: str | None = None) -> list[Graph]:
    """Those of all functions, or of one. Raises UnknownFunctionError."""
    program = executable.program
    functions = program.functions if function is None else [executable.function(function)]
    return [_graph(executable, each) for each in functions]


def _graph(executable: Held, function: Function) -> Graph:
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
    parameters = dict(zip(function.param_names, function.type.params, strict=True))
    return Graph(function.name, parameters, nodes, [(first, back[-1]) for first, back in loops(code).items()])


def _is_node(each: Decoded) -> bool:
    roles = each.operation.roles
    if each.operation.name in (CALL, RETURN):
        return True
    return bool(each.written(Kind.REF)) and each.operation.name not in _BUFFERS and Role.COPIES not in roles


def _outputs(each: Decoded) -> tuple[int, ...]:
    """The registers whose values are other ones afterwards."""
    return each.list("outputs") if each.operation.name == CALL else each.written(Kind.REF)


def _inputs(each: Decoded) -> list[int]:
    found: list[int] = []
    for part, value in zip(each.operation.fields, each.values, strict=True):
        if (
            part.kind is Kind.REF
            and not part.is_written
            and not (each.operation.name == CALL and part.name == "outputs")
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
    before: list[dict[int, frozenset[Value]]] = [{} for _ in code]
    before[0] = {register: frozenset([(PARAMETERS, register)]) for register in range(parameters)}
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


def _node(executable: Held, each: Decoded, makers: _Makers, origin: str, printer: OperandPrinter) -> Node:
    inputs = [makers.get(register, frozenset()) for register in _inputs(each)]
    details = {"instruction": f"{each.operation.name} {printer.text(each)}"}
    if each.operation.name == CONSTANT:
        array = executable.constants[each.word("const")]
        type_ = TensorType(DType.of(array.dtype), array.shape)
        return Node(CONSTANT, each.offset, origin, details, inputs, [type_])
    if not each.operation.has("prim"):
        results: list[Type | None] = [None] * len(_outputs(each))
        callee = executable.program.functions[each.word("func")].name if each.operation.has("func") else ""
        return Node(each.operation.name, each.offset, origin, details, inputs, results, callee=callee)
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
