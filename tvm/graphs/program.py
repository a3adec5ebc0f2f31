"""A graph JSON as a program of the machine: nodes in a row become functions of straight-line code.

What the machine has as primitives runs in it; nodes that call Python's functions, and copies between devices, lie between. So a
graph becomes steps; the tensors that one step leaves for another, parameters and outputs among them, are arrays that the
executor keeps (`Step.reads`, `Step.writes`); the others lie in the frame of a function, by their storage.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ...formats import limits
from ...formats.bytecode import CodeBuilder, code_array
from ...formats.messages.errors import FormatError, ShapeError, UnknownFunctionError
from ...formats.primitive import Primitive
from ...formats.program import Function, Program, SourceLocation
from ...formats.types import FunctionType, TupleType, Type
from ..files.graph_json import COPY, NOP, Graph, Node
from .names import graph_names

SIZES = "sizes"  # the attribute of a node that has the values of its primitive's dimension variables: "3, 224"
OFFSETS, FRAME = "frame_offset", "frame_bytes"  # extra attributes: where entries lie in the frame, + 1; 0: nowhere


@dataclass
class Step:
    """What runs at once: the function of the program with the name `function`, or one node that Python does."""

    nodes: list[int]
    function: str | None = None
    reads: list[int] = field(default_factory=list)  # entries
    writes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class GraphProgram:
    """A graph, cut into steps. `roots` says for each entry whose memory it has: its own, or, after `__nop`, another's."""

    graph: Graph
    steps: tuple[Step, ...]
    program: Program
    roots: tuple[int, ...]


def make_program(
    graph: Graph, primitives: Sequence[Primitive], python: Collection[str] = (), *, apart: bool = False
) -> GraphProgram:
    """The program of a graph whose functions are `primitives`, or, by name, Python's. With `apart`, each node is a step.

    Raises UnknownFunctionError with all missing functions, FormatError for a node that does not fit, DTypeError for
    elements that Treadle does not have.
    """
    by_name = {primitive.name: number for number, primitive in enumerate(primitives)}
    by_name |= {name: number for number, name in enumerate(graph_names(primitives))}
    _check_devices(graph)
    _check_functions(graph, {*by_name, *python, NOP, COPY})
    roots = _roots(graph)
    steps = _steps(graph, {*python, COPY} - by_name.keys(), apart)
    _find_tensors(graph, steps, roots, apart)
    builder = _Builder(graph, primitives, by_name, is_whole=len(steps) == 1)
    for number, step in enumerate(steps):
        if step.function is not None:
            step.function = "main" if len(steps) == 1 else f"step_{number}"
            builder.add(step, roots)
    return GraphProgram(graph, tuple(steps), builder.program(), roots)


def _check_devices(graph: Graph) -> None:
    for entry, scope in enumerate(graph.storage_scopes or ()):
        if scope and not scope.startswith("global"):
            raise FormatError(f"graph JSON: entry {entry} lies in {scope!r}; the CPU has global memory alone")


def _check_functions(graph: Graph, known: Collection[str]) -> None:
    """Raises UnknownFunctionError, which names all functions that are missing, each once."""
    missing = dict.fromkeys(node.function for node in graph.nodes if node.function is not None)
    if lost := [name for name in missing if name not in known]:
        names = ", ".join(repr(name[:60]) for name in lost[:20]) + (" …" if len(lost) > 20 else "")
        raise UnknownFunctionError(
            f"graph JSON: no such function in module: {names}; a function is a primitive of the executable, or one of "
            "the module or mapping handed over with the graph, system_lib() being that of registered ones"
        )


