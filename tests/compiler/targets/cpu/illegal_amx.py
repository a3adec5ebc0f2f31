"""Runs native code for AMX on a CPU without it: each of its instructions is illegal there, and the signal's handler executes it,
with the registers of the interpreter (`emulated/amx.py`)."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from collections.abc import Iterator

import numpy as np
from treadle.compiler.targets.emulated.amx import PRODUCTS, ROW_BYTES, Registers
from treadle.native.llvm import NativeTarget
from treadle.native.numba_frontend import compiling_for

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_SIGINFO, _ON_STACK = 4, 0x08000000  # of sigaction(2)
_LONGEST = 15  # bytes of an instruction
_SHAPE_BYTES = 64

# Linux on x86-64: where a signal's handler finds the words of these registers (ucontext_t, gregs)
_WORDS = 40
_PLACES = ["R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"]
_PLACES += ["RDI", "RSI", "RBP", "RBX", "RDX", "RAX", "RCX", "RSP", "RIP"]


class _Action(ctypes.Structure):
    """The C library's struct sigaction."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Machine:
    """AMX of one thread. `executed` are the names of its instructions, in order."""

    def __init__(self) -> None:
        import iced_x86

        self._decoder = iced_x86.Decoder
        self._mnemonics, self._registers = (
            {number: name for name, number in vars(each).items() if isinstance(number, int)}
            for each in (iced_x86.Mnemonic, iced_x86.Register)
        )
        self.amx: Registers | None = None
        self.executed: list[str] = []

    def step(self, context: int) -> None:
        """Executes the instruction at which the thread stands, which goes on behind it in any case."""
        words = (ctypes.c_int64 * len(_PLACES)).from_address(context + _WORDS)
        values = {name: int(word) for name, word in zip(_PLACES, words, strict=True)}
        values["NONE"] = 0
        found = next(self._decoder(64, ctypes.string_at(values["RIP"], _LONGEST), ip=values["RIP"]))
        words[_PLACES.index("RIP")] = found.next_ip
        name = self._mnemonics[found.mnemonic]
        operands = [self._registers[found.op_register(at)] for at in range(found.op_count)]
        numbers = [int(each[3:]) for each in operands if each.startswith("TMM")]
        base, index = (values[self._registers[each]] for each in (found.memory_base, found.memory_index))
        index *= found.memory_index_scale
        displacement = found.memory_displacement
        address = base + displacement - (1 << 64) * (displacement >> 63)
        self.executed.append(name)
        if name == "LDTILECFG":
            self.amx = Registers(np.frombuffer(ctypes.string_at(address, _SHAPE_BYTES), np.uint8))
        elif name == "TILERELEASE":
            self.amx = None
        else:
            assert self.amx is not None
            self._on_registers(self.amx, name, numbers, address, index)

    @staticmethod
    def _on_registers(amx: Registers, name: str, numbers: list[int], address: int, step: int) -> None:
        first, rows = numbers[0], amx.words[numbers[0]]
        if name == "TILEZERO":
            rows[...] = 0
        elif name == "TILELOADD":
            for number, row in enumerate(rows):
                row[...] = np.frombuffer(ctypes.string_at(address + number * step, row.nbytes), np.int32)
        elif name == "TILESTORED":
            assert step == ROW_BYTES
            for number, row in enumerate(rows):
                ctypes.memmove(address + number * step, row.tobytes(), row.nbytes)
        else:
            assert numbers == [first, 4 + first // 2, 6 + first % 2]
            amx.words[first] = PRODUCTS[name.lower()[1:]](*amx.operands(first))


@contextlib.contextmanager
def executed(target: NativeTarget) -> Iterator[list[str]]:
    """`with executed(target) as instructions:` runs code for that CPU in one thread at a time; they are listed."""
    machine, errors = _Machine(), list[Exception]()

    def handle(number: int, information: int, context: int) -> None:
        try:
            with compiling_for(target), np.errstate(all="ignore"):
                machine.step(context)
        except Exception as error:
            errors.append(error)

    library, handler, before = ctypes.CDLL(None), _HANDLER(handle), _Action()
    address = ctypes.cast(handler, ctypes.c_void_p).value
    action = _Action(handler=address, flags=_SIGINFO | _ON_STACK)
    assert library.sigaction(signal.SIGILL, ctypes.byref(action), ctypes.byref(before)) == 0
    try:
        yield machine.executed
    finally:
        library.sigaction(signal.SIGILL, ctypes.byref(before), None)
    assert not errors, errors
