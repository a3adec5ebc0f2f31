"""The verifier's second layer: code is a sequence of whole instructions with fields in range, and jumps land on them.

Everything here follows from the instruction table. The functions lie in the code one after the other, in the order of the
function table, without gaps: no word belongs to two functions or to none.
"""

from __future__ import annotations

from ...formats import limits
from ...formats.bytecode import Decoded, function_words, jump_target, scan
from ...formats.dtypes import DType
from ...formats.isa import BY_OPCODE, Kind
from ...formats.messages.errors import FormatError
from ...formats.program import Function, Program
from .work import Refusal, Work

LAYER = "code"
WORD = 1 << 63


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


Range = tuple[int, int]  # low <= word < high


class Ranges:
    """The valid range of a word in a program, by its field's kind."""

    def __init__(self, program: Program) -> None:
        codes = [dtype.code for dtype in DType]
        self._tables: dict[Kind, Range] = {
            Kind.IMM: (-WORD, WORD),
            Kind.LABEL: (-WORD, WORD),
            Kind.CONST: (0, len(program.constants)),
            Kind.PRIM: (0, len(program.primitives)),
            Kind.FUNC: (0, len(program.functions)),
            Kind.IMPORT: (0, len(program.imports)),
            Kind.TYPE: (0, len(program.types)),
            Kind.DTYPE: (min(codes), max(codes) + 1),
            Kind.DEVICE: (0, len(program.devices) + 1),
        }

    def of(self, function: Function) -> dict[Kind, Range]:
        return {
            **self._tables,
            Kind.REF: (0, function.ref_registers),
            Kind.INT: (0, function.int_registers),
            Kind.DIM: (-function.int_registers, WORD),
        }


class _ByOpcode(dict[int, list[Range]]):
    """The ranges of an instruction's fields."""

    def __init__(self, ranges: dict[Kind, Range]) -> None:
        self._ranges = ranges

    def __missing__(self, opcode: int) -> list[Range]:
        found = self[opcode] = [self._ranges[field.kind] for field in BY_OPCODE[opcode].fields]
        return found


def decode(program: Program, function: Function, ranges: dict[Kind, Range], work: Work) -> list[Decoded]:
    """The instructions of a function, fields checked. Raises BadInstruction."""
    words = function_words(program, function)
    work.spend(2 * len(words))
    by_opcode = _ByOpcode(ranges)
    instructions: list[Decoded] = []
    try:
        for instruction in scan(words):
            for value, (low, high) in zip(instruction.values, by_opcode[instruction.operation.opcode], strict=True):
                if isinstance(value, int):
                    if not low <= value < high:
                        raise _out_of_range(instruction, ranges, len(instructions))
                elif value and (min(value) < low or max(value) >= high):
                    raise _out_of_range(instruction, ranges, len(instructions))
            instructions.append(instruction)
    except FormatError as error:
        offset = instructions[-1].offset + instructions[-1].size if instructions else 0
        raise BadInstruction(error.message, offset, len(instructions)) from None
    _check_ends(instructions)
    return instructions


def _check_ends(instructions: list[Decoded]) -> None:
    """Jumps land on instructions, and control does not run out of the function."""
    starts = {instruction.offset for instruction in instructions}
    for index, instruction in enumerate(instructions):
        target = jump_target(instruction)
        if target is not None and target not in starts:
            name = instruction.operation.name
            message = f"{name} jumps to word {target}, where no instruction of the function starts"
            raise BadInstruction(message, instruction.offset, index)
    last = instructions[-1]
    if not last.operation.ends_block:
        message = f"control runs past the function's last instruction, {last.operation.name}"
        raise BadInstruction(message, last.offset, len(instructions) - 1)


_NOUNS = {
    Kind.REF: "reference register",
    Kind.INT: "integer register",
    Kind.DIM: "integer register",
    Kind.CONST: "constant",
    Kind.PRIM: "primitive",
    Kind.FUNC: "function",
    Kind.DTYPE: "element type",
}


def _out_of_range(instruction: Decoded, ranges: dict[Kind, Range], index: int) -> BadInstruction:
    """The error for the first field of an instruction that names what does not exist."""
    field, word = next(
        (field, word)
        for field, value in zip(instruction.operation.fields, instruction.values, strict=True)
        for word in ((value,) if isinstance(value, int) else value)
        if not ranges[field.kind][0] <= word < ranges[field.kind][1]
    )
    noun = _NOUNS.get(field.kind, field.kind.value)
    number = ~word if field.kind is Kind.DIM else word
    message = f"{field.name} of {instruction.operation.name}: there is no {noun} {number}"
    return BadInstruction(message, instruction.offset, index)
