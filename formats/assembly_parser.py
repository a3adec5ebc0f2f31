"""Parses assembly; the language is described in `assembly.py`."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from . import limits, notation
from .bytecode import CodeBuilder, Label, code_array
from .constants import aligned
from .disassembly import LAYOUTS
from .isa import BY_NAME, Field, Kind
from .program import Function, Program, SourceLocation
from .sections import check
from .tables_text import TableParser
from .types import Constructor, DataTypeDefinition, FunctionType, TensorType, Type


def parse_assembly(text: str, *, folder: str | os.PathLike | None = None) -> Program:
    """The program that a text stands for. `folder` is where the constants files lie that it names.

    Raises ParseError with line, column and the line itself; FormatError for tables that do not agree.
    """
    return _Parser(text, folder).program()


class _Prototype(NamedTuple):
    """A function's head, before its body is read."""

    name: str
    param_names: tuple[str, ...]
    type: FunctionType
    captured: int
    counts: dict[str, int]  # refs, ints, frame, where given


class _Parser(TableParser):
    def __init__(self, text: str, folder: str | os.PathLike | None) -> None:
        super().__init__(text, folder)
        self.metadata: dict[str, str] = {}
        self.data_types: list[DataTypeDefinition] = []
        self.types: list[Type] = []
        self.type_numbers: dict[Type, int] = {}
        self.functions: list[Function] = []
        self.function_names: dict[str, int] = {}
        self.calls: list[tuple[str, int, int, int]] = []  # name, place in the text, function, word: known at the end
        self.code: list[list[int]] = []
        self.locations: list[SourceLocation] = []

    def program(self) -> Program:
        sections = {
            "meta": self.meta,
            "data": self.data,
            "const": self.const,
            "type": self.type,
            "prim": self.prim,
            "func": self.func,
        }
        while not self.scanner.at_end():
            start = self.scanner.at
            word = self.scanner.word("meta, data, const, type, prim or func")
            if word not in sections:
                self.scanner.fail(f"expected meta, data, const, type, prim or func, found {word!r}", start)
            sections[word]()
        self.resolve_calls()
        program = Program(
            tuple(self.functions),
            tuple(self.constants),
            tuple(self.primitives),
            code_array(self.code),
            tuple(self.types),
            tuple(self.data_types),
            tuple(self.locations),
            self.metadata,
        )
        check(program)
        return program

    # -- tables --

    def meta(self) -> None:
        start = self.scanner.skip()
        key = self.scanner.string("a key in quotes")
        if key in self.metadata:
            self.scanner.fail(f"there is an entry {key!r} already", start)
        self.scanner.expect("=")
        self.metadata[key] = self.scanner.string("a value in quotes")

    def data(self) -> None:
        scanner = self.scanner
        start = scanner.skip()
        type_ = notation.scan_type(scanner)
        name = getattr(type_, "name", None)
        if name is None:
            scanner.fail("expected the name of a data type", start)
        scanner.expect("=")
        constructors: list[Constructor] = []
        if scanner.on_this_line() or scanner.peek("|"):
            constructors.append(self.constructor())
        while scanner.accept("|"):
            constructors.append(self.constructor())
        self.data_types.append(DataTypeDefinition(name, (), tuple(constructors)))

    def constructor(self) -> Constructor:
        scanner = self.scanner
        name = scanner.name("a constructor")
        if scanner.on_this_line() and scanner.peek("("):
            return Constructor(name, tuple(scanner.listed(lambda: notation.scan_type(scanner))))
        return Constructor(name, ())

    def type(self) -> None:
        start = self.scanner.skip()
        name = self.scanner.match(notation.TYPE_NUMBER, "a type's number: t0, t1, …")
        if name != f"t{len(self.types)}":
            self.scanner.fail(f"expected t{len(self.types)}, found {name!r}", start)
        self.scanner.expect("=")
        self.add_type(notation.scan_type(self.scanner))

    def add_type(self, type_: Type) -> int:
        self.types.append(type_)
        self.type_numbers.setdefault(type_, len(self.types) - 1)
        return len(self.types) - 1

    # -- functions --

    def func(self) -> None:
        prototype = self.prototype()
        number = len(self.functions)
        code = CodeBuilder()
        body = _Body(self, code, number)
        body.parse()
        words, _ = code.finish()
        derived = body.derived_counts(len(prototype.param_names))
        counts = {**derived, **prototype.counts}
        start = sum(map(len, self.code))
        self.functions.append(
            Function(
                prototype.name,
                prototype.param_names,
                prototype.type,
                prototype.captured,
                counts["refs"],
                counts["ints"],
                counts["frame"],
                start,
                len(words),
            )
        )
        self.code.append(words)

    def prototype(self) -> _Prototype:
        scanner = self.scanner
        start = scanner.skip()
        scanner.expect("@")
        name = scanner.name("a function's name")
        self.declare(self.function_names, name, "function", start)
        params = scanner.listed(self.param)
        captured = scanner.listed(self.param) if scanner.accept_word("captures") else []
        scanner.expect("->")
        result = notation.scan_type(scanner)
        counts: dict[str, int] = {}
        for key, limit in (("refs", limits.REGISTERS), ("ints", limits.REGISTERS), ("frame", limits.FRAME_BYTES)):
            if scanner.accept_word(key):
                scanner.expect("=")
                counts[key] = scanner.integer(key, 0, limit)
        names, types = zip(*params, *captured, strict=True) if params or captured else ((), ())
        return _Prototype(name, names, FunctionType(types, result), len(captured), counts)

    def param(self) -> tuple[str, Type]:
        name = self.scanner.name("a parameter")
        self.scanner.expect(":")
        return name, notation.scan_type(self.scanner)

    def resolve_calls(self) -> None:
        for name, place, function, word in self.calls:
            if name not in self.function_names:
                self.scanner.fail(f"there is no function @{name}", place)
            self.code[function][word] = self.function_names[name]


