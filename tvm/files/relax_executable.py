"""Executables of the Relax VM, as TVM 0.16 to 0.27 write them: read into a `RelaxProgram`, and written.

    header       u64 magic, text "0.14"; in front of both up to TVM 0.21, and in libraries, u64 bytes
    functions    vector of (i32 kind, text name, i64 first instruction, i64 end, i64 parameters, i64 registers, vector of text)
    scopes       with the magic since TVM 0.23: u64 count; each i64 constant, text memory scope
    constants    u64 count; each i32 kind, and a tensor (`formats/param_dict.py`), an element type (u8 code, u8 bits, u16 lanes),
                 a shape (vector of i64), text, an i64 or an f64
    code         vector of i64: where instructions begin; vector of i64: their words
    instruction  1 register function count operands | 2 register | 3 offset | 4 register offset
    operand      kind in the upper 8 bits, value in the lower 56

A vector is a u64 count and its elements, text a vector of bytes; all is little-endian. TVM believes such a file. Here every
index, count and jump is compared with what there is, and instructions are contiguous, each in one function.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...formats import limits
from ...formats.codec import Buffer
from ...formats.container import save
from ...formats.data_type import DataType, DataTypeCode
from ...formats.messages.errors import FormatError, LimitError, VersionError
from ...formats.param_dict import tensor_pieces
from . import executables
from .executables import MAGIC_SCOPES, RELAX, RELAX_VERSION, ExecutableReader
from .relax_program import (
    MACHINE,
    VOID,
    Call,
    Goto,
    If,
    Instruction,
    Kind,
    Operand,
    RelaxFunction,
    RelaxProgram,
    Ret,
    as_text,
)

_U64, _I32, _I64, _F64 = struct.Struct("<Q"), struct.Struct("<i"), struct.Struct("<q"), struct.Struct("<d")
_DTYPE = struct.Struct("<BBH")
_FUNCTION = struct.Struct("<qqqq")  # first instruction, end, parameters, registers

PACKED, CODE, NATIVE = range(3)  # kinds of functions
_UNDEFINED = -2  # the number of parameters of a packed function
TENSOR, DTYPE, SHAPE, TEXT, INTEGER, FLOAT = "tensor", "element type", "shape", "text", "integer", "float"

# Kinds of constants by number: up to TVM 0.20, and since. A file does not say which: of those with the magic that both wrote, the
# reading that takes all bytes is the one. Shapes and tensors have had two numbers since.
_OLD = dict(enumerate((TENSOR, DTYPE, SHAPE, TEXT, INTEGER, FLOAT)))
_NEW = {1: INTEGER, 3: FLOAT, 5: DTYPE, 65: TEXT, 69: SHAPE, 70: TENSOR, 71: SHAPE, 72: TENSOR}
_NUMBERS = {INTEGER: 1, FLOAT: 3, DTYPE: 5, TEXT: 65, SHAPE: 69, TENSOR: 70}  # that are written

# DLPack's codes of element types, which are in files since TVM 0.21, where they differ from those of before
_DLPACK_BOOL = 6
_TO_DLPACK = {DataTypeCode.E4M3Float: 10, DataTypeCode.E5M2Float: 12}
_FROM_DLPACK = {theirs: ours for ours, theirs in _TO_DLPACK.items()}

_CALL, _RET, _GOTO, _IF = 1, 2, 3, 4
_WIDTHS = {_CALL: 4, _RET: 2, _GOTO: 2, _IF: 3}  # words, without a call's operands
_VALUE_BITS = 56
_VALUE_MASK = (1 << _VALUE_BITS) - 1


# ---- reading ----


def load_relax_executable(source: str | os.PathLike | Buffer) -> RelaxProgram:
    """The program in a file or in bytes, or in a library; its tensors are arrays, its shapes tuples. It is not checked yet
    (`relax_program.check`). Raises FormatError (VersionError, LimitError), which says where, and FileError."""
    data = executables.require_executable(source, RELAX)
    if data[:8] == _U64.pack(MAGIC_SCOPES):
        return _Reader(data, _NEW).program()
    errors: list[FormatError] = []
    for kinds in (_OLD, _NEW):
        try:
            return _Reader(data, kinds).program()
        except FormatError as error:
            errors.append(error)
    raise max(errors, key=lambda error: error.offset or 0)


class _Reader(ExecutableReader):
    def __init__(self, data: memoryview, kinds: Mapping[int, str]) -> None:
        super().__init__(data, what="Relax executable")
        self._kinds = kinds
        self._constants: dict[str, Callable[[], Any]] = {
            TENSOR: lambda: self.tensor("of the program"),
            DTYPE: self._dtype_constant,
            SHAPE: lambda: tuple(self.integers("a shape").tolist()),
            TEXT: lambda: self.text("a constant"),
            INTEGER: lambda: self.unpack(_I64, "an integer")[0],
            FLOAT: lambda: self.unpack(_F64, "a float")[0],
        }

    def program(self) -> RelaxProgram:
        magic, version = self.version(RELAX)
        if version != RELAX_VERSION:
            message = f"an executable of the Relax VM of version {version[:40]!r}; those of {RELAX_VERSION!r} are read"
            raise VersionError(message, section="Relax executable", offset=self.offset)
        rows = self.listed("functions", 52, self._function, limits.FUNCTIONS)
        scopes = self.listed("memory scopes", 16, self._scope, limits.CONSTANTS) if magic == MAGIC_SCOPES else []
        constants = tuple(self.listed("constants", 8, self._constant, limits.CONSTANTS))
        for number, _ in scopes:
            self.index("a memory scope's constant", number, len(constants))
        code = self._code(len(rows), len(constants))
        if self.left:
            raise self.error(f"{self.left} bytes are behind the code")
        return RelaxProgram(self._functions(rows, code), constants, from_file=True)

    # ---- sections ----

    def _function(self) -> tuple[int, str, Sequence[int], list[str]]:
        (kind,) = self.unpack(_I32, "a function's kind")
        name = self.text("a function's name")
        if not PACKED <= kind <= NATIVE:
            raise self.error(f"function {name[:40]!r}: there is no kind {kind}")
        numbers = self.unpack(_FUNCTION, f"function {name[:40]!r}")
        return kind, name, numbers, self.listed("parameters", 8, lambda: self.text("a parameter"), limits.PARAMETERS)

    def _scope(self) -> tuple[int, str]:
        return self.unpack(_I64, "a memory scope's constant")[0], self.text("a memory scope")

    def _constant(self) -> Any:
        (number,) = self.unpack(_I32, "a constant's kind")
        if number not in self._kinds:
            raise self.error(f"there is no constant of kind {number}")
        return self._constants[self._kinds[number]]()

    def _dtype_constant(self) -> DataType:
        code, bits, lanes = self.unpack(_DTYPE, "an element type")
        if self._kinds is _NEW:
            if code == _DLPACK_BOOL:
                return DataType.of(DataTypeCode.UINT, 1, lanes)
            code = _FROM_DLPACK.get(code, code if code < _DLPACK_BOOL else -1)
        if not 0 <= code <= DataTypeCode.E5M2Float:
            raise self.error(f"there is no element type of that code, {bits} bits and {lanes} lanes")
        return DataType.of(code, bits, lanes)

    def _functions(
        self, rows: Sequence[tuple[int, str, Sequence[int], list[str]]], code: list[Instruction]
    ) -> tuple[RelaxFunction, ...]:
        functions, taken, names = [], 0, set()
        for kind, name, (first, end, count, registers), params in rows:
            if name in names:
                raise self.error(f"two functions are called {name[:40]!r}")
            names.add(name)
            if kind == PACKED:
                functions.append(RelaxFunction(name))
                continue
            self.index(f"function {name!r}: parameters", count, limits.PARAMETERS + 1)
            if params and len(params) != count:
                raise self.error(f"function {name!r}: {count} parameters, but {len(params)} names")
            own = tuple(params or (f"arg{number}" for number in range(count)))
            if kind == NATIVE:
                self.index(f"function {name!r}: registers", registers, limits.REGISTERS + 1)
                functions.append(RelaxFunction(name, own, None, registers, is_native=True))
                continue
            if not 0 <= first < end <= len(code):
                raise self.error(f"function {name!r}: instructions {first} to {end}, of {len(code)}")
            taken += end - first
            if taken > len(code):
                raise self.error(f"function {name!r}: two functions have the same instructions")
            self.index(f"function {name!r}: registers", registers, count + end - first + 1)  # each call writes one
            functions.append(RelaxFunction(name, own, tuple(code[first:end]), registers))
            self._check(functions[-1])
        return tuple(functions)

    def _check(self, function: RelaxFunction) -> None:
        """Registers and jumps are those of the function."""
        assert function.code is not None
        for at, instruction in enumerate(function.code):
            what = f"function {function.name!r}, instruction {at}"
            if isinstance(instruction, Call):
                used = [value for kind, value in instruction.args if kind == Kind.REGISTER] + [instruction.dst]
            else:
                used = [instruction[0]] if isinstance(instruction, (Ret, If)) else []
            for register in used:
                if register not in (VOID, MACHINE):
                    self.index(f"{what}: a register", register, function.registers)
            if isinstance(instruction, (Goto, If)):
                self.index(f"{what}: where it jumps", at + instruction[-1], len(function.code))

    # ---- instructions ----

    def _code(self, functions: int, constants: int) -> list[Instruction]:
        begins = self.integers("where instructions begin").tolist()
        words = self.integers("the instructions' words").tolist()
        if len(words) > limits.CODE_WORDS:
            raise self.error(f"{len(words)} words of instructions; the limit is {limits.CODE_WORDS}", LimitError)
        code, at = [], 0
        for number, begin in enumerate(begins):
            what = f"instruction {number}"
            if begin != at:
                raise self.error(f"{what} begins at word {begin}, the one before it ends at {at}")
            instruction, at = self._instruction(what, words, at, functions, constants)
            code.append(instruction)
        if at != len(words):
            raise self.error(f"{len(words) - at} words are behind the last instruction")
        return code

    def _instruction(
        self, what: str, words: list[int], at: int, functions: int, constants: int
    ) -> tuple[Instruction, int]:
        """The instruction at a word, and where it ends."""
        opcode = words[at] if at < len(words) else 0
        width = _WIDTHS.get(opcode)
        if width is None or width > len(words) - at:
            raise self.error(f"{what}: there is no opcode {opcode}, or its words are cut short")
        if opcode == _CALL:
            dst, function, count = words[at + 1 : at + 4]
            self.index(f"{what}: a function", function, functions)
            self.index(f"{what}: operands", count, min(limits.OPERANDS, len(words) - at - width) + 1)
            end = at + width + count
            args = tuple(self._operand(what, word, functions, constants) for word in words[at + width : end])
            return Call(function, args, dst), end
        fields = words[at + 1 : at + width]
        made: Instruction = Ret(*fields) if opcode == _RET else Goto(*fields) if opcode == _GOTO else If(*fields)
        return made, at + width

    def _operand(self, what: str, word: int, functions: int, constants: int) -> Operand:
        number, value = word >> _VALUE_BITS, word & _VALUE_MASK
        value -= value >> (_VALUE_BITS - 1) << _VALUE_BITS
        if not Kind.REGISTER <= number <= Kind.FUNCTION:
            raise self.error(f"{what}: there is no operand of kind {number & 0xFF}")
        kind = Kind(number)
        if kind == Kind.CONSTANT:
            self.index(f"{what}: a constant", value, constants)
        elif kind == Kind.FUNCTION:
            self.index(f"{what}: a function", value, functions)
        return Operand(kind, value)


# ---- writing ----


def save_relax_executable(program: RelaxProgram, path: str | os.PathLike) -> None:
    """Writes a file as TVM 0.27 does, which is there whole or not at all. Raises FormatError, FileError."""
    save(path, list(pieces(program)))


def pieces(program: RelaxProgram) -> Iterator[Buffer]:
    """The pieces of a program's file. Raises FormatError for a constant that no file has."""
    yield _U64.pack(MAGIC_SCOPES) + _text_bytes(RELAX_VERSION) + _U64.pack(len(program.functions))
    begins: list[int] = []
    words: list[int] = []
    count = 0
    for function in program.functions:
        kind = PACKED if function.code is None and not function.is_native else NATIVE if function.is_native else CODE
        params = _UNDEFINED if kind == PACKED else len(function.params)
        code = function.code or ()
        first, end = (count, count + len(code)) if code else (0, 0)
        count += len(code)
        yield _I32.pack(kind) + _text_bytes(function.name)
        yield _FUNCTION.pack(first, end, params, function.registers) + _U64.pack(len(function.params))
        yield b"".join(map(_text_bytes, function.params))
        for instruction in code:
            begins.append(len(words))
            words += _words(instruction)
    yield _U64.pack(0) + _U64.pack(len(program.constants))
    for number, constant in enumerate(program.constants):
        yield from _constant_pieces(number, constant)
    for integers in (begins, words):
        yield _U64.pack(len(integers)) + np.array(integers, "<i8").tobytes()


