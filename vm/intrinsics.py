"""What the engine needs that Numba's Python has no word for: memory at an address, atomics, calls through an address, malloc.

Addresses and words are int64 throughout: Numba turns a mix of int64 and uint64 into float64. Numba is imported here, so this
file is imported only where the engine is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import machine_code

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
INT = types.int64

_PAGE = 1 << 16  # bytes, the most that systems on 64-bit ARM have; elsewhere pages are 4 KiB or 16


def _typed(arguments: int, emit: Callable[..., Any]) -> tuple[Any, Callable[..., Any]]:
    """What an intrinsic returns: int64s to an int64, with `emit(builder, *values)` as body; no value means 0."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        result = emit(builder, *values)
        return ir.Constant(I64, 0) if result is None else result

    return INT(*[INT] * arguments), generate


def _word(builder: Any, address: Any, index: Any) -> Any:
    return builder.gep(builder.inttoptr(address, I64.as_pointer()), [index])


def _narrow(kind: Any) -> Callable[..., Any]:
    """Loads a number of fewer bits, sign extended."""

    def emit(builder: Any, address: Any) -> Any:
        return builder.sext(builder.load(builder.inttoptr(address, kind.as_pointer()), align=1), I64)

    return emit


@intrinsic
def load(typing, address, index):  # type: ignore[no-untyped-def]
    """Word `index` at `address`."""
    return _typed(2, lambda builder, *at: builder.load(_word(builder, *at)))


@intrinsic
def store(typing, address, index, value):  # type: ignore[no-untyped-def]
    """Sets word `index` at `address`."""
    return _typed(
        3, lambda builder, address, index, value: builder.store(value, _word(builder, address, index)) and None
    )


@intrinsic
def load32(typing, address):  # type: ignore[no-untyped-def]
    return _typed(1, _narrow(I32))


@intrinsic
def load16(typing, address):  # type: ignore[no-untyped-def]
    return _typed(1, _narrow(I16))


@intrinsic
def load8(typing, address):  # type: ignore[no-untyped-def]
    return _typed(1, _narrow(I8))


@intrinsic
def atomic_load(typing, address, index):  # type: ignore[no-untyped-def]
    """Word `index` at `address`, read after what this thread has changed by `atomic_add` or `atomic_replace`: who says that it
    sleeps looks then. On x86 any load is; on ARM, one that only acquires need not be."""
    return _typed(2, lambda builder, *at: builder.load_atomic(_word(builder, *at), "seq_cst", 8))


@intrinsic
def atomic_store(typing, address, index, value):  # type: ignore[no-untyped-def]
    def emit(builder: Any, address: Any, index: Any, value: Any) -> None:
        builder.store_atomic(value, _word(builder, address, index), "release", 8)

    return _typed(3, emit)


@intrinsic
def atomic_add(typing, address, index, value):  # type: ignore[no-untyped-def]
    """Adds to a word; the old value."""

    def emit(builder: Any, address: Any, index: Any, value: Any) -> Any:
        return builder.atomic_rmw("add", _word(builder, address, index), value, "seq_cst")

    return _typed(3, emit)


@intrinsic
def atomic_replace(typing, address, index, expected, value):  # type: ignore[no-untyped-def]
    """Sets a word if it is `expected`: 1 if it was."""

    def emit(builder: Any, address: Any, index: Any, expected: Any, value: Any) -> Any:
        pair = builder.cmpxchg(_word(builder, address, index), expected, value, "seq_cst", "seq_cst")
        return builder.zext(builder.extract_value(pair, 1), I64)

    return _typed(4, emit)


@intrinsic
def call_kernel(typing, kernel, arguments, scratch, part, parts):  # type: ignore[no-untyped-def]
    """Calls native code of the kernel convention through its address."""

    def emit(builder: Any, kernel: Any, *arguments: Any) -> Any:
        result = cgutils.alloca_once(builder, I64)
        exception = cgutils.alloca_once(builder, I8.as_pointer())
        kind = ir.FunctionType(I32, [I64.as_pointer(), I8.as_pointer().as_pointer(), I64, I64, I64, I64])
        builder.call(builder.inttoptr(kernel, kind.as_pointer()), [result, exception, *arguments])
        return builder.load(result)

    return _typed(5, emit)


