"""Attacks by interrupts: a KeyboardInterrupt at each line of a call, and what the machine holds after it."""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import numpy as np

from ..... import VirtualMachine, compile, load
from .....compiler.ir.text import parse_module
from .....formats import strings
from .variants import COMPILING, MB, Variant, texts_of, want


@functools.cache
def leaving(code: Any) -> set[int]:
    """The places of instructions that leave a `with` block: three times None, and the call of __exit__; and those that do
    nothing. Nobody could take a lock back there (CPython's issue 74174), and Python does not look for signals."""
    import dis as bytecode

    instructions = [each for each in bytecode.get_instructions(code) if each.opname not in ("PRECALL", "CACHE")]
    names = [(each.opname, each.argval) for each in instructions]
    found = {each.offset for each in instructions if each.opname == "NOP"}
    for at in range(len(names) - 3):
        if names[at : at + 3] == [("LOAD_CONST", None)] * 3 and names[at + 3] == ("CALL", 2):
            first = at - (names[at - 1][0] == "SWAP")  # the value of a `return` within the block
            found |= set(range(instructions[first].offset, instructions[at + 3].offset + 1, 2))
    return found


def interrupted(is_ours: Callable[[str], bool], count: int, act: Callable[[], object]) -> bool:
    """Acts, and raises KeyboardInterrupt before bytecode `count` of the files; whether it came to that."""
    left = count

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not is_ours(frame.f_code.co_filename):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode" and frame.f_lasti not in leaving(frame.f_code):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        act()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return left < 0


_ROOT = str(Path(__file__).parents[2])
_WORK = "func @main(x: string[n], y: float32[n]) {\n  a = concat_texts(x, x)\n  b = exp(y)\n  r = (a, b)\n  r\n}"


def interrupts(random: Random) -> Variant:
    """Ctrl-C between two bytecodes of a compilation, a load or a call: what comes next goes on as if nothing had been."""
    data = compile(parse_module(_WORK), embed_native=False, progress=False).as_bytes()
    machine = VirtualMachine(load(data), kernels="cached")
    text, array = texts_of("a", f"text {random.random()}"), np.zeros(2, np.float32)
    acts: dict[str, Callable[[], object]] = {
        "call": lambda: machine["main"](text, array),
        "bounded call": lambda: machine.call("main", (text, array), max_seconds=5, max_memory=MB),
        "load": lambda: VirtualMachine(load(data), kernels="cached")["main"](text, array),
        "compile": lambda: compile(parse_module(_WORK), embed_native=False, progress=False),
        "save": lambda: machine.save_function("main", "saved", text, array),
        "texts": lambda: strings.Texts().numbers(texts_of(*map(str, range(50)))),
    }
    kind = random.choice(list(acts))
    count = int(math.exp(random.uniform(0, math.log({"compile": 60_000, "load": 60_000}.get(kind, 3000)))))

    def check(machine: VirtualMachine) -> None:
        made = machine.call("main", (text, array), max_seconds=30)
        want(
            made[0].numpy().tolist() == [2 * each for each in text] and made[1].numpy().tolist() == [1, 1],
            "another result",
        )

    def act() -> None:
        before = sys.unraisablehook
        sys.unraisablehook = lambda _: None
        try:
            interrupted(lambda file: file.startswith(_ROOT), count, acts[kind])
        finally:
            sys.unraisablehook = before
        check(machine)
        check(VirtualMachine(load(data), kernels="cached"))
        want(len(warnings.filters) > 0, "no filter of warnings")

    return Variant(act, seconds=20, pause=COMPILING)