def _text_bytes(text: str) -> bytes:
    data = text.encode()
    if len(data) > limits.STRING_BYTES:
        raise LimitError(f"text {text[:40]!r}…: {len(data)} bytes; the limit is {limits.STRING_BYTES}")
    return _U64.pack(len(data)) + data


def _words(instruction: Instruction) -> list[int]:
    if isinstance(instruction, Call):
        operands = [kind << _VALUE_BITS | value & _VALUE_MASK for kind, value in instruction.args]
        return [_CALL, instruction.dst, instruction.function, len(operands), *operands]
    opcode = _RET if isinstance(instruction, Ret) else _GOTO if isinstance(instruction, Goto) else _IF
    return [opcode, *instruction]


def _constant_pieces(number: int, value: Any) -> Iterator[Buffer]:
    if isinstance(value, np.ndarray):
        yield _I32.pack(_NUMBERS[TENSOR])
        yield from tensor_pieces(f"constant {number}", value)
    elif isinstance(value, DataType):
        code, bits = _TO_DLPACK.get(value.type_code, value.type_code), value.bits
        if (code, bits) == (DataTypeCode.UINT, 1):
            code, bits = _DLPACK_BOOL, 8
        yield _I32.pack(_NUMBERS[DTYPE]) + _DTYPE.pack(code, bits, value.lanes)
    elif isinstance(value, str):
        yield _I32.pack(_NUMBERS[TEXT]) + _text_bytes(value)
    elif isinstance(value, tuple):
        yield _I32.pack(_NUMBERS[SHAPE]) + _U64.pack(len(value)) + np.array(value, "<i8").tobytes()
    elif isinstance(value, float):
        yield _I32.pack(_NUMBERS[FLOAT]) + _F64.pack(value)
    elif isinstance(value, int):
        yield _I32.pack(_NUMBERS[INTEGER]) + _I64.pack(value)
    else:
        raise FormatError(f"constant {number}: a {type(value).__name__} is none of tensor, shape, text, number, type")


