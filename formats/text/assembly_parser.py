"""Parses assembly; the language is described in `assembly.py`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from .. import limits
from ..bytecode import CodeBuilder, Label, code_array, int_register
from ..constants import aligned
from ..dtypes import DType
from ..isa import BY_NAME, Field, Kind
from ..messages.errors import VerificationError
from ..messages.names import near
from ..program import Function, Import, Program, ProgramDevice, SourceLocation
from ..sections import check
from ..types import Constructor, DataTypeDefinition, FunctionType, TensorType, Type
from . import notation
from .disassembly import LAYOUTS, Operand
from .tables_text import TableParser

_REGISTER = re.compile(r"[a-z](0|[1-9][0-9]{0,8})")  # or a type's number


def parse_assembly(text: str, *, folder: str | os.PathLike | None = None) -> Program:
    """The program that a text stands for. `folder` is where the constants files lie that it names.

    Raises ParseError with line, column and the line itself; FormatError for tables that do not agree.
    """
    return _Parser(text, folder).program()


@contextlib.contextmanager
def naming_lines(text: str, *, folder: str | os.PathLike | None = None) -> Iterator[None]:
    """Within this, a VerificationError of an instruction of the program of that text shows the instruction's line too."""
    try:
        yield
    except VerificationError as error:
        if error.function is None or error.instruction is None:
            raise
        parser = _Parser(text, folder)
        parser.program()
        at = parser.places[error.function, error.instruction]
        line, shown = text.count("\n", 0, at) + 1, text[at:].partition("\n")[0].partition("#")[0].rstrip()
        message = f"line {line}, `{shown[:80]}`: {error.message.removeprefix(f'{error.layer}: ')}"
        where = {"function": error.function, "instruction": error.instruction, "node": error.node}
        raise VerificationError(message, layer=error.layer, **where) from None


class _Prototype(NamedTuple):
    """A function's head, before its body is read."""

    name: str
    param_names: tuple[str, ...]
    type: FunctionType
    captured: int
    counts: dict[str, int]  # refs, ints, frame, where given
    result_names: tuple[str, ...]


class _Parser(TableParser):
    def __init__(self, text: str, folder: str | os.PathLike | None) -> None:
        super().__init__(text, folder)
        self.metadata: dict[str, str] = {}
        self.data_types: list[DataTypeDefinition] = []
        self.devices: list[ProgramDevice] = []
        self.device_names: dict[str, int] = {}
        self.types: list[Type] = []
        self.type_numbers: dict[Type, int] = {}
        self.imports: list[Import] = []
        self.import_names: dict[str, int] = {}
        self.functions: list[Function] = []
        self.function_names: dict[str, int] = {}
        self.calls: list[tuple[str, int, int, int]] = []  # name, place in the text, function, word: known at the end
        self.code: list[list[int]] = []
        self.locations: list[SourceLocation] = []
        self.places: dict[tuple[str, int], int] = {}  # function, instruction → where it begins in the text

    def program(self) -> Program:
        self.read_sections(
            {
                "meta": self.meta,
                "data": self.data,
                "device": self.device,
                "const": self.const,
                "type": self.type,
                "import": self.import_,
                "prim": self.prim,
                "func": self.func,
            }
        )
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
            tuple(self.imports),
            devices=tuple(self.devices),
            placed=self.placed,
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

    def device(self) -> None:
        start = self.scanner.skip()
        name = self.scanner.word("a device's name")
        self.declare(self.device_names, name, "device", start)
        self.scanner.expect("=")
        self.devices.append(ProgramDevice(name, self.scanner.string("the device's target in quotes")))

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

    def import_(self) -> None:
        start = self.scanner.skip()
        name = self.scanner.name("an import's name")
        self.declare(self.import_names, name, "import", start)
        self.scanner.expect(":")
        start = self.scanner.skip()
        type_ = notation.scan_type(self.scanner)
        if not isinstance(type_, FunctionType):
            self.scanner.fail(f"an import has the type of a function, not {type_}", start)
        self.imports.append(Import(name, type_))

    def add_type(self, type_: Type) -> int:
        self.types.append(type_)
        self.type_numbers.setdefault(type_, len(self.types) - 1)
        return len(self.types) - 1

    # -- functions --

    def func(self) -> None:
        prototype = self.prototype()
        code = CodeBuilder()
        body = _Body(self, code, prototype.name, len(self.functions))
        body.parse()
        words, _ = code.finish()
        counts = body.derived_counts(len(prototype.param_names)) | prototype.counts
        start = self.functions[-1].start + self.functions[-1].length if self.functions else 0
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
                prototype.result_names,
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
        results = notation.scan_result_names(scanner)
        counts: dict[str, int] = {}
        for key, limit in (("refs", limits.REGISTERS), ("ints", limits.REGISTERS), ("frame", limits.FRAME_BYTES)):
            if scanner.accept_word(key):
                scanner.expect("=")
                counts[key] = scanner.integer(key, 0, limit)
        names, types = zip(*params, *captured, strict=True) if params or captured else ((), ())
        return _Prototype(name, names, FunctionType(types, result), len(captured), counts, results)

    def param(self) -> tuple[str, Type]:
        name = self.scanner.name("a parameter")
        self.scanner.expect(":")
        return name, notation.scan_type(self.scanner)

    def resolve_calls(self) -> None:
        for name, place, function, word in self.calls:
            if name not in self.function_names:
                self.scanner.fail(f"there is no function @{name}{near(name, self.function_names)}", place)
            self.code[function][word] = self.function_names[name]


