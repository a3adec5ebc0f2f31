"""What the verifier knows of devices: where each tensor lies, and that nothing reads one that lies elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
from treadle.formats import limits
from treadle.formats.messages.errors import VerificationError
from treadle.formats.program import Program, ProgramDevice
from treadle.formats.strings import to_numbers
from treadle.formats.text.assembly import parse_assembly
from treadle.formats.types import TupleType, tensor
from treadle.vm.verify.verifier import verify

PRELUDE = """
device gpu0 = "emulated aarch64"
device gpu1 = "cpu"
const one float32[2] = [1.0, 1.0]
const there float32[2]@gpu0 = [1.0, 1.0]
const yes bool[]@gpu0 = true
const places int64[2]@gpu0 = [0, 1]
prim relu(%0: float32[2]) -> float32[2] {
  %1 = relu(%0) : float32[2]
  return %1
}
prim relu0(%0: float32[2]) -> float32[2] on gpu0 {
  %1 = relu(%0) : float32[2]
  return %1
}
prim relu0_n[n](%0: float32[n]) -> float32[n] on gpu0 {
  %1 = relu(%0) : float32[n]
  return %1
}
func @take(x: float32[2]@gpu0) -> float32[2]@gpu0 { ret r0 }
"""

KEPT = {
    "a tensor there is computed there": (
        "alloc_on r2, gpu0, float32[2]; call relu0 (r1) -> (r2); device_copy r3, r2, 0; ret r3"
    ),
    "a copy lies where it says": "device_copy r2, r0, gpu1; device_copy r3, r2, gpu0; invoke r4, @take (r3); ret r0",
    "a constant lies there": "load_const r2, there; invoke r3, @take (r2); ret r0",
    "a view lies where it did": "reshape r2, r1 [1, 2]; reshape r3, r2 [2]; invoke r4, @take (r3); ret r0",
    "its shape is known here": (
        "shape_of (i0), r1; match_shape r1 [i0]; alloc_on r2, gpu0, float32[i0];"
        "call relu0_n (r1) -> (r2) [i0]; device_copy r3, r2, 0; match_shape r3 [2]; ret r3"
    ),
    "a tensor of the frame is copied": "frame_tensor r2, float32[2], 0; call relu (r0) -> (r2); device_copy r3, r2, gpu0; ret r0",
    "paths meet on a device": (
        "device_copy r2, r0, gpu0; if r5, end; device_copy r2, r0, gpu0; end: invoke r3, @take (r2); ret r0"
    ),
}

BROKEN = {
    "a kernel reads a tensor of another device": (
        "alloc_tensor r2, float32[2]; call relu (r1) -> (r2); ret r2",
        r"input 0 of 'relu', r1, is float32\[2\]@gpu0; expected float32\[2\]; device_copy brings it there",
    ),
    "a kernel of a device reads a tensor of the host": (
        "alloc_on r2, gpu0, float32[2]; call relu0 (r0) -> (r2); ret r0",
        r"input 0 of 'relu0', r0, is float32\[2\]; expected float32\[2\]@gpu0",
    ),
    "a kernel of a device writes to the host": (
        "alloc_tensor r2, float32[2]; call relu0 (r1) -> (r2); ret r2",
        r"output 0 of 'relu0', r2, is float32\[2\]; expected float32\[2\]@gpu0",
    ),
    "a kernel writes to another device": (
        "alloc_on r2, gpu1, float32[2]; call relu0 (r1) -> (r2); ret r0",
        r"r2, is float32\[2\]@gpu1; expected float32\[2\]@gpu0",
    ),
    "host operators are done on the host": (
        "call_host relu0 (r1) -> (r2); ret r0",
        "'relu0' is of the device gpu0, where no host operator is done",
    ),
    "a result lies where the type says": ("ret r1", r"r1, is float32\[2\]@gpu0; expected float32\[2\]"),
    "an argument lies where the type says": ("invoke r2, @take (r0); ret r0", r"is float32\[2\]; expected float32\[2\]@gpu0"),
    "a constant of the host": ("load_const r2, one; invoke r3, @take (r2); ret r0", r"expected float32\[2\]@gpu0"),
    "a view of the host": ("reshape r2, r0 [2]; invoke r3, @take (r2); ret r0", r"expected float32\[2\]@gpu0"),
    "a shape that is checked moves nothing": ("match_shape r0 [2]; invoke r3, @take (r0); ret r0", r"expected float32\[2\]@gpu0"),
    "a condition is read on the host": (
        "load_const r2, yes; if r2, end; end: ret r0",
        r"the condition, r2, is bool\[\]@gpu0; expected one on the host",
    ),
    "a shape is read on the host": (
        "load_const r2, places; read_shape (i0, i1), r2; ret r0",
        r"what is read, r2, is int64\[2\]@gpu0; expected one on the host",
    ),
    "a frame is memory of the host": ("frame_tensor r2, float32[2]@gpu0, 0; ret r0", "alloc_on makes such a tensor"),
    "an ordinary tensor is one of the host": ("alloc_tensor r2, float32[2]@gpu0; ret r0", "alloc_on makes such a tensor"),
    "a tensor is made on a device, or is the host's": ("alloc_on r2, 0, float32[2]; ret r0", "expected a device, got 0"),
    "texts are not copied away": ("device_copy r2, r4, gpu0; ret r0", r"string\[2\]: texts lie on the host"),
    "texts are not made elsewhere": ("alloc_on r2, gpu0, string[2]; ret r0", "texts lie on the host"),
    "a copy is of elements": ("alloc_on r2, gpu0, float32[2]; device_copy r3, r2, 0; ret r0", "r2 are read"),
    "paths meet on one device": (
        "device_copy r2, r0, gpu0; if r5, end; device_copy r2, r0, gpu1; end: invoke r3, @take (r2); ret r0",
        "r2 is read, but on a path to here",
    ),
    "a tensor there has sizes": ("alloc_on r2, gpu0, float32[i0]; ret r0", "i0 is read"),
}  # fmt: skip

HEAD = (
    "(x: float32[2], y: float32[2]@gpu0, z: float32[2]@gpu1, u: float32[?]@gpu0, t: string[2], b: bool[]) -> float32[2]"
)


def program(body: str) -> Program:
    lines = body.replace(";", "\n").replace(": ", ":\n")
    return parse_assembly(f"{PRELUDE}func @main{HEAD} refs=8 ints=4 frame=128 {{\n{lines}\n}}")


@pytest.mark.parametrize("rule", KEPT)
def test_what_is_allowed(rule: str) -> None:
    verify(program(KEPT[rule]))


@pytest.mark.parametrize("rule", BROKEN)
def test_what_is_refused(rule: str) -> None:
    body, message = BROKEN[rule]
    with pytest.raises(VerificationError, match=message):
        verify(program(body))


# ---- tables: what no assembler would write ----

GOOD = program("device_copy r2, r0, gpu0; ret r0")
PLACED = tensor("float32", (2,)).on("gpu0")
RELU, RELU0 = GOOD.primitives[:2]
TEXTS = to_numbers(np.array(["abc"], object))
TEXTS.flags.writeable = False


def with_definition(**changes: object) -> Program:
    return replace(
        GOOD, primitives=(replace(RELU, definition=replace(RELU.definition, **changes)), *GOOD.primitives[1:])
    )


def of_texts() -> Program:
    text = tensor("string", (2,))
    node = replace(RELU.definition.nodes[0], results=(text,))
    definition = replace(RELU.definition, params=(text,), nodes=(node,))
    return replace(GOOD, primitives=(RELU, replace(RELU0, definition=definition), *GOOD.primitives[2:]))


def copying_to(number: int) -> Program:
    code = GOOD.code.copy()
    place = GOOD.functions[1].start + 3
    assert code[place] == 1
    code[place] = number
    return replace(GOOD, code=code)


TABLES = {
    "devices have one meaning": (replace(GOOD, devices=GOOD.devices * 2), "several devices have the same name"),
    "the host is no device": (
        replace(GOOD, devices=(*GOOD.devices, ProgramDevice("host", "cpu"))),
        "none is called 'host'",
    ),
    "devices have names": (replace(GOOD, devices=(*GOOD.devices, ProgramDevice("", "cpu"))), "none is called"),
    "devices are few": (
        replace(GOOD, devices=(*GOOD.devices, *[ProgramDevice(f"d{i}", "cpu") for i in range(limits.DEVICES)])),
        "66 devices; at most 64",
    ),
    "types name devices that exist": (
        replace(GOOD, types=(TupleType((PLACED.on("gpu2"),)),)),
        r"type 0, float32\[2\]@gpu2, is on the device 'gpu2', which does not exist; the program's devices: gpu0, gpu1",
    ),
    "signatures name devices that exist": (replace(GOOD, devices=GOOD.devices[:1]), "on the device 'gpu1'"),
    "types of texts name none": (replace(GOOD, types=(tensor("string").on("gpu0"),)), "texts lie on the host"),
    "constants lie on devices that exist": (replace(GOOD, placed={0: "gpu2"}), "constant 0 is on the device 'gpu2'"),
    "constants that lie somewhere exist": (replace(GOOD, placed={9: "gpu0"}), "constant 9 does not exist"),
    "constants of texts lie on the host": (
        replace(GOOD, constants=(*GOOD.constants, TEXTS), placed={4: "gpu0"}),
        "constant 4 is on the device 'gpu0': texts lie on the host",
    ),
    "primitives are of devices that exist": (
        replace(GOOD, primitives=(replace(RELU, device="gpu2"), *GOOD.primitives[1:])),
        "primitive 'relu' is on the device 'gpu2'",
    ),
    "primitives of devices compute no texts": (of_texts(), "primitive 'relu0' is on the device 'gpu0': texts"),
    "definitions say nothing of devices": (
        with_definition(params=(PLACED,)),
        "a definition says nothing of devices",
    ),
    "instructions name devices that exist": (copying_to(3), "device of device_copy: there is no device 3"),
    "devices are counted from 0": (copying_to(-1), "device of device_copy: there is no device -1"),
}  # fmt: skip


@pytest.mark.parametrize("rule", TABLES)
def test_tables(rule: str) -> None:
    changed, message = TABLES[rule]
    with pytest.raises(VerificationError, match=message):
        verify(changed)
