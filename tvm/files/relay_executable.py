"""Executables of TVM's Relay VM (`code.ro`), as TVM 0.9 to 0.19 wrote them: read, checked, and shown.

    header       u64 magic, text version
    devices      vector of (i32 type, i32 number, text memory scope), i32 the host's index
    globals      vector of text: the functions' names; a function's place is its number
    constants    u64 count; each u32 0 and a tensor (`formats/param_dict.py`), or u32 1 and the name that it is bound by;
                 vector of device indices
    primitives   vector of text, by number; map of u64 → map of text → text: attributes
    code         u64 count of functions; each a vector of (name, registers, instructions), the numbers as decimal text,
                 a vector of its parameters' names, a vector of their device indices, and its instructions
    instruction  vector of i64: a hash of what follows, the opcode, the fields

A vector is a u64 count and its elements, text a vector of bytes; all is little-endian. TVM trusts such a file: an index
that is out of range ends its process. Here every index, count and jump is compared with what there is.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from ...formats import limits
from ...formats.codec import Buffer
from ...formats.messages.errors import LimitError, VersionError
from ...formats.messages.terminal import showing
from . import executables
from .executables import ExecutableReader

_U64, _U32, _I32 = struct.Struct("<Q"), struct.Struct("<I"), struct.Struct("<i")
_MASK = (1 << 64) - 1
_FIRST, _LAST = (0, 9), (0, 19)  # releases whose files have this layout

# One instruction a row: opcode, name, fields in the order of the file. What follows the colon says what a field is:
# r a register that is read, r! one that is written, f a function, p a primitive, c a constant, d a device, j a jump (in
# instructions), n the length of the list at the end, i any integer, u one that is not negative; r* and u* are lists.
_TABLE = """
 0 move             from:r dst:r!
 1 ret              result:r
 2 invoke           func:f count:n dst:r! args:r*
 3 invoke_closure   closure:r count:n dst:r! args:r*
 4 invoke_packed    primitive:p count:n output_size:u args:r*
 5 alloc_tensor     storage:r offset:r code:u bits:u lanes:u count:n dst:r! shape:u*
 6 alloc_tensor_reg storage:r offset:r shape:r code:u bits:u lanes:u dst:r!
 7 alloc_data       tag:i count:n dst:r! fields:r*
 8 alloc_closure    func:f count:n dst:r! free:r*
 9 get_field        object:r index:u dst:r!
10 if               test:r target:r true:j false:j
11 load_const       const:c device:d dst:r!
12 goto             offset:j
13 get_tag          object:r dst:r!
14 load_consti      value:i dst:r!
15 fatal
16 alloc_storage    size:r alignment:u code:u bits:u lanes:u device:d count:n dst:r! shape:u*
17 shape_of         tensor:r dst:r!
18 reshape_tensor   tensor:r newshape:r dst:r!
19 device_copy      src:r src_device:d dst_device:d dst:r!
20 kill_register    dst:r!
"""


@dataclass(frozen=True)
class Operation:
    """An instruction of the Relay VM."""

    opcode: int
    name: str
    fields: tuple[tuple[str, str], ...]  # name, kind

    @property
    def width(self) -> int:
        """Fields without a list."""
        return sum(not kind.endswith("*") for _, kind in self.fields)


def _rows() -> dict[int, Operation]:
    rows = {}
    for line in _TABLE.strip().splitlines():
        opcode, name, *fields = line.split()
        pairs = tuple((field.partition(":")[0], field.partition(":")[2]) for field in fields)
        rows[int(opcode)] = Operation(int(opcode), name, pairs)
    return rows


OPERATIONS = _rows()


@dataclass(frozen=True)
class Instruction:
    """An instruction: its operation, and its fields' values by name."""

    operation: Operation
    words: tuple[int, ...]  # of all fields

    @property
    def values(self) -> dict[str, Any]:
        """The fields by name; of a list a tuple."""
        found: dict[str, Any] = {}
        for place, (name, kind) in enumerate(self.operation.fields):
            found[name] = self.words[place:] if kind.endswith("*") else self.words[place]
        return found


@dataclass(frozen=True)
class Function:
    name: str
    params: tuple[str, ...]
    param_devices: tuple[int, ...]
    registers: int
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Device:
    type: int
    number: int
    scope: str


Constant = Union[np.ndarray, str]  # its elements, or the name that it is bound by later


@dataclass(frozen=True)
class RelayExecutable:
    """What a `code.ro` holds."""

    version: str
    devices: tuple[Device, ...]
    host: int
    globals: tuple[str, ...]
    constants: tuple[Constant, ...]
    constant_devices: tuple[int, ...]
    primitives: tuple[str, ...]
    attributes: dict[int, dict[str, str]]
    functions: tuple[Function, ...]  # by number

    @property
    @showing
    def bytecode(self) -> str:
        """The code as TVM prints it."""
        return "".join(f"{line}\n" for number in range(len(self.functions)) for line in _function_text(self, number))


