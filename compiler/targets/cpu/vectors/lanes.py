"""Scalar and vector values while LLVM code is emitted, and the elementary functions of them.

A function over `Lanes` is run once, when a kernel is compiled, and emits instructions; it reads as the arithmetic
that it performs. `simd.py` gives these functions to generated kernels.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Union

from llvmlite import ir
from numba.core import types

from .....formats.dtypes import DType

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()


class Half(types.Number):
    """float16 as an element of vectors; Numba has none for the CPU."""

    bitwidth = 16


float16 = Half("half")


class Narrow(types.Number):
    """A type of `ml_dtypes` as an element of vectors: bits in a byte or two, only for loads, stores and conversions."""

    def __init__(self, dtype: DType) -> None:
        self.dtype, self.bitwidth = dtype, 8 * dtype.itemsize
        self.bits = getattr(types, f"uint{self.bitwidth}")  # the element's type in memory
        super().__init__(dtype.name)


Kind = Any  # a type of Numba's: its attributes depend on its class
Kinds = tuple[Kind, ...]

# name in formats/dtypes.py → Numba's type, LLVM's type in a register
ELEMENTS: dict[str, tuple[Kind, ir.Type]] = {
    "bool": (types.boolean, I1),
    **{
        f"{sign}int{bits}": (getattr(types, f"{sign}int{bits}"), ir.IntType(bits))
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "float16": (float16, HALF),
    "float32": (types.float32, FLOAT),
    "float64": (types.float64, DOUBLE),
    "string": (types.uint64, ir.IntType(64)),  # the number of a text
    **{
        dtype.name: (Narrow(dtype), ir.IntType(8 * dtype.itemsize))
        for dtype in DType
        if not dtype.is_numpys and not dtype.is_string
    },
}
IR_TYPES = dict(ELEMENTS.values())
ITEMSIZES = {kind: max(1, getattr(kind, "bitwidth", 8) // 8) for kind in IR_TYPES}  # in memory


Number = Union["Lanes", int, float]


class Lanes:
    """A scalar or vector value while LLVM code is emitted: its operators emit instructions into `builder`.

    Python numbers among the operands become constants of the type of the other operand.
    """

    def __init__(self, builder: ir.IRBuilder, value: ir.Value, dtype: Kind) -> None:
        self.builder, self.value, self.dtype = builder, value, dtype

    @property
    def lanes(self) -> int:
        """The number of lanes; 0 for a scalar."""
        return self.value.type.count if isinstance(self.value.type, ir.VectorType) else 0

    @property
    def is_float(self) -> bool:
        return isinstance(self.dtype, (types.Float, Half))

    @property
    def is_signed(self) -> bool:
        return getattr(self.dtype, "signed", False)

    def type_of(self, dtype: Kind) -> ir.Type:
        """LLVM's type of the same number of elements of another type."""
        return ir.VectorType(IR_TYPES[dtype], self.lanes) if self.lanes else IR_TYPES[dtype]

    def like(self, value: ir.Value) -> Lanes:
        return Lanes(self.builder, value, self.dtype)

    def of(self, number: Number) -> Lanes:
        """`number` in every lane, in this value's type."""
        if isinstance(number, Lanes):
            return number
        number = float(number) if self.is_float else int(number)
        constants = [number] * self.lanes if self.lanes else number
        return self.like(ir.Constant(self.value.type, constants))

    def call(self, name: str, *others: Number) -> Lanes:
        """An LLVM intrinsic that takes and gives values of this one's type."""
        values = [self.value, *(self.of(other).value for other in others)]
        kind = self.value.type
        return self.like(call_intrinsic(self.builder, f"{name}.{mangled(kind)}", kind, values))

    def _arithmetic(self, other: Number, name: str) -> Lanes:
        method = getattr(self.builder, ("f" if self.is_float else "") + name)
        return self.like(method(self.value, self.of(other).value))

    def __add__(self, other: Number) -> Lanes:
        return self._arithmetic(other, "add")

    def __sub__(self, other: Number) -> Lanes:
        return self._arithmetic(other, "sub")

    def __mul__(self, other: Number) -> Lanes:
        return self._arithmetic(other, "mul")

    def __radd__(self, other: Number) -> Lanes:
        return self.of(other) + self

    def __rsub__(self, other: Number) -> Lanes:
        return self.of(other) - self

    def __rmul__(self, other: Number) -> Lanes:
        return self.of(other) * self

    def __truediv__(self, other: Number) -> Lanes:
        return self._arithmetic(other, "div")

    def __rtruediv__(self, other: Number) -> Lanes:
        return self.of(other) / self

    def __neg__(self) -> Lanes:
        return self.like(self.builder.fneg(self.value) if self.is_float else self.builder.neg(self.value))

    def __and__(self, other: Number) -> Lanes:
        return self.like(self.builder.and_(self.value, self.of(other).value))

    def __or__(self, other: Number) -> Lanes:
        return self.like(self.builder.or_(self.value, self.of(other).value))

    def __xor__(self, other: Number) -> Lanes:
        return self.like(self.builder.xor(self.value, self.of(other).value))

    def __invert__(self) -> Lanes:
        return self.like(self.builder.not_(self.value))

    def __lshift__(self, other: Number) -> Lanes:
        return self.like(self.builder.shl(self.value, self.of(other).value))

    def __rshift__(self, other: Number) -> Lanes:
        """Arithmetic for signed integers, logical for unsigned ones."""
        shift = self.builder.ashr if self.is_signed else self.builder.lshr
        return self.like(shift(self.value, self.of(other).value))

    def _compare(self, other: Number, symbol: str) -> Lanes:
        left, right = self.value, self.of(other).value
        if self.is_float:
            # != holds for NaN, every other comparison fails
            compare = self.builder.fcmp_unordered if symbol == "!=" else self.builder.fcmp_ordered
        else:
            compare = self.builder.icmp_signed if self.is_signed else self.builder.icmp_unsigned
        return Lanes(self.builder, compare(symbol, left, right), types.boolean)

    def __lt__(self, other: Number) -> Lanes:
        return self._compare(other, "<")

    def __le__(self, other: Number) -> Lanes:
        return self._compare(other, "<=")

    def __gt__(self, other: Number) -> Lanes:
        return self._compare(other, ">")

    def __ge__(self, other: Number) -> Lanes:
        return self._compare(other, ">=")

    def __eq__(self, other: Number) -> Lanes:  # type: ignore[override]
        return self._compare(other, "==")

    def __ne__(self, other: Number) -> Lanes:  # type: ignore[override]
        return self._compare(other, "!=")

    __hash__ = None  # type: ignore[assignment]


