"""Executables of TVM's Relay VM as programs of the Relax VM: its 21 instructions become calls of the functions here, by name.

A register that holds a number holds a tensor of one element, as in the Relay VM. Closures give what they have captured first. All
devices that a program names are the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ....formats.data_type import DataType
from ....formats.messages.errors import ArgumentError, ExecutionError, IndexOutOfRangeError
from ....vm.tensor import Tensor
from ....vm.values import DataValue
from ...files.relax_program import VOID, Call, Goto, If, Instruction, Kind, Operand, RelaxFunction, RelaxProgram, Ret
from ...files.relay_executable import Function, RelayExecutable
from ...files.relay_executable import Instruction as Relay
from ...modules.containers import Array
from ..relax.builtins import Storage, tensor_in
from ..relax.machine import VMClosure
from ..relax.values import required, reshaped, sizes, tensor

PREFIX = "relay."  # before the names of what instructions become
_LENGTHS = {"if": 4, "fatal": 2}  # instructions that become more than one


def make_program(executable: RelayExecutable) -> RelaxProgram:
    """The program: its functions, then its primitives, which are called with tensors alone (`flattened`), then the functions of
    `FUNCTIONS`. Constants that are bound later are their names."""
    made = [_Lowering(executable, function).function() for function in executable.functions]
    others = [*executable.primitives, *FUNCTIONS]
    constants = tuple(Tensor(each) if isinstance(each, np.ndarray) else each for each in executable.constants)
    return RelaxProgram((*made, *map(RelaxFunction, others)), constants, from_file=True)


def _reg(number: int) -> Operand:
    return Operand(Kind.REGISTER, number)


def _imm(*values: int) -> list[Operand]:
    return [Operand(Kind.IMMEDIATE, value) for value in values]


class _Lowering:
    def __init__(self, executable: RelayExecutable, function: Function) -> None:
        self._function = function
        self._primitives = len(executable.functions)
        first = self._primitives + len(executable.primitives)
        self._helpers = {name.removeprefix(PREFIX): first + place for place, name in enumerate(FUNCTIONS)}
        self._places = [0]
        for instruction in function.instructions:
            self._places.append(self._places[-1] + _LENGTHS.get(instruction.operation.name, 1))

    def function(self) -> RelaxFunction:
        """The function; its last register is that of conditions."""
        code = [
            each for at, instruction in enumerate(self._function.instructions) for each in self._lower(at, instruction)
        ]
        return RelaxFunction(self._function.name, self._function.params, tuple(code), self._function.registers + 1)

    def _jump(self, at: int, offset: int, behind: int = 0) -> Goto:
        """A goto, `behind` instructions after the first that this one became."""
        return Goto(self._places[at + offset] - self._places[at] - behind)

    def _call(self, name: str, args: list[Operand], dst: int) -> Call:
        return Call(self._helpers[name], tuple(args), dst)

    def _lower(self, at: int, instruction: Relay) -> Iterator[Instruction]:
        name, v = instruction.operation.name, instruction.values
        registers = [_reg(v[field]) for field, kind in instruction.operation.fields if kind == "r"]
        if name == "ret":
            yield Ret(v["result"])
        elif name == "goto":
            yield self._jump(at, v["offset"])
        elif name == "if":
            condition = self._function.registers
            yield self._call("equal", registers, condition)
            yield If(condition, 2)
            yield self._jump(at, v["true"], 2)
            yield self._jump(at, v["false"], 3)
        elif name == "fatal":
            yield self._call("fatal", [], VOID)
            yield Ret(VOID)
        elif name == "invoke":
            yield Call(v["func"], tuple(map(_reg, v["args"])), v["dst"])
        elif name == "invoke_packed":
            yield Call(self._primitives + v["primitive"], tuple(map(_reg, v["args"])), VOID)
        else:
            yield self._call(name, self._operands(name, v, registers), v["dst"])

    def _operands(self, name: str, v: dict[str, Any], registers: list[Operand]) -> list[Operand]:
        """What a helper is called with, in the order of its parameters."""
        if name == "load_const":
            return [Operand(Kind.CONSTANT, v["const"])]
        if name == "alloc_closure":
            return [Operand(Kind.FUNCTION, v["func"]), *map(_reg, v["free"])]
        numbers = [field for field in ("tag", "index", "value", "code", "bits", "lanes") if field in v]
        lists = [*map(_reg, (*v.get("fields", ()), *v.get("args", ())))]
        shape = _imm(*v["shape"]) if isinstance(v.get("shape"), tuple) else []
        return [*registers, *_imm(*(v[field] for field in numbers)), *lists, *shape]


# ---- what instructions become ----

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[PREFIX + function.__name__] = function
    return function


class RelayClosure(VMClosure):
    """A function of a machine, with values that come before its arguments."""

    def __call__(self, *args: Any) -> Any:
        return self.function(*self.captured, *args)


def _scalar(value: Any, doing: str) -> int:
    array = tensor(value, doing).array
    if array.size != 1 or array.dtype.kind not in "biu":
        raise ArgumentError(f"{doing}: expected one integer, got {array.dtype}{list(array.shape)}")
    return int(array.reshape(()))


def _integers(value: Any, doing: str) -> tuple[int, ...]:
    array = tensor(value, doing).array
    if array.ndim > 1 or array.dtype.kind not in "iu":
        raise ArgumentError(f"{doing}: expected a shape's integers, got {array.dtype}{list(array.shape)}")
    return sizes(array.reshape(-1).tolist(), doing)


@_instruction
def move(value: Any) -> Any:
    return value


@_instruction
def load_const(value: Any) -> Any:
    return value


@_instruction
def kill_register() -> None:
    """None: the register's value may go."""


