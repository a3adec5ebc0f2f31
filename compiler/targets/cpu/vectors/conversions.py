"""Conversions between element types while LLVM code is emitted: integers, float16, the narrow floats, bits."""

from __future__ import annotations

from llvmlite import ir
from numba.core import types

from .....formats.dtypes import FloatFormat
from .....native.numba_frontend import active_target
from .lanes import (
    BFLOAT,
    ELEMENTS,
    FLOAT,
    I16,
    ITEMSIZES,
    Half,
    Kind,
    Lanes,
    Narrow,
    absolute,
    call_intrinsic,
    float16,
    in_registers,
    isnan,
    mangled,
    maximum,
    minimum,
    select,
    shuffle,
    side_by_side,
)

_ROUNDED_LANES = 16  # of the instructions that round to bfloat16
_BIAS, _EXPONENT, _INFINITY, _NAN = 127, 8, 0x7F800000, 0x7FC00000  # of float32


def convert(a: Lanes, dtype: Kind) -> Lanes:
    """As NumPy's astype, but floats beyond an integer's range become its nearest value, and NaN becomes 0."""
    builder, value, target = a.builder, a.value, a.type_of(dtype)
    if dtype == a.dtype:
        return a
    if isinstance(a.dtype, Narrow):
        wide = _decoded(a)
        wide.value.narrow = a
        return convert(wide, dtype)
    if isinstance(dtype, Narrow):
        return _encoded(a, dtype)
    if dtype == types.boolean:
        return a != a.of(0)
    to_float = isinstance(dtype, (types.Float, Half))
    if dtype == float16 and a.dtype != types.float32:
        return convert(_as_float32(a), dtype)
    if a.dtype == float16 and dtype != types.float32:
        a = convert(a, types.float32)
    if isinstance(a.dtype, (types.Float, Half)):
        if float16 in (a.dtype, dtype) and not _converts_float16():
            return _from_float16(a) if a.dtype == float16 else _to_float16(a)
        if to_float:
            wider = ITEMSIZES[dtype] > ITEMSIZES[a.dtype]
            result = builder.fpext(value, target) if wider else builder.fptrunc(value, target)
        else:
            return _rounded_to_zero(a, dtype)
    elif to_float:
        result = builder.sitofp(value, target) if a.is_signed else builder.uitofp(value, target)
    else:
        result = _resize_integer(a, target)
    return Lanes(builder, result, dtype)


def _converts_float16() -> bool:
    """Whether the target CPU has float16 conversions. Otherwise LLVM would call functions that do not exist."""
    target = active_target()
    return not target.is_x86 or target.has("f16c")


def _from_float16(a: Lanes) -> Lanes:
    """float16 as float32. Read as float32, the bits without the sign are those of a number 2**112 times as small."""
    bits = convert(reinterpret(a, types.uint16), types.uint32)
    magnitude = (bits & 0x7FFF) << 13
    scaled = reinterpret(reinterpret(magnitude, types.float32) * 2.0**112, types.uint32)
    special = magnitude | 0x7F800000
    special = select((bits & 0x3FF) == 0, special, special | 0x400000)  # no signalling NaN
    number = select((bits & 0x7C00) == 0x7C00, special, scaled)
    return reinterpret(number | ((bits & 0x8000) << 16), types.float32)


def _to_float16(a: Lanes) -> Lanes:
    """float32 as float16, rounded to even. Below the least normal number, adding a half rounds to multiples of 2**-24, the
    distance of float16's numbers there."""
    bits = reinterpret(a, types.uint32)
    magnitude = bits & 0x7FFFFFFF
    rebased = magnitude - (112 << 23)
    normal = (rebased + 0xFFF + ((rebased >> 13) & 1)) >> 13
    half = a.of(0.5)
    small = reinterpret(reinterpret(magnitude, types.float32) + half, types.uint32) - 0x3F000000
    number = select(magnitude < 0x38800000, small, normal)
    number = select(magnitude >= 0x47800000, number.of(0x7C00), number)
    number = select(magnitude > 0x7F800000, ((magnitude >> 13) & 0x3FF) | 0x7E00, number)
    return reinterpret(convert(number | ((bits >> 16) & 0x8000), types.uint16), float16)


