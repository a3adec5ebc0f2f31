"""Prints a program as assembly; the language is described in `assembly.py`."""

from __future__ import annotations

import os

from ..bytecode import Decoded, function_words, jump_target, scan
from ..isa import Field, Kind
from ..messages.errors import FormatError
from ..program import Program
from ..sections import check
from ..types import DataTypeDefinition, Type
from . import notation
from .disassembly import OperandPrinter, frame_text, signature
from .notation import print_name, print_type, quote
from .tables_text import print_constants, print_primitive


def print_assembly(program: Program, *, constants_file: str | os.PathLike | None = None, elide: bool = False) -> str:
    """The program's text. Constants of more than 64 elements are written as base64; with `constants_file`, into that file, to
    which the text refers; with `elide`, not at all (then the text is for reading only).

    Raises FormatError for code that no text stands for: jumps that miss instructions, indices that miss their tables.
    """
    check(program)
    blocks = [
        [f"meta {quote(key)} = {quote(value)}" for key, value in sorted(program.metadata.items())],
        [_print_data_type(definition) for definition in program.data_types],
        [f"device {device.name} = {quote(device.target)}" for device in program.devices],
        print_constants(program.constants, constants_file, elide, program.placed),
        _print_type_table(program),
        [f"import {print_name(entry.name)}: {print_type(entry.type)}" for entry in program.imports],
    ]
    parts = ["\n".join(lines) for lines in blocks if lines]
    parts += map(print_primitive, program.primitives)
    parts += map(_FunctionPrinter(program).function_text, range(len(program.functions)))
    return "\n\n".join(parts) + "\n" if parts else ""


def _print_data_type(definition: DataTypeDefinition) -> str:
    bodies = [
        print_name(c.name) + (f"({', '.join(map(print_type, c.fields))})" if c.fields else "")
        for c in definition.constructors
    ]
    return f"data {notation.print_data_type_name(definition.name)} = {' | '.join(bodies)}".rstrip()


def _print_type_table(program: Program) -> list[str]:
    """Nothing when the table is that which a reader derives: the types in the order of their first use."""
    derived: dict[Type, None] = {}
    for function in program.functions:
        for instruction in scan(function_words(program, function), function.name):
            for field, value in zip(instruction.operation.fields, instruction.values, strict=True):
                if field.kind is Kind.TYPE and 0 <= value < len(program.types):  # type: ignore[operator]
                    derived[program.types[value]] = None  # type: ignore[index]
    if tuple(derived) == program.types:
        return []
    return [f"type t{index} = {print_type(type_)}" for index, type_ in enumerate(program.types)]


class _FunctionPrinter(OperandPrinter):
    """Prints functions whose operands can be read back, or raises FormatError."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._type_numbers: dict[Type, int] = {}
        for number, type_ in enumerate(program.types):
            self._type_numbers.setdefault(type_, number)
        self._nodes: list[dict[int, str]] = [{} for _ in program.functions]
        for at in program.source_map:
            self._nodes[at.function][at.offset] = at.node
        self._function = ""
        self._labels: dict[int, str] = {}

    def function_text(self, number: int) -> str:
        function = self.program.functions[number]
        instructions = list(scan(function_words(self.program, function), function.name))
        targets = {jump_target(instruction) for instruction in instructions}
        starts = [instruction.offset for instruction in instructions if instruction.offset in targets]
        self._function, self._labels = function.name, {offset: f"L{index}" for index, offset in enumerate(starts)}
        lines = [f"func {signature(function)}  {frame_text(function)} {{"]
        for instruction in instructions:
            if instruction.offset in self._labels:
                lines.append(f"{self._labels[instruction.offset]}:")
            lines.append(self._instruction_text(instruction, self._nodes[number].get(instruction.offset)))
        self._check_nodes(self._nodes[number].keys() - {instruction.offset for instruction in instructions})
        return "\n".join([*lines, "}"])

    def _instruction_text(self, instruction: Decoded, node: str | None) -> str:
        text = f"  {instruction.operation.name} {self.text(instruction)}".rstrip()
        return text if node is None else f"{text}  from {quote(node)}"

    def _check_nodes(self, missed: set[int]) -> None:
        if missed:
            message = f"the source map names word {min(missed)}, where no instruction starts"
            raise FormatError(message, section="source_map", function=self._function)

    def word(self, field: Field, word: int, instruction: Decoded) -> str:
        text = super().word(field, word, instruction)
        if text.startswith("?"):
            message = f"{instruction.operation.name}: {field.name} {word} does not exist"
            raise FormatError(message, section="code", function=self._function, instruction=instruction.offset)
        return text

    def type(self, index: int) -> str:
        """The type itself, or its number when an equal one stands before it in the table."""
        type_ = self.program.types[index]
        return print_type(type_) if self._type_numbers[type_] == index else f"t{index}"

    def label(self, target: int) -> str:
        if target not in self._labels:
            message = f"a jump to word {target}, where no instruction starts"
            raise FormatError(message, section="code", function=self._function)
        return self._labels[target]
