"""An executable's code in the layout of TVM's Relay VM: a header for each function, a line for each instruction.

    VM Function[0]: main(x)
    # reg file size = 2
    # instruction count = 2
    opcode, fields # inst(text):
     0: 18 0 1 2 8                           # reshape_tensor $1 $0 [2, 8]

Registers of integers stand after those of objects. What Relay's machine has no instruction for (integers, shapes that
are checked, memory of frames) has Treadle's name, and its opcode plus 64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...formats.bytecode import Decoded, function_words, jump_target, scan
from ...formats.messages.terminal import showing
from ...formats.program import Function, Program
from ...formats.types import TensorType

_OWN = 64  # added to the opcodes of instructions that Relay's machine lacks


class _Texts:
    def __init__(self, program: Program, function: Function, places: dict[int, int]) -> None:
        self.program, self.function, self.places = program, function, places

    def register(self, number: int) -> str:
        return f"${number}"

    def integer(self, number: int) -> str:
        return f"${self.function.ref_registers + number}"

    def dim(self, word: int) -> str:
        return str(word) if word >= 0 else self.integer(~word)

    def dims(self, words: Sequence[int]) -> str:
        return f"[{', '.join(map(self.dim, words))}]"

    def registers(self, numbers: Sequence[int]) -> str:
        return ", ".join(map(self.register, numbers)) or "$"

    def offset(self, item: Decoded) -> int:
        """How many instructions a jump goes on."""
        target = jump_target(item)
        assert target is not None
        return self.places[target] - self.places[item.offset]

    def tensor(self, number: int) -> tuple[str, str]:
        type_ = self.program.types[number]
        assert isinstance(type_, TensorType)
        return f"[{', '.join(map(str, type_.shape))}]", type_.dtype.name


Row = tuple[int, Callable[[_Texts, dict[str, Any], Decoded], str]]
_ROWS: dict[str, Row] = {
    "move": (0, lambda t, f, i: f"move {t.register(f['dst'])} {t.register(f['src'])}"),
    "ret": (1, lambda t, f, i: f"ret {t.register(f['src'])}"),
    "invoke": (2, lambda t, f, i: f"invoke {t.register(f['dst'])} VMFunc[{f['func']}]({t.registers(f['args'])})"),
    "invoke_closure": (
        3,
        lambda t, f, i: f"invoke_closure {t.register(f['dst'])} {t.register(f['closure'])}({t.registers(f['args'])})",
    ),
    "call": (
        4,
        lambda t, f, i: (
            f"invoke_packed PackedFunc[{f['prim']}] (in: {t.registers(f['inputs'])}, out: {t.registers(f['outputs'])})"
        ),
    ),
    "call_host": (
        4,
        lambda t, f, i: (
            f"invoke_packed PackedFunc[{f['prim']}] (in: {t.registers(f['inputs'])}, out: {t.registers(f['dst'])})"
        ),
    ),
    "alloc_tensor": (
        5,
        lambda t, f, i: " ".join(("alloc_tensor", t.register(f["dst"]), "$", "$", *t.tensor(f["type"]))),
    ),
    "frame_tensor": (
        5,
        lambda t, f, i: " ".join(
            ("alloc_tensor", t.register(f["dst"]), "frame", str(f["offset"]), *t.tensor(f["type"]))
        ),
    ),
    "alloc_dynamic": (6, lambda t, f, i: f"alloc_tensor_reg {t.register(f['dst'])} $ $ {t.dims(f['shape'])}"),
    "alloc_data": (
        7,
        lambda t, f, i: f"alloc_data {t.register(f['dst'])} tag({f['tag']}) [{t.registers(f['fields'])}]",
    ),
    "alloc_closure": (
        8,
        lambda t, f, i: f"alloc_closure {t.register(f['dst'])} VMFunc[{f['func']}]({t.registers(f['captured'])})",
    ),
    "get_field": (9, lambda t, f, i: f"get_field {t.register(f['dst'])} {t.register(f['object'])}[{f['index']}]"),
    "if": (10, lambda t, f, i: f"if {t.register(f['cond'])} 1 {t.offset(i)}"),
    "if_int": (10, lambda t, f, i: f"if {t.integer(f['cond'])} 1 {t.offset(i)}"),
    "load_const": (11, lambda t, f, i: f"load_const {t.register(f['dst'])} Const[{f['const']}] 0"),
    "goto": (12, lambda t, f, i: f"goto {t.offset(i)}"),
    "get_tag": (13, lambda t, f, i: f"get_tag {t.integer(f['dst'])} {t.register(f['object'])}"),
    "load_int": (14, lambda t, f, i: f"load_consti {t.integer(f['dst'])} {f['imm']}"),
    "fatal": (15, lambda t, f, i: "fatal"),
    "alloc_storage": (16, lambda t, f, i: f"alloc_storage {t.register(f['dst'])} {t.dim(f['size'])} 64 uint8 0"),
    "shape_of": (
        17,
        lambda t, f, i: f"shape_of {', '.join(map(t.integer, f['dst'])) or '$'} {t.register(f['tensor'])}",
    ),
    "reshape": (
        18,
        lambda t, f, i: f"reshape_tensor {t.register(f['dst'])} {t.register(f['src'])} {t.dims(f['shape'])}",
    ),
    "device_copy": (19, lambda t, f, i: f"device_copy {t.register(f['dst'])} {t.register(f['src'])} 0 0"),
    "kill": (20, lambda t, f, i: f"kill_register {t.registers(f['regs'])}"),
}


def _flat(values: Sequence[Any]) -> list[int]:
    return [word for value in values for word in (value if isinstance(value, (tuple, list)) else [value])]


@showing
def bytecode_text(program: Program) -> str:
    """All functions."""
    lines: list[str] = []
    for number, function in enumerate(program.functions):
        items = list(scan(function_words(program, function), function.name))
        texts = _Texts(program, function, {item.offset: place for place, item in enumerate(items)})
        lines += [
            f"VM Function[{number}]: {function.name}({', '.join(function.param_names)})",
            f"# reg file size = {function.ref_registers + function.int_registers}",
            f"# instruction count = {len(items)}",
            "opcode, fields # inst(text):",
        ]
        lines += [_line(place, item, texts) for place, item in enumerate(items)]
        lines.append("")
    return "".join(f"{line}\n" for line in lines)


def _line(place: int, item: Decoded, texts: _Texts) -> str:
    fields = {field.name: value for field, value in zip(item.operation.fields, item.values, strict=True)}
    opcode, text = _ROWS.get(item.operation.name, (_OWN + item.operation.opcode, _own))
    words = " ".join(map(str, [opcode, *_flat(item.values)]))
    return f"{place:2d}: {words} ".ljust(40) + f"  # {text(texts, fields, item)}"


def _own(texts: _Texts, fields: dict[str, Any], item: Decoded) -> str:
    """An instruction under Treadle's name."""
    parts = [item.operation.name]
    for field in item.operation.fields:
        value, kind = fields[field.name], field.kind.value
        show = {"r": texts.register, "i": texts.integer, "d": texts.dim}.get(kind, str)
        parts.append(f"[{', '.join(map(show, value))}]" if field.is_list else show(value))
    return " ".join(parts)


