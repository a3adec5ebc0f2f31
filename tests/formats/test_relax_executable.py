"""Executables of the Relax VM: read, shown and written, and damaged ones refused."""

import gzip
import random
import struct
import tracemalloc

import numpy as np
import pytest
from treadle.formats.data_type import DataType
from treadle.formats.messages.errors import FormatError, LimitError, VerificationError, VersionError
from treadle.formats.param_dict import tensor_pieces
from treadle.tools.cli import main
from treadle.tvm.files.executables import MAGIC, MAGIC_SCOPES, find_executable
from treadle.tvm.files.relax_executable import information, load_relax_executable, pieces
from treadle.tvm.files.relax_program import (
    MACHINE,
    VOID,
    Call,
    Goto,
    If,
    Kind,
    Operand,
    RelaxFunction,
    RelaxProgram,
    Ret,
    as_text,
    check,
    statistics,
)

R, C = Kind.REGISTER, Kind.CONSTANT
WEIGHTS = np.arange(4, dtype="float32")
CONSTANTS = (WEIGHTS, DataType("float32"), (2, 3), "text", 7, 0.5)
OLD = dict(enumerate(range(6)))  # a constant's place above → the number of its kind
NEW = {0: 70, 1: 5, 2: 69, 3: 65, 4: 1, 5: 3}
FUNCTIONS = (
    RelaxFunction(
        "main",
        ("x", "y"),
        (
            If(0, 3),
            Call(1, (Operand(R, 1), Operand(C, 0), Operand(Kind.IMMEDIATE, -3), Operand(R, MACHINE)), 2),
            Goto(2),
            Call(1, (Operand(R, VOID), Operand(Kind.FUNCTION, 0)), 2),
            Ret(2),
        ),
        3,
    ),
    RelaxFunction("add"),
)
PROGRAM = RelaxProgram(FUNCTIONS, CONSTANTS)


def written(program=PROGRAM):
    return b"".join(pieces(program))


