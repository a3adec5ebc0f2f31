"""Bytecode for people: instructions, their listing, and the text of operands, which the assembler shares."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..bytecode import Decoded, Value, function_words, jump_target, scan
from ..dtypes import DType
from ..isa import BY_NAME, Field, Kind, Operation
from ..messages.errors import DTypeError
from ..messages.terminal import showing
from ..program import Function, Program
from .notation import print_name, print_result_names, print_type


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

    @showing
    def __str__(self) -> str:
        mark = ">>" if self.is_jump_target else "  "
        text = f"{mark} {self.offset:5}  {self.opname:15} {self.argrepr}"
        return f"{text:70}  # {self.node}" if self.node else text.rstrip()


class Listing(tuple[Instruction, ...]):
    """Instructions, one after the other; as text a line each, under the names of their functions."""

    __slots__ = ()

    @showing
    def __str__(self) -> str:
        parts = [
            f"@{name}\n" + "\n".join(map(str, instructions))
            for name, instructions in itertools.groupby(self, lambda each: each.function)
        ]
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(each.function for each in self))
        return f"<{len(self)} instructions of {names or 'no function'}>"

    def _repr_html_(self) -> str:
        from .html import preformatted

        return preformatted(str(self))


def instructions(program: Program, functions: Sequence[Function]) -> Iterator[Instruction]:
    """The instructions of some functions of a program. Raises FormatError for malformed code."""
    numbers = {function.name: number for number, function in enumerate(program.functions)}
    nodes = {(at.function, at.offset): at.node for at in program.source_map}
    for function in functions:
        yield from _function_instructions(program, function, numbers[function.name], nodes)


def _function_instructions(
    program: Program, function: Function, number: int, nodes: dict[tuple[int, int], str]
) -> Iterator[Instruction]:
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
    """`@main(x: float32[2]) -> float32[2]`; captured values stand apart: `@inner(x: …) captures (y: …) -> …`. Names of
    results follow: `-> (float32[2], int64[]) as (values, best)`."""
    params = [
        f"{print_name(name)}: {print_type(type_)}"
        for name, type_ in zip(function.param_names, function.type.params, strict=True)
    ]
    own = len(params) - function.captured
    captured = f" captures ({', '.join(params[own:])})" if function.captured else ""
    result = print_type(function.type.result) + print_result_names(function.result_names)
    return f"@{print_name(function.name)}({', '.join(params[:own])}){captured} -> {result}"


def frame_text(function: Function) -> str:
    """`refs=3 ints=0 frame=128`: the function's registers and bytes of planned memory."""
    return f"refs={function.ref_registers} ints={function.int_registers} frame={function.frame_bytes}"


def print_bytecode(program: Program) -> str:
    """All functions and their instructions, for people."""
    listings = {f.name: [f"{signature(f)}  {frame_text(f)}"] for f in program.functions}
    for instruction in instructions(program, program.functions):
        listings[instruction.function].append(f"  {instruction}")
    return "".join("\n".join(lines) + "\n\n" for lines in listings.values())


def _meaning(program: Program, field: Field, value: Value, offset: int) -> Any:
    """The meaning of a field's value; the bare number if it is out of range (the verifier will say so)."""
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
    Kind.IMPORT: lambda program, index: _at(program.imports, index).name,
    Kind.TYPE: lambda program, index: _at(program.types, index),
    Kind.DTYPE: lambda program, code: DType.from_code(code),
    Kind.DEVICE: lambda program, number: _at(program.devices, number - 1).name if number else "0",
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
        if kind is Kind.DEVICE:
            return meaning
        return ("@" if kind is Kind.FUNC else "") + print_name(meaning)

    def type(self, index: int) -> str:
        return print_type(self.program.types[index])

    def label(self, target: int) -> str:
        return f"to {target}"