@_instruction
def load_consti(value: int) -> Tensor:
    return Tensor(np.array([value], np.int64))


@_instruction
def equal(test: Tensor, target: Tensor) -> bool:
    """Whether two integers are equal: what an `if` asks."""
    return _scalar(test, "if") == _scalar(target, "if")


@_instruction
def fatal() -> None:
    raise ExecutionError("VM encountered fatal error: the program has no result for these arguments")


@_instruction
def alloc_storage(size: Tensor, code: int, bits: int, lanes: int, *shape: int) -> Storage:
    """So many bytes, or, where there is a shape, as many as it takes. Raises ArgumentError, ExecutionError."""
    if shape:
        wanted = int(np.prod(shape, dtype=object)) * DataType.of(code, bits, lanes).numpy.itemsize
    else:
        wanted = _scalar(size, "alloc_storage")
    if wanted < 0:
        raise ArgumentError(f"alloc_storage: {wanted} bytes are asked for")
    return Storage.of(wanted, f"{wanted} bytes")


@_instruction
def alloc_tensor(storage: Storage, offset: Tensor, code: int, bits: int, lanes: int, *shape: int) -> Tensor:
    """A tensor over a part of a storage. Raises ArgumentError, CheckError."""
    return tensor_in(storage, _scalar(offset, "alloc_tensor"), shape, DataType.of(code, bits, lanes).numpy)


@_instruction
def alloc_tensor_reg(storage: Storage, offset: Tensor, shape: Tensor, code: int, bits: int, lanes: int) -> Tensor:
    """`alloc_tensor`, of a shape that the program has computed."""
    wanted = _integers(shape, "alloc_tensor_reg")
    return tensor_in(storage, _scalar(offset, "alloc_tensor_reg"), wanted, DataType.of(code, bits, lanes).numpy)


@_instruction
def shape_of(value: Tensor) -> Tensor:
    return Tensor(np.array(tensor(value, "shape_of").shape, np.int64))


@_instruction
def reshape_tensor(value: Tensor, shape: Tensor) -> Tensor:
    """The same elements in another shape, not copied. Raises CheckError."""
    return reshaped(value, _integers(shape, "reshape_tensor"), "reshape_tensor")


@_instruction
def device_copy(value: Tensor) -> Tensor:
    return type(value)(tensor(value, "device_copy").array.copy())


@_instruction
def alloc_data(tag: int, *fields: Any) -> DataValue:
    return DataValue(tag, fields)


def _fields(value: Any, doing: str) -> tuple[Any, ...]:
    if isinstance(value, DataValue):
        return value.fields
    if isinstance(value, (Array, tuple)):
        return tuple(value)
    raise ArgumentError(f"{doing}: expected a data value or a tuple, got a {type(value).__name__}")


@_instruction
def get_field(value: Any, index: int) -> Any:
    """A field. Raises ArgumentError, IndexOutOfRangeError."""
    fields = _fields(value, "get_field")
    if index >= len(fields):
        raise IndexOutOfRangeError(f"get_field: there is no field {index} of {len(fields)}")
    return fields[index]


@_instruction
def get_tag(value: Any) -> Tensor:
    _fields(value, "get_tag")
    return Tensor(np.array([value.tag or 0 if isinstance(value, DataValue) else 0], np.int32))


@_instruction
def alloc_closure(function: VMClosure, *captured: Any) -> RelayClosure:
    return RelayClosure(function.func_name, function, captured)


@_instruction
def invoke_closure(closure: Any, *args: Any) -> Any:
    return required(closure, RelayClosure, "a closure", "invoke_closure")(*args)


def flattened(primitive: Callable[..., Any]) -> Callable[..., None]:
    """A primitive as the Relay VM calls it: with the tensors of its inputs, then those of its outputs; fields for a tuple."""

    def leaves(value: Any) -> Iterator[Any]:
        if isinstance(value, (DataValue, Array)):
            for field in _fields(value, "invoke_packed"):
                yield from leaves(field)
        else:
            yield value

    def call(*args: Any) -> None:
        primitive(*(leaf for arg in args for leaf in leaves(arg)))

    return call
