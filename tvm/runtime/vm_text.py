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


# Treadle's instruction → the Relay VM's opcode, and its text. Names in braces are fields, shown as `_Texts.shown` says; {jump} is
# how many instructions a jump goes on, {tensor} a static type.
_ROWS: dict[str, tuple[int, str]] = {
    "move": (0, "move {dst} {src}"),
    "ret": (1, "ret {src}"),
    "invoke": (2, "invoke {dst} VMFunc[{func}]({args})"),
    "invoke_closure": (3, "invoke_closure {dst} {closure}({args})"),
    "call": (4, "invoke_packed PackedFunc[{prim}] (in: {inputs}, out: {outputs})"),
    "call_host": (4, "invoke_packed PackedFunc[{prim}] (in: {inputs}, out: {dst})"),
    "alloc_tensor": (5, "alloc_tensor {dst} $ $ {tensor}"),
    "frame_tensor": (5, "alloc_tensor {dst} frame {offset} {tensor}"),
    "alloc_dynamic": (6, "alloc_tensor_reg {dst} $ $ {shape}"),
    "alloc_data": (7, "alloc_data {dst} tag({tag}) [{fields}]"),
    "alloc_closure": (8, "alloc_closure {dst} VMFunc[{func}]({captured})"),
    "get_field": (9, "get_field {dst} {object}[{index}]"),
    "if": (10, "if {cond} 1 {jump}"),
    "if_int": (10, "if {cond} 1 {jump}"),
    "load_const": (11, "load_const {dst} Const[{const}] 0"),
    "goto": (12, "goto {jump}"),
    "get_tag": (13, "get_tag {dst} {object}"),
    "load_int": (14, "load_consti {dst} {imm}"),
    "fatal": (15, "fatal"),
    "alloc_storage": (16, "alloc_storage {dst} {size} 64 uint8 0"),
    "shape_of": (17, "shape_of {dst} {tensor}"),
    "reshape": (18, "reshape_tensor {dst} {src} {shape}"),
    "device_copy": (19, "device_copy {dst} {src} {device} 0"),
    "kill": (20, "kill_register {regs}"),
}


class _Texts:
    """The fields of a function's instructions as text."""

    def __init__(self, program: Program, function: Function, places: dict[int, int]) -> None:
        self.program, self.function, self.places = program, function, places

    def integer(self, number: int) -> str:
        return f"${self.function.ref_registers + number}"

    def dim(self, word: int) -> str:
        return str(word) if word >= 0 else self.integer(~word)

    def value(self, kind: str, value: int) -> str:
        """By the kind of the field: a register, one of integers, a dimension, or a number."""
        show: Callable[[int], str] = {"r": "${}".format, "i": self.integer, "d": self.dim}.get(kind, str)
        return show(value)

    def shown(self, item: Decoded) -> dict[str, str]:
        """The fields by name; lists of registers without brackets, empty ones as `$`."""
        found: dict[str, str] = {}
        fields: Any = zip(item.operation.fields, item.values, strict=True)
        for field, value in fields:
            kind = field.kind.value
            if field.is_list:
                text = ", ".join(self.value(kind, each) for each in value)
                found[field.name] = f"[{text}]" if kind == "d" else text or "$"
            else:
                found[field.name] = self.value(kind, value)
            if field.name == "type" and isinstance(type_ := self.program.types[value], TensorType):
                found["tensor"] = f"[{', '.join(map(str, type_.shape))}] {type_.dtype.name}"
        target = jump_target(item)
        return found if target is None else {**found, "jump": str(self.places[target] - self.places[item.offset])}


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
    opcode, form = _ROWS.get(item.operation.name, (_OWN + item.operation.opcode, ""))
    words = " ".join(map(str, [opcode, *_flat(item.values)]))
    text = form.format_map(texts.shown(item)) if form else _own(texts, item)
    return f"{place:2d}: {words} ".ljust(40) + f"  # {text}"


def _own(texts: _Texts, item: Decoded) -> str:
    """An instruction under Treadle's name."""
    parts = [item.operation.name]
    fields: Any = zip(item.operation.fields, item.values, strict=True)
    for field, value in fields:
        several = [texts.value(field.kind.value, each) for each in (value if field.is_list else (value,))]
        parts.append(f"[{', '.join(several)}]" if field.is_list else several[0])
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
