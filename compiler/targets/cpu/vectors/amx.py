"""AMX of x86-64: instructions on eight registers of 16 rows of 64 bytes.

amx_begin(address)             takes the shapes of all registers from 64 bytes there, and sets them to zero
amx_end()                      gives the registers back; also where a call is stopped
amx_zero_n()                   n from 0 to 3: sums
amx_load_n(address, offset, step)   n from 4 to 7: rows that are `step` bytes apart in memory
amx_store_n(address, offset)   n from 0 to 3: rows of 64 bytes, one after the other
amx_dpbf16ps_n(), amx_dpbusd_n()    adds the products of register 4 + n // 2 with 6 + n % 2 to sums n: of words of bfloat16, or of
                               bytes without sign by bytes with one

Kernels are written with the numbers that stand here, so LLVM is imported when an instruction is emitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llvmlite import ir

SUMS, OPERANDS = range(4), range(4, 8)
PRODUCTS = ("dpbf16ps", "dpbusd")
ROW_BYTES = 64

_Emit = Callable[..., None]  # builder, words


def _instruction(name: str, *registers: int) -> _Emit:
    """On these registers, perhaps with an address, an offset from it, and a step."""

    def emit(builder: ir.IRBuilder, *words: ir.Value) -> None:
        from llvmlite import ir

        from .lanes import I8, call_intrinsic

        operands = [ir.Constant(I8, number) for number in registers]
        if words:
            address, *offset = words
            place = builder.add(address, offset[0]) if offset else address
            operands += [builder.inttoptr(place, I8.as_pointer()), *offset[1:]]
        call_intrinsic(builder, f"x86.{name}", ir.VoidType(), operands)

    return emit


def _store(number: int) -> _Emit:
    write = _instruction("tilestored64", number)

    def emit(builder: ir.IRBuilder, address: ir.Value, offset: ir.Value) -> None:
        write(builder, address, offset, offset.type(ROW_BYTES))

    return emit


# name → how many words it takes, its code
INSTRUCTIONS: dict[str, tuple[int, _Emit]] = {
    "amx_begin": (1, _instruction("ldtilecfg")),
    "amx_end": (0, _instruction("tilerelease")),
    **{f"amx_zero_{n}": (0, _instruction("tilezero", n)) for n in SUMS},
    **{f"amx_store_{n}": (2, _store(n)) for n in SUMS},
    **{f"amx_load_{n}": (3, _instruction("tileloadd64", n)) for n in OPERANDS},
    **{f"amx_{name}_{n}": (0, _instruction(f"t{name}", n, 4 + n // 2, 6 + n % 2)) for name in PRODUCTS for n in SUMS},
}
