"""Executables of TVM's Relay VM: read and shown, and damaged ones refused."""

import random
import struct

import numpy as np
import pytest
from treadle.formats.errors import FormatError, VersionError
from treadle.formats.param_dict import tensor_pieces
from treadle.formats.relay_executable import MAGIC, OPERATIONS, instruction_hash, load_relay_executable
from treadle.tools.cli import main

# fn(x, y) = if x { y } else { add(y, const) }
CODE = [
    (14, 1, 2),  # load_consti $2 1
    (10, 0, 2, 1, 3),  # if $0 $2 1 3
    (0, 1, 3),  # move $3 $1
    (12, 6),  # goto 6
    (11, 0, 0, 4),  # load_const $4 Const[0] 0
    (11, 1, 0, 5),  # load_const $5 Const[1] 0
    (16, 5, 64, 2, 32, 1, 0, 0, 6),  # alloc_storage
    (5, 6, 5, 2, 32, 1, 1, 3, 4),  # alloc_tensor [4]
    (4, 0, 3, 1, 1, 4, 3),  # invoke_packed
    (1, 3),
]
KERNEL = "vm_mod_fused_add"


def u64(value):
    return struct.pack("<Q", value)


def text(value):
    return u64(len(value)) + value.encode()


def vector(values):
    return u64(len(values)) + b"".join(values)


def integers(values):
    return u64(len(values)) + struct.pack(f"<{len(values)}q", *values)


def instruction(opcode, *fields):
    key = instruction_hash(opcode, fields)
    return integers([key - (1 << 64) if key >> 63 else key, opcode, *fields])


def file(code=CODE, version="0.14.0", registers=7, count=None, params=("x", "y"), late="weights"):
    constants = [struct.pack("<I", 0) + b"".join(tensor_pieces("c", np.arange(4, dtype="float32")))]
    constants.append(struct.pack("<I", 1) + text(late))
    head = vector([text("main"), text(str(registers)), text(str(len(code) if count is None else count))])
    function = head + vector([text(name) for name in params]) + integers([0] * len(params))
    return b"".join(
        [
            u64(MAGIC) + text(version),
            vector([struct.pack("<ii", 1, 0) + text("")]) + struct.pack("<i", 0),
            vector([text("main")]),
            u64(len(constants)) + b"".join(constants) + integers([0, 0]),
            vector([text(KERNEL)]) + u64(1) + u64(0) + vector([text("hash") + text("abc")]),
            u64(1) + function + b"".join(instruction(*each) for each in code),
        ]
    )


def test_what_a_file_holds():
    executable = load_relay_executable(file())
    assert executable.version == "0.14.0"
    assert executable.primitives == (KERNEL,)
    assert executable.attributes == {0: {"hash": "abc"}}
    np.testing.assert_array_equal(executable.constants[0], np.arange(4))
    assert executable.constants[1] == "weights"
    (function,) = executable.functions
    assert (function.name, function.params, function.registers) == ("main", ("x", "y"), 7)
    assert [each.operation.name for each in function.instructions][:3] == ["load_consti", "if", "move"]


def test_the_text_is_tvms():
    lines = load_relay_executable(file()).bytecode.splitlines()
    assert lines[:4] == [
        "VM Function[0]: main(x, y)",
        "# reg file size = 7",
        "# instruction count = 10",
        "opcode, fields # inst(text):",
    ]
    texts = [line.partition("  # ")[2] for line in lines[4:14]]
    assert lines[5] == " 1: 10 0 2 1 3                          ".ljust(40) + "  # if $0 $2 1 3"
    assert texts[0] == "load_consti $2 1"
    assert texts[2] == "move $3 $1"
    assert texts[4] == "load_const $4 Const[0] 0"
    assert texts[6] == "alloc_storage $6 $5 64 float32 0"
    assert texts[7] == "alloc_tensor $3 $6 $5 [4] float32"
    assert texts[8] == "invoke_packed PackedFunc[0] (in: $1, $4, out: $3)"


def test_commands_show_it(tmp_path, capsys):
    path = tmp_path / "code.ro"
    path.write_bytes(file())
    assert main(["info", str(path)]) == 0
    assert "executable of the Relay VM, TVM 0.14.0\n  main(x, y): 10 instructions" in capsys.readouterr().out
    assert main(["dis", str(path)]) == 0
    assert "invoke_packed PackedFunc[0]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (file(code=[(0, 1, 7), (1, 0)]), "dst: 7 is out of range, there are 7"),
        (file(code=[(11, 2, 0, 1), (1, 0)]), "const: 2 is out of range, there are 2"),
        (file(code=[(4, 1, 1, 1, 0), (1, 0)]), "primitive: 1 is out of range"),
        (file(code=[(2, 1, 0, 0), (1, 0)]), "func: 1 is out of range"),
        (file(code=[(12, 2), (1, 0)]), "a jump of 2 leaves the function's 2 instructions"),
        (file(code=[(12, 0), (1, 0)]), "a jump of 0"),
        (file(code=[(4, 0, 3, 1, 0), (1, 0)]), "6 fields are announced, 4 came"),
        (file(code=[(4, 0, 1, 2, 0), (1, 0)]), "2 outputs among 1 arguments"),
        (file(code=[(21, 0), (1, 0)]), "there is no opcode 21"),
        (file(registers=1), "2 parameters, devices of 2, 1 registers"),
        (file(code=[(1, 0), (1, 0)], count=1), "32 bytes are behind the code"),
        (file(count=1 << 40), "instructions: 1099511627776; the limit is"),
        (file()[:-1], "the data is cut short|are left"),
        (file() + b"\0", "1 bytes are behind the code"),
        (b"\0" * 64, "not an executable of the Relay VM"),
    ],
)
def test_what_disagrees_is_named(damaged, message):
    with pytest.raises(FormatError, match=message):
        load_relay_executable(damaged)


def test_a_word_that_changed_is_found_by_its_hash():
    data = bytearray(file())
    data[-8] ^= 1
    with pytest.raises(FormatError, match="instruction 9: its hash is not that of its words"):
        load_relay_executable(bytes(data))


@pytest.mark.parametrize("version", ["0.8.0", "0.20.0", "x", ""])
def test_other_releases_are_named(version):
    with pytest.raises(VersionError, match=r"those of TVM 0\.9 to 0\.19 are read"):
        load_relay_executable(file(version=version))


def test_each_opcode_of_the_table_stands_once():
    assert sorted(OPERATIONS) == list(range(21))


def test_damaged_files_are_read_or_refused():
    data, rng = file(), random.Random(0)
    refused = 0
    for _ in range(5000):
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
            if not mutant:
                break
        try:
            load_relay_executable(bytes(mutant)).bytecode.encode()
        except FormatError:
            refused += 1
    assert refused > 4500