class _Body:
    """The instructions of one function."""

    def __init__(self, parser: _Parser, code: CodeBuilder, function: int) -> None:
        self.parser, self.scanner, self.code, self.function = parser, parser.scanner, code, function
        self.labels: dict[str, Label] = {}
        self.label_uses: dict[str, int] = {}  # name → place in the text
        self.highest = {Kind.REF: -1, Kind.INT: -1}
        self.frame = 0

    def parse(self) -> None:
        scanner = self.scanner
        scanner.expect("{")
        while not scanner.accept("}"):
            start = scanner.skip()
            word = scanner.word("an instruction, a label or }")
            if scanner.text.startswith(":", scanner.at):
                self.place(word, start)
                scanner.expect(":")
            else:
                self.instruction(word, start)
        for name, place in self.label_uses.items():
            if self.labels[name].offset is None:
                scanner.fail(f"there is no label {name!r} in this function", place)

    def place(self, name: str, start: int) -> None:
        label = self.labels.setdefault(name, Label(name))
        if label.offset is not None:
            self.scanner.fail(f"there is a label {name!r} already", start)
        self.code.place(label)

    def instruction(self, name: str, start: int) -> None:
        scanner = self.scanner
        if name not in BY_NAME:
            scanner.fail(f"there is no instruction {name!r}; the machine has {', '.join(BY_NAME)}", start)
        fields: dict[str, Any] = {}
        references: list[tuple[str, str, int]] = []  # field, function, place
        for operand in LAYOUTS[name]:
            separator = operand.separator.strip()
            if operand.field.is_list:
                fields[operand.field.name] = self.operand_list(operand.field, separator, operand.brackets)
                continue
            if separator:
                scanner.expect(separator)
            if operand.field.kind is Kind.FUNC:
                references.append((operand.field.name, *self.function_name()))
                fields[operand.field.name] = 0
            else:
                fields[operand.field.name] = self.word(operand.field)
        offset = self.code.emit(name, **fields)
        for field, function, place in references:
            position = offset + 1 + [f.name for f in BY_NAME[name].fields].index(field)
            self.parser.calls.append((function, place, self.function, position))
        self.after_instruction(name, fields, offset)

    def operand_list(self, field: Field, separator: str, brackets: str) -> list[object]:
        """A list; when nothing more stands on the line, an empty one."""
        scanner = self.scanner
        if not scanner.on_this_line() or scanner.peek("}"):
            return []
        if separator:
            scanner.expect(separator)
        elif not scanner.peek(brackets[0]):
            if scanner.accept(","):
                scanner.skip()
            elif self.at_origin():
                return []
        return scanner.listed(lambda: self.word(field), *brackets)

    def at_origin(self) -> bool:
        return self.scanner.peek("from")

    def after_instruction(self, name: str, fields: dict[str, Any], offset: int) -> None:
        scanner = self.scanner
        if scanner.on_this_line():
            node = self.parser.origin()
            if node is not None:
                self.parser.locations.append(SourceLocation(self.function, offset, node))
            if scanner.on_this_line() and not scanner.peek("}"):
                scanner.fail(f"expected the end of the line, {scanner.found()}")
        if name == "frame_tensor":
            type_ = self.parser.types[fields["type"]]
            if isinstance(type_, TensorType) and type_.is_static:
                self.frame = max(self.frame, fields["offset"] + aligned(type_.nbytes))

    def word(self, field: Field) -> object:
        kind = field.kind
        scanner = self.scanner
        start = scanner.skip()
        if kind in (Kind.REF, Kind.INT):
            return self.register(kind)
        if kind is Kind.DIM:
            if scanner.text[start : start + 1].isdigit():
                return scanner.integer("an integer", 0)
            return ~self.register(Kind.INT)
        if kind is Kind.IMM:
            return scanner.integer()
        if kind is Kind.LABEL:
            name = scanner.word("a label")
            self.label_uses.setdefault(name, start)
            return self.labels.setdefault(name, Label(name))
        if kind is Kind.DTYPE:
            return notation.scan_dtype(scanner)
        if kind is Kind.TYPE:
            return self.type_number()
        names, what = {
            Kind.CONST: (self.parser.constant_names, "constant"),
            Kind.PRIM: (self.parser.primitive_names, "primitive"),
        }[kind]
        name = scanner.name(f"a {what}'s name")
        if name not in names:
            scanner.fail(f"there is no {what} {name!r} above", start)
        return names[name]

    def register(self, kind: Kind) -> int:
        scanner = self.scanner
        start = scanner.skip()
        text = scanner.word(f"a register {kind.value}0, {kind.value}1, …")
        digits = text[1:]
        if text[0] != kind.value or not digits.isdecimal() or str(int(digits)) != digits:
            scanner.fail(f"expected a register {kind.value}0, {kind.value}1, …, found {text!r}", start)
        number = int(digits)
        self.highest[kind] = max(self.highest[kind], number)
        return number

    def type_number(self) -> int:
        scanner, parser = self.scanner, self.parser
        start = scanner.skip()
        if notation.TYPE_NUMBER.match(scanner.text, start):
            number = int(scanner.word("a type")[1:9])
            if number >= len(parser.types):
                scanner.fail(f"there is no type t{number} above", start)
            return number
        type_ = notation.scan_type(scanner)
        known = parser.type_numbers.get(type_)
        return parser.add_type(type_) if known is None else known

    def function_name(self) -> tuple[str, int]:
        start = self.scanner.skip()
        self.scanner.expect("@")
        return self.scanner.name("a function's name"), start

    def derived_counts(self, params: int) -> dict[str, int]:
        return {
            "refs": max(params, self.highest[Kind.REF] + 1),
            "ints": self.highest[Kind.INT] + 1,
            "frame": self.frame,
        }