class _Body:
    """The instructions of one function."""

    def __init__(self, parser: _Parser, code: CodeBuilder, name: str, function: int) -> None:
        self.parser, self.scanner, self.code, self.name, self.function = parser, parser.scanner, code, name, function
        self.count = 0  # of instructions
        self.labels: dict[str, Label] = {}
        self.label_uses: dict[str, int] = {}  # name → place in the text
        self.highest = {"r": -1, "i": -1}  # registers
        self.frame = 0
        self.references: list[tuple[str, str, int]] = []  # of this instruction: field, function, place in the text
        self.readers: dict[Kind, Callable[[Field], Any]] = {
            Kind.REF: self.register,
            Kind.INT: self.register,
            Kind.DIM: self.dim,
            Kind.IMM: self.imm,
            Kind.CONST: self.const,
            Kind.PRIM: self.prim,
            Kind.FUNC: self.func,
            Kind.IMPORT: self.imported,
            Kind.TYPE: self.type,
            Kind.DTYPE: self.dtype,
            Kind.DEVICE: self.device,
            Kind.LABEL: self.label,
        }

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
                hint = near(name, (each for each, label in self.labels.items() if label.offset is not None))
                scanner.fail(f"there is no label {name!r} in this function{hint}", place)

    def place(self, name: str, start: int) -> None:
        label = self.labels.setdefault(name, Label(name))
        if label.offset is not None:
            self.scanner.fail(f"there is a label {name!r} already", start)
        self.code.place(label)

    def instruction(self, name: str, start: int) -> None:
        if name not in BY_NAME:
            self.scanner.fail(f"there is no instruction {name!r}{_suggestion(name)}", start)
        self.references = []
        fields = {operand.field.name: self.operand(operand) for operand in LAYOUTS[name]}
        offset = self.code.emit(name, **fields)
        self.parser.places[self.name, self.count] = start
        self.count += 1
        for field, function, place in self.references:
            self.parser.calls.append((function, place, self.function, offset + BY_NAME[name].places()[field]))
        if name == "frame_tensor":
            self.extend_frame(self.parser.types[fields["type"]], fields["offset"])
        self.end_of_instruction(offset)

    def operand(self, operand: Operand) -> Any:
        """A field; a list that is not there is empty."""
        scanner, separator = self.scanner, operand.separator.strip()
        read = partial(self.readers[operand.field.kind], operand.field)
        if not operand.field.is_list:
            if separator:
                scanner.expect(separator)
            return read()
        if self.is_at_end():
            return []
        if separator:
            scanner.expect(separator)
        elif operand.position:
            scanner.accept(",")
        return scanner.listed(read, *operand.brackets)

    def is_at_end(self) -> bool:
        scanner = self.scanner
        return not scanner.on_this_line() or scanner.peek("}") or scanner.peek("from")

    def end_of_instruction(self, offset: int) -> None:
        scanner = self.scanner
        if scanner.on_this_line():
            node = self.parser.origin()
            if node is not None:
                self.parser.locations.append(SourceLocation(self.function, offset, node))
        if scanner.on_this_line() and not scanner.peek("}"):
            scanner.fail(f"expected the end of the line, {scanner.found()}")

    def extend_frame(self, type_: Type, offset: int) -> None:
        if isinstance(type_, TensorType) and type_.is_static:
            self.frame = max(self.frame, offset + aligned(type_.nbytes))

    # -- fields, by kind --

    def register(self, field: Field) -> int:
        prefix = "i" if field.kind is Kind.DIM else field.kind.value
        what = f"a register {prefix}0, {prefix}1, …"
        start = self.scanner.skip()
        text = self.scanner.word(what)
        number = int(text[1:]) if _REGISTER.fullmatch(text) else limits.REGISTERS
        if text[0] != prefix or number >= limits.REGISTERS:
            self.scanner.fail(f"expected {what}, found {text[:40]!r}", start)
        self.highest[prefix] = max(self.highest[prefix], number)
        return number

    def dim(self, field: Field) -> int:
        start = self.scanner.skip()
        if self.scanner.text[start : start + 1].isdigit():
            return self.scanner.integer("an integer", 0)
        return int_register(self.register(field))

    def imm(self, _: Field) -> int:
        return self.scanner.integer()

    def const(self, _: Field) -> int:
        return self.known(self.parser.constant_names, "constant")

    def prim(self, _: Field) -> int:
        return self.known(self.parser.primitive_names, "primitive")

    def imported(self, _: Field) -> int:
        return self.known(self.parser.import_names, "import")

    def known(self, names: dict[str, int], what: str) -> int:
        start = self.scanner.skip()
        name = self.scanner.name(f"a {what}'s name")
        if name not in names:
            self.scanner.fail(f"there is no {what} {name!r} above{near(name, names)}", start)
        return names[name]

    def func(self, field: Field) -> int:
        """Functions may be called before they are defined: their numbers are filled in at the end."""
        start = self.scanner.skip()
        self.scanner.expect("@")
        self.references.append((field.name, self.scanner.name("a function's name"), start))
        return 0

    def type(self, _: Field) -> int:
        scanner, parser = self.scanner, self.parser
        start = scanner.skip()
        if notation.TYPE_NUMBER.match(scanner.text, start):
            name = scanner.word("a type")
            number = int(name[1:]) if _REGISTER.fullmatch(name) else limits.TYPES
            if number >= len(parser.types):
                scanner.fail(f"there is no type {name[:40]} above", start)
            return number
        type_ = notation.scan_type(scanner)
        known = parser.type_numbers.get(type_)
        return parser.add_type(type_) if known is None else known

    def dtype(self, _: Field) -> DType:
        return notation.scan_dtype(self.scanner)

    def device(self, _: Field) -> int:
        if self.scanner.peek("0"):
            return self.scanner.integer("the host, 0, or a device", 0, 0)
        return 1 + self.known(self.parser.device_names, "device")

    def label(self, _: Field) -> Label:
        start = self.scanner.skip()
        name = self.scanner.word("a label")
        self.label_uses.setdefault(name, start)
        return self.labels.setdefault(name, Label(name))

    def derived_counts(self, params: int) -> dict[str, int]:
        return {"refs": max(params, self.highest["r"] + 1), "ints": self.highest["i"] + 1, "frame": self.frame}


def _suggestion(name: str) -> str:
    return near(name, BY_NAME) or f"; the machine has {', '.join(BY_NAME)}"
