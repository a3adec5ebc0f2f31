"""Executables of TVM's Relay VM: read and shown, and damaged ones refused."""

import random

import numpy as np
import pytest
from treadle.formats.messages.errors import FormatError, VersionError
from treadle.tools.cli import main
from treadle.tvm.files.relay_executable import OPERATIONS, load_relay_executable

from .relay_files import everything, relay_file, u64

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


def file(code=CODE, version="0.14.0", registers=7, count=None, params=("x", "y"), late="weights"):
    constants = (np.arange(4, dtype="float32"), late)
    return relay_file({"main": (params, registers, code)}, constants, (KERNEL,), version, count)


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


@pytest.mark.parametrize("around", [b"", b"\x7fELF" + bytes(99)], ids=["alone", "library"])
def test_commands_show_it(around, tmp_path, capsys):
    path = tmp_path / "code.ro"
    path.write_bytes(around + u64(len(file())) + file() + around[:20] if around else file())
    assert main(["info", str(path)]) == 0
    assert "executable of the Relay VM, TVM 0.14.0\n  main(x, y): 10 instructions" in capsys.readouterr().out
    assert main(["dis", str(path)]) == 0
    assert "invoke_packed PackedFunc[0]" in capsys.readouterr().out
    assert main(["dis", str(path), "-f", "main"]) == 0
    assert capsys.readouterr().out.startswith("VM Function[0]: main(x, y)\n")
    assert main(["stats", str(path)]) == 0
    assert 'Globals (#1): [("main", 0)]' in capsys.readouterr().out
    assert main(["verify", str(path)]) == 0
    assert "is valid: 1 functions, 10 instructions, 2 constants" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (file(code=[(0, 1, 7), (1, 0)]), "dst: 7 is out of range, there are 7"),
        (file(code=[(11, 2, 0, 1), (1, 0)]), "const: 2 is out of range, there are 2"),
        (file(code=[(4, 1, 1, 1, 0), (1, 0)]), "primitive: 1 is out of range"),
        (file(code=[(2, 1, 0, 0), (1, 0)]), "func: 1 is out of range"),
        (file(code=[(12, 2), (1, 0)]), "a jump of 2 leaves the function's 2 instructions"),
        (file(code=[(12, 0), (1, 0)]), "a jump of 0"),
        (file(code=[(4, 0, 3, 1, 0), (1, 0)]), "announces 6 fields, got 4"),
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


def test_storage_has_no_shape_up_to_013():
    code = [(14, 16, 2), (16, 2, 64, 2, 32, 1, 0, 3), (1, 3)]  # alloc_storage: size, alignment, type, device, register
    found = load_relay_executable(file(code=code, version="0.9.0"))
    assert found.functions[0].instructions[1].values["dst"] == 3
    assert found.functions[0].instructions[1].values["shape"] == ()


def test_each_instruction_of_the_machine_is_read():
    found = load_relay_executable(everything())
    names = {each.operation.name for function in found.functions for each in function.instructions}
    assert names == {operation.name for operation in OPERATIONS.values()}


def test_every_truncation_is_a_named_error():
    data = everything()
    for size in range(len(data)):
        with pytest.raises(FormatError):
            load_relay_executable(data[:size])


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
