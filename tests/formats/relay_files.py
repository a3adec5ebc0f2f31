"""Files of the Relay VM, written word by word."""

import struct

import numpy as np
from treadle.formats.param_dict import tensor_pieces
from treadle.tvm.files.executables import MAGIC
from treadle.tvm.files.relay_executable import instruction_hash


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


def relay_file(functions, constants=(), primitives=(), version="0.14.0", counts=None):
    """`functions` is name → (parameters, registers, code); a constant is an array, or the name that it is bound by."""
    bodies = [
        struct.pack("<I", 1) + text(each)
        if isinstance(each, str)
        else struct.pack("<I", 0) + b"".join(tensor_pieces("c", each))
        for each in constants
    ]
    parts = []
    for name, (params, registers, code) in functions.items():
        count = len(code) if counts is None else counts
        head = vector([text(name), text(str(registers)), text(str(count))])
        parts.append(head + vector([text(each) for each in params]) + integers([0] * len(params)))
        parts += [instruction(*each) for each in code]
    return b"".join(
        [
            u64(MAGIC) + text(version),
            vector([struct.pack("<ii", 1, 0) + text("")]) + struct.pack("<i", 0),
            vector([text(name) for name in functions]),
            u64(len(bodies)) + b"".join(bodies) + integers([0] * len(bodies)),
            vector([text(name) for name in primitives]) + u64(1 if primitives else 0),
            u64(0) + vector([text("hash") + text("abc")]) if primitives else b"",
            u64(len(functions)) + b"".join(parts),
        ]
    )


FLOAT32 = (2, 32, 1)
WEIGHTS = np.arange(4, dtype="float32")
EVERYTHING = {  # each of the machine's instructions
    "main": (
        ("x", "n"),
        12,
        [
            (14, 1, 2),  # load_consti $2 1
            (10, 1, 2, 1, 8),  # if $n $2: go on, else to get_tag of a tuple
            (11, 0, 0, 3),  # load_const $3
            (14, 16, 4),  # load_consti $4 16
            (14, 0, 5),  # load_consti $5 0
            (16, 4, 64, *FLOAT32, 0, 0, 6),  # alloc_storage $6
            (5, 6, 5, *FLOAT32, 1, 7, 4),  # alloc_tensor $7 [4]
            (4, 0, 3, 1, 0, 3, 7),  # invoke_packed add($x, $3) -> $7
            (12, 3),  # goto
            (7, 3, 2, 7, 0, 1),  # $7 = data of tag 3, of $x and $n
            (1, 7),  # ret $7
            (8, 1, 1, 8, 7),  # $8 = closure of "scaled", with $7
            (3, 8, 1, 9, 0),  # $9 = $8($x)
            (17, 9, 10),  # shape_of
            (14, 0, 11),
            (6, 6, 11, 10, *FLOAT32, 11),  # alloc_tensor_reg
            (19, 9, 0, 0, 11),  # device_copy
            (18, 11, 10, 11),  # reshape_tensor
            (7, 0, 2, 9, 11, 9),  # $9 = ($11, $9)
            (20, 11),  # kill_register
            (9, 9, 0, 11),  # get_field
            (13, 9, 5),  # get_tag
            (0, 9, 8),  # move
            (2, 2, 1, 3, 8),  # invoke "first"
            (7, 0, 3, 9, 11, 3, 5),
            (1, 9),
        ],
    ),
    "scaled": (
        ("captured", "x"),
        6,
        [
            (14, 16, 2),
            (14, 0, 3),
            (16, 2, 64, *FLOAT32, 0, 0, 4),
            (5, 4, 3, *FLOAT32, 1, 5, 4),
            (4, 1, 3, 1, 0, 1, 5),
            (1, 5),
        ],
    ),
    "first": (("pair",), 2, [(9, 0, 0, 1), (1, 1)]),
    "fails": ((), 1, [(15,)]),
}
PRIMITIVES = ("vm_mod_fused_add", "vm_mod_fused_subtract")


def everything(**changes):
    """A file in which each instruction stands: main(x, 1) is ((x + w) - x, of a closure, the same again, tag 0)."""
    return relay_file(EVERYTHING, (WEIGHTS,), PRIMITIVES, **changes)