def _roots(graph: Graph) -> tuple[int, ...]:
    """For each entry the one whose memory it has. Raises FormatError, ShapeError for reshapes and copies that are none."""
    roots = list(range(graph.row_ptr[-1]))
    for number, node in enumerate(graph.nodes):
        if node.function not in (NOP, COPY):
            continue
        if node.outputs != 1 or not node.inputs:
            raise FormatError(f"graph JSON: {node.function} takes a tensor and gives one", node=node.name)
        entry, source = graph.row_ptr[number], graph.number(node.inputs[0])
        given, taken = graph.types[entry], graph.types[source]
        if given.dtype is not taken.dtype:
            raise FormatError(f"graph JSON: it makes {given} of {taken}, which has other elements", node=node.name)
        if given.nbytes != taken.nbytes or (node.function == COPY and given != taken):
            raise ShapeError(f"graph JSON: it makes {given} of {taken}, which has another shape", node=node.name)
        if node.function == NOP:
            roots[entry] = roots[source]
    return tuple(roots)


def _steps(graph: Graph, python: Collection[str], apart: bool) -> list[Step]:
    steps: list[Step] = []
    for number, node in enumerate(graph.nodes):
        if node.is_input or (node.function == NOP and not apart):
            continue
        if node.function in python or node.function == NOP:
            steps.append(Step([number]))
        elif steps and steps[-1].function is not None and not apart:
            steps[-1].nodes.append(number)
        else:
            steps.append(Step([number], function="main"))
    return steps


def _find_tensors(graph: Graph, steps: Sequence[Step], roots: Sequence[int], apart: bool) -> None:
    """What each step reads of others' tensors, and which of its own it leaves to others or gives out: all of them, `apart`."""
    maker = {}
    for at, step in enumerate(steps):
        for number in step.nodes:
            maker.update(dict.fromkeys(range(graph.row_ptr[number], graph.row_ptr[number + 1]), at))
    wanted: dict[int, None] = dict.fromkeys(roots[graph.number(head)] for head in graph.heads)
    for at, step in enumerate(steps):
        for number in step.nodes:
            for entry in map(graph.number, graph.nodes[number].inputs):
                if step.function is None or maker.get(roots[entry]) != at:
                    wanted[roots[entry]] = None
                    if entry not in step.reads:
                        step.reads.append(entry)
            if step.function is None:
                wanted.update(dict.fromkeys(range(graph.row_ptr[number], graph.row_ptr[number + 1])))
    for step in steps:
        made = [entry for number in step.nodes for entry in range(graph.row_ptr[number], graph.row_ptr[number + 1])]
        step.writes = [entry for entry in made if roots[entry] == entry and (apart or entry in wanted)]


