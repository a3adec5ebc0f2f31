"""The verifier's second layer: code is a sequence of whole instructions with fields in range, and jumps land on them.

Everything here follows from the instruction table. The functions lie in the code one after the other, in the order of the
function table, without gaps: no word belongs to two functions or to none.
"""

from __future__ import annotations

from typing import NamedTuple

from ..formats import limits
from ..formats.dtypes import DType
from ..formats.executable import Function, Program
from ..formats.isa import BY_OPCODE, Kind, Operation
from .verify_work import Refusal, Work

LAYER = "code"
WORD = 1 << 63


class Instruction(NamedTuple):
    offset: int  # of its first word in the function
    operation: Operation
    operands: list  # one a field: a word, or a list of words


class BadInstruction(Refusal):
    """A Refusal at one instruction."""

    def __init__(self, message: str, offset: int, index: int) -> None:
        super().__init__(LAYER, message)
        self.offset, self.index = offset, index


def check_layout(program: Program) -> None:
    """Functions tile the code. Raises Refusal."""
    if len(program.functions) > limits.FUNCTIONS or len(program.code) > limits.CODE_WORDS:
        raise Refusal(LAYER, f"more than {limits.FUNCTIONS} functions or {limits.CODE_WORDS} words of code")
    end = 0
    for function in program.functions:
        if function.start != end or function.length < 1:
            raise Refusal(
                LAYER,
                f"function {function.name!r} occupies {function.length} words from word {function.start} on; "
                f"expected at least one word from word {end} on, where the function before it ends",
            )
        end += function.length
    if end != len(program.code):
        raise Refusal(
            LAYER, f"the functions have {end} words together, but there are {len(program.code)} words of code"
        )


def decode(program: Program, function: Function, work: Work) -> list[Instruction]:
    """The instructions of a function, fields checked. Raises BadInstruction."""
    words = program.code[function.start : function.start + function.length].tolist()
    ranges = _ranges(program, function)
    instructions: list[Instruction] = []
    offset, end = 0, len(words)
    work.spend(2 * end)
    while offset < end:
        operation = BY_OPCODE.get(words[offset])
        if operation is None:
            raise BadInstruction(f"{words[offset]} is no opcode", offset, len(instructions))
        place = offset + 1
        operands: list = []
        for field in operation.fields:
            low, high = ranges[field.kind]
            if place >= end:
                raise _cut(operation, offset, instructions)
            operand = words[place]
            place += 1
            if field.is_list:
                count, operand = operand, words[place : place + max(operand, 0)]
                place += count
                if not 0 <= count <= limits.OPERANDS or place > end:
                    raise _bad_count(operation, field.name, count, offset, instructions)
                if count and (min(operand) < low or max(operand) >= high):
                    wrong = next(word for word in operand if not low <= word < high)
                    raise _out_of_range(operation, field.name, field.kind, wrong, (low, high), offset, instructions)
            elif not low <= operand < high:
                raise _out_of_range(operation, field.name, field.kind, operand, (low, high), offset, instructions)
            operands.append(operand)
        instructions.append(Instruction(offset, operation, operands))
        offset = place
    _check_ends(instructions)
    return instructions


def _ranges(program: Program, function: Function) -> dict[Kind, tuple[int, int]]:
    """What a word of each kind may be in this function: low <= word < high."""
    codes = [dtype.code for dtype in DType]
    return {
        Kind.REF: (0, function.ref_registers),
        Kind.INT: (0, function.int_registers),
        Kind.DIM: (-function.int_registers, WORD),
        Kind.IMM: (-WORD, WORD),
        Kind.CONST: (0, len(program.constants)),
        Kind.PRIM: (0, len(program.primitives)),
        Kind.FUNC: (0, len(program.functions)),
        Kind.TYPE: (0, len(program.types)),
        Kind.DTYPE: (min(codes), max(codes) + 1),
        Kind.LABEL: (-WORD, WORD),
    }


def _check_ends(instructions: list[Instruction]) -> None:
    """Jumps land on instructions, and control does not run out of the function."""
    starts = {instruction.offset for instruction in instructions}
    for index, (offset, operation, operands) in enumerate(instructions):
        last = operation.fields[-1]
        if last.kind is Kind.LABEL and offset + operands[-1] not in starts:
            raise BadInstruction(
                f"{operation.name} jumps to word {offset + operands[-1]}, where no instruction of the function starts",
                offset,
                index,
            )
    offset, operation, _ = instructions[-1]
    if not operation.ends_block:
        raise BadInstruction(
            f"control runs past the function's last instruction, {operation.name}", offset, len(instructions) - 1
        )


def _cut(operation: Operation, offset: int, before: list[Instruction]) -> BadInstruction:
    return BadInstruction(f"the function ends inside of this {operation.name}", offset, len(before))


def _bad_count(operation: Operation, field: str, count: int, offset: int, before: list[Instruction]) -> BadInstruction:
    message = (
        f"{field} of {operation.name} is a list of {count} words; "
        f"expected 0 … {limits.OPERANDS}, and no more than the function has left"
    )
    return BadInstruction(message, offset, len(before))


def _out_of_range(
    operation: Operation,
    field: str,
    kind: Kind,
    word: int,
    span: tuple[int, int],
    offset: int,
    before: list[Instruction],
) -> BadInstruction:
    low, high = span
    nouns = {Kind.REF: "reference register", Kind.INT: "integer register", Kind.DIM: "integer register"}
    noun = nouns.get(kind, kind.value)
    number, count = (~word, -low) if kind is Kind.DIM else (word, high)
    return BadInstruction(
        f"{field} of {operation.name}: there is no {noun} {number}; there are {count}", offset, len(before)
    )
