"""Bytecode: words to instructions and back, derived from the table in `isa.py`.

`dis` shows an executable's instructions in the manner of Python's own `dis`; `scan` is the checked walk over a function's
words that it, the assembler and the verifier share; `encode` and `CodeBuilder` write instructions.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np

from . import limits
from .dtypes import DType
from .errors import DTypeError, FormatError, LimitError, UnknownFunctionError
from .isa import BY_NAME, BY_OPCODE, Field, Kind, Operation
from .notation import print_name, print_type
from .program import Function, Program

if TYPE_CHECKING:
    from .executable import Executable

Value = Union[int, tuple[int, ...]]  # a field's word, or a list's words

WORD_MIN, WORD_MAX = -(1 << 63), (1 << 63) - 1


class Decoded(NamedTuple):
    """An instruction as its words say: one value a field of `operation`, in order."""

    offset: int  # words from the function's start
    operation: Operation
    values: tuple[Value, ...]
    size: int  # words


def int_register(number: int) -> int:
    """The word by which a `d` field names integer register `number`."""
    return ~number


# ---- reading ----


def scan(words: Sequence[int], function: str = "") -> Iterator[Decoded]:
    """The instructions of one function's words (a list is faster than an array). Raises FormatError at the first word that
    is no opcode or a list that does not fit; fields may hold anything."""
    offset, end = 0, len(words)
    while offset < end:
        operation = BY_OPCODE.get(words[offset])
        if operation is None:
            raise FormatError(f"{words[offset]} is no opcode", section="code", function=function, instruction=offset)
        at = offset + 1
        values: list[Value] = []
        for field in operation.fields:
            if at >= end:
                raise _cut_short(operation, field, function, offset)
            word = words[at]
            at += 1
            if field.is_list:
                if not 0 <= word <= min(limits.OPERANDS, end - at):
                    message = (
                        f"{operation.name}: {word} {field.name}; {end - at} words are left, {limits.OPERANDS} allowed"
                    )
                    raise LimitError(message, section="code", function=function, instruction=offset)
                values.append(tuple(words[at : at + word]))
                at += word
            else:
                values.append(word)
        yield Decoded(offset, operation, tuple(values), at - offset)
        offset = at


def _cut_short(operation: Operation, field: Field, function: str, offset: int) -> FormatError:
    message = f"{operation.name}: the function ends before the field {field.name}"
    return FormatError(message, section="code", function=function, instruction=offset)


def function_words(program: Program, function: Function) -> list[int]:
    return program.code[function.start : function.start + function.length].tolist()


def jump_target(instruction: Decoded) -> int | None:
    """The word, from the function's start, that an instruction may jump to."""
    for field, value in zip(instruction.operation.fields, instruction.values, strict=True):
        if field.kind is Kind.LABEL:
            return instruction.offset + value  # type: ignore[operator]
    return None


# ---- showing ----


class Instruction(NamedTuple):
    """An instruction for people and tools; the names are those of Python's `dis.Instruction` where they fit."""

    opname: str
    opcode: int
    arg: tuple[Value, ...]  # the words of the fields
    argval: dict[str, Any]  # field → what it means: register number, constant array, primitive's name, type, target …
    argrepr: str  # the fields as in assembly
    offset: int  # words from the function's start
    is_jump_target: bool
    function: str
    node: str  # the model node that it comes from, or ""
    size: int  # words

    @property
    def jump_target(self) -> int | None:
        """The offset that it may jump to."""
        return self.argval.get("label")

    def __str__(self) -> str:
        mark = ">>" if self.is_jump_target else "  "
        text = f"{mark} {self.offset:5}  {self.opname:15} {self.argrepr}"
        return f"{text:70}  # {self.node}" if self.node else text.rstrip()


def dis(executable: Executable | Program, function: str | None = None) -> Iterator[Instruction]:
    """The instructions of all functions, or of one. Raises UnknownFunctionError, and FormatError for malformed code."""
    program = executable if isinstance(executable, Program) else executable.program
    if function is not None and all(f.name != function for f in program.functions):
        names = ", ".join(f.name for f in program.functions)
        raise UnknownFunctionError(f"there is no function {function!r}; the executable has {names}")
    nodes = {(at.function, at.offset): at.node for at in program.source_map}
    for number, candidate in enumerate(program.functions):
        if function is None or candidate.name == function:
            yield from _instructions(program, number, nodes)