# ---- what a program consists of ----


def listing(program: RelaxProgram) -> str:
    """The code as TVM prints it."""
    return as_text(program)


def information_text(program: RelaxProgram) -> str:
    """What a program consists of, for people."""
    lines = ["executable of the Relax VM"]
    for function in program.own():
        size = f"{len(function.code or ())} instructions, {function.registers} registers"
        lines.append(f"  {function.name}({', '.join(function.params)}): {size}")
    facts = information(program)
    tensors = sum(constant.nbytes for constant in program.constants if isinstance(constant, np.ndarray))
    lines.append(f"  constants: {len(program.constants)}, {tensors} bytes of tensors")
    lines.append(f"  calls by name: {', '.join(facts['calls']) or 'nothing'}")
    if facts["native"]:
        lines.append(f"  native code: {', '.join(facts['native'])}")
    return "".join(f"{line}\n" for line in lines)


def information(program: RelaxProgram) -> dict[str, Any]:
    """What a program consists of, as JSON has it."""
    others = [function for function in program.functions if function.code is None]
    return {
        "format": "Relax VM",
        "version": RELAX_VERSION,
        "functions": [
            {
                "name": function.name,
                "params": list(function.params),
                "registers": function.registers,
                "instructions": len(function.code or ()),
            }
            for function in program.own()
        ],
        "calls": [function.name for function in others if not function.is_native],
        "native": [function.name for function in others if function.is_native],
        "constants": [_constant_fact(constant) for constant in program.constants],
    }


def _constant_fact(constant: Any) -> Any:
    if isinstance(constant, np.ndarray):
        return {"dtype": constant.dtype.name, "shape": list(constant.shape)}
    return str(constant) if isinstance(constant, DataType) else constant