def mangled(kind: ir.Type) -> str:
    """LLVM's name of a type in the names of intrinsics: f32, v16f32."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{mangled(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {HALF: "f16", FLOAT: "f32", DOUBLE: "f64"}[kind]


def call_intrinsic(builder: ir.IRBuilder, name: str, result: ir.Type, values: list[ir.Value]) -> ir.Value:
    """Calls `llvm.NAME`, declared in the builder's module when it is not yet."""
    name = f"llvm.{name}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [value.type for value in values]), name)
    return builder.call(function, values)


# ---- operations ----


def fma(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """a * b + c: one rounding where the CPU has an instruction for it, else two."""
    return a.call("fmuladd", b, c)


def select(mask: Lanes, a: Lanes, b: Lanes) -> Lanes:
    """a where the mask is set, else b."""
    return a.like(a.builder.select(mask.value, a.value, a.of(b).value))


def isnan(a: Lanes) -> Lanes:
    return a != a


def isinf(a: Lanes) -> Lanes:
    return absolute(a) == math.inf


def isfinite(a: Lanes) -> Lanes:
    return absolute(a) < math.inf


def maximum(a: Lanes, b: Lanes) -> Lanes:
    """NumPy's: NaN if either is. One instruction where `a` is a constant, so constants go first."""
    if not a.is_float:
        return select(a > b, a, b)
    # The inner one is an instruction, which gives b where one is NaN; if the outer one gave `a`, LLVM would take both
    # for a single selection, by masks, with three times the latency.
    return select(isnan(a), a.of(math.nan), select(a > b, a, b))


def minimum(a: Lanes, b: Lanes) -> Lanes:
    """NumPy's: NaN if either is. One instruction where `a` is a constant, so constants go first."""
    if not a.is_float:
        return select(a < b, a, b)
    return select(isnan(a), a.of(math.nan), select(a < b, a, b))


def absolute(a: Lanes) -> Lanes:
    if a.is_float:
        return a.call("fabs")
    return select(a < 0, -a, a) if a.is_signed else a


def sqrt(a: Lanes) -> Lanes:
    return a.call("sqrt")


def floor(a: Lanes) -> Lanes:
    return a.call("floor")


def ceil(a: Lanes) -> Lanes:
    return a.call("ceil")


def trunc(a: Lanes) -> Lanes:
    return a.call("trunc")


def round_even(a: Lanes) -> Lanes:
    """To the nearest integer, halves to the even one."""
    return a.call("roundeven")


def copysign(a: Lanes, b: Lanes) -> Lanes:
    """The magnitude of a with the sign of b."""
    return a.call("copysign", b)


def shuffle(a: Lanes, b: Lanes, indices: list[int]) -> Lanes:
    """Lanes chosen from those of a (0 … lanes-1) and of b (lanes …)."""
    mask = ir.Constant(ir.VectorType(I32, len(indices)), indices)
    return a.like(a.builder.shuffle_vector(a.value, b.value, mask))


def even_lanes(a: Lanes, b: Lanes) -> Lanes:
    """Every second lane of a, then of b."""
    return shuffle(a, b, list(range(0, 2 * a.lanes, 2)))


def interleaved(a: Lanes, b: Lanes) -> Lanes:
    """Interleaves the first halves of a and b."""
    return shuffle(a, b, [lane // 2 + lane % 2 * a.lanes for lane in range(a.lanes)])


def _repeater(place: int, count: int) -> Callable[[Lanes], Lanes]:
    def repeated(a: Lanes) -> Lanes:
        return shuffle(a, a, [lane - lane % count + place for lane in range(a.lanes)])

    repeated.__name__ = f"repeated_{place}_of_{count}"
    return repeated


def _woven(width: int, is_last: bool, a: Lanes, b: Lanes) -> Lanes:
    half = a.lanes // 2 * is_last
    lanes = range(half, half + a.lanes // 2)
    return shuffle(a, b, [lane + i + side for lane in lanes[::width] for side in (0, a.lanes) for i in range(width)])


def interleaved_last(a: Lanes, b: Lanes) -> Lanes:
    """Interleaves the last halves of a and b."""
    return _woven(1, True, a, b)


def pairs_interleaved(a: Lanes, b: Lanes) -> Lanes:
    """Interleaves the first halves of a and b, two lanes at a time."""
    return _woven(2, False, a, b)


def pairs_interleaved_last(a: Lanes, b: Lanes) -> Lanes:
    """Likewise the last halves."""
    return _woven(2, True, a, b)


def even_pairs(a: Lanes, b: Lanes) -> Lanes:
    """Every second pair of lanes of a, then of b: of both results of `pairs_interleaved`, the first operand."""
    return shuffle(a, b, [lane for lane in range(2 * a.lanes) if lane % 4 < 2])


def odd_pairs(a: Lanes, b: Lanes) -> Lanes:
    """The other pairs: the second operand."""
    return shuffle(a, b, [lane for lane in range(2 * a.lanes) if lane % 4 >= 2])


# Broadcasts one lane within each group of neighbouring lanes.
REPEATERS = tuple(_repeater(place, count) for count in (2, 4, 8) for place in range(count))


def looked_up(a: Lanes, b: Lanes, indices: Lanes) -> Lanes:
    """Table lookup of 4-byte elements: lane `indices` of a, or beyond its last one of b, on a CPU with AVX-512 or AVX2."""
    builder, kind = a.builder, ir.VectorType(I32, a.lanes)
    low, high = (builder.bitcast(each.value, kind) for each in (a, b))
    at = builder.trunc(indices.value, kind)
    if a.lanes == 16:
        found = call_intrinsic(builder, "x86.avx512.vpermi2var.d.512", kind, [low, at, high])
    else:
        low, high = (call_intrinsic(builder, "x86.avx2.permd", kind, [each, at]) for each in (low, high))
        found = builder.select((indices < a.lanes).value, low, high)
    return a.like(builder.bitcast(found, a.value.type))


def transposed(rows: list[Lanes]) -> list[Lanes]:
    """Transposes a square of rows, or each of several squares side by side: in round k, every second block of 2**k
    lanes changes places between two rows."""
    rows, lanes, width = list(rows), rows[0].lanes, 1
    while width < len(rows):
        low = [lane if not lane & width else lanes + lane - width for lane in range(lanes)]
        high = [lane + width if not lane & width else lanes + lane for lane in range(lanes)]
        for i in range(len(rows)):
            if not i & width:
                a, b = rows[i], rows[i + width]
                rows[i], rows[i + width] = shuffle(a, b, low), shuffle(a, b, high)
        width *= 2
    return rows


def side_by_side(vectors: list[Lanes]) -> Lanes:
    """Concatenates the vectors, whose number is a power of two."""
    while len(vectors) > 1:
        lanes = list(range(2 * vectors[0].lanes))
        vectors = [shuffle(a, b, lanes) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def parted(vectors: list[Lanes]) -> list[Lanes]:
    """De-interleaves: with n vectors, element i of each group of n neighbours goes to result i."""
    count, lanes = len(vectors), vectors[0].lanes
    places = [[lane * count + i for lane in range(lanes)] for i in range(count)]
    return [_picked(vectors, [divmod(place, lanes) for place in wanted]) for wanted in places]


def joined(vectors: list[Lanes]) -> list[Lanes]:
    """The inverse of `parted`."""
    count, lanes = len(vectors), vectors[0].lanes
    groups = [[divmod(i * lanes + lane, count) for lane in range(lanes)] for i in range(count)]
    return [_picked(vectors, [(vector, lane) for lane, vector in wanted]) for wanted in groups]


def _picked(vectors: list[Lanes], wanted: list[tuple[int, int]]) -> Lanes:
    """Lanes of several vectors, each given by the numbers of vector and lane."""
    lanes = len(wanted)
    first = [lane + (lanes if vector == 1 else 0) for vector, lane in wanted]
    result = shuffle(vectors[0], vectors[1], first)
    for number, vector in enumerate(vectors[2:], 2):
        result = shuffle(result, vector, [lanes + lane if v == number else i for i, (v, lane) in enumerate(wanted)])
    return result


def _horizontal(a: Lanes, combine: Callable[[Lanes, Lanes], Lanes]) -> Lanes:
    """Reduces all lanes to a scalar: halves are combined until one lane is left."""
    while a.lanes > 1:
        half = a.lanes // 2
        a = combine(shuffle(a, a, list(range(half))), shuffle(a, a, list(range(half, 2 * half))))
    return a.like(a.builder.extract_element(a.value, ir.Constant(I32, 0)))


def horizontal_sum(a: Lanes) -> Lanes:
    return _horizontal(a, operator.add)


def horizontal_sums(*vectors: Lanes) -> Lanes:
    """The horizontal sum of each vector, in the lanes of one, padded with zeros. The number of lanes is a power of two."""
    first, width = vectors[0], vectors[0].lanes
    zeros = first.like(ir.Constant(first.value.type, None))
    rows = [*vectors, *[zeros] * ((1 << (len(vectors) - 1).bit_length()) - len(vectors))]
    while len(rows) > 1:  # each row holds some vectors' partial sums, of each `width`
        low = [lane for lane in range(2 * first.lanes) if lane % width < width // 2]
        high = [lane + width // 2 for lane in low]
        rows = [shuffle(a, b, low) + shuffle(a, b, high) for a, b in zip(rows[::2], rows[1::2], strict=True)]
        width //= 2
    (total,), apart = rows, width
    while width > 1:
        width //= 2
        total = total + shuffle(total, total, [lane ^ width for lane in range(total.lanes)])
    places = [number * apart for number in range(len(vectors))]
    return shuffle(total, total.of(0), places + [total.lanes] * (total.lanes - len(places)))


# ---- products of 8-bit integers ----


def in_registers(bits: int, emit: Callable[..., ir.Value], operands: list[Lanes]) -> Lanes:
    """The vector that `emit` makes of the operands, applied to parts of `bits` bits."""
    whole, width = operands[0].lanes, bits // operands[0].dtype.bitwidth
    parts = []
    for begin in range(0, whole, width):
        lanes = list(range(begin, begin + width))
        parts.append(emit(*(each if width == whole else shuffle(each, each, lanes) for each in operands)))
    while len(parts) > 1:
        both = list(range(2 * parts[0].lanes))
        parts = [shuffle(a, b, both) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _by_instruction(name: str, bits: int, operand: ir.Type, total: Lanes, x: Lanes, w: Lanes) -> Lanes:
    """total + products of parts of the words x and w, by an intrinsic of registers of `bits` bits, which takes `operand`s."""

    def emit(sums: Lanes, *words: Lanes) -> Lanes:
        values = [sums.builder.bitcast(each.value, operand) for each in words]
        return sums.like(call_intrinsic(sums.builder, name, sums.value.type, [sums.value, *values]))

    return in_registers(bits, emit, [total, x, w])


def _dot_instruction(bits: int) -> Callable[[Lanes, Lanes, Lanes], Lanes]:
    def dot(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
        """total + four products in each int32 lane: unsigned bytes of x times signed bytes of w, by one instruction."""
        return _by_instruction(f"x86.avx512.vpdpbusd.{bits}", bits, ir.VectorType(I32, bits // 32), total, x, w)

    dot.__name__ = f"dot_{bits}"
    return dot


def _dot_of_words(bits: int) -> Callable[[Lanes, Lanes, Lanes], Lanes]:
    def dot(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
        """total + two products in each int32 lane, of words of 16 bits with sign: by two instructions."""

        def emit(*parts: Lanes) -> Lanes:
            words = [part.builder.bitcast(part.value, ir.VectorType(I16, 2 * part.lanes)) for part in parts]
            return total.like(call_intrinsic(total.builder, _PAIRS[bits], parts[0].value.type, words))

        return total + in_registers(bits, emit, [x, w])

    dot.__name__ = f"dot_words_{bits}"
    return dot


def _dot_of_halves(bits: int) -> Callable[[Lanes, Lanes, Lanes], Lanes]:
    def dot(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
        """total + two products in each 16-bit half of a lane: unsigned bytes of x times signed bytes of w, by two instructions.
        Bytes of x must be so small that both products fit into 16 bits."""
        lanes = total.lanes

        def emit(*parts: Lanes) -> Lanes:
            count = 2 * parts[0].lanes
            words = [part.builder.bitcast(part.value, ir.VectorType(ir.IntType(8), 2 * count)) for part in parts]
            made = call_intrinsic(total.builder, _PAIRS_OF_BYTES[bits], ir.VectorType(I16, count), words)
            return Lanes(total.builder, made, types.int16)

        halves = Lanes(total.builder, total.builder.bitcast(total.value, ir.VectorType(I16, 2 * lanes)), types.int16)
        sums = halves + in_registers(bits, emit, [x, w])
        return total.like(total.builder.bitcast(sums.value, total.value.type))

    dot.__name__ = f"dot_halves_{bits}"
    return dot


_PAIRS_OF_BYTES = {128: "x86.ssse3.pmadd.ub.sw.128", 256: "x86.avx2.pmadd.ub.sw", 512: "x86.avx512.pmaddubs.w.512"}
_PAIRS = {128: "x86.sse2.pmadd.wd", 256: "x86.avx2.pmadd.wd", 512: "x86.avx512.pmaddw.d.512"}


def _dot_of_pairs(bits: int) -> Callable[[Lanes, Lanes, Lanes], Lanes]:
    def dot(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
        """As `dot_512`, by 16-bit products: sums of two cannot overflow, as they might with the 8-bit instruction."""
        lanes = total.lanes

        def words(a: Lanes) -> Lanes:
            kind = types.int16
            return Lanes(a.builder, a.builder.bitcast(a.value, ir.VectorType(I16, 2 * lanes)), kind)

        def emit(a: Lanes, b: Lanes) -> Lanes:
            kind = ir.VectorType(I32, a.lanes // 2)
            return total.like(call_intrinsic(a.builder, _PAIRS[bits], kind, [a.value, b.value]))

        numbers, weights = words(x), words(w)
        even = in_registers(bits, emit, [numbers & 255, (weights << 8) >> 8])
        odd = in_registers(bits, emit, [(numbers >> 8) & 255, weights >> 8])
        return total + even + odd

    dot.__name__ = f"dot_pairs_{bits}"
    return dot


def _dot_of_arm(total: Lanes, x: Lanes, w: Lanes, name: str) -> Lanes:
    """total + four products of bytes in each lane, by an instruction of ARM."""
    return _by_instruction(f"aarch64.neon.{name}.v4i32.v16i8", 128, ir.VectorType(ir.IntType(8), 16), total, x, w)


def dot_usdot(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
    """As `dot_512`, by one instruction of ARM."""
    return _dot_of_arm(total, x, w, "usdot")


def dot_sdot(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
    """As `dot_512`, where ARM multiplies signed bytes alone: x less 128, and twice 64 times w, which all rows of a tile share."""
    half = w.of(0x40404040)
    shared = _dot_of_arm(_dot_of_arm(total.of(0), half, w, "sdot"), half, w, "sdot")
    return _dot_of_arm(total, x ^ -0x7F7F7F80, w, "sdot") + shared


def dot_plain(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
    """As `dot_512`, by instructions of every CPU."""
    for shift in (0, 8, 16, 24):
        total = total + ((x >> shift) & 255) * ((w << (24 - shift)) >> 24)
    return total


# ---- products of bfloat16 ----


class _BFloat(ir.Type):
    """LLVM's bfloat, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"


BFLOAT = _BFloat()  # what an intrinsic takes; elements are `Narrow`


def _dot_bfloat16_instruction(bits: int) -> Callable[[Lanes, Lanes, Lanes], Lanes]:
    def dot(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
        """total + two products in each lane of float32: of the upper halves as bfloat16, then of the lower ones. By one
        instruction, to which subnormal numbers are zeros."""
        return _by_instruction(f"x86.avx512bf16.dpbf16ps.{bits}", bits, ir.VectorType(BFLOAT, bits // 16), total, x, w)

    dot.__name__ = f"dot_bfloat16_{bits}"
    return dot


def dot_bfloat16_odd(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
    """As `dot_bfloat16_512`, by ARM's BFDOT: the total, and the sum of both products. Sums are rounded to odd."""
    return _by_instruction("aarch64.neon.bfdot.v4f32.v8bf16", 128, ir.VectorType(BFLOAT, 8), total, x, w)


# ---- squares: sums of two rows by two columns, each sum of two words, in four neighbouring lanes ----


def square_usmmla(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
    """In each four lanes, two steps of `dot_usdot`, by one instruction of ARM: two words of each of two rows of x, times those
    of two columns of w."""
    return _by_instruction("aarch64.neon.usmmla.v4i32.v16i8", 128, ir.VectorType(I8, 16), total, x, w)


def square_bfmmla(total: Lanes, x: Lanes, w: Lanes) -> Lanes:
    """Likewise of `dot_bfloat16_odd`, with the same bits."""
    return _by_instruction("aarch64.neon.bfmmla", 128, ir.VectorType(BFLOAT, 8), total, x, w)


DOTS = (
    *map(_dot_instruction, (128, 256, 512)),
    *map(_dot_of_pairs, (128, 256, 512)),
    *map(_dot_of_words, (128, 256, 512)),
    *map(_dot_of_halves, (128, 256, 512)),
    dot_plain,
    dot_usdot,
    dot_sdot,
    *map(_dot_bfloat16_instruction, (128, 256, 512)),
    dot_bfloat16_odd,
    square_usmmla,
    square_bfmmla,
)


def horizontal_product(a: Lanes) -> Lanes:
    return _horizontal(a, operator.mul)


def horizontal_maximum(a: Lanes) -> Lanes:
    return _horizontal(a, maximum)


def horizontal_minimum(a: Lanes) -> Lanes:
    return _horizontal(a, minimum)


def any_lane(mask: Lanes) -> Lanes:
    return mask.like(call_intrinsic(mask.builder, f"vector.reduce.or.{mangled(mask.value.type)}", I1, [mask.value]))


def all_lanes(mask: Lanes) -> Lanes:
    return mask.like(call_intrinsic(mask.builder, f"vector.reduce.and.{mangled(mask.value.type)}", I1, [mask.value]))


def _bits(mask: Lanes) -> ir.Value:
    """The lanes of a mask as the bits of an integer."""
    return mask.builder.bitcast(mask.value, ir.IntType(mask.lanes))


def first_lane(mask: Lanes) -> Lanes:
    """The number of the first set lane; the number of lanes if none is."""
    bits = _bits(mask)
    count = call_intrinsic(mask.builder, f"cttz.{mangled(bits.type)}", bits.type, [bits, ir.Constant(I1, 0)])
    return Lanes(mask.builder, mask.builder.zext(count, I64), types.int64)


def last_lane(mask: Lanes) -> Lanes:
    """The number of the last set lane; -1 if none is."""
    bits = _bits(mask)
    count = call_intrinsic(mask.builder, f"ctlz.{mangled(bits.type)}", bits.type, [bits, ir.Constant(I1, 0)])
    return mask.lanes - 1 - Lanes(mask.builder, mask.builder.zext(count, I64), types.int64)


def splat(scalar: Lanes, lanes: int) -> Lanes:
    """The scalar in every lane."""
    builder, kind = scalar.builder, ir.VectorType(scalar.value.type, lanes)
    if isinstance(scalar.value, ir.Constant):
        return scalar.like(ir.Constant(kind, [scalar.value.constant] * lanes))
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, scalar.value, ir.Constant(I32, 0))
    return scalar.like(builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)))