def _instructions(program: Program, number: int, nodes: dict[tuple[int, int], str]) -> Iterator[Instruction]:
    function = program.functions[number]
    decoded = list(scan(function_words(program, function), function.name))
    targets = {jump_target(instruction) for instruction in decoded}
    for item in decoded:
        yield Instruction(
            opname=item.operation.name,
            opcode=item.operation.opcode,
            arg=item.values,
            argval={
                field.name: _meaning(program, field, value, item.offset)
                for field, value in zip(item.operation.fields, item.values, strict=True)
            },
            argrepr=OperandPrinter(program).text(item),
            offset=item.offset,
            is_jump_target=item.offset in targets,
            function=function.name,
            node=nodes.get((number, item.offset), ""),
            size=item.size,
        )


def signature(function: Function) -> str:
    """`@main(x: float32[2]) -> float32[2]`; captured values stand apart: `@inner(x: …) captures (y: …) -> …`."""
    params = [
        f"{print_name(name)}: {print_type(type_)}"
        for name, type_ in zip(function.param_names, function.type.params, strict=True)
    ]
    own = len(params) - function.captured
    captured = f" captures ({', '.join(params[own:])})" if function.captured else ""
    return f"@{print_name(function.name)}({', '.join(params[:own])}){captured} -> {print_type(function.type.result)}"


def frame_text(function: Function) -> str:
    """`refs=3 ints=0 frame=128`: the function's registers and bytes of planned memory."""
    return f"refs={function.ref_registers} ints={function.int_registers} frame={function.frame_bytes}"


def print_bytecode(program: Program) -> str:
    """All functions and their instructions, for people."""
    lines: list[str] = []
    for function in program.functions:
        lines += [f"{signature(function)}  {frame_text(function)}"]
        lines += [f"  {instruction}" for instruction in dis(program, function.name)]
        lines.append("")
    return "\n".join(lines)


def _meaning(program: Program, field: Field, value: Value, offset: int) -> Any:
    """What a field stands for; the bare number where it stands for nothing (the verifier will say so)."""
    if field.is_list or field.kind not in _TABLES:
        return offset + value if field.kind is Kind.LABEL else value  # type: ignore[operator]
    try:
        return _TABLES[field.kind](program, value)
    except (IndexError, DTypeError):
        return value


def _at(table: Sequence[Any], index: int) -> Any:
    if index < 0:
        raise IndexError(index)
    return table[index]


_TABLES = {
    Kind.CONST: lambda program, index: _at(program.constants, index),
    Kind.PRIM: lambda program, index: _at(program.primitives, index).name,
    Kind.FUNC: lambda program, index: _at(program.functions, index).name,
    Kind.TYPE: lambda program, index: _at(program.types, index),
    Kind.DTYPE: lambda program, code: DType.from_code(code),
}

# ---- the text of operands, shared with the assembler ----

# The order of fields in text is that of the table, but for call_host, which reads as call does.
_TEXT_ORDER = {"call_host": ("prim", "inputs", "dst", "dims")}
_RESULTS = {("call", "outputs"), ("call_host", "dst")}


class Operand(NamedTuple):
    """How a field appears in text."""

    position: int  # in the table's order
    field: Field
    separator: str  # before it
    brackets: str  # around a list, or ""
    may_be_left_out: bool  # when it is an empty list


def _layout(operation: Operation) -> tuple[Operand, ...]:
    names = [field.name for field in operation.fields]
    operands: list[Operand] = []
    previous: Field | None = None
    for name in _TEXT_ORDER.get(operation.name, names):
        position = names.index(name)
        field = operation.fields[position]
        is_shape = field.is_list and field.kind is Kind.DIM
        if previous is None:
            separator = ""
        elif (operation.name, name) in _RESULTS:
            separator = " -> "
        elif is_shape and previous.kind is Kind.DTYPE:
            separator = ""
        else:
            separator = " " if field.is_list else ", "
        brackets = "" if not field.is_list else "[]" if is_shape else "()"
        operands.append(Operand(position, field, separator, brackets, name == "dims"))
        previous = field
    return tuple(operands)


LAYOUTS: dict[str, tuple[Operand, ...]] = {name: _layout(operation) for name, operation in BY_NAME.items()}


