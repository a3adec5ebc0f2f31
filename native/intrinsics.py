"""Intrinsics of functions of words (`native/words.py`) for what Python lacks: memory at an address, atomics, calls through an
address, malloc. Kernels use some of it too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from llvmlite import ir

from . import machine_code

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))

_PAGE = 1 << 16  # bytes, the most that systems on 64-bit ARM have; elsewhere pages are 4 KiB or 16


class Intrinsic:
    """An operation on words that compiled functions alone can call."""

    def __init__(self, write: Callable[..., ir.Value | None]) -> None:
        self._write = write
        self.__name__, self.__doc__ = write.__name__, write.__doc__
        self.arity = len(inspect.signature(write).parameters) - 1

    def emit(self, builder: ir.IRBuilder, *words: ir.Value) -> ir.Value:
        """Leaves its instructions behind, and gives a word: 0 where it has no result."""
        result = self._write(builder, *words)
        return I64(0) if result is None else result

    def __call__(self, *words: int) -> int:
        raise NotImplementedError(f"{self.__name__} is for compiled functions")


def _word(builder: ir.IRBuilder, address: ir.Value, index: ir.Value) -> ir.Value:
    return builder.gep(builder.inttoptr(address, I64.as_pointer()), [index])


def _narrow(builder: ir.IRBuilder, address: ir.Value, kind: ir.IntType) -> ir.Value:
    """A number of fewer bits, sign extended."""
    return builder.sext(builder.load(builder.inttoptr(address, kind.as_pointer()), align=1), I64)


@Intrinsic
def load(builder: ir.IRBuilder, address: ir.Value, index: ir.Value) -> ir.Value:
    """Word `index` at `address`."""
    return builder.load(_word(builder, address, index))


@Intrinsic
def store(builder: ir.IRBuilder, address: ir.Value, index: ir.Value, value: ir.Value) -> None:
    """Sets word `index` at `address`."""
    builder.store(value, _word(builder, address, index))


@Intrinsic
def load32(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return _narrow(builder, address, I32)


@Intrinsic
def load16(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return _narrow(builder, address, I16)


@Intrinsic
def load8(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return _narrow(builder, address, I8)


@Intrinsic
def atomic_load(builder: ir.IRBuilder, address: ir.Value, index: ir.Value) -> ir.Value:
    """Word `index` at `address`, read after what this thread has changed by `atomic_add` or `atomic_replace`: who says that it
    sleeps looks then. On x86 any load is; on ARM, one that only acquires need not be."""
    return builder.load_atomic(_word(builder, address, index), "seq_cst", 8)


@Intrinsic
def atomic_store(builder: ir.IRBuilder, address: ir.Value, index: ir.Value, value: ir.Value) -> None:
    builder.store_atomic(value, _word(builder, address, index), "release", 8)


@Intrinsic
def atomic_add(builder: ir.IRBuilder, address: ir.Value, index: ir.Value, value: ir.Value) -> ir.Value:
    """Adds to a word; the old value."""
    return builder.atomic_rmw("add", _word(builder, address, index), value, "seq_cst")


@Intrinsic
def atomic_replace(
    builder: ir.IRBuilder, address: ir.Value, index: ir.Value, expected: ir.Value, value: ir.Value
) -> ir.Value:
    """Sets a word if it is `expected`: 1 if it was."""
    pair = builder.cmpxchg(_word(builder, address, index), expected, value, "seq_cst", "seq_cst")
    return builder.zext(builder.extract_value(pair, 1), I64)


def _called(builder: ir.IRBuilder, function: ir.Value, kind: ir.FunctionType, arguments: list[ir.Value]) -> ir.Value:
    return builder.call(builder.inttoptr(function, kind.as_pointer()), arguments)


@Intrinsic
def call_kernel(
    builder: ir.IRBuilder, kernel: ir.Value, arguments: ir.Value, scratch: ir.Value, part: ir.Value, parts: ir.Value
) -> ir.Value:
    """Calls native code of the kernel convention through its address."""
    with builder.goto_entry_block():
        result, exception = builder.alloca(I64), builder.alloca(I8.as_pointer())
    kind = ir.FunctionType(I32, [I64.as_pointer(), I8.as_pointer().as_pointer(), I64, I64, I64, I64])
    _called(builder, kernel, kind, [result, exception, arguments, scratch, part, parts])
    return builder.load(result)


@Intrinsic
def call_python(
    builder: ir.IRBuilder,
    function: ir.Value,
    a: ir.Value,
    b: ir.Value,
    c: ir.Value,
    d: ir.Value,
    e: ir.Value,
    f: ir.Value,
    g: ir.Value,
    h: ir.Value,
) -> ir.Value:
    """Calls a function through its address, with up to eight words or pointers, for a word or a pointer."""
    return _called(builder, function, ir.FunctionType(I64, [I64] * 8), [a, b, c, d, e, f, g, h])


@Intrinsic
def call_function(builder: ir.IRBuilder, function: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """Calls a function of the C library through its address, with up to two words or pointers."""
    return builder.sext(_called(builder, function, ir.FunctionType(I32, [I64, I64]), [a, b]), I64)


def _named(builder: ir.IRBuilder, name: str, result: ir.Type, values: list[ir.Value]) -> ir.Value:
    """Calls a function of that name, which is declared in the builder's module when it is not yet."""
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [value.type for value in values]), name)
    return builder.call(function, values)