def u64(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def text(value):
    return u64(len(value)) + value.encode()


def body(number, value, kinds):
    head = struct.pack("<i", kinds[number])
    if number == 0:
        return head + b"".join(tensor_pieces("c", value))
    if number == 1:
        return head + struct.pack("<BBH", 2, 32, 1)
    if number == 2:
        return head + u64(len(value), *value)
    return head + (text(value) if number == 3 else struct.pack("<q" if number == 4 else "<d", value))


def file(
    kinds=NEW, magic=MAGIC, scopes=b"", words=None, begins=None, main=(0, 5, 2, 3), version="0.14", names=("x", "y")
):
    """The program, word by word."""
    if words is None:
        words = [4, 0, 3, 1, 2, 1, 4, 1, 2 << 56, (1 << 56) | ((-3) & ((1 << 56) - 1)), MACHINE, 3, 2]
        words += [1, 2, 1, 2, VOID, 3 << 56, 2, 2]
    begins = [0, 3, 11, 13, 19] if begins is None else begins
    functions = struct.pack("<i", 1) + text("main") + struct.pack("<qqqq", *main) + u64(len(names))
    functions += (
        b"".join(map(text, names)) + struct.pack("<i", 0) + text("add") + struct.pack("<qqqq", 0, 0, -2, 0) + u64(0)
    )
    constants = b"".join(body(number, value, kinds) for number, value in enumerate(CONSTANTS))
    code = b"".join(u64(len(each)) + struct.pack(f"<{len(each)}q", *each) for each in (begins, words))
    return u64(magic) + text(version) + u64(2) + functions + scopes + u64(len(CONSTANTS)) + constants + code


def same(found, program=PROGRAM):
    assert as_text(found) == as_text(program)
    assert statistics(found) == statistics(program)
    np.testing.assert_array_equal(found.constants[0], WEIGHTS)
    assert found.constants[1:] == program.constants[1:]
    assert found.functions == program.functions


@pytest.mark.parametrize(
    "data",
    [
        file(OLD),
        file(NEW),
        file({**NEW, 0: 72, 2: 71}),
        file(NEW, MAGIC_SCOPES, u64(0)),
        file(NEW, MAGIC_SCOPES, u64(1, 0) + text("global.texture")),
        u64(len(file(OLD))) + file(OLD),
        b"\x7fELF" + bytes(5000) + u64(len(file(OLD))) + file(OLD) + bytes(70),
        gzip.compress(bytes(99) + u64(len(written())) + written()),
        b"!<arch>\n" + bytes(3) + u64(len(written())) + written() + b"behind",
    ],
    ids=["0.16", "0.22", "0.21", "0.23", "scopes", "with-its-length", "library", "compressed", "archive"],
)
def test_files_of_all_releases_are_read(data):
    found = load_relax_executable(data)
    check(found)
    same(found)


def test_what_is_written_is_read_and_the_same_again():
    found = load_relax_executable(written())
    same(found)
    assert written(found) == written() == file(NEW, MAGIC_SCOPES, u64(0))


def test_names_of_parameters_may_be_missing():
    assert load_relax_executable(file(names=())).functions[0].params == ("arg0", "arg1")


def test_functions_of_native_code_are_shown():
    program = RelaxProgram((RelaxFunction("f", ("x",), None, 3, is_native=True),), ())
    found = load_relax_executable(written(program))
    assert found == program
    assert as_text(found) == "@f num_inputs=1 vm_tir_func;\n\n"
    assert information(found)["native"] == ["f"]


def test_commands_show_them_also_in_a_library(tmp_path, capsys):
    for name, data in (("model.ro", written()), ("model.so", b"\x7fELF" + bytes(99) + u64(len(written())) + written())):
        (tmp_path / name).write_bytes(data)
        assert main(["info", str(tmp_path / name)]) == 0
        assert "executable of the Relax VM\n  main(x, y): 5 instructions, 3 registers" in capsys.readouterr().out
        assert main(["info", str(tmp_path / name), "--json"]) == 0
        assert '"calls": [\n    "add"' in capsys.readouterr().out
        assert main(["dis", str(tmp_path / name)]) == 0
        assert capsys.readouterr().out == as_text(PROGRAM)
        assert main(["dis", str(tmp_path / name), "-o", str(tmp_path / "text")]) == 0
        assert (tmp_path / "text").read_text() == as_text(PROGRAM)
        assert main(["dis", str(tmp_path / name), "-f", "main"]) == 0
        assert capsys.readouterr().out == as_text(PROGRAM).partition("\n\n")[0] + "\n"
        assert main(["dis", str(tmp_path / name), "-f", "other"]) != 0
        assert "there is no function 'other'" in capsys.readouterr().err
        assert main(["stats", str(tmp_path / name)]) == 0
        assert capsys.readouterr().out == statistics(PROGRAM)
        assert main(["verify", str(tmp_path / name)]) == 0
        assert "is valid: 1 functions, 5 instructions, 6 constants" in capsys.readouterr().out
    assert main(["run", str(tmp_path / "model.ro")]) != 0
    assert "it is TVM's: treadle.tvm.runtime.load_module takes it" in capsys.readouterr().err


CALL = [1, 2, 1, 0]


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (file(version="0.15"), "not an executable of the Relax VM"),
        (file(NEW, MAGIC_SCOPES, u64(0), version="0.15"), "of version '0.15'; those of '0.14' are read"),
        (file(kinds={**NEW, 4: 2}), "there is no constant of kind 2"),
        (file(main=(0, 6, 2, 3)), "instructions 0 to 6, of 5"),
        (file(main=(0, 0, 2, 3)), "instructions 0 to 0, of 5"),
        (file(main=(0, 5, -1, 3)), "parameters: -1 is out of range"),
        (file(main=(0, 5, 3, 3)), "3 parameters, but 2 names"),
        (file(main=(0, 5, 2, 1 << 40)), "registers: 1099511627776 is out of range"),
        (file(main=(0, 5, 2, 2)), "a register: 2 is out of range"),
        (file(main=(0, 4, 2, 3)), "where it jumps: 4 is out of range"),
        (file(begins=[0, 3, 11, 13, 18]), "instruction 4 begins at word 18, the one before it ends at 19"),
        (file(begins=[0, 3, 11, 13]), "2 words are behind the last instruction"),
        (file(begins=[0, 3, 11, 13, 19, 21]), "instruction 5: there is no opcode 0"),
        (file(begins=[0], words=[5, 0]), "there is no opcode 5"),
        (file(begins=[0], words=[1, 0, 2, 0]), "a function: 2 is out of range, there are 2"),
        (file(begins=[0], words=[1, 0, 1, 1]), "operands: 1 is out of range"),
        (file(begins=[0], words=[1, 0, 1, 1 << 62]), "operands: 4611686018427387904 is out of range"),
        (file(begins=[0], words=[1, 0, 1, 1, 4 << 56]), "there is no operand of kind 4"),
        (file(begins=[0], words=[1, 0, 1, 1, -(1 << 56)]), "there is no operand of kind 255"),
        (file(begins=[0], words=[1, 0, 1, 1, 2 << 56 | 6]), "a constant: 6 is out of range"),
        (file()[:-1], "bytes are left"),
        (file() + b"\0", "1 bytes are behind the code"),
        (b"\0" * 64, "not an executable of the Relax VM"),
        (b"", "not an executable of the Relax VM"),
    ],
)
def test_what_disagrees_is_named(damaged, message):
    with pytest.raises(FormatError, match=message):
        load_relax_executable(damaged)


