"""The verifier's third and fourth layers, data flow and types: an abstract interpretation of one function.

For every instruction that control can reach, this knows of each reference register what it holds (a `Held`: a type whose
dimensions are integers or values, see integers.py) and of each integer register its value. Where paths meet, what
they do not agree on becomes a new unknown, the same one wherever the same two values meet, so that a size stays the size of its
tensors; what only one path knows is forgotten, and a register of two kinds is empty.

Why the names of unknowns may come from places in the code: an unknown made by an instruction can only be known before that
instruction if it was known on every path to it, the path on which it runs for the first time included. So in a loop,
what an earlier round left behind is never taken for what this round makes.

What is a property of memory is kept by memory, not by register: `move`, `reshape` and `storage_tensor` give memory another
name. Each register knows whose memory it may be (`Held.memory`: the instructions that allocated it), and the state knows
which of these were shared. A tensor may be written into while all memory that it may lie in is this function's alone.

What kernels may assume of a call that passes: every tensor has the element type and the shape of the definition, for the
values of its variables; these values are sizes; outputs are not constants, parameters or anything that was shared; the
elements of inputs were written by the program, not left over from someone else's data. They
may not assume that tensors do not overlap, since frame and storage tensors are laid out by the program: for memory safety,
load an index once, check it, and use what was checked.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

from ...formats import limits
from ...formats.bytecode import Decoded, jump_target
from ...formats.dims import Dim, SymbolicDim
from ...formats.dtypes import DType
from ...formats.isa import OPERATIONS
from ...formats.primitive import PrimitiveDefinition
from ...formats.program import Function
from ...formats.types import (
    UNKNOWN,
    DataType,
    FunctionType,
    ShapeDim,
    TensorType,
    TupleType,
    Type,
    size_problem,
)
from .integers import Values
from .state import (
    FOREIGN,
    FRAME,
    OTHER_MEMORY,
    STORAGE,
    Held,
    Signatures,
    State,
    StorageType,
    is_assignable,
    size_of,
)
from .work import Refusal, Work

FLOW, TYPES = "data flow", "types"


class Flow:
    """The analysis of one function. `run` raises Refusal; `at` is then the instruction that is refused."""

    def __init__(
        self, function: Function, index: int, instructions: list[Decoded], signatures: Signatures, work: Work
    ) -> None:
        self.function, self.instructions, self.signatures, self.work = function, instructions, signatures, work
        self.type = signatures.functions[index]
        self.values = Values(work)
        self.escaping = 0  # bit p: parameter p may outlive a call, or be seen by a host operator
        self.at = 0  # index of the current instruction
        self.refs: dict[int, Held] = {}
        self.ints: dict[int, Dim] = {}
        self.blank: set[int] = set()
        self.shared: set[int] = set()
        self.sizes: set[Dim] = set()
        self._joined: set[int] = set()  # memories that a register may hold beside others
        self._positions = {instruction.offset: position for position, instruction in enumerate(instructions)}
        self._entries: dict[int, State] = {}  # by position, for the targets of jumps
        self._met: dict[int, frozenset[Dim]] = {}  # by position, the unknowns that joins made there
        self._pending: list[int] = []  # a heap of positions to interpret from, each once
        self._scheduled: set[int] = set()
        targets = {jump_target(instruction) for instruction in instructions} - {None}
        self._targets = {self._positions[target] for target in targets}  # type: ignore[index]
        self._sizes: dict[int, int] = {}

    # ---- control flow ----

    def run(self, observe: Callable[[int, State], None] | None = None) -> None:
        """Interprets until nothing changes. `observe` is given the state before each instruction, at least once; what it
        was given last for an instruction is what holds there."""
        params = {i: Held(param, origins=1 << i) for i, param in enumerate(self.type.params)}
        self._entries[0] = State(params, {}, set(), set(), set())
        self._schedule(0)
        while self._pending:
            position = heapq.heappop(self._pending)
            self._scheduled.discard(position)
            self._run_block(position, observe)

    def _schedule(self, position: int) -> None:
        if position not in self._scheduled:
            self._scheduled.add(position)
            heapq.heappush(self._pending, position)

    def _run_block(self, position: int, observe: Callable[[int, State], None] | None) -> None:
        entry = self._entries[position]
        self.refs, self.ints = dict(entry.refs), dict(entry.ints)
        self.blank, self.shared, self.sizes = set(entry.blank), set(entry.shared), set(entry.sizes)
        self.work.spend(self._state_size() // 8)
        while True:
            self.at = position
            _, operation, operands, _ = self.instructions[position]
            if observe is not None:
                observe(position, self._state())
            self.work.spend(2)
            _HANDLERS[operation.opcode](self, *operands)
            if operation.ends_block:
                return
            position += 1
            if position in self._targets:
                return self._flow_to(position)

    def _jump(self, label: int) -> None:
        self._flow_to(self._positions[self.instructions[self.at].offset + label])

    def _flow_to(self, position: int) -> None:
        """The current state is one of those in which control arrives at `position`."""
        entry = self._entries.get(position)
        self.work.spend(self._state_size() // 4)
        if entry is None:
            sets = set(self.blank), set(self.shared), set(self.sizes)
            self._entries[position] = State(dict(self.refs), dict(self.ints), *sets)
            self._schedule(position)
        elif self._join(entry, position):
            self._schedule(position)

    def _state(self) -> State:
        return State(self.refs, self.ints, self.blank, self.shared, self.sizes)

    def _state_size(self) -> int:
        """In registers: numbers in sets are copied and compared in an eighth of the time."""
        return len(self.refs) + len(self.ints) + len(self.sizes) + (len(self.blank) + len(self.shared)) // 8

    def _join(self, entry: State, position: int) -> bool:
        """Makes `entry` allow for the current state too. Returns whether that changed it."""
        self.work.spend((len(entry.refs) + len(entry.ints)) // 4)
        changed = False
        met = self._meet_values(entry, position)
        for register, held in list(entry.refs.items()):
            other = self.refs.get(register)
            joined = held if other is held and not met else self._join_held(held, other, entry, met)
            if joined is None:
                del entry.refs[register]
            elif joined != held:
                entry.refs[register] = joined
            else:
                continue
            changed = True
        for register, value in list(entry.ints.items()):
            if register not in self.ints:
                del entry.ints[register]
            elif (joined_value := met.get((value, self.ints[register]), value)) != value:
                entry.ints[register] = joined_value
            else:
                continue
            changed = True
        for mine, theirs in ((self.blank, entry.blank), (self.shared, entry.shared)):
            if not mine <= theirs:
                theirs.update(mine)
                changed = True
        if not entry.sizes <= self.sizes:
            entry.sizes.intersection_update(self.sizes)
            changed = True
        return changed

    def _meet_values(self, entry: State, position: int) -> dict[tuple[Dim, Dim], Dim]:
        """An unknown for each pair (value in the entry, value now) where the two differ, the same one wherever the pair occurs:
        a size stays the size of its tensors. It is named after the first place, a dimension if there is one: what is called
        after a tensor's dimension is one on every path. Unknowns that were made here are made anew."""
        own = self._met.get(position, frozenset())
        met: dict[tuple[Dim, Dim], Dim] = {}
        where = self.instructions[position].offset
        for register, held in entry.refs.items():
            other = self.refs.get(register)
            if other is None or (other is held and not own):
                continue
            left, right = held.type, other.type
            if (left is right and not own) or not isinstance(left, TensorType) or not isinstance(right, TensorType):
                continue
            if len(left.shape) != len(right.shape):
                continue
            for axis, pair in enumerate(zip(left.shape, right.shape, strict=True)):
                if pair not in met and UNKNOWN not in pair and (pair[0] != pair[1] or pair[0] in own):
                    met[pair] = self.values.size(f"r{register}.{axis} at {where}")  # type: ignore[index]
        for register, value in entry.ints.items():
            now = self.ints.get(register)
            if now is not None and (value, now) not in met and (value != now or value in own):
                met[value, now] = self.values.unknown(f"i{register} at {where}")
        self.work.spend(4 * len(met))
        if met:
            self._met[position] = frozenset(met.values())
        return met

    def _join_held(
        self, left: Held, right: Held | None, entry: State, met: Mapping[tuple[Dim, Dim], Dim]
    ) -> Held | None:
        if right is None:
            return None
        maker = left.maker
        if left.maker != right.maker:
            if left.maker in entry.blank or right.maker in self.blank:
                return None
            maker = -1
        type_ = self._join_types(left.type, right.type, met)
        if type_ is None:
            return None
        memory = self._join_memory(left.memory, right.memory)
        return Held(type_, left.borrowed or right.borrowed, memory, left.origins | right.origins, maker)

    def _join_memory(self, left: frozenset[int], right: frozenset[int]) -> frozenset[int]:
        if left == right:
            return left
        memory = left | right
        self.work.spend(len(memory))
        self._joined |= memory
        if len(memory) > limits.MEMORIES:  # entries take this state's shared memories over after the registers
            self.shared |= memory - FRAME
            return FOREIGN
        return memory

    def _join_types(
        self, left: Type | StorageType, right: Type | StorageType, met: Mapping[tuple[Dim, Dim], Dim]
    ) -> Type | StorageType | None:
        """The type that values of both types have; None if they have nothing in common."""
        if isinstance(left, StorageType) or isinstance(right, StorageType):
            return left if left is right else None
        if isinstance(left, TensorType) and isinstance(right, TensorType):
            if left.dtype is not right.dtype or len(left.shape) != len(right.shape) or left.device != right.device:
                return None
            pairs = zip(left.shape, right.shape, strict=True)
            shape = [met.get(pair, pair[0]) if UNKNOWN not in pair else UNKNOWN for pair in pairs]  # type: ignore[arg-type]
            return left.with_shape(tuple(shape))
        self.work.spend(self._cost(left))
        return right if is_assignable(left, right) else left if is_assignable(right, left) else None

    def _cost(self, type_: Type) -> int:
        """`size_of`, remembered for the types of the program's tables, which live as long as this."""
        size = self._sizes.get(id(type_))
        if size is None:
            size = self._sizes[id(type_)] = size_of(type_)
        return size

    # ---- operands ----

    def _read(self, register: int) -> Held:
        held = self.refs.get(register)
        if held is None:
            raise Refusal(
                FLOW, f"r{register} is read, but on a path to here it is not written, or killed, or of another kind"
            )
        return held

    def _tensor(self, register: int) -> TensorType:
        type_ = self._read(register).type
        if not isinstance(type_, TensorType):
            raise Refusal(TYPES, f"r{register} is {type_}; expected a tensor")
        return type_

    def _elements(self, register: int) -> TensorType:
        """The type of a tensor whose elements are about to be read."""
        type_ = self._tensor(register)
        self._check_written(register)
        return type_

    def _check_written(self, register: int) -> None:
        if self.refs[register].maker in self.blank:
            raise Refusal(FLOW, f"the elements of r{register} are read, but on a path to here nothing has written them")

    def _make(self, register: int, type_: TensorType, memory: frozenset[int]) -> None:
        """r[register] := a new tensor without elements."""
        self.blank.add(self.at)
        self.refs[register] = Held(type_, memory is FRAME, memory, maker=self.at)

    def _new_memory(self) -> frozenset[int]:
        """The memory that this instruction allocates. One of an earlier iteration counts as other memory from now on."""
        if self.at in self._joined:
            self.work.spend(len(self.refs) // 8)
            for register, held in list(self.refs.items()):
                if self.at in held.memory:
                    self.refs[register] = held._replace(memory=held.memory - {self.at} | FOREIGN)
        self.shared.discard(self.at)
        return frozenset((self.at,))

    def _is_writable(self, held: Held) -> bool:
        return OTHER_MEMORY not in held.memory and self.shared.isdisjoint(held.memory)

    def _integer(self, word: int) -> Dim:
        """The value of a `d` field."""
        if word >= 0:
            return word
        return self._int_register(~word)

    def _int_register(self, register: int) -> Dim:
        value = self.ints.get(register)
        if value is None:
            raise Refusal(FLOW, f"i{register} is read, but on a path to here it is not written")
        return value

    def _on_host(self, register: int, what: str) -> TensorType:
        """The type of a tensor whose elements the machine itself is about to read."""
        type_ = self._elements(register)
        if type_.device:
            raise Refusal(TYPES, f"{what}, r{register}, is {type_}; expected one on the host: device_copy makes it")
        return type_

    def _with_shape(self, dtype: DType, words: list[int], device: str = "") -> TensorType:
        """The type of a tensor of the shape that a list of `d` fields gives."""
        problem = size_problem(TensorType(dtype, tuple([word if word >= 0 else 1 for word in words])))
        if problem:
            raise Refusal(TYPES, f"{dtype.name}{words} {problem}")
        dims = [word if word >= 0 else self._int_register(~word) for word in words]
        type_ = TensorType(dtype, tuple(dims), device)
        if size_problem(type_):  # registers make it so: a run that gets here fails here
            unknown = [self._new_unknown(axis) if word < 0 else word for axis, word in enumerate(words)]
            type_ = type_.with_shape(tuple(unknown))
        return type_

    def _share(self, register: int, declared: Type, what: str) -> None:
        """r[register] is given away, to where a `declared` is asked for."""
        held = self._read(register)
        if held.borrowed:
            raise Refusal(TYPES, f"{what}, r{register}, lies in the frame's memory and must not leave the frame")
        self.work.spend(self._cost(declared))
        if not is_assignable(held.type, declared):
            raise Refusal(TYPES, f"{what}, r{register}, is {held.type}; expected {declared}")
        self._check_written(register)
        self.escaping |= held.origins
        self.shared |= held.memory

    def _share_all(self, registers: list[int], declared: Sequence[Type], what: str) -> None:
        if len(registers) != len(declared):
            raise Refusal(TYPES, f"{len(registers)} values for the {len(declared)} of {what}")
        for position, (register, type_) in enumerate(zip(registers, declared, strict=True)):
            self._share(register, type_, f"value {position} of {what}")

    def _check_written_once(self, registers: list[int]) -> None:
        if len(set(registers)) != len(registers):
            raise Refusal(FLOW, f"a register is written twice by one instruction: {registers}")

    # ---- values ----

    def move(self, dst: int, src: int) -> None:
        self.refs[dst] = self._read(src)

    def kill(self, regs: list[int]) -> None:
        for register in regs:
            self.refs.pop(register, None)

    def load_const(self, dst: int, const: int) -> None:
        self.refs[dst] = self.signatures.constants[const]

    def load_int(self, dst: int, imm: int) -> None:
        self.ints[dst] = imm

    def move_int(self, dst: int, src: int) -> None:
        self.ints[dst] = self._int_register(src)

    # ---- control ----

    def goto(self, label: int) -> None:
        self._jump(label)

    def if_(self, cond: int, label: int) -> None:
        type_ = self._on_host(cond, "the condition")
        if type_.shape != () or type_.dtype.is_float:
            raise Refusal(TYPES, f"the condition r{cond} is {type_}; expected a scalar of booleans or integers")
        self._jump(label)

    def if_int(self, cond: int, label: int) -> None:
        self._int_register(cond)
        self._jump(label)

    def ret(self, src: int) -> None:
        self._share(src, self.type.result, f"the result of {self.function.name!r}")

    def fatal(self, reason: int) -> None:
        if reason not in (0, 1):
            raise Refusal(TYPES, f"{reason} is no reason to fail; known are 0 and 1")

    # ---- calls ----

    def invoke(self, dst: int, func: int, args: list[int]) -> None:
        type_ = self.signatures.functions[func]
        self._share_all(args, type_.params, f"the parameters of {self.signatures.program.functions[func].name!r}")
        self.refs[dst] = Held(type_.result)

    def invoke_closure(self, dst: int, closure: int, args: list[int]) -> None:
        type_ = self._read(closure).type
        if not isinstance(type_, FunctionType):
            raise Refusal(TYPES, f"r{closure} is {type_}; expected a closure")
        self._share_all(args, type_.params, f"the parameters of the closure r{closure}")
        self.refs[dst] = Held(type_.result)

    def call_import(self, dst: int, imported: int, args: list[int]) -> None:
        type_ = self.signatures.imports[imported]
        name = self.signatures.program.imports[imported].name
        self._share_all(args, type_.params, f"the parameters of the import {name!r}")
        self.refs[dst] = Held(type_.result)

    def call(self, prim: int, inputs: list[int], outputs: list[int], dims: list[int]) -> None:
        definition = self.signatures.primitives[prim]
        params, results = self.signatures.params[prim], self.signatures.results[prim]
        if len(inputs) != len(params) or len(outputs) != len(results):
            raise self._bad_arity(prim, f"{len(inputs)} inputs and {len(outputs)} outputs", params, results)
        if dims or definition.variables:
            values = self._variables(prim, definition, dims)
            params, results = self._substitute(params, values), self._substitute(results, values)
            self._check_sizes(prim, values, [*inputs, *outputs])
        for position, (register, want) in enumerate(zip(inputs, params, strict=True)):
            if self._elements(register) != want or UNKNOWN in want.shape:
                raise self._mismatch(prim, f"input {position}", register, want)
        for position, (register, want) in enumerate(zip(outputs, results, strict=True)):
            if self._tensor(register) != want or UNKNOWN in want.shape:
                raise self._mismatch(prim, f"output {position}", register, want)
            if not self._is_writable(self.refs[register]):
                raise Refusal(
                    TYPES,
                    f"output {position} of {self._name(prim)}, r{register}, is shared or not made in this function; "
                    "a primitive writes only into tensors of frame_tensor, storage_tensor, alloc_tensor, alloc_dynamic, alloc_on"
                    " whose memory was not given away before, under any name",
                )
        self.blank.difference_update([self.refs[register].maker for register in outputs])

    def call_host(self, prim: int, dst: list[int], inputs: list[int], dims: list[int]) -> None:
        definition = self.signatures.primitives[prim]
        params, results = definition.params, self.signatures.results[prim]
        if device := self.signatures.program.primitives[prim].device:
            raise Refusal(
                TYPES, f"{self._name(prim)} is of the device {device}, where no host operator is done; use call"
            )
        if len(inputs) != len(params) or len(dst) != len(results):
            raise self._bad_arity(prim, f"{len(inputs)} inputs and {len(dst)} results", params, results)
        self._check_written_once(dst)
        if dims or definition.variables:
            values = self._variables(prim, definition, dims)
            params, results = self._substitute(params, values), self._substitute(results, values)
        self._share_all(inputs, params, f"the inputs of {self._name(prim)}")
        for register, type_ in zip(dst, results, strict=True):
            self.refs[register] = Held(type_)

    def _name(self, prim: int) -> str:
        return repr(self.signatures.program.primitives[prim].name)

    def _variables(self, prim: int, definition: PrimitiveDefinition, words: list[int]) -> dict[str, Dim]:
        if len(words) != len(definition.variables):
            names = ", ".join(definition.variables) or "none"
            raise Refusal(TYPES, f"{len(words)} values for the dimension variables of {self._name(prim)}: {names}")
        return dict(zip(definition.variables, map(self._integer, words), strict=True))

    def _substitute(self, types: tuple[TensorType, ...], values: dict[str, Dim]) -> tuple[TensorType, ...]:
        substitute = self.values.substitute

        def replace(dim: ShapeDim) -> ShapeDim:
            return UNKNOWN if dim is UNKNOWN else substitute(dim, values)  # type: ignore[arg-type]

        self.work.spend(sum(len(type_.shape) for type_ in types))
        return tuple([type_.with_shape(tuple(map(replace, type_.shape))) for type_ in types])

    def _check_sizes(self, prim: int, values: dict[str, Dim], registers: list[int]) -> None:
        """A kernel loops over its variables, so each must be the dimension of a tensor: neither negative nor absurd."""
        sizes: set[ShapeDim] | None = None
        for name, value in values.items():
            if isinstance(value, int):
                if 0 <= value <= limits.DIMENSION:
                    continue
            elif value in self.values.sizes or value in self.sizes:
                continue
            if sizes is None:
                sizes = {dim for register in registers for dim in self._tensor(register).shape}
            if value not in sizes:
                raise Refusal(
                    TYPES,
                    f"variable {name} of {self._name(prim)} is {value}, which is not known to be a tensor's dimension",
                )

    def _bad_arity(self, prim: int, got: str, params: Sequence[Type], results: Sequence[Type]) -> Refusal:
        expected = f"{len(params)} inputs and {len(results)} outputs"
        return Refusal(TYPES, f"{self._name(prim)} is called with {got}; expected {expected}")

    def _mismatch(self, prim: int, what: str, register: int, want: TensorType) -> Refusal:
        have = self._tensor(register)
        advice = ""
        if UNKNOWN in want.shape:
            advice = "; a dimension ? can only be given to call_host"
        elif have.device != want.device:
            advice = "; device_copy brings it there"
        elif UNKNOWN in have.shape:
            advice = "; use match_shape to prove it"
        return Refusal(TYPES, f"{what} of {self._name(prim)}, r{register}, is {have}; expected {want}{advice}")

    # ---- memory ----

    def frame_tensor(self, dst: int, type: int, offset: int) -> None:
        type_ = self._static_type(type)
        end = self.function.frame_bytes
        if offset % limits.ALIGNMENT or not 0 <= offset <= end - type_.nbytes:
            raise Refusal(
                TYPES,
                f"a tensor of {type_.nbytes} bytes at byte {offset} of a frame of {end} bytes: "
                f"it must lie inside, at a multiple of {limits.ALIGNMENT}",
            )
        self._make(dst, type_, FRAME)

    def alloc_tensor(self, dst: int, type: int) -> None:
        self._make(dst, self._static_type(type), self._new_memory())

    def _static_type(self, index: int) -> TensorType:
        type_ = self.signatures.program.types[index]
        if not isinstance(type_, TensorType) or not type_.is_static:
            raise Refusal(TYPES, f"type {index} is {type_}; expected a tensor type without unknown dimensions")
        if type_.device:
            raise Refusal(TYPES, f"type {index} is {type_}; here is memory of the host: alloc_on makes such a tensor")
        return type_

    def alloc_dynamic(self, dst: int, dtype: int, shape: list[int]) -> None:
        self._make(dst, self._with_shape(self.signatures.dtypes[dtype], shape), self._new_memory())

    def alloc_storage(self, dst: int, size: int) -> None:
        self._integer(size)
        self.refs[dst] = Held(STORAGE, memory=self._new_memory())

    def storage_tensor(self, dst: int, storage: int, offset: int, dtype: int, shape: list[int]) -> None:
        held = self._read(storage)
        if held.type is not STORAGE:
            raise Refusal(TYPES, f"r{storage} is {held.type}; expected storage")
        self._integer(offset)
        self._make(dst, self._with_shape(self.signatures.dtypes[dtype], shape), held.memory)

    # ---- data ----

    def alloc_data(self, dst: int, type: int, tag: int, fields: list[int]) -> None:
        type_ = self.signatures.program.types[type]
        self._share_all(fields, self._fields(type_, tag), f"constructor {tag} of {type_}")
        self.refs[dst] = Held(type_)

    def get_field(self, dst: int, object: int, tag: int, index: int) -> None:
        held = self._read(object)
        fields = self._fields(held.type, tag)
        if not 0 <= index < len(fields):
            raise Refusal(
                TYPES, f"constructor {tag} of {held.type} has {len(fields)} fields; there is no field {index}"
            )
        self.refs[dst] = Held(fields[index], origins=held.origins)

    def get_tag(self, dst: int, object: int) -> None:
        type_ = self._read(object).type
        if not isinstance(type_, DataType):
            raise Refusal(TYPES, f"r{object} is {type_}; expected a value of a data type")
        self.ints[dst] = self._new_unknown()

    def alloc_closure(self, dst: int, func: int, captured: list[int]) -> None:
        function, type_ = self.signatures.program.functions[func], self.signatures.functions[func]
        if len(captured) != function.captured:
            raise Refusal(TYPES, f"{function.name!r} captures {function.captured} values; {len(captured)} are given")
        bound = type_.params[len(type_.params) - function.captured :]
        self._share_all(captured, bound, f"the captured values of {function.name!r}")
        self.refs[dst] = Held(self.signatures.closures[func])

    def _fields(self, type_: Type | StorageType, tag: int) -> Sequence[Type]:
        """The field types of the constructor `tag` of a tuple or data type."""
        if isinstance(type_, TupleType):
            constructors: Sequence[Sequence[Type]] = (type_.fields,)
        elif isinstance(type_, DataType):
            constructors = self.signatures.constructors[type_.name]
        else:
            raise Refusal(TYPES, f"expected a tuple or a value of a data type, not {type_}")
        if not 0 <= tag < len(constructors):
            raise Refusal(TYPES, f"{type_} has {len(constructors)} constructors; there is no tag {tag}")
        return constructors[tag]

    # ---- shapes ----

    def _new_unknown(self, index: int = 0) -> Dim:
        return self.values.unknown(self._place(index))

    def _place(self, index: int) -> str:
        """A name for the result `index` of this instruction."""
        instruction = self.instructions[self.at]
        return f"{instruction.operation.name}.{instruction.offset}.{index}"

    def shape_of(self, dst: list[int], tensor: int) -> None:
        type_ = self._tensor(tensor)
        self._check_written_once(dst)
        if len(dst) != len(type_.shape):
            raise Refusal(TYPES, f"r{tensor} is {type_}, of rank {len(type_.shape)}; {len(dst)} registers are given")
        shape = [self.values.size(self._place(axis)) if dim is UNKNOWN else dim for axis, dim in enumerate(type_.shape)]
        self.ints.update(zip(dst, shape, strict=True))  # type: ignore[arg-type]
        computed = [dim for dim in shape if isinstance(dim, SymbolicDim)]
        self.work.spend(sum([len(dim.terms) for dim in computed]))
        self.sizes.update([dim for dim in computed if dim not in self.values.sizes])
        if UNKNOWN in type_.shape:
            self.refs[tensor] = self.refs[tensor]._replace(type=type_.with_shape(tuple(shape)))

    def match_shape(self, tensor: int, shape: list[int]) -> None:
        type_ = self._tensor(tensor)
        if len(shape) != len(type_.shape):
            raise Refusal(TYPES, f"r{tensor} is {type_}, of rank {len(type_.shape)}; the shape has rank {len(shape)}")
        self.refs[tensor] = self.refs[tensor]._replace(type=self._with_shape(type_.dtype, shape, type_.device))

    def reshape(self, dst: int, src: int, shape: list[int]) -> None:
        old = self._tensor(src)
        self.refs[dst] = self.refs[src]._replace(type=self._with_shape(old.dtype, shape, old.device))

    def make_shape(self, dst: int, shape: list[int]) -> None:
        for word in shape:
            self._integer(word)
        self.refs[dst] = Held(TensorType(DType.int64, (len(shape),)))

    def read_shape(self, dst: list[int], tensor: int) -> None:
        type_ = self._on_host(tensor, "what is read")
        self._check_written_once(dst)
        if not type_.dtype.is_integer or type_.shape not in ((len(dst),), () if len(dst) == 1 else (len(dst),)):
            raise Refusal(
                TYPES, f"r{tensor} is {type_}; expected a tensor of integers, of rank 0 or 1, with {len(dst)} elements"
            )
        for index, register in enumerate(dst):
            self.ints[register] = self._new_unknown(index)

    # ---- integers ----

    def _arithmetic(self, operator: str, dst: int, a: int, b: int) -> None:
        self.ints[dst] = self.values.apply(operator, self._integer(a), self._integer(b))

    # ---- devices ----

    def device_copy(self, dst: int, src: int, device: int) -> None:
        self.refs[dst] = Held(self._placed(self._elements(src), device))

    def alloc_on(self, dst: int, device: int, dtype: int, shape: list[int]) -> None:
        if device == 0:
            raise Refusal(TYPES, "expected a device, got 0: alloc_tensor and alloc_dynamic are for the host")
        type_ = self._with_shape(self.signatures.dtypes[dtype], shape)
        self._make(dst, self._placed(type_, device), self._new_memory())

    def _placed(self, type_: TensorType, device: int) -> TensorType:
        """The type on a device by its number, 0 for the host."""
        if device and type_.dtype.is_string:
            raise Refusal(TYPES, f"{type_}: texts lie on the host")
        return type_.on(self.signatures.program.devices[device - 1].name if device else "")


_ARITHMETIC = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "floor_divide": "//",
    "remainder": "%",
    "minimum": "min",
    "maximum": "max",
    "equal": "==",
    "less": "<",
}


def _handler(name: str) -> Callable[..., None]:
    """The abstract interpreter of an instruction: the method of `Flow` with its name."""
    operator = _ARITHMETIC.get(name)
    if operator is not None:
        return lambda flow, dst, a, b: flow._arithmetic(operator, dst, a, b)
    return getattr(Flow, name if name != "if" else "if_")


_HANDLERS: dict[int, Callable[..., None]] = {operation.opcode: _handler(operation.name) for operation in OPERATIONS}