@showing
def statistics_text(constants: Sequence[np.ndarray], names: Sequence[str], primitives: Sequence[str]) -> str:
    """The numbers of an executable, as TVM words them."""
    shapes = [str(list(array.shape)) if array.ndim else "scalar" for array in constants]
    functions = ", ".join(f'("{name}", {number})' for number, name in enumerate(names))
    return (
        "Relay VM executable statistics:\n"
        f"  Constant shapes (# {len(shapes)}): [{', '.join(shapes)}]\n"
        f"  Globals (#{len(names)}): [{functions}]\n"
        f"  Primitive ops (#{len(primitives)}): [{', '.join(primitives)}]\n"
    )


@showing
def constants_text(constants: Sequence[np.ndarray]) -> str:
    """The constants: their shapes, and the elements of small ones."""
    lines = []
    for number, array in enumerate(constants):
        shape = ",".join(map(str, array.shape))
        text = f"VM Const[{number}]: NDArray[({shape}),{array.dtype.name},(1,0)]"
        if array.ndim == 0 or (array.ndim == 1 and array.size <= 10):
            text += f"=[{','.join(map(_number, array.ravel().tolist()))}]"
        lines.append(f"{text} on device index 0\n")
    return "".join(lines)


def _number(value: float) -> str:
    """As C++ writes it: 1 for 1.0."""
    return f"{value:g}" if isinstance(value, float) else str(int(value))