@pytest.mark.parametrize("data", [file(OLD), file(NEW), written()], ids=["0.16", "0.22", "0.27"])
def test_every_truncation_is_a_named_error(data):
    for size in range(len(data)):
        with pytest.raises(FormatError):
            load_relax_executable(data[:size])


def test_what_is_compressed_stands_for_a_multiple_of_its_size():
    data = gzip.compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="not an executable of the Relax VM"):
            load_relax_executable(data)
        assert tracemalloc.get_traced_memory()[1] < 200 * len(data)
    finally:
        tracemalloc.stop()


def test_two_functions_do_not_share_instructions():
    data = written(
        RelaxProgram((FUNCTIONS[0], RelaxFunction("add"), RelaxFunction("copy", (), (Ret(VOID),), 0)), CONSTANTS)
    )
    assert load_relax_executable(data)
    shared = data.replace(struct.pack("<qqq", 5, 6, 0), struct.pack("<qqq", 0, 5, 0))
    with pytest.raises(FormatError, match="two functions have the same instructions"):
        load_relax_executable(shared)


def test_other_versions_of_a_known_layout_are_named():
    with pytest.raises(VersionError):
        load_relax_executable(file(NEW, MAGIC_SCOPES, u64(0), version="9"))


def test_constants_that_no_file_has_are_named():
    with pytest.raises(FormatError, match="constant 0: a object is none of"):
        written(RelaxProgram((), (object(),)))
    with pytest.raises(LimitError):
        written(RelaxProgram((), ("x" * 100_000,)))


def test_damaged_files_are_read_or_refused():
    rng, refused = random.Random(0), 0
    for data in (file(OLD), written()):
        for _ in range(2500):
            mutant = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(mutant))
                choice = rng.randrange(3)
                if choice == 0:
                    mutant[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
                elif choice == 1:
                    del mutant[at : at + rng.randint(1, 9)]
                else:
                    mutant[at:at] = rng.randbytes(rng.randint(1, 9))
            try:
                found = load_relax_executable(bytes(mutant))
                as_text(found).encode()
                check(found)
            except FormatError:
                refused += 1
    assert refused > 3000


# ---- the check ----


def straight(count):
    code = [Call(1, (Operand(R, at),), at + 1) for at in range(count)]
    return RelaxProgram((RelaxFunction("main", ("x",), (*code, Ret(count)), count + 1), RelaxFunction("f")), ())


def test_long_functions_are_checked_in_proportion():
    program = straight(20_000)
    tracemalloc.start()
    try:
        check(program)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_what_is_written_on_one_path_alone_is_not_read():
    code = (If(0, 2), Call(1, (), 1), Ret(1))
    with pytest.raises(VerificationError, match=r"register r\(1\) in VM function \"main\""):
        check(RelaxProgram((RelaxFunction("main", ("x",), code, 2), RelaxFunction("f")), ()))


def test_loops_are_checked_until_nothing_changes():
    good = (Call(1, (), 1), If(0, 4), Call(1, (Operand(R, 1),), 2), Call(1, (Operand(R, 2),), 1), Goto(-3), Ret(1))
    bad = (Call(1, (), 1), If(0, 3), Call(1, (), 2), Goto(-2), Ret(2))
    check(RelaxProgram((RelaxFunction("main", ("x",), good, 3), RelaxFunction("f")), ()))
    with pytest.raises(VerificationError, match="data flow"):
        check(RelaxProgram((RelaxFunction("main", ("x",), bad, 3), RelaxFunction("f")), ()))


def test_entangled_jumps_are_refused_before_they_cost():
    jumps = 40_000
    code = [If(0, 2) for _ in range(jumps)] + [Call(1, (), at) for at in range(1, jumps)] + [Ret(0)]
    with pytest.raises(VerificationError, match="jumps and 40000 registers are too many"):
        check(RelaxProgram((RelaxFunction("main", ("x",), tuple(code), jumps), RelaxFunction("f")), ()))


def test_a_file_says_itself_what_it_is():
    assert find_executable(memoryview(written())).machine == "Relax"
    assert find_executable(memoryview(b"nothing of that kind")) is None