def _as_float32(a: Lanes) -> Lanes:
    """On the way to a narrower float. What is not a float32 becomes the nearer to zero of its neighbours, its last bit set,
    so that rounding again gives what rounding once would."""
    if a.dtype != types.float64:
        return convert(a, types.float32)
    near = convert(a, types.float32)
    again = convert(near, types.float64)
    bits = reinterpret(near, types.uint32)
    bits = select(absolute(again) > absolute(a), bits - 1, bits)
    exact = (again == a) | isnan(a)
    return reinterpret(select(exact, bits, bits | 1), types.float32)


def _decoded(a: Lanes) -> Lanes:
    """A narrow element in its computed type: float32, or 8 bits of the same signedness."""
    dtype = a.dtype.dtype
    bits = Lanes(a.builder, a.value, a.dtype.bits)
    if dtype.format is None:
        whole, spare = ELEMENTS[dtype.computed.name][0], 8 - dtype.value.bits
        return (Lanes(a.builder, bits.value, whole) << spare) >> spare
    return _decoded_float(convert(bits, types.uint32), dtype.format)


def _decoded_float(bits: Lanes, form: FloatFormat) -> Lanes:
    """As float32. Read as float32, the bits without the sign are those of a number of the same mantissa and another exponent,
    also for subnormal numbers: one multiplication corrects it."""
    sign = 1 << (form.exponent + form.mantissa)
    magnitude = bits & (sign - 1)
    number = magnitude << (23 - form.mantissa)
    if form.bias != _BIAS:
        number = reinterpret(reinterpret(number, types.float32) * 2.0 ** (_BIAS - form.bias), types.uint32)
    if not form.has_sign and not form.mantissa:
        # powers of two have no zero: half the least normal one
        number = select(magnitude == 0, number.of(1 << 22), number)
    if form.overflow == form.greatest + 1 and form.overflow != form.nan:
        number = select(magnitude == form.overflow, number.of(_INFINITY), number)
    if form.exponent == _EXPONENT:
        number = number if form.mantissa else select(bits == form.nan, number.of(_NAN), number)
    elif not form.has_negative_zero:
        return reinterpret(select(bits == form.nan, number.of(_NAN), _signed(number, bits, sign)), types.float32)
    elif form.greatest < sign - 1:
        first = form.overflow if form.overflow == form.nan else form.overflow + 1
        number = select(magnitude >= first, number.of(_NAN), number)
    return reinterpret(_signed(number, bits, sign) if form.has_sign else number, types.float32)


def _signed(number: Lanes, bits: Lanes, sign: int) -> Lanes:
    return number | ((bits & sign) << (32 - sign.bit_length()))


def _encoded(a: Lanes, kind: Narrow) -> Lanes:
    """A number as a narrow element: floats to the nearest, halves to even; integers keep their lowest bits, and floats become
    integers by truncation, saturated."""
    dtype, narrow = kind.dtype, getattr(a.value, "narrow", None)
    if narrow is not None and narrow.dtype == kind:
        return narrow  # as where the result of a cast is stored
    if dtype.format is not None:
        bits = _encoded_float(_as_float32(a), dtype.format)
    else:
        if a.is_float:
            least, greatest = dtype.bounds
            inside = select(a < least, a.of(least), select(a > greatest, a.of(greatest), a))
            a = convert(inside, types.int32)
        bits = convert(a, types.uint8) & ((1 << dtype.value.bits) - 1)
    return Lanes(a.builder, convert(bits, kind.bits).value, kind)


