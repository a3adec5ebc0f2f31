"""LLVM text of functions → object code. What makes it of a text is what stands here, LLVM, and nothing else."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from ..formats.messages.errors import CompileError
from . import machine_code
from .llvm import NativeTarget, llvm
from .once import Lock

# A code blob is: MAGIC, the length of the names (u32), the names of its symbols joined by line feeds, an object file.
MAGIC = b"TRDLOBJ1"
LENGTH = struct.Struct("<I")

# Gives the LLVM texts of functions, and of what they call, for a target. Raises CompileError, or what Numba does
Source = Callable[[NativeTarget], Sequence[str]]


def compile_object(source: Source, symbols: Sequence[str], target: NativeTarget, *, aligns: bool = True) -> bytes:
    """Object code of the functions called `symbols`, which `source` gives. All others become part of them.

    The functions must neither raise nor allocate Python objects. `aligns`: they align the stack for what they keep there.
    Raises CompileError.
    """
    code = _target_machine(target).emit_object(_module(source, symbols, target, aligns))
    names = "\n".join(symbols).encode()
    return b"".join((MAGIC, LENGTH.pack(len(names)), names, code))


def compile_text(source: Source, symbols: Sequence[str], target: NativeTarget, form: str = "llvm") -> str:
    """The same code as text: `form` is "llvm" (optimised IR) or "asm"."""
    module = _module(source, symbols, target, aligns=True)
    return str(module) if form == "llvm" else _target_machine(target).emit_assembly(module)


def _target_machine(target: NativeTarget) -> Any:
    if not target.is_of_this_process:
        llvm().initialize_all_targets()
        llvm().initialize_all_asmprinters()
    machine = llvm().Target.from_triple(target.triple)
    # what Numba generates code with; the large code model reaches libm from wherever the code is loaded
    return machine.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


_compiler_lock = Lock()


def _module(source: Source, symbols: Sequence[str], target: NativeTarget, aligns: bool) -> Any:
    """An optimised LLVM module with the functions under their symbols; everything else is internal and renamed."""
    with _compiler_lock:
        machine = _target_machine(target)
        module = _linked(_texts(source, symbols, target), machine)
        _optimise(module, machine)
        text = _renamed(module, symbols)
    for symbol in symbols if aligns else ():
        text = _aligning(text, symbol)
    module = _linked([text])
    module.verify()
    for function in module.functions:
        if function.is_declaration and not _resolves(function.name):
            raise CompileError(f"native code of {', '.join(symbols)} calls {function.name!r}, which only Numba has")
    return module


def _texts(source: Source, symbols: Sequence[str], target: NativeTarget) -> Sequence[str]:
    """The LLVM texts of the functions and of those they call."""
    texts = source(target)
    if any(name in text for name in machine_code.NAMES for text in texts):
        texts = [*texts, machine_code.text(target)]
    return texts


def _linked(texts: Sequence[str], machine: Any = None) -> Any:
    """One LLVM module of several, all for `machine` where one is given, whatever they say."""
    modules = [llvm().parse_assembly(text) for text in texts]
    for each in modules if machine else ():
        each.triple, each.data_layout = machine.triple, str(machine.target_data)
    for each in modules[1:]:
        modules[0].link_in(each)
    return modules[0]


def _optimise(module: Any, machine: Any) -> None:
    """As Numba would, once."""
    options = llvm().create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    builder = llvm().create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


_HEADER = re.compile(r"^(; ModuleID|source_filename).*\n", re.MULTILINE)


def _renamed(module: Any, symbols: Sequence[str]) -> str:
    """LLVM text without what is unused. All but the functions of these names are internal, and numbered in the order of the text:
    Numba's own names hold counters of this process."""
    for item in (*module.functions, *module.global_variables):
        if item.name not in symbols and not item.name.startswith("llvm.") and not item.is_declaration:
            item.linkage, item.visibility = "internal", "default"
    _drop_dead(module)
    others = [each for each in module.functions if not each.is_declaration and each.name not in symbols]
    for number, item in enumerate((*others, *module.global_variables)):
        if not item.name.startswith("llvm."):
            item.name = f"{symbols[0]}.{number}"
    return _HEADER.sub("", str(module))


def _aligning(text: str, symbol: str) -> str:
    """LLVM text whose function `symbol` aligns the stack. Left alone, LLVM learns too late that it has too few registers
    for all vectors, and those that wait in memory cross cache lines: up to 6 % of the time of a matrix product. Without loops
    there are few vectors."""
    if " = phi " not in text:
        return text
    head = re.compile(rf'^(define .*@"?{re.escape(symbol)}"?\(.*?)((?: #\d+)? {{)$', re.MULTILINE)
    return head.sub(r'\1 "stackrealign"\2', text)


def _drop_dead(module: Any) -> None:
    machine = llvm().Target.from_triple(llvm().get_process_triple()).create_target_machine()
    builder = llvm().create_pass_builder(machine, llvm().create_pipeline_tuning_options(speed_level=0))
    manager = llvm().create_new_module_pass_manager()
    manager.add_global_dead_code_eliminate_pass()
    manager.run(module, builder)


def _resolves(name: str) -> bool:
    return name.startswith("llvm.") or bool(llvm().address_of_symbol(name))