def load_relay_executable(source: str | os.PathLike | Buffer) -> RelayExecutable:
    """The executable in a file or in bytes, or in a library. Raises FormatError (VersionError, LimitError), which says where, and
    FileError."""
    data = executables.open_file(source)
    found = executables.find_executable(data, executables.RELAY)
    return Reader(data if found is None else found.data).executable()


class Reader(ExecutableReader):
    """Reads the sections in their order, and checks what they say of each other."""

    def __init__(self, data: memoryview) -> None:
        super().__init__(data, what="Relay executable")
        self.globals: dict[str, int] = {}

    def executable(self) -> RelayExecutable:
        version = self._header()
        devices = tuple(self.listed("devices", 16, self._device, limits.STRINGS))
        (host,) = self.unpack(_I32, "the host's index")
        self.index("the host's index", host, len(devices))
        names = self.listed("functions", 8, lambda: self.text("a function's name"), limits.FUNCTIONS)
        self.globals = {name: number for number, name in enumerate(names)}
        if len(self.globals) != len(names):
            raise self.error("two functions have one name")
        constants = tuple(self.listed("constants", 4, self._constant, limits.CONSTANTS))
        constant_devices = self._numbers("the constants' devices")
        if len(constant_devices) != len(constants):
            raise self.error(f"there are {len(constants)} constants, and devices of {len(constant_devices)}")
        for index in constant_devices:
            self.index("a constant's device", index, len(devices))
        primitives = tuple(self.listed("primitives", 8, lambda: self.text("a primitive's name"), limits.PRIMITIVES))
        attributes = dict(self.listed("attributes", 16, self._attributes, limits.PRIMITIVES))
        for index in attributes:
            self.index("attributes", index, len(primitives))
        functions = self._functions(_Counts(len(self.globals), len(primitives), len(constants), len(devices)))
        if self.left:
            raise self.error(f"{self.left} bytes are behind the code")
        return RelayExecutable(
            version, devices, host, tuple(names), constants, constant_devices, primitives, attributes, functions
        )

    # ---- sections ----

    def _header(self) -> str:
        _, version = self.version(executables.RELAY)
        parts = version.split(".")
        numbers = tuple(int(part) for part in parts[:2] if part.isascii() and part.isdigit() and len(part) < 6)
        if len(numbers) != 2 or not _FIRST <= numbers <= _LAST:
            first, last = (".".join(map(str, each)) for each in (_FIRST, _LAST))
            raise VersionError(
                f"an executable of the Relay VM of TVM {version[:40]!r}; those of TVM {first} to {last} are read",
                section="Relay executable",
                offset=self.offset,
            )
        return version

    def _device(self) -> Device:
        (type_,), (number,) = self.unpack(_I32, "a device's type"), self.unpack(_I32, "a device's number")
        return Device(type_, number, self.text("a memory scope"))

    def _constant(self) -> Constant:
        (tag,) = self.unpack(_U32, "a constant's tag")
        if tag == 0:
            return self.tensor("of the program")
        if tag == 1:
            return self.text("a constant's name")
        raise self.error(f"a constant's tag is 0 or 1, not {tag}")

    def _attributes(self) -> tuple[int, dict[str, str]]:
        (index,) = self.unpack(_U64, "a primitive's number")
        pairs = self.listed("attributes of a primitive", 16, self._pair, limits.STRINGS)
        return index, dict(pairs)

    def _pair(self) -> tuple[str, str]:
        return self.text("an attribute's name"), self.text("an attribute")

    def _functions(self, counts: _Counts) -> tuple[Function, ...]:
        found: dict[str, Function] = {}
        for function in self.listed("functions", 40, lambda: self._function(counts), limits.FUNCTIONS):
            if function.name in found:
                raise self.error(f"the function {function.name!r} comes twice")
            found[function.name] = function
        if missing := [name for name in self.globals if name not in found]:
            raise self.error(f"the function {missing[0]!r} has no code")
        return tuple(found[name] for name in self.globals)

    def _function(self, counts: _Counts) -> Function:
        heads = self.listed("a function's head", 8, lambda: self.text("a function's head"), 3)
        if len(heads) != 3 or heads[0] not in self.globals:
            raise self.error(f"a function's head is its name among the globals and two numbers, not {heads}")
        name = heads[0]
        registers = self._decimal(f"{name}: registers", heads[1], limits.REGISTERS)
        count = self._decimal(f"{name}: instructions", heads[2], self.left // 24)
        params = tuple(self.listed("parameters", 8, lambda: self.text("a parameter's name"), limits.PARAMETERS))
        devices = self._numbers(f"{name}: its parameters' devices")
        if len(params) != len(devices) or len(params) > registers:
            raise self.error(f"{name}: {len(params)} parameters, devices of {len(devices)}, {registers} registers")
        for index in devices:
            self.index(f"{name}: a parameter's device", index, counts.devices)
        instructions = tuple(self._instruction(f"{name}: instruction {place}") for place in range(count))
        for place, instruction in enumerate(instructions):
            self._check(
                f"{name}: instruction {place}, {instruction.operation.name}",
                instruction,
                place,
                count,
                registers,
                counts,
            )
        return Function(name, params, devices, registers, instructions)

    # ---- instructions ----

    def _instruction(self, what: str) -> Instruction:
        words = self._numbers(what)
        if len(words) < 2:
            raise self.error(f"{what}: expected a hash and an opcode, got {len(words)} words")
        opcode, fields = words[1], words[2:]
        self.check_hash(what, words[0], instruction_hash(opcode, fields))
        operation = OPERATIONS.get(opcode)
        if operation is None:
            raise self.error(f"{what}: there is no opcode {opcode}")
        # TVM up to 0.13 has no shape there
        if operation.name == "alloc_storage" and len(fields) == operation.width - 1:
            fields = (*fields[:-1], 0, fields[-1])
        self._check_length(what, operation, fields)
        return Instruction(operation, fields)

    def check_hash(self, what: str, found: int, expected: int) -> None:
        """Raises FormatError where an instruction's hash is not that of its words."""
        if found & _MASK != expected:
            raise self.error(f"{what}: its hash is not that of its words: the file is damaged")

    def _check_length(self, what: str, operation: Operation, fields: tuple[int, ...]) -> None:
        width = operation.width
        counts = [place for place, (_, kind) in enumerate(operation.fields) if kind == "n"]
        if len(fields) < width:
            raise self.error(f"{what}, {operation.name}: expected {width} fields, got {len(fields)}")
        expected = width + (fields[counts[0]] if counts else 0)
        if len(fields) != expected or (counts and fields[counts[0]] < 0):
            raise self.error(f"{what}, {operation.name}: announces {expected} fields, got {len(fields)}")

    def _check(
        self, what: str, instruction: Instruction, place: int, count: int, registers: int, counts: _Counts
    ) -> None:
        ranges = {
            "r": registers,
            "r!": registers,
            "r*": registers,
            "f": counts.functions,
            "p": counts.primitives,
            "c": counts.constants,
            "d": counts.devices,
        }
        for name, kind in instruction.operation.fields:
            values = instruction.values[name]
            for value in values if isinstance(values, tuple) else (values,):
                if kind == "j" and (value == 0 or not 0 <= place + value < count):
                    raise self.error(f"{what}: a jump of {value} leaves the function's {count} instructions, or stays")
                if kind in ranges:
                    self.index(f"{what}: {name}", value, ranges[kind])
                if kind in ("u", "u*") and value < 0:
                    raise self.error(f"{what}: {name} is {value}, and must not be below 0")
        if instruction.operation.name == "invoke_packed":
            values_ = instruction.values
            if values_["output_size"] > values_["count"]:
                raise self.error(f"{what}: {values_['output_size']} outputs among {values_['count']} arguments")

    # ---- pieces ----

    def _numbers(self, what: str) -> tuple[int, ...]:
        return tuple(self.integers(what).tolist())

    def _decimal(self, what: str, text: str, most: int) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise self.error(f"{what}: {text[:40]!r} is not a number")
        if int(text) > most:
            raise self.error(f"{what}: {text}; the limit is {most}", LimitError)
        return int(text)


@dataclass(frozen=True)
class _Counts:
    functions: int
    primitives: int
    constants: int
    devices: int


def instruction_hash(opcode: int, fields: Sequence[int]) -> int:
    """What TVM puts before an instruction, as 64 bits without a sign."""
    key = opcode
    for field in fields:
        key ^= ((field & _MASK) + 0x9E3779B9 + (key << 6) + (key >> 2)) & _MASK
        key &= _MASK
    return key


# ---- text ----

_CODES = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat"}


def _function_text(executable: RelayExecutable, number: int) -> list[str]:
    function = executable.functions[number]
    lines = [
        f"VM Function[{number}]: {function.name}({', '.join(function.params)})",
        f"# reg file size = {function.registers}",
        f"# instruction count = {len(function.instructions)}",
        "opcode, fields # inst(text):",
    ]
    for place, instruction in enumerate(function.instructions):
        words = " ".join(map(str, (instruction.operation.opcode, *instruction.words)))
        lines.append(f"{place:2d}: {words} ".ljust(40) + f"  # {_text(instruction)}")
    return [*lines, ""]


def _registers(numbers: Sequence[int]) -> str:
    return ",".join(f"${number}" for number in numbers) or "$"


def _dtype(values: dict[str, Any]) -> str:
    lanes = "" if values["lanes"] == 1 else f"x{values['lanes']}"
    code = values["code"]
    return f"{_CODES.get(code, f'code{code}_')}{values['bits']}{lanes}"


def _text(instruction: Instruction) -> str:
    """The instruction in TVM's words."""
    name, v = instruction.operation.name, instruction.values
    shown = {key: f"${value}" for key, value in v.items() if isinstance(value, int)}
    if name in ("invoke", "alloc_closure"):
        return f"{name} {shown['dst']} VMFunc[{v['func']}]({_registers(v['args' if name == 'invoke' else 'free'])})"
    if name == "invoke_closure":
        return f"{name} {shown['dst']} {shown['closure']}({_registers(v['args'])})"
    if name == "invoke_packed":
        cut = len(v["args"]) - v["output_size"]
        inputs, outputs = (", ".join(f"${n}" for n in part) or "$" for part in (v["args"][:cut], v["args"][cut:]))
        return f"{name} PackedFunc[{v['primitive']}] (in: {inputs}, out: {outputs})"
    if name == "alloc_tensor":
        shape = ", ".join(map(str, v["shape"]))
        return f"{name} {shown['dst']} {shown['storage']} {shown['offset']} [{shape}] {_dtype(v)}"
    if name == "alloc_tensor_reg":
        return f"{name} {shown['dst']} {shown['storage']} {shown['offset']} {shown['shape']} {_dtype(v)}"
    if name == "alloc_data":
        return f"{name} {shown['dst']} tag({v['tag']}) [{_registers(v['fields'])}]"
    if name == "alloc_storage":
        size = f"[{', '.join(map(str, v['shape']))}]" if v["shape"] else f"{shown['size']} {v['alignment']}"
        return f"{name} {shown['dst']} {size} {_dtype(v)} {v['device']}"
    if name == "get_field":
        return f"{name} {shown['dst']} {shown['object']}[{v['index']}]"
    if name == "if":
        return f"{name} {shown['test']} {shown['target']} {v['true']} {v['false']}"
    if name == "load_const":
        return f"{name} {shown['dst']} Const[{v['const']}] {v['device']}"
    if name in ("goto", "load_consti"):
        return f"goto {v['offset']}" if name == "goto" else f"{name} {shown['dst']} {v['value']}"
    if name == "device_copy":
        return f"{name} {shown['dst']} {shown['src']} {v['dst_device']} {v['src_device']}"
    registers = [f"${v[field]}" for field, kind in instruction.operation.fields if kind == "r"]
    written = [shown["dst"]] if "dst" in v else []
    return " ".join([name, *written, *registers])


def listing(executable: RelayExecutable) -> str:
    """The code as TVM prints it."""
    return executable.bytecode


def information_text(executable: RelayExecutable) -> str:
    """What an executable consists of, for people."""
    lines = [f"executable of the Relay VM, TVM {executable.version}"]
    for function in executable.functions:
        size = f"{len(function.instructions)} instructions, {function.registers} registers"
        lines.append(f"  {function.name}({', '.join(function.params)}): {size}")
    bound = [each for each in executable.constants if isinstance(each, str)]
    held = [each for each in executable.constants if not isinstance(each, str)]
    late = f", {len(bound)} bound later" if bound else ""
    lines.append(f"  constants: {len(executable.constants)}, {sum(each.nbytes for each in held)} bytes{late}")
    lines.append(f"  primitives: {', '.join(executable.primitives) or 'none'}")
    devices = ", ".join(f"type {each.type} number {each.number} {each.scope}".strip() for each in executable.devices)
    lines.append(f"  devices: {devices}")
    return "".join(f"{line}\n" for line in lines)


def information(executable: RelayExecutable) -> dict[str, Any]:
    """What an executable consists of, as JSON has it."""
    return {
        "format": "Relay VM",
        "version": executable.version,
        "functions": [
            {
                "name": function.name,
                "params": list(function.params),
                "registers": function.registers,
                "instructions": len(function.instructions),
            }
            for function in executable.functions
        ],
        "primitives": list(executable.primitives),
        "constants": [
            each if isinstance(each, str) else {"dtype": each.dtype.name, "shape": list(each.shape)}
            for each in executable.constants
        ],
        "devices": [{"type": each.type, "number": each.number, "scope": each.scope} for each in executable.devices],
    }