class OperandPrinter:
    """Prints operands; an index that its table does not have shows as ?7. The assembler overrides what it knows better."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def text(self, instruction: Decoded) -> str:
        parts: list[str] = []
        for operand in LAYOUTS[instruction.operation.name]:
            value = instruction.values[operand.position]
            if isinstance(value, tuple):
                if value or not operand.may_be_left_out:
                    inner = ", ".join(self.word(operand.field, word, instruction) for word in value)
                    parts.append(f"{operand.separator}{operand.brackets[0]}{inner}{operand.brackets[1]}")
            else:
                parts.append(operand.separator + self.word(operand.field, value, instruction))
        return "".join(parts)

    def word(self, field: Field, word: int, instruction: Decoded) -> str:
        kind = field.kind
        if kind in (Kind.REF, Kind.INT):
            return f"{kind.value}{word}" if word >= 0 else f"?{word}"
        if kind is Kind.DIM:
            return str(word) if word >= 0 else f"i{~word}"
        if kind is Kind.IMM:
            return str(word)
        if kind is Kind.LABEL:
            return self.label(instruction.offset + word)
        try:
            meaning = _TABLES[kind](self.program, word)
        except (IndexError, DTypeError):
            return f"?{word}"
        if kind is Kind.CONST:
            return f"c{word}"
        if kind is Kind.TYPE:
            return self.type(word)
        if kind is Kind.DTYPE:
            return meaning.name
        return ("@" if kind is Kind.FUNC else "") + print_name(meaning)

    def type(self, index: int) -> str:
        return print_type(self.program.types[index])

    def label(self, target: int) -> str:
        return f"to {target}"


# ---- writing ----


def encode(name: str, fields: dict[str, Any]) -> list[int]:
    """The words of one instruction. Raises FormatError for an unknown operation, a missing or unknown field, or a value that
    is no 64-bit word (a list of words for a list)."""
    operation = BY_NAME.get(name)
    if operation is None:
        raise FormatError(f"there is no instruction {name!r}; the machine has {', '.join(BY_NAME)}")
    expected = [field.name for field in operation.fields]
    if set(fields) != set(expected):
        raise FormatError(f"{name} has the fields {', '.join(expected)}; given are {', '.join(fields) or 'none'}")
    words = [operation.opcode]
    for field in operation.fields:
        value = fields[field.name]
        if field.is_list:
            elements = [_word(name, field, element) for element in value]
            if len(elements) > limits.OPERANDS:
                raise LimitError(f"{name}: {len(elements)} {field.name}; at most {limits.OPERANDS} are allowed")
            words += [len(elements), *elements]
        else:
            words.append(_word(name, field, value))
    return words


def _word(name: str, field: Field, value: Any) -> int:
    if isinstance(value, DType):
        return value.code
    try:
        word = operator.index(value)
    except TypeError:
        raise FormatError(f"{name}: {field.name} is {value!r}, expected an integer") from None
    if not WORD_MIN <= word <= WORD_MAX:
        raise FormatError(f"{name}: {field.name} is {word}, which takes more than 64 bits")
    return word


@dataclass(eq=False)
class Label:
    """A place in the code of one function; `offset` is known once the label is placed."""

    name: str = ""
    offset: int | None = None


class CodeBuilder:
    """Writes the code of one function.

        code = CodeBuilder()
        done = code.label()
        code.emit("if_int", cond=0, label=done)
        code.emit("ret", src=0)
        code.place(done)
        …
        words, nodes = code.finish()

    `code.node` is the model node that the following instructions come from.
    """

    def __init__(self) -> None:
        self.node = ""
        self._words: list[int] = []
        self._nodes: list[tuple[int, str]] = []
        self._jumps: list[tuple[int, int, Label]] = []  # instruction, place of the field's word, label

    @property
    def offset(self) -> int:
        """Where the next instruction will start."""
        return len(self._words)

    def label(self, name: str = "") -> Label:
        return Label(name)

    def place(self, label: Label) -> None:
        """The next instruction is the target of `label`."""
        if label.offset is not None:
            raise FormatError(f"the label {label.name!r} is placed twice", instruction=self.offset)
        label.offset = self.offset

    def emit(self, name: str, **fields: Any) -> int:
        """Append an instruction, and return its offset. A `label` field takes a Label. Raises FormatError."""
        start = self.offset
        target = fields.get("label")
        if isinstance(target, Label):
            fields["label"] = 0
        self._words += encode(name, fields)
        if isinstance(target, Label):
            self._jumps.append((start, start + _label_position(name), target))
        if self.node:
            self._nodes.append((start, self.node))
        return start

    def finish(self) -> tuple[list[int], list[tuple[int, str]]]:
        """The words, and (offset, model node) of the instructions that have one. Raises FormatError for a label that no
        one placed."""
        for instruction, position, label in self._jumps:
            if label.offset is None:
                raise FormatError(f"the label {label.name!r} is not placed", instruction=instruction)
            self._words[position] = label.offset - instruction
        return self._words, self._nodes


def _label_position(name: str) -> int:
    """Words from an instruction's first to its label field; no list stands before a label."""
    return 1 + [field.kind for field in BY_NAME[name].fields].index(Kind.LABEL)


def code_array(functions: Iterable[Sequence[int]]) -> np.ndarray:
    """The code section made of the functions' words."""
    words = np.array([word for function in functions for word in function], np.int64)
    words.flags.writeable = False
    return words
