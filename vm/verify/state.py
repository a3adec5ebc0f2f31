"""What the verifier knows before an instruction: the contents of registers, and which types fit which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.program import Program
from ...formats.types import (
    UNKNOWN,
    DataType,
    FunctionType,
    TensorType,
    TupleType,
    Type,
    erase_dims,
)
from .tables import constant_type


class StorageType:
    """The type of a register that holds storage; no value outside of a frame has it."""

    def __str__(self) -> str:
        return "storage"


STORAGE = StorageType()
OTHER_MEMORY = -1  # not allocated by this function, or by an earlier round of a loop: never written into
FRAME_MEMORY = -2  # the frame's own; it is never shared
FOREIGN = frozenset({OTHER_MEMORY})
FRAME = frozenset({FRAME_MEMORY})


class Held(NamedTuple):
    """The known contents of a reference register."""

    type: Type | StorageType
    borrowed: bool = False  # may lie in the frame's memory: must not leave the frame
    memory: frozenset[int] = FOREIGN  # the instructions that may have allocated it, FRAME_MEMORY, or OTHER_MEMORY
    origins: int = 0  # bit p: its memory may be that of parameter p
    maker: int = -1  # the instruction that made it without elements; -1 when it has always had some


class State(NamedTuple):
    """The abstract state before an instruction. A missing register holds nothing usable."""

    refs: dict[int, Held]
    ints: dict[int, Dim]
    blank: set[int]  # makers of tensors that no primitive has written into yet
    shared: set[int]  # memories that others may read from now on: nothing writes into them
    sizes: set[Dim]  # what was read from a tensor's shape, and is not called after a dimension


class Signatures:
    """Program-wide types of everything that instructions refer to."""

    def __init__(self, program: Program) -> None:
        self.program = program
        placed = program.placed
        self.constants = [Held(constant_type(array).on(placed.get(i, ""))) for i, array in enumerate(program.constants)]
        self.functions = [erase_function(function.type) for function in program.functions]
        self.constructors = {
            data.name: [constructor.fields for constructor in data.constructors] for data in program.data_types
        }
        self.closures = [
            FunctionType(type_.params[: len(type_.params) - function.captured], type_.result)
            for function, type_ in zip(program.functions, self.functions, strict=True)
        ]
        self.imports = [erase_function(entry.type) for entry in program.imports]
        self.primitives = [primitive.definition for primitive in program.primitives]
        self.params = [_placed(primitive.definition.params, primitive.device) for primitive in program.primitives]
        self.results = [_placed(primitive.definition.results, primitive.device) for primitive in program.primitives]
        self.dtypes = {dtype.code: dtype for dtype in DType}


def _placed(types: tuple[TensorType, ...], device: str) -> tuple[TensorType, ...]:
    return tuple([type_.on(device) for type_ in types]) if device else types


def erase_function(type_: FunctionType) -> FunctionType:
    erased = erase_dims(type_)
    assert isinstance(erased, FunctionType)
    return erased


def is_assignable(actual: Type | StorageType, declared: Type) -> bool:
    """A value of type `actual` may stand where `declared` is asked for: it promises as much or more."""
    if actual is declared:
        return True
    if isinstance(declared, TensorType):
        return (
            isinstance(actual, TensorType)
            and actual.dtype is declared.dtype
            and actual.device == declared.device
            and len(actual.shape) == len(declared.shape)
            and all(want is UNKNOWN or have == want for have, want in zip(actual.shape, declared.shape, strict=True))
        )
    if isinstance(declared, TupleType):
        return isinstance(actual, TupleType) and all_assignable(actual.fields, declared.fields)
    if isinstance(declared, FunctionType):
        return (
            isinstance(actual, FunctionType)
            and all_assignable(declared.params, actual.params)
            and is_assignable(actual.result, declared.result)
        )
    return isinstance(actual, DataType) and isinstance(declared, DataType) and actual.name == declared.name


def all_assignable(actual: Sequence[Type], declared: Sequence[Type]) -> bool:
    return len(actual) == len(declared) and all(map(is_assignable, actual, declared))


def size_of(type_: Type) -> int:
    """How many parts a type has: the cost of comparing it."""
    if isinstance(type_, TensorType):
        return 1
    parts = type_.fields if isinstance(type_, TupleType) else ()
    if isinstance(type_, FunctionType):
        parts = (*type_.params, type_.result)
    return 1 + sum(map(size_of, parts))
