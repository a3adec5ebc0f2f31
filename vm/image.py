"""A linked program in the engine's form: records and immortal objects, laid out once and shared by all calls.

The words are those of `vm/layout.py`. Static tensor types are laid out as objects, so that a register that holds a tensor in
frame memory needs nothing but its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..formats import sections
from ..formats.bytecode import Decoded, function_words, jump_target, scan
from ..formats.constants import check_replacements
from ..formats.dtypes import DType
from ..formats.host_values import form_of
from ..formats.isa import Kind, Role, with_role
from ..formats.limits import ALIGNMENT
from ..formats.messages.errors import ArgumentError
from ..formats.program import Function, Program
from ..formats.types import TensorType, TupleType, Type, erase_dims
from ..native.convention import NOTE_WORDS
from ..native.once import Lock
from .in_process import InProcess
from .layout import FRAME_HEAD, FUNCTION, KIND, LARGE, MANNER, OBJECT, PARAMETER, PRIMITIVE, WORD
from .library import LinkedPrimitive
from .memory import pinned
from .verify.verifier import Verified, VerifiedFunction

TICK_NANOSECONDS = 4  # what one instruction is taken to cost

_ENTERS = with_role(Role.ENTERS)

# Kernels that are estimated to take this long are asked into how many parts they want to be split.
_WORTH_PARTS = 4000


class Image(InProcess):
    """The words of one program. Everything here is read-only while calls run."""

    def __init__(self, verified: Verified, primitives: Sequence[LinkedPrimitive]) -> None:
        program = verified.program
        self.program = program
        self.code = np.ascontiguousarray(program.code)
        self.escaping = [function.escaping for function in verified.functions]
        self.types = _TypePool()
        self.type_words = np.array([self.types.static_reference(type_) for type_ in program.types], np.int64)
        arrays = [self._array_words(facts) for facts in verified.functions]
        self.types.finish()
        self._relocate(arrays)
        self.functions = self._function_words(verified)
        self._constant_block, self.constants = _constant_words(program)
        self.arrays = tuple(program.constants)  # whose elements the constants are
        # all that the block may refer to
        self._held = [(self.arrays, [pinned(constant) for constant in program.constants])]
        self._statics = [np.array(primitive.words, np.int64) for primitive in primitives]
        self.primitives = self._primitive_words(primitives)
        self.scratch_bytes = max((primitive.scratch_bytes for primitive in primitives), default=0)
        self.argument_words = _argument_words(verified)
        self.parameter_count = max((len(facts.function.param_names) for facts in verified.functions), default=0)
        self.data_types = {definition.name: definition for definition in program.data_types}
        # the instances of data types that Python has values of its own for
        self.forms = {each.name: form for each in program.data_types if (form := form_of(each))}
        self.record_types: list[Type] = [erase_dims(type_) for type_ in program.types]
        self._type_numbers = {type_: number for number, type_ in enumerate(self.record_types)}
        self.naming: dict[int, Any] = {}  # `naming_results` of the functions whose results were taken
        self.import_calls: dict[int, Any] = {}  # those that calls came to, decoded, by their places in the code
        self.loops: Any = None  # of the functions, once someone has asked for iterations
        self._lock = Lock()
        self._digest: tuple[Any, str] = (None, "")

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides what calls compute: the program with the constants that it has now, but for names of nodes.
        It reads all constants, once for as long as they stay."""
        arrays = self.arrays
        if self._digest[0] is not arrays:
            from ..formats.same_file import digest_of  # few ask

            program = replace(self.program, constants=arrays, source_map=(), metadata={})
            made = digest_of(piece for pieces in sections.encode(program).values() for piece in pieces)
            self._digest = arrays, made
        return self._digest[1]

    def type_number(self, type_: Type) -> int:
        """By which number data values of a type name it: its place in `record_types`."""
        type_ = erase_dims(type_)
        known = self._type_numbers.get(type_)
        if known is not None:
            return known
        with self._lock:
            if type_ not in self._type_numbers:  # a type of values that only come from outside
                self.record_types.append(type_)
                self._type_numbers[type_] = len(self.record_types) - 1
            return self._type_numbers[type_]

    def _array_words(self, facts: VerifiedFunction) -> np.ndarray | None:
        """The words that `call_arrays` checks arguments against; None for a function that it
        cannot call: some but not all of its parameters are captured."""
        params = facts.function.type.params
        if facts.function.captured not in (0, len(params)) or not all(
            isinstance(type_, TensorType) for type_ in params
        ):
            return None
        words = np.zeros((len(params) or 1, PARAMETER.WORDS), np.int64)
        for row, type_, escapes in zip(words, params, facts.escaping, strict=False):
            assert isinstance(type_, TensorType)
            row[PARAMETER.TYPE] = self.types.reference(type_)
            row[PARAMETER.DESCRIPTOR] = id(type_.dtype.numpy)
            row[PARAMETER.MANNER] = MANNER.COPY if escapes else MANNER.STATIC if type_.is_static else MANNER.VIEW
        return words

    def _relocate(self, arrays: list[np.ndarray | None]) -> None:
        """Turns places in the pool of types into references, now that the pool has an address."""
        self.type_words += np.where(self.type_words != 0, self.types.address, 0)
        for words in arrays:
            if words is not None:
                words[:, 0] += self.types.address
        self._arrays = arrays

    def _function_words(self, verified: Verified) -> np.ndarray:
        words = np.zeros((len(verified.functions), FUNCTION.WORDS), np.int64)
        for row, facts, arrays in zip(words, verified.functions, self._arrays, strict=True):
            function = facts.function
            row[FUNCTION.ENTRY] = function.start * WORD
            row[FUNCTION.PARAMETERS] = len(function.param_names)
            row[FUNCTION.REFERENCES] = function.ref_registers
            row[FUNCTION.FRAME_SIZE] = FRAME_HEAD + WORD * (2 * function.ref_registers + function.int_registers)
            row[FUNCTION.MEMORY] = -(-function.frame_bytes // ALIGNMENT) * ALIGNMENT
            row[FUNCTION.RESULT_AT] = _result_place(verified.program, facts)
            row[FUNCTION.ARRAYS] = 0 if arrays is None else arrays.ctypes.data
        return words

    def _primitive_words(self, primitives: Sequence[LinkedPrimitive]) -> np.ndarray:
        words = np.zeros((len(primitives), PRIMITIVE.WORDS), np.int64)
        for row, primitive, static, entry in zip(
            words, primitives, self._statics, self.program.primitives, strict=True
        ):
            row[PRIMITIVE.KERNEL] = primitive.address
            row[PRIMITIVE.STATIC] = static.ctypes.data
            row[PRIMITIVE.TICKS] = primitive.nanoseconds // TICK_NANOSECONDS
            row[PRIMITIVE.SCRATCH] = primitive.scratch_bytes
            row[PRIMITIVE.PARALLEL] = primitive.nanoseconds >= _WORTH_PARTS or bool(entry.definition.variables)
        return words

    def replace_constants(self, arrays: Mapping[int, np.ndarray]) -> None:
        """Other elements for some constants; aligned, read-only. A call that runs may have seen old ones, which stay until
        `forget_replaced`. Raises ArgumentError for one of another type or layout; then none is replaced."""
        check_replacements(self.arrays, arrays)
        for place, array in arrays.items():
            if not (array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative):
                raise ArgumentError(
                    f"constant {place}: expected elements in C order, aligned, in this system's byte order"
                )
        everything = list(self.arrays)
        for place, array in arrays.items():
            everything[place] = array
        now = tuple(everything)
        block = self._constant_block.copy()
        registers = block[: self.constants.size].reshape(-1, 2)
        for place, array in enumerate(now):
            object_at = (int(registers[place, 1]) - 1 - self._constant_block.ctypes.data) // WORD
            registers[place, 0] = block[object_at + OBJECT.DATA] = array.ctypes.data
        # Ctrl-C may come between any two of these: what the block refers to is held, before and after
        self._held.append((now, [pinned(array) for array in now]))
        self._constant_block[:] = block
        self.arrays = now

    def forget_replaced(self) -> None:
        """Releases replaced constants: calls that may still read them hold them."""
        del self._held[:-1]

    def takes_arrays(self, function: int) -> bool:
        """True if `call_arrays` may be tried on a function."""
        return self._arrays[function] is not None

    def result_places(self, function: int) -> tuple[int, ...]:
        """Where a function makes the tensors of its result, if a caller may have memory for all of them. See `result_places`."""
        facts = self.program.functions[function]
        return result_places(self.program, facts, tuple(scan(function_words(self.program, facts))))

    def makes_result_in_place(self, function: int) -> bool:
        """True if a call of the function writes its result where the caller says."""
        return bool(self.functions[function, FUNCTION.RESULT_AT] >= 0)

    def frame_bytes(self, function: int) -> int:
        """Bytes of a function's frame: its registers, and the memory of its tensors."""
        row = self.functions[function]
        return int(row[FUNCTION.FRAME_SIZE] + row[FUNCTION.MEMORY])


class _TypePool:
    """Tensor types as objects one after another. Until `finish`, a reference counts from the pool's start.

    Registers may hold the static ones; those with unknown dimensions are only compared with.
    """

    def __init__(self) -> None:
        self._places: dict[TensorType, int] = {}
        self._words: list[int] = []
        self.address = 0

    def reference(self, type_: TensorType) -> int:
        """A reference to a type."""
        place = self._places.get(type_)
        if place is None:
            place = self._places[type_] = len(self._words) * WORD + 1
            shape = [dim if isinstance(dim, int) else -1 for dim in type_.shape]
            self._words += _object_words(type_.dtype.code, shape, 0, type_.nbytes if type_.is_static else 0)
        return self.address + place

    def static_reference(self, type_: object) -> int:
        """A reference to a type; 0 for one that is not a static tensor."""
        return self.reference(type_) if isinstance(type_, TensorType) and type_.is_static else 0

    def finish(self) -> None:
        self._memory = np.array(self._words or [0], np.int64)
        self.address = self._memory.ctypes.data

    def find(self, type_: TensorType) -> int:
        """The reference of a static type that is in the pool, 0 for any other."""
        return self.address + self._places[type_] if type_.is_static and type_ in self._places else 0


def _object_words(dtype: int, shape: Sequence[int], data: int, size: int) -> list[int]:
    """An immortal tensor object."""
    words = [0] * OBJECT.ITEMS + list(shape)
    words[OBJECT.KIND], words[OBJECT.TAG], words[OBJECT.COUNT] = KIND.TENSOR, dtype, len(shape)
    words[OBJECT.DATA], words[OBJECT.SIZE] = data, size
    return words


def _constant_words(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """One block of words, which NumPy copies in one step, and its first part: for each constant what a register holds. After it
    are the objects that these refer to."""
    count = max(1, len(program.constants))
    words = [0] * (2 * count)
    places: list[int] = []
    for constant in program.constants:
        places.append(len(words))
        words += _object_words(DType.of(constant.dtype).code, constant.shape, constant.ctypes.data, constant.nbytes)
    block = np.array(words, np.int64)
    registers = block[: 2 * count].reshape(-1, 2)
    for row, constant, place in zip(registers, program.constants, places, strict=False):
        row[:] = constant.ctypes.data, block.ctypes.data + place * WORD + 1
    return block, registers


def _argument_words(verified: Verified) -> int:
    """Enough words for the arguments of every call of a primitive and its notes, and for those of every function."""
    most = max((2 * len(facts.function.param_names) for facts in verified.functions), default=0)
    for facts in verified.functions:
        for instruction in facts.instructions:
            if instruction.operation.has("outputs"):
                most = max(most, instruction.size)
    return most + 1 + NOTE_WORDS


def _result_place(program: Program, facts: VerifiedFunction) -> int:
    """Where the function makes its one result, a tensor; -1 when it is not that simple, and for a large one."""
    result = facts.function.type.result
    if not isinstance(result, TensorType) or result.dtype.is_string or (result.is_static and result.nbytes >= LARGE):
        # callers want texts, not numbers of them; for a large one, the heap has memory whose pages are there already
        return -1
    places = result_places(program, facts.function, facts.instructions)
    return places[0] if places else -1


def result_places(program: Program, function: Function, instructions: Sequence[Decoded]) -> tuple[int, ...]:
    """Where the function makes its result, a tensor or a tuple of tensors: for each, the byte offset in the code of an
    alloc_tensor from which control runs straight to the function's only ret, which returns it. Empty when it is not that simple.
    """
    if program.imports and any(found.operation.name in _ENTERS for found in instructions):
        return ()  # Python may keep what it is shown: that must not lie in memory of the caller's
    returns = [at for at, found in enumerate(instructions) if found.operation.name == "ret"]
    if len(returns) != 1:
        return ()
    targets = {jump_target(instruction) for instruction in instructions}
    result = function.type.result
    wanted = {instructions[returns[0]].word("src"): -1}  # which result a register holds, -1 for the tuple of all
    types: tuple[Type, ...] = (result,)
    if isinstance(result, TupleType):
        types = result.fields
    else:
        wanted = dict.fromkeys(wanted, 0)
    found: dict[int, int] = {}
    for instruction, following in reversed(list(pairwise(instructions[: returns[0] + 1]))):
        if following.offset in targets or instruction.operation.ends_block:
            return ()
        for register in set(instruction.written(Kind.REF)) & set(wanted):
            which, name = wanted.pop(register), instruction.operation.name
            if name == "alloc_tensor" and which >= 0 and program.types[instruction.word("type")] == types[which]:
                found[which] = (function.start + instruction.offset) * WORD
                continue
            sources: tuple[int, ...] = ()
            if name == "move":
                sources, results = (instruction.word("src"),), [which]
            elif name == "alloc_data" and which < 0:
                sources, results = instruction.list("fields"), list(range(len(types)))
            if not sources or len(set(sources)) < len(sources) or not wanted.keys().isdisjoint(sources):
                return ()
            wanted |= zip(sources, results, strict=True)
        if not wanted:
            return tuple(found[which] for which in range(len(types)))
    return ()