class _Builder:
    """Writes functions for steps."""

    def __init__(
        self, graph: Graph, primitives: Sequence[Primitive], by_name: Mapping[str, int], is_whole: bool
    ) -> None:
        self._graph, self._primitives, self._by_name = graph, primitives, by_name
        self._used: dict[int, int] = {}  # number of a primitive → its number in this program
        self._types: dict[Type, int] = {}
        self._functions: list[Function] = []
        self._words: list[list[int]] = []
        self._origins: list[SourceLocation] = []
        offsets = graph.extra.get(OFFSETS)
        has_offsets = is_whole and isinstance(offsets, tuple) and len(offsets) == graph.row_ptr[-1]
        self._offsets: Sequence[int] | None = offsets if has_offsets else None  # type: ignore[assignment]

    def add(self, step: Step, roots: Sequence[int]) -> None:
        graph = self._graph
        code = CodeBuilder()
        registers = {entry: number for number, entry in enumerate(step.reads)}
        places, frame_bytes = self._places(step)
        count = len(step.reads)

        def register(entry: int) -> int:
            """Where an entry is; one in the memory of an entry that was made here gets its shape first."""
            nonlocal count
            if entry not in registers:
                code.emit("reshape", dst=count, src=registers[roots[entry]], shape=graph.shapes[entry])
                registers[entry], count = count, count + 1
            return registers[entry]

        for number in step.nodes:
            node, first = graph.nodes[number], graph.row_ptr[number]
            code.node = node.name
            primitive = self._by_name[node.function]  # type: ignore[index]
            inputs = [register(graph.number(entry)) for entry in node.inputs]
            outputs = list(range(first, first + node.outputs))
            for entry in outputs:
                registers[entry], count = count, count + 1
                type_ = self._type(graph.types[entry])
                if entry in step.writes:
                    code.emit("alloc_tensor", dst=registers[entry], type=type_)
                else:
                    code.emit("frame_tensor", dst=registers[entry], type=type_, offset=places[entry])
            sizes = _sizes(node)
            prim = self._used.setdefault(primitive, len(self._used))
            code.emit("call", prim=prim, inputs=inputs, outputs=[registers[entry] for entry in outputs], dims=sizes)
        code.node = ""
        self._finish(step, code, registers, count, frame_bytes)

    def _finish(
        self, step: Step, code: CodeBuilder, registers: Mapping[int, int], count: int, frame_bytes: int
    ) -> None:
        graph = self._graph
        types = tuple(graph.types[entry] for entry in step.writes)
        result: Type = types[0] if len(types) == 1 else TupleType(types)
        source = registers[step.writes[0]] if len(types) == 1 else count
        if len(types) != 1:
            fields = [registers[entry] for entry in step.writes]
            code.emit("alloc_data", dst=count, type=self._type(result), tag=0, fields=fields)
            count += 1
        code.emit("ret", src=source)
        words, nodes = code.finish()
        params = tuple(graph.types[entry] for entry in step.reads)
        names = tuple(self._name_of(entry) for entry in step.reads)
        assert step.function is not None
        start, number = sum(map(len, self._words)), len(self._functions)
        type_ = FunctionType(params, result)
        self._functions.append(
            Function(step.function, names, type_, 0, max(count, len(names)), 0, frame_bytes, start, len(words))
        )
        self._origins += [SourceLocation(number, offset, node) for offset, node in nodes if node]
        self._words.append(words)

    def _name_of(self, entry: int) -> str:
        """What a function calls a tensor that it reads: parameters keep their names."""
        node = bisect.bisect_right(self._graph.row_ptr, entry) - 1
        if self._graph.nodes[node].is_input:
            return self._graph.nodes[node].name
        name = f"entry_{entry}"
        while name in self._graph.names:
            name += "_"
        return name

    def _type(self, type_: Type) -> int:
        return self._types.setdefault(type_, len(self._types))

    def _places(self, step: Step) -> tuple[Mapping[int, int], int]:
        """Where the entries of a step that nobody else wants lie in its frame, and how large that is."""
        graph = self._graph
        own = [
            entry
            for number in step.nodes
            for entry in range(graph.row_ptr[number], graph.row_ptr[number + 1])
            if entry not in step.writes
        ]
        if self._offsets is not None and all(self._offsets[entry] for entry in own):
            places = {entry: self._offsets[entry] - 1 for entry in own}
            return places, max((places[entry] + _aligned(graph.types[entry].nbytes) for entry in own), default=0)
        sizes: dict[int, int] = {}
        for entry in own:
            storage = graph.storage_ids[entry]
            sizes[storage] = max(sizes.get(storage, 0), _aligned(graph.types[entry].nbytes))
        starts, end = {}, 0
        for storage, size in sizes.items():
            starts[storage], end = end, end + size
        if end > limits.FRAME_BYTES:
            raise FormatError(f"graph JSON: its tensors take {end} bytes; at most {limits.FRAME_BYTES} are possible")
        return {entry: starts[graph.storage_ids[entry]] for entry in own}, end

    def program(self) -> Program:
        """Raises FormatError."""
        return Program(
            tuple(self._functions),
            (),
            tuple(self._primitives[number] for number in self._used),
            code_array(self._words),
            tuple(self._types),
            (),
            tuple(self._origins),
        )


def _aligned(size: int) -> int:
    return -(-size // limits.ALIGNMENT) * limits.ALIGNMENT


def _sizes(node: Node) -> list[int]:
    text = node.attrs.get(SIZES, "")
    words = text.replace(",", " ").split()
    if not all(word.isascii() and word.isdigit() and len(word) < 19 for word in words):
        raise FormatError(f"graph JSON: {SIZES} is {text[:60]!r}; expected numbers", node=node.name)
    return list(map(int, words))
