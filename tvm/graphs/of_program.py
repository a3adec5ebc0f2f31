"""A function of an executable as a graph JSON: the way back from `program.py`.

It can be done with straight-line code over tensors of static shapes. Each call of a primitive becomes a node with its name,
each reshape a `__nop`, and each constant a parameter p0, p1, … whose elements come with the graph; other functions become part
of the one that calls them. Where the memory planner has
put tensors in the frame goes along (`frame_offset`), so that the machine does with the graph what it did with the
function; storage ids are a plan for those that have no frame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn, Union

import numpy as np

from ...formats import limits
from ...formats.bytecode import Decoded, function_words, scan
from ...formats.constants import aligned, constant_type
from ...formats.executable import Executable
from ...formats.messages.errors import ArgumentError
from ...formats.program import Function, Program
from ...formats.types import TensorType, TupleType, Type
from ...vm.observe.profile import kernel_hash
from ..files.graph_json import COPY, NOP, Entry, Graph, Node
from .program import OFFSETS, SIZES


@dataclass(frozen=True)
class _Made:
    """A tensor that no primitive has written yet."""

    type: TensorType
    offset: int | None  # in the frame
    memory: object = field(default_factory=object)  # the same for the same memory in another shape


_Value = Union[Entry, _Made, tuple]  # what a register holds; a tuple's fields


class GraphOf(NamedTuple):
    """A graph, the elements of its parameters p0, p1, …, and which constants of the program these are, by their places."""

    graph: Graph
    params: dict[str, np.ndarray]
    places: dict[int, str]


def graph_of(executable: Executable, name: str = "main") -> GraphOf:
    """The graph of a function, whose constants become parameters.

    Raises UnknownFunctionError, and ArgumentError for a function that is not a straight line of calls over static tensors.
    """
    program = executable.program
    function = executable.function(name)
    writer = _Writer(program, function)
    writer.read()
    return GraphOf(writer.graph(), writer.params, writer.places)


@dataclass
class _Frame:
    """A function that is being read."""

    function: Function
    base: int  # where its frame begins
    origins: dict[int, str]  # model nodes by the offsets of instructions
    registers: dict[int, _Value]


@dataclass
class _Table:
    """What a graph has by entry."""

    types: list[TensorType] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


class _Writer:
    def __init__(self, program: Program, function: Function) -> None:
        self._program, self._called = program, function
        self._open: list[_Frame] = []  # the functions that are being read, each called by the one before
        self._nodes: list[Node] = []
        self._table = _Table()
        self._row_ptr = [0]
        self._inputs: list[int] = []
        self._constants: dict[int, Entry] = {}
        self._heads: list[Entry] = []
        self._roots: dict[int, int] = {}
        self._names: Counter[str] = Counter()
        self.params: dict[str, np.ndarray] = {}
        self.places: dict[int, str] = {}

    # ---- reading the code ----

    def read(self) -> None:
        types = zip(self._called.param_names, self._called.type.params, strict=True)
        self._leave(self._read(self._called, [self._parameter(name, type_) for name, type_ in types], 0))

    def _read(self, function: Function, arguments: Sequence[_Value], base: int) -> _Value:
        """Adds the nodes of a function whose frame begins at `base`; what it returns."""
        number = self._program.functions.index(function)
        origins = {source.offset: source.node for source in self._program.source_map if source.function == number}
        self._open.append(_Frame(function, base, origins, dict(enumerate(arguments))))
        try:
            for instruction in scan(function_words(self._program, function), function.name):
                handler = getattr(self, f"_{instruction.operation.name}", None)
                if handler is None:
                    self._refuse(f"it has the instruction {instruction.operation.name}", instruction)
                result = handler(instruction, *instruction.values)
                if instruction.operation.name == "ret":
                    return result
        finally:
            self._open.pop()
        raise AssertionError("a verified function ends with a ret")

    @property
    def _registers(self) -> dict[int, _Value]:
        return self._open[-1].registers

    def _refuse(self, reason: str, instruction: Decoded | None = None) -> NoReturn:
        frame = self._open[-1] if self._open else None
        raise ArgumentError(
            f"{self._called.name} has no graph JSON: {reason}; a graph is straight-line code over tensors of static shapes. "
            "The virtual machine runs any function",
            function=frame.function.name if frame else self._called.name,
            node=frame.origins.get(instruction.offset) if frame and instruction else None,
        )

    def _parameter(self, name: str, type_: Type) -> Entry:
        if not isinstance(type_, TensorType) or not type_.is_static:
            self._refuse(f"the parameter {name!r} is {type_}")
        self._inputs.append(len(self._nodes))
        return self._add(Node(self._unique(name)), [type_])[0]

    def _add(self, node: Node, types: Sequence[TensorType], offsets: Sequence[int | None] = ()) -> list[Entry]:
        number = len(self._nodes)
        if number >= limits.GRAPH_NODES:
            self._refuse(f"it has more than {limits.GRAPH_NODES} nodes")
        self._nodes.append(node)
        self._table.types += types
        self._table.offsets += [0 if offset is None else offset + 1 for offset in offsets or [None] * len(types)]
        self._row_ptr.append(len(self._table.types))
        return [Entry(number, index) for index in range(len(types))]

    def _unique(self, name: str) -> str:
        self._names[name] += 1
        while self._names[name] > 1:
            name = f"{name}_{self._names[name] - 1}"
            self._names[name] += 1
        return name

    def _entry(self, register: int, instruction: Decoded) -> Entry:
        value = self._registers.get(register)
        if not isinstance(value, Entry):
            self._refuse(f"r{register} is not a tensor that a node gives", instruction)
        return value

    def _type(self, entry: Entry) -> TensorType:
        return self._table.types[self._row_ptr[entry.node] + entry.index]

    def _name_of(self, instruction: Decoded, otherwise: str) -> str:
        return self._unique(self._open[-1].origins.get(instruction.offset) or otherwise)

    # ---- instructions ----

    def _move(self, _: Decoded, dst: int, src: int) -> None:
        self._registers[dst] = self._registers[src]

    def _kill(self, _: Decoded, registers: tuple[int, ...]) -> None:
        for register in registers:
            self._registers.pop(register, None)

    def _load_const(self, _: Decoded, dst: int, number: int) -> None:
        if number not in self._constants:
            array = self._program.constants[number]
            name = self._unique(f"p{len(self.params)}")
            self._inputs.append(len(self._nodes))
            self._constants[number] = self._add(Node(name), [constant_type(array)])[0]
            self.params[name], self.places[number] = array, name
        self._registers[dst] = self._constants[number]

    def _frame_tensor(self, _: Decoded, dst: int, type_: int, offset: int) -> None:
        self._registers[dst] = _Made(self._program.types[type_], self._open[-1].base + offset)  # type: ignore[arg-type]

    def _alloc_tensor(self, _: Decoded, dst: int, type_: int) -> None:
        self._registers[dst] = _Made(self._program.types[type_], None)  # type: ignore[arg-type]

    def _call(
        self,
        instruction: Decoded,
        number: int,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        dims: tuple[int, ...],
    ) -> None:
        primitive = self._program.primitives[number]
        if any(word < 0 for word in dims):
            self._refuse(f"{primitive.name} takes sizes that are computed", instruction)
        places = [self._registers.get(register) for register in outputs]
        if not all(isinstance(place, _Made) for place in places):
            self._refuse(f"{primitive.name} writes into a tensor a second time", instruction)
        sizes = {SIZES: ", ".join(map(str, dims))} if dims else {}
        node = Node(
            self._name_of(instruction, primitive.name),
            primitive.name,
            tuple(self._entry(register, instruction) for register in inputs),
            len(outputs),
            attrs={"hash": kernel_hash(primitive.definition), **sizes},
        )
        types, offsets = [place.type for place in places], [place.offset for place in places]  # type: ignore[union-attr]
        for place, entry in zip(places, self._add(node, types, offsets), strict=True):
            assert isinstance(place, _Made)
            for register, value in list(self._registers.items()):
                if isinstance(value, _Made) and value.memory is place.memory:
                    same = value.type == place.type
                    self._registers[register] = entry if same else self._view(entry, value.type, instruction)

    def _reshape(self, instruction: Decoded, dst: int, src: int, shape: tuple[int, ...]) -> None:
        if any(word < 0 for word in shape):
            self._refuse("a shape is computed", instruction)
        source = self._registers.get(src)
        if isinstance(source, _Made):  # a primitive will write it in this shape
            self._registers[dst] = replace(source, type=TensorType(source.type.dtype, shape))
            return
        source = self._entry(src, instruction)
        self._registers[dst] = self._view(source, TensorType(self._type(source).dtype, shape), instruction)

    def _view(self, source: Entry, type_: TensorType, instruction: Decoded) -> Entry:
        """An entry's memory in another shape."""
        (entry,) = self._add(Node(self._name_of(instruction, "reshape"), NOP, (source,)), [type_])
        at = self._row_ptr[source.node] + source.index
        self._roots[self._row_ptr[entry.node]] = self._roots.get(at, at)
        return entry

    def _device_copy(self, instruction: Decoded, dst: int, src: int, _: int) -> None:
        source = self._entry(src, instruction)
        node = Node(self._name_of(instruction, "copy"), COPY, (source,))
        (self._registers[dst],) = self._add(node, [self._type(source)])

    def _alloc_data(self, instruction: Decoded, dst: int, type_: int, _: int, fields: tuple[int, ...]) -> None:
        if not isinstance(self._program.types[type_], TupleType):
            self._refuse(f"it makes a value of {self._program.types[type_]}", instruction)
        self._registers[dst] = tuple(self._registers[register] for register in fields)

    def _get_field(self, instruction: Decoded, dst: int, record: int, _: int, index: int) -> None:
        value = self._registers.get(record)
        if not isinstance(value, tuple):
            self._refuse(f"r{record} is not a tuple that is made here", instruction)
        self._registers[dst] = value[index]

    def _call_host(self, instruction: Decoded, number: int, *_: object) -> NoReturn:
        """New tensors, whose sizes the operator finds: those of texts as bytes, for instance."""
        operators = ", ".join(
            dict.fromkeys(node.operator for node in self._program.primitives[number].definition.nodes)
        )
        self._refuse(f"the host makes tensors in it whose sizes a run finds ({operators})", instruction)

    def _invoke(self, instruction: Decoded, dst: int, number: int, arguments: tuple[int, ...]) -> None:
        function, frame = self._program.functions[number], self._open[-1]
        if any(each.function is function for each in self._open):
            self._refuse(f"{function.name} calls itself", instruction)
        base = frame.base + aligned(frame.function.frame_bytes)
        frame.registers[dst] = self._read(function, [frame.registers[register] for register in arguments], base)

    def _ret(self, _: Decoded, src: int) -> _Value:
        return self._registers[src]

    def _leave(self, result: _Value) -> None:
        """The outputs: a tensor, or all tensors of a tuple."""
        pending = [result]
        while pending:
            value = pending.pop()
            if isinstance(value, tuple):
                pending += reversed(value)
            elif isinstance(value, Entry):
                self._heads.append(value)
            else:
                self._refuse("it returns a tensor that no primitive has written")

    # ---- the graph ----

    def graph(self) -> Graph:
        table = self._table
        return Graph(
            tuple(self._nodes),
            tuple(self._inputs),
            tuple(self._heads),
            tuple(type_.shape for type_ in table.types),  # type: ignore[misc]
            self._storage(),
            tuple(type_.dtype.name for type_ in table.types),
            extra={OFFSETS: tuple(table.offsets)},
        )

    def _storage(self) -> tuple[int, ...]:
        """Storage ids: a tensor takes the smallest storage that is free by then and large enough, else a new one. Parameters and
        outputs keep theirs."""
        last: dict[int, int] = {}
        for number, node in enumerate(self._nodes):
            for entry in node.inputs:
                last[self._root(entry)] = number
        kept = {self._root(entry) for entry in self._heads} | {self._row_ptr[number] for number in self._inputs}
        ids: list[int] = []
        sizes: list[int] = []
        free: list[int] = []
        for number, node in enumerate(self._nodes):
            first = self._row_ptr[number]
            for at in range(first, self._row_ptr[number + 1]):
                root = self._roots.get(at, at)
                if root != at:
                    ids.append(ids[root])
                    continue
                size = self._table.types[at].nbytes
                fitting = [storage for storage in free if sizes[storage] >= size] if at not in kept else []
                if fitting:
                    ids.append(min(fitting, key=sizes.__getitem__))
                    free.remove(ids[-1])
                else:
                    ids.append(len(sizes))
                    sizes.append(size)
            roots = {self._root(entry) for entry in node.inputs}
            free += [ids[root] for root in sorted(roots) if last[root] == number and root not in kept]
        return tuple(ids)

    def _root(self, entry: Entry) -> int:
        at = self._row_ptr[entry.node] + entry.index
        return self._roots.get(at, at)