@Intrinsic
def relax(builder: ir.IRBuilder) -> ir.Value:
    """Tells the processor that this is a loop that waits."""
    return _named(builder, machine_code.RELAX, I64, [])


@Intrinsic
def clock(builder: ir.IRBuilder) -> ir.Value:
    """The processor's clock: it runs evenly, in units that are to be measured. 0 where we know none that is free to be read."""
    return _named(builder, machine_code.CLOCK, I64, [])


@Intrinsic
def advise_large_pages(builder: ir.IRBuilder, address: ir.Value, size: ir.Value) -> ir.Value:
    """Asks for large pages for those that lie wholly in this memory."""
    first = builder.and_(builder.add(address, I64(_PAGE - 1)), I64(-_PAGE))
    inside = builder.sub(builder.add(address, size), first)
    return _named(builder, machine_code.ADVISE_LARGE_PAGES, I64, [first, inside])


@Intrinsic
def malloc(builder: ir.IRBuilder, size: ir.Value) -> ir.Value:
    """Memory of `size` bytes, 0 if there is none."""
    return builder.ptrtoint(_named(builder, "malloc", I8.as_pointer(), [size]), I64)


@Intrinsic
def free(builder: ir.IRBuilder, address: ir.Value) -> None:
    _named(builder, "free", ir.VoidType(), [builder.inttoptr(address, I8.as_pointer())])


@Intrinsic
def copy(builder: ir.IRBuilder, target: ir.Value, source: ir.Value, size: ir.Value) -> None:
    """Copies bytes between blocks that do not overlap."""
    places = [builder.inttoptr(address, I8.as_pointer()) for address in (target, source)]
    _named(builder, "llvm.memcpy.p0.p0.i64", ir.VoidType(), [*places, size, ir.Constant(ir.IntType(1), 0)])


@Intrinsic
def clear(builder: ir.IRBuilder, address: ir.Value, size: ir.Value) -> None:
    """Sets bytes to zero."""
    place = builder.inttoptr(address, I8.as_pointer())
    _named(builder, "llvm.memset.p0.i64", ir.VoidType(), [place, I8(0), size, ir.Constant(ir.IntType(1), 0)])


@Intrinsic
def log2(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """⌊log₂ value⌋ of a positive value."""
    return builder.sub(I64(63), builder.ctlz(value, ir.Constant(ir.IntType(1), 1)))


def _carry(builder: ir.IRBuilder, pair: ir.Value) -> ir.Value:
    return builder.zext(builder.extract_value(pair, 1), I64)


@Intrinsic
def add_overflows(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    """1 if a + b does not fit into a word."""
    return _carry(builder, builder.sadd_with_overflow(a, b))


@Intrinsic
def subtract_overflows(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return _carry(builder, builder.ssub_with_overflow(a, b))


@Intrinsic
def multiply_overflows(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return _carry(builder, builder.smul_with_overflow(a, b))
