"""Instructions as words, and as Python's `dis` would show them."""

import pytest
from treadle.formats.bytecode import CodeBuilder, encode, int_register, scan
from treadle.formats.dtypes import DType
from treadle.formats.isa import OPERATIONS
from treadle.formats.messages.errors import FormatError, LimitError, UnknownFunctionError
from treadle.formats.program import Program
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.text.dis import dis

from . import examples


def test_dis_says_what_each_instruction_means() -> None:
    instructions = list(dis(examples.executable(), "main"))
    call = instructions[2]
    assert (call.opname, call.opcode, call.function, call.node) == ("call", 13, "main", "Add_17")
    assert call.arg == (0, (0, 1), (2,), (2,))
    assert call.argval == {"prim": "add_0", "inputs": (0, 1), "outputs": (2,), "dims": (2,)}
    assert call.argrepr == "add_0 (r0, r1) -> (r2) [2]"
    jump = instructions[4]
    assert jump.jump_target == instructions[-1].offset
    assert [instruction.is_jump_target for instruction in instructions] == [False] * 8 + [True]


def test_a_listing_is_printed_by_functions() -> None:
    listing = dis(examples.executable())
    assert str(listing).startswith(f"@main\n{listing[0]}\n{listing[1]}\n")
    assert str(listing).count("\n\n@keep\n") == 1
    assert repr(listing) == f"<{len(listing)} instructions of main, keep>"


def test_dis_of_an_unknown_function_names_the_known_ones() -> None:
    with pytest.raises(UnknownFunctionError, match="the executable has main, keep"):
        dis(examples.executable(), "f")


def test_dis_shows_indices_that_do_not_exist() -> None:
    program = parse_assembly("func @f(x: int8[]) -> int8[] { ret r0 }")
    words = encode("load_const", {"dst": 1, "const": 9}) + encode(
        "alloc_dynamic", {"dst": 1, "dtype": 77, "shape": [-3]}
    )
    function = program.functions[0]
    function = type(function)(**{**vars(function), "length": len(words)})
    shown = [i.argrepr for i in dis(Program((function,), (), (), CodeWords(words), (), ()))]
    assert shown == ["r1, ?9", "r1, ?77[i2]"]


class CodeWords(list):
    """A list that looks like the code section."""

    def __getitem__(self, index):
        return CodeWords(super().__getitem__(index))

    def tolist(self) -> list[int]:
        return list(self)


def test_labels_are_relative_to_their_instruction() -> None:
    code = CodeBuilder()
    again, done = code.label(), code.label()
    code.place(again)
    code.node = "loop"
    code.emit("if_int", cond=0, label=done)
    code.node = ""
    code.emit("goto", label=again)
    code.place(done)
    code.emit("ret", src=0)
    words, nodes = code.finish()
    assert words == [8, 0, 5, 6, -3, 9, 0]
    assert nodes == [(0, "loop")]


def test_mistakes_of_a_code_generator_are_named() -> None:
    with pytest.raises(FormatError, match="no instruction 'mov'"):
        encode("mov", {})
    with pytest.raises(FormatError, match="move has the fields dst, src; given are dst"):
        encode("move", {"dst": 1})
    with pytest.raises(FormatError, match="src is 'r1', expected an integer"):
        encode("move", {"dst": 1, "src": "r1"})
    with pytest.raises(FormatError, match="more than 64 bits"):
        encode("load_int", {"dst": 1, "imm": 1 << 63})
    code = CodeBuilder()
    code.emit("goto", label=code.label("end"))
    with pytest.raises(FormatError, match="the label 'end' is not placed"):
        code.finish()


def test_every_operation_scans_as_it_was_encoded() -> None:
    for operation in OPERATIONS:
        fields = {field.name: (3, 4, 5) if field.is_list else 7 for field in operation.fields}
        (decoded,) = scan(encode(operation.name, fields))
        assert decoded.operation is operation
        assert decoded.values == tuple(fields.values())


def test_words_that_are_no_code_are_named() -> None:
    with pytest.raises(FormatError, match=r"0 is not an opcode .*instruction 2"):
        list(scan([9, 0, 0]))
    with pytest.raises(FormatError, match="move: the function ends before the field src"):
        list(scan([1, 0]))
    with pytest.raises(LimitError, match="kill: 5 regs; 1 words are left"):
        list(scan([2, 5, 0]))
    with pytest.raises(LimitError, match="kill: -1 regs"):
        list(scan([2, -1]))


def test_dtypes_and_registers_encode_themselves() -> None:
    assert encode("alloc_dynamic", {"dst": 1, "dtype": DType.int8, "shape": [int_register(0), 4]}) == [
        18,
        1,
        2,
        2,
        -1,
        4,
    ]
