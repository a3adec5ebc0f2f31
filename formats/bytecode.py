"""Bytecode: words to instructions and back, derived from the table in `isa.py`.

`scan` is the checked walk over a function's words; `encode` and `CodeBuilder` write them. `text/disassembly.py` shows
instructions to people.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Union

import numpy as np

from . import limits
from .dtypes import DType
from .isa import BY_NAME, BY_OPCODE, Field, Kind, Operation
from .messages.errors import FormatError, LimitError
from .program import Function, Program

Value = Union[int, tuple[int, ...]]  # a field's word, or a list's words

WORD_MIN, WORD_MAX = -(1 << 63), (1 << 63) - 1


class Decoded(NamedTuple):
    """An instruction as its words say: one value a field of `operation`, in order."""

    offset: int  # words from the function's start
    operation: Operation
    values: tuple[Value, ...]
    size: int  # words

    def word(self, name: str) -> int:
        """The word of a field that is not a list."""
        return self.values[self.operation.position(name)]  # type: ignore[return-value]

    def list(self, name: str) -> tuple[int, ...]:
        """The words of a field that is a list."""
        return self.values[self.operation.position(name)]  # type: ignore[return-value]

    def written(self, kind: Kind) -> tuple[int, ...]:
        """The registers of a kind that it writes."""
        found: tuple[int, ...] = ()
        for field, value in zip(self.operation.fields, self.values, strict=True):
            if field.is_written and field.kind is kind:
                found += value if isinstance(value, tuple) else (value,)
        return found


def int_register(number: int) -> int:
    """The word by which a `d` field names integer register `number`."""
    return ~number


# ---- reading ----


def scan(words: Sequence[int], function: str = "") -> Iterator[Decoded]:
    """The instructions of one function's words (a list is faster than an array). Raises FormatError at the first word that
    is not an opcode or a list that does not fit; fields may hold anything."""
    offset, end = 0, len(words)
    while offset < end:
        operation = BY_OPCODE.get(words[offset])
        if operation is None:
            raise FormatError(
                f"{words[offset]} is not an opcode", section="code", function=function, instruction=offset
            )
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


def loops(code: Iterable[Decoded]) -> dict[int, tuple[int, ...]]:
    """The loops of a function, in order: by the word where each goes on, the places of the jumps back to there. What lies from
    the one to the last of the others is in the loop; loops lie within one another, or apart."""
    found: dict[int, list[int]] = {}
    for each in code:
        target = jump_target(each)
        if target is not None and target <= each.offset:
            found.setdefault(target, []).append(each.offset)
    return {first: tuple(back) for first, back in sorted(found.items())}


# ---- writing ----


def encode(name: str, fields: dict[str, Any]) -> list[int]:
    """The words of one instruction. Raises FormatError for an unknown operation, a missing or unknown field, or a value that
    is not a 64-bit word (a list of words for a list)."""
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
            self._jumps.append((start, start + BY_NAME[name].places()["label"], target))
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


def code_array(functions: Iterable[Sequence[int]]) -> np.ndarray:
    """The code section made of the functions' words."""
    words = np.array([word for function in functions for word in function], np.int64)
    words.flags.writeable = False
    return words