def _encoded_float(a: Lanes, form: FloatFormat) -> Lanes:
    """The bits, as uint32. Below the least normal number, adding a power of two rounds to multiples of the least number."""
    bits = reinterpret(a, types.uint32)
    magnitude = bits & 0x7FFFFFFF
    cut, sign = 23 - form.mantissa, 1 << (form.exponent + form.mantissa)
    if form.exponent == _EXPONENT and form.mantissa:  # the upper half of a float32
        number = (bits + ((1 << (cut - 1)) - 1) + ((bits >> cut) & 1)) >> cut
        return select(isnan(a), ((bits >> cut) & sign) | form.nan, number)
    rebased = magnitude - ((_BIAS - form.bias) << 23)
    # between powers of two, without an even one, half way rounds up
    number = (rebased + ((1 << (cut - 1)) - 1) + ((rebased >> cut) & 1 if form.mantissa else 1)) >> cut
    if form.exponent < _EXPONENT:
        step = 2.0 ** (1 - form.bias - form.mantissa + 23)
        whole = reinterpret(a.of(step), types.uint32)
        small = reinterpret(reinterpret(magnitude, types.float32) + a.of(step), types.uint32) - whole
        number = select(magnitude < (_BIAS - form.bias + 1) << 23, small, number)
        # values far beyond the range would wrap around
        number = select(magnitude >= (_BIAS - form.bias + (1 << form.exponent)) << 23, number.of(sign), number)
    number = select((number > form.greatest) | (magnitude == _INFINITY), number.of(form.overflow), number)
    number = select(magnitude > _INFINITY, number.of(form.nan), number)
    if not form.has_sign:
        # the least, a subnormal float32; more is rounded up
        number = select(magnitude <= 1 << 22, number.of(0), number)
        return select((bits == magnitude) & (magnitude != 0), number, number.of(form.nan))
    if form.has_negative_zero:
        return number | ((bits >> (32 - sign.bit_length())) & sign)
    return select((number == 0) | (number == form.nan), number, number | ((bits >> (32 - sign.bit_length())) & sign))


def _rounded_to_zero(a: Lanes, dtype: Kind) -> Lanes:
    """A float as an integer, saturated: LLVM's own saturating conversion scalarises vectors."""
    bits, builder = dtype.bitwidth, a.builder
    least, end = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if dtype.signed else (0, 2**bits)
    inside = select(a > least, a, a.of(least)).value  # of NaN too
    to_integer = builder.fptosi if dtype.signed else builder.fptoui
    result = Lanes(builder, to_integer(inside, a.type_of(dtype)), dtype)
    result = select(a >= end, result.of(end - 1), result)
    return select(isnan(a), result.of(0), result) if dtype.signed else result


def saturated(a: Lanes, dtype: Kind) -> Lanes:
    """Whole floats as integers of 8 or 16 bits, their nearest values; the least one for NaN."""
    bits, builder = dtype.bitwidth, a.builder
    least = -(1 << (bits - 1)) if dtype.signed else 0
    most = least + (1 << bits) - 1
    if a.lanes and active_target().is_x86:
        return _saturated_by_packing(a, dtype, least, most)
    inside = select(a > least, a, a.of(least))
    inside = select(inside < most, inside, a.of(most))
    wide = Lanes(builder, builder.fptosi(inside.value, a.type_of(types.int32)), types.int32)
    return Lanes(builder, _resize_integer(wide, a.type_of(dtype)), dtype)


def _saturated_by_packing(a: Lanes, dtype: Kind, least: int, most: int) -> Lanes:
    """The same where a float that no int32 holds, or NaN, becomes the least one; instructions that narrow integers saturate. The
    conversion rounds to even, so that numbers need not be rounded before."""
    builder, value = a.builder, a.value
    if isinstance(value, ir.CallInstr) and value.callee.name.startswith("llvm.roundeven"):
        a = a.like(value.args[0])
    kind = a.type_of(types.int32)
    below = select(a.of(most) < a, a.of(most), a)
    whole = call_intrinsic(builder, f"lrint.{mangled(kind)}.{mangled(a.value.type)}", kind, [below.value])
    wide = Lanes(builder, whole, types.int32)
    inside = minimum(maximum(wide, wide.of(least)), wide.of(most))
    return Lanes(builder, builder.trunc(inside.value, a.type_of(dtype)), dtype)


def _resize_integer(a: Lanes, target: ir.Type) -> ir.Value:
    width, old = (getattr(kind, "element", kind).width for kind in (target, a.value.type))
    if width == old:
        return a.value
    if (
        isinstance(a.value, ir.Constant)
        and isinstance(a.value.constant, int)
        and abs(a.value.constant) < 1 << (width - 1)
    ):
        return ir.Constant(target, a.value.constant)  # remains a constant
    if width < old:
        return a.builder.trunc(a.value, target)
    return a.builder.sext(a.value, target) if a.is_signed else a.builder.zext(a.value, target)