@intrinsic
def call_python(typing, function, a, b, c, d, e, f, g, h):  # type: ignore[no-untyped-def]
    """Calls a function through its address, with up to eight words or pointers, for a word or a pointer."""

    def emit(builder: Any, function: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(I64, [I64] * len(arguments))
        return builder.call(builder.inttoptr(function, kind.as_pointer()), arguments)

    return _typed(9, emit)


@intrinsic
def call_function(typing, function, a, b):  # type: ignore[no-untyped-def]
    """Calls a function of the C library through its address, with up to two words or pointers."""

    def emit(builder: Any, function: Any, a: Any, b: Any) -> Any:
        kind = ir.FunctionType(I32, [I64, I64])
        return builder.sext(builder.call(builder.inttoptr(function, kind.as_pointer()), [a, b]), I64)

    return _typed(3, emit)


@intrinsic
def relax(typing):  # type: ignore[no-untyped-def]
    """Tells the processor that this is a loop that waits."""
    return _typed(0, lambda builder: _of_the_machine(builder, machine_code.RELAX, [], []))


@intrinsic
def clock(typing):  # type: ignore[no-untyped-def]
    """The processor's clock: it runs evenly, in units that are to be measured. 0 where we know none that is free to be read."""
    return _typed(0, lambda builder: _of_the_machine(builder, machine_code.CLOCK, [], []))


def _of_the_machine(builder: Any, name: str, kinds: list[Any], values: list[Any]) -> Any:
    """Calls what only the target knows how to do (`machine_code.py`), for a word. Until it is linked, a weak function of that
    name does nothing: Numba generates code of what the engine calls, for this process, whatever the target is."""
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I64, kinds), name)
    if function.is_declaration:
        function.linkage = "weak"
        ir.IRBuilder(function.append_basic_block()).ret(ir.Constant(I64, 0))
    return builder.call(function, values)


def _libc(builder: Any, name: str, result: Any, kinds: list[Any], values: list[Any]) -> Any:
    """Calls a function of the C library."""
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, kinds), name)
    return builder.call(function, values)


@intrinsic
def malloc(typing, size):  # type: ignore[no-untyped-def]
    """Memory of `size` bytes, 0 if there is none."""
    return _typed(
        1, lambda builder, size: builder.ptrtoint(_libc(builder, "malloc", I8.as_pointer(), [I64], [size]), I64)
    )


@intrinsic
def free(typing, address):  # type: ignore[no-untyped-def]
    def emit(builder: Any, address: Any) -> None:
        _libc(builder, "free", ir.VoidType(), [I8.as_pointer()], [builder.inttoptr(address, I8.as_pointer())])

    return _typed(1, emit)


@intrinsic
def advise_large_pages(typing, address, size):  # type: ignore[no-untyped-def]
    """Asks for large pages for those that lie wholly in this memory."""

    def emit(builder: Any, address: Any, size: Any) -> None:
        first = builder.and_(builder.add(address, ir.Constant(I64, _PAGE - 1)), ir.Constant(I64, -_PAGE))
        inside = builder.sub(builder.add(address, size), first)
        _of_the_machine(builder, machine_code.ADVISE_LARGE_PAGES, [I64, I64], [first, inside])

    return _typed(2, emit)


@intrinsic
def copy(typing, target, source, size):  # type: ignore[no-untyped-def]
    """Copies bytes between blocks that do not overlap."""

    def emit(builder: Any, target: Any, source: Any, size: Any) -> None:
        target, source = (builder.inttoptr(address, I8.as_pointer()) for address in (target, source))
        cgutils.raw_memcpy(builder, target, source, size, 1)

    return _typed(3, emit)


@intrinsic
def clear(typing, address, size):  # type: ignore[no-untyped-def]
    """Sets bytes to zero."""

    def emit(builder: Any, address: Any, size: Any) -> None:
        cgutils.memset(builder, builder.inttoptr(address, I8.as_pointer()), size, 0)

    return _typed(2, emit)


@intrinsic
def log2(typing, value):  # type: ignore[no-untyped-def]
    """⌊log₂ value⌋ of a positive value."""

    def emit(builder: Any, value: Any) -> Any:
        zeros = builder.ctlz(value, ir.Constant(ir.IntType(1), 1))
        return builder.sub(ir.Constant(I64, 63), zeros)

    return _typed(1, emit)


def _overflow(name: str) -> Callable[..., Any]:
    def emit(builder: Any, a: Any, b: Any) -> Any:
        return builder.zext(builder.extract_value(getattr(builder, name)(a, b), 1), I64)

    return emit


@intrinsic
def add_overflows(typing, a, b):  # type: ignore[no-untyped-def]
    """1 if a + b does not fit into a word."""
    return _typed(2, _overflow("sadd_with_overflow"))


@intrinsic
def subtract_overflows(typing, a, b):  # type: ignore[no-untyped-def]
    return _typed(2, _overflow("ssub_with_overflow"))


@intrinsic
def multiply_overflows(typing, a, b):  # type: ignore[no-untyped-def]
    return _typed(2, _overflow("smul_with_overflow"))