def reinterpret(a: Lanes, dtype: Kind) -> Lanes:
    """The same bits as another type of the same size."""
    return Lanes(a.builder, a.builder.bitcast(a.value, a.type_of(dtype)), dtype)


def from_upper_halves(a: Lanes) -> Lanes:
    """The float32 numbers with the 16-bit integers a as upper halves, and zero lower halves."""
    wide = convert(a, types.uint32)
    return reinterpret(wide << 16, types.float32)


def upper_halves(words: Lanes) -> Lanes:
    """Those of int32 as bfloat16, in float32."""
    return reinterpret(words & (-1 << 16), types.float32)


def lower_halves(words: Lanes) -> Lanes:
    """Those of int32 as bfloat16, in float32."""
    return reinterpret(words << 16, types.float32)


def round_bfloat16(a: Lanes) -> Lanes:
    """Numbers of float32 rounded to bfloat16, as which they are stored; those below the least normal one are zeros."""
    kind = ELEMENTS["bfloat16"][0]
    return convert(Lanes(a.builder, _normal_halves(a).value, kind), types.float32)


def bfloat16_pairs(a: Lanes, b: Lanes) -> Lanes:
    """The lanes of a, then those of b, rounded to bfloat16, two neighbours to a word of int32, the first one as its lower half.
    Numbers below the least normal one are zeros, as to products."""
    return _words(a, _bfloat16_halves(a, b))


def bfloat16_words(a: Lanes, b: Lanes) -> Lanes:
    """Likewise, each lane of a, as the lower half, with the same lane of b."""
    halves, lanes = _bfloat16_halves(a, b), range(2 * a.lanes)
    return _words(a, shuffle(halves, halves, [lane // 2 + lane % 2 * a.lanes for lane in lanes]))


def _words(like: Lanes, halves: Lanes) -> Lanes:
    return Lanes(like.builder, like.builder.bitcast(halves.value, like.type_of(types.int32)), types.int32)


def _bfloat16_halves(a: Lanes, b: Lanes) -> Lanes:
    """The lanes of both, rounded, as integers."""
    if a.lanes == _ROUNDED_LANES and active_target().has("avx512bf16"):
        return _rounded_by("cvtne2ps2bf16", b, a)
    return _normal_halves(side_by_side([a, b]))


def _rounded_by(instruction: str, *parts: Lanes) -> Lanes:
    """What an instruction of AVX-512 makes of vectors of float32, the last one's lanes first, as integers."""
    builder, lanes = parts[0].builder, len(parts) * _ROUNDED_LANES
    values = [part.value for part in parts]
    halves = call_intrinsic(builder, f"x86.avx512bf16.{instruction}.512", ir.VectorType(BFLOAT, lanes), values)
    return Lanes(builder, builder.bitcast(halves, ir.VectorType(I16, lanes)), types.uint16)


def _normal_halves(a: Lanes) -> Lanes:
    """The lanes rounded, as integers; those that are no normal numbers as zeros of their sign."""
    if a.lanes and a.lanes % _ROUNDED_LANES == 0 and active_target().has("avx512bf16"):
        return in_registers(32 * _ROUNDED_LANES, lambda part: _rounded_by("cvtneps2bf16", part), [a])
    normal = select(absolute(a) < 2.0**-126, a * 0.0, a)
    return Lanes(a.builder, _encoded(normal, ELEMENTS["bfloat16"][0]).value, types.uint16)


def nibbles(words: Lanes) -> Lanes:
    """The lowest four bits of each word, less 8, as float32."""
    return convert(reinterpret(words & 15, types.int32), types.float32) - 8


def nibbles_512(words: Lanes) -> Lanes:
    """As `nibbles`, by one instruction of AVX-512, whose 16-lane table lookup ignores other bits."""
    table = ir.Constant(ir.VectorType(FLOAT, 16), [float(number - 8) for number in range(16)])
    found = call_intrinsic(words.builder, "x86.avx512.permvar.sf.512", table.type, [table, words.value])
    return Lanes(words.builder, found, types.float32)
