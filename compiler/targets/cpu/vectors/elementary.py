"""Elementary functions and activations of vectors: exp, log, tanh, erf …

In float32 they are polynomials on a reduced range (Cody and Waite, "Software Manual for the Elementary Functions"), with
coefficients from a minimax fit. Their errors stay below 2.5 units in the last place (gelu's: of its argument), which
tests/compiler/targets/cpu/vectors/test_elementary.py measures over all of float32's range. Those of float64 vectors are in
`elementary_double.py`, inverse functions in `elementary_inverse.py`. Scalars of float64, and functions of it that are
rare, call the C library for each lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from llvmlite import ir
from numba.core import cgutils, types

from .....native.numba_frontend import active_target
from . import elementary_double as double
from .conversions import convert, reinterpret
from .lanes import (
    I32,
    I64,
    Lanes,
    absolute,
    any_lane,
    call_intrinsic,
    copysign,
    floor,
    fma,
    isnan,
    maximum,
    minimum,
    round_even,
    select,
    side_by_side,
    sqrt,
    trunc,
)
from .polynomials import long_polynomial, polynomial

_POWERS = (1.0, 0.6931513, 0.24016444, 0.055799913, 0.00901703, 0.0018671304)  # 2**x for 0 <= x < 1, about
_SHORT_POWERS = (0.9999252, 0.69583356, 0.22606716, 0.07802452)
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440054690583e-4  # their sum is ln 2; n * LN2_HIGH is exact
ROUNDER = 12582912.0  # 1.5 * 2**23: adding it leaves a float32's nearest integer in the low bits

# Their sum is pi / 2; a product with the first is exact up to LARGEST_ANGLE, at which there are less than 2**20 right angles.
RIGHT_ANGLE_HIGH, RIGHT_ANGLE_LOW = 1.5707963267341256, 6.077100506506192e-11
LARGEST_ANGLE = 1.6e6


def c_library(name: str, *operands: Lanes) -> Lanes:
    """The C library's function, lane by lane."""
    first = operands[0]
    if not first.lanes:
        return first.like(_call_c(first, name, [operand.value for operand in operands]))
    builder = first.builder
    slots = [cgutils.alloca_once(builder, first.value.type) for _ in operands]
    for slot, operand in zip(slots, operands, strict=True):
        builder.store(operand.value, slot)
    element = first.value.type.element.as_pointer()
    with cgutils.for_range(builder, ir.Constant(I64, first.lanes)) as loop:
        places = [builder.gep(builder.bitcast(slot, element), [loop.index]) for slot in slots]
        builder.store(_call_c(first, name, [builder.load(place) for place in places]), places[0])
    return first.like(builder.load(slots[0]))


def _call_c(like: Lanes, name: str, values: list[ir.Value]) -> ir.Value:
    kind = values[0].type
    symbol = name + "f" if like.dtype == types.float32 else name
    function = like.builder.module.globals.get(symbol)
    if function is None:
        function = ir.Function(like.builder.module, ir.FunctionType(kind, [kind] * len(values)), symbol)
    return like.builder.call(function, values)


def _split(x: Lanes) -> tuple[Lanes, Lanes]:
    """Integer n and float r with x = n ln 2 + r and |r| <= ln 2 / 2. n is given as ROUNDER + n, whose low bits it is too."""
    shifted = fma(x, x.of(LOG2_E), x.of(ROUNDER))
    whole = shifted - ROUNDER
    rest = fma(whole, x.of(-LN2_LOW), fma(whole, x.of(-LN2_HIGH), x))
    return shifted, rest


def _expm1_reduced(r: Lanes) -> Lanes:
    """exp(r) - 1 for |r| <= ln 2 / 2."""
    p = polynomial(r, 0.49999993, 0.1666652, 0.0416684, 0.00836875, 0.0013814)
    return fma(r * r, p, r)


def _exp_reduced(r: Lanes) -> Lanes:
    """exp(r) for |r| <= ln 2 / 2."""
    return polynomial(r, 1.0, 1.0, 0.49999993, 0.1666652, 0.0416684, 0.00836875, 0.0013814)


def _power_of_two(shifted: Lanes) -> Lanes:
    """2**n as float32, for -127 < n < 128 given as ROUNDER + n."""
    return _times_small_power(shifted.of(1.0), shifted)


def _times_small_power(a: Lanes, shifted: Lanes) -> Lanes:
    """a 2**n, where a and the result are normal numbers. Adds to the bits of the exponent."""
    bits = reinterpret(a, types.int32) + (reinterpret(shifted, types.int32) << 23)
    return reinterpret(bits, types.float32)


def _times_power(a: Lanes, shifted: Lanes) -> Lanes:
    """a 2**n for -512 < n < 512: also where the result is infinite, or less than normal."""
    if _has_scaling(a):
        return _scaled(a, shifted - ROUNDER)
    n = reinterpret(shifted, types.int32) - 0x4B400000
    half = n >> 1  # two factors, since 2**n alone may be out of range where the result is not
    first, second = (reinterpret((part + 127) << 23, types.float32) for part in (half, n - half))
    return a * first * second


_SCALED_LANES = 16  # of the instructions vscalef and vreduce


def _has_scaling(a: Lanes, feature: str = "avx512f") -> bool:
    """Whether the CPU that code is generated for has those instructions."""
    return a.dtype == types.float32 and a.lanes > 0 and a.lanes % _SCALED_LANES == 0 and active_target().has(feature)


def _scaled(a: Lanes, exponent: Lanes) -> Lanes:
    """a 2**floor(exponent), rounded once, whatever the exponent."""
    return _by_registers("scalef", 4, a, exponent)  # rounding in the current mode


def _behind_point(x: Lanes) -> Lanes:
    """x - floor(x); 0 for infinities."""
    return _by_registers("reduce", 1, x)


def _by_registers(instruction: str, how: int, *operands: Lanes) -> Lanes:
    """Applies an AVX-512 instruction to 16 lanes at a time. `how`: its immediate operand."""
    first = operands[0]
    parts = [_register(instruction, how, operands, start) for start in range(0, first.lanes, _SCALED_LANES)]
    return side_by_side(parts)


def _register(instruction: str, how: int, operands: Sequence[Lanes], start: int) -> Lanes:
    builder, lanes = operands[0].builder, list(range(start, start + _SCALED_LANES))
    undefined = ir.Constant(operands[0].value.type, ir.Undefined)
    places = ir.Constant(ir.VectorType(I32, _SCALED_LANES), lanes)
    values = [builder.shuffle_vector(operand.value, undefined, places) for operand in operands]
    everywhere, steering = ir.Constant(ir.IntType(16), 0xFFFF), ir.Constant(I32, how)
    arguments = [*values, values[0], everywhere, steering]
    if len(values) == 1:  # the immediate comes before the values of masked lanes
        arguments = [values[0], steering, values[0], everywhere, ir.Constant(I32, 4)]
    result = call_intrinsic(builder, f"x86.avx512.mask.{instruction}.ps.512", values[0].type, arguments)
    return operands[0].like(result)


def exp(x: Lanes) -> Lanes:
    if x.dtype != types.float32:
        return double.exp(x) if x.lanes else c_library("exp", x)
    shifted, r = _split(minimum(x.of(89.0), maximum(x.of(-104.0), x)))
    return _times_power(_exp_reduced(r), shifted)


def exp_of_negative(x: Lanes) -> Lanes:
    """exp(x) for float32 x <= 0; where the result is not a normal number, it may be 0."""
    if _has_scaling(x):
        shifted, r = _split(maximum(x.of(-104.0), x))
        return _times_power(_exp_reduced(r), shifted)
    shifted, r = _split(maximum(x.of(-87.0), x))
    # a product, since bits added to those of NaN may make a number of it
    return select(x < -87.0, x.of(0.0), _exp_reduced(r) * _power_of_two(shifted))


def weight_of(x: Lanes) -> Lanes:
    """exp(x) for float32 x <= 0, approximately: x is a difference of two numbers, with the error of rounding it.

    So the error is |x| + 2 units in the last place.
    """
    if not _has_scaling(x, "avx512dq"):
        return exp_of_negative(x)
    return _power_of_two_about(x * LOG2_E)


def short_weight_of(x: Lanes) -> Lanes:
    """exp(x) for float32 x <= 0, to be rounded to bfloat16: with an error of 2**-13 of it; where it is not a normal number, it
    may be 0."""
    if not _has_scaling(x, "avx512dq"):
        return exp_of_negative(x)
    q = x * LOG2_E
    return _scaled(polynomial(_behind_point(q), *_SHORT_POWERS), q)


def expm1(x: Lanes) -> Lanes:
    if x.dtype != types.float32:
        return double.expm1(x) if x.lanes else c_library("expm1", x)
    shifted, r = _split(minimum(x.of(89.0), maximum(x.of(-18.0), x)))
    half = _power_of_two(shifted - 1.0)
    return 2 * fma(half, _expm1_reduced(r), half - 0.5)


def log(x: Lanes) -> Lanes:
    if x.dtype != types.float32:
        return c_library("log", x)
    is_small = x < 1.1754944e-38
    bits = reinterpret(select(is_small, x * 8388608.0, x), types.int32)
    n = (bits - 0x3F3504F3) >> 23  # so that the significand lies between √½ and √2
    f = reinterpret(bits - (n << 23), types.float32) - 1.0
    exponent = convert(n, types.float32) - select(is_small, x.of(23.0), x.of(0.0))
    p = polynomial(
        f, 0.33333331, -0.2500082, 0.20001227, -0.16623357, 0.14201757, -0.13160184, 0.12761582, -0.076344997
    )
    square = f * f
    low = fma(exponent, x.of(LN2_LOW), fma(square * f, p, square * -0.5))
    result = fma(exponent, x.of(LN2_HIGH), f + low)
    edge = select(x == 0.0, x.of(-math.inf), select(x < 0.0, x.of(math.nan), x))
    return select((x > 0.0) & (x < math.inf), result, edge)


def log1p(x: Lanes) -> Lanes:
    if x.dtype != types.float32:
        return c_library("log1p", x)
    u = x + 1.0
    correction = ((u - 1.0) - x) / u  # u's rounding error
    return log(u) - select((u > 0.0) & (x < math.inf), correction, x.of(0.0))


def tanh(x: Lanes) -> Lanes:
    if x.dtype != types.float32:
        return double.tanh(x) if x.lanes else c_library("tanh", x)
    shifted, r = _split(minimum(x.of(20.0), absolute(x + x)))
    scale = _times_small_power(x.of(0.5), shifted)
    half = fma(scale, _expm1_reduced(r), scale - 0.5)  # of exp(2x) - 1
    quotient = half / (half + 1.0)
    # half - half tanh(x) is tanh(x), too: while half is small, the quotient's rounding error is a small part of it
    return copysign(select(half < 0.5, fma(-half, quotient, half), quotient), x)


def sigmoid(x: Lanes) -> Lanes:
    e = exp_of_negative(-absolute(x)) if _has_scaling(x) else exp(-absolute(x))
    base = select(x < 0.0, e, x.of(1.0))
    return fma(-base, e / (e + 1.0), base)  # not base / (e + 1), whose three roundings add up to 2.4 units


def erf(x: Lanes) -> Lanes:
    if x.dtype != types.float32:
        return c_library("erf", x)
    t = minimum(x.of(4.0), absolute(x))
    square = t * t
    p = polynomial(
        square, 0.12837917, -0.37612626, 0.11283585, -0.026853813, 0.0051883287, -0.00080101995, 7.8538797e-05
    )
    near = fma(t, p, t)
    q = polynomial(t, -0.0003415207, -1.1270891, -0.6381448, -0.10310677, 0.021838068, -0.0029476597, 0.00018637933)
    shifted, r = _split(q)
    scale = _power_of_two(shifted)
    far = -fma(scale, _expm1_reduced(r), scale - 1.0)  # 1 - exp(q)
    return copysign(select(t < 1.0, near, far), x)


def gelu(x: Lanes) -> Lanes:
    """x Φ(x), with Φ(-t) = 2**q for t >= 0: q is nearly a parabola, so that one polynomial serves all arguments."""
    if x.dtype != types.float32:
        half = x * 0.5
        return fma(half, erf(x * math.sqrt(0.5)), half)
    t = minimum(x.of(32.0), absolute(x))
    q = long_polynomial(
        t, -0.99999993, -1.1511088, -0.45917444, -0.052613143,
        0.0072546603, -0.00029963489, -0.00011271428, 2.2821305e-05, -1.3817318e-06,
    )  # fmt: skip
    below = _power_of_two_about(q)
    half = x * 0.5
    return fma(-t, below, fma(absolute(x), x.of(0.5), half))  # max(x, 0), but NaN for -∞, less t Φ(-t)


def _power_of_two_about(q: Lanes) -> Lanes:
    """2**q for q <= 0, with an error of 10**-7 of it at most; where the result is not a normal number, it may be 0."""
    if _has_scaling(q, "avx512dq"):
        return _scaled(polynomial(_behind_point(q), *_POWERS), q)
    q = maximum(q.of(-127.0), q)  # there 2**q is 0
    shifted = q + ROUNDER
    r = q - (shifted - ROUNDER)
    power = polynomial(r, 1, 0.69314718, 0.24022647, 0.05550362, 0.0096185292, 0.0013390226, 0.00015320475)
    return _times_small_power(power, shifted)


def gelu_tanh(x: Lanes) -> Lanes:
    """0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), which is x sigmoid(2 …)."""
    scale = math.sqrt(8 / math.pi)
    if x.dtype != types.float32:
        return x * sigmoid(x * fma(x * x, x.of(0.044715 * scale), x.of(scale)))
    exponent = x * fma(x * x, x.of(0.044715 * scale * LOG2_E), x.of(scale * LOG2_E))
    e = _power_of_two_about(-absolute(exponent))
    return x * select(x < 0.0, e, x.of(1.0)) / (e + 1.0)


def silu(x: Lanes) -> Lanes:
    return x * sigmoid(x)


def softplus(x: Lanes) -> Lanes:
    """max(x, 0) + log(1 + e) with e = exp(-|x|) <= 1."""
    if x.dtype != types.float32:
        return maximum(x.of(0.0), x) + log1p(exp(-absolute(x)))
    e = exp_of_negative(-absolute(x)) if _has_scaling(x) else exp(-absolute(x))
    p = polynomial(
        e, -0.49999648, 0.33321324, -0.24857163, 0.19153655, -0.13753803, 0.079204537, -0.030065792, 0.0053648246
    )
    return maximum(x.of(0.0), x) + fma(e * e, p, e)


def softsign(x: Lanes) -> Lanes:
    return x / (absolute(x) + 1.0)


def mish(x: Lanes) -> Lanes:
    """x tanh(log(1 + e)) with e = exp(x), and tanh(log(1 + e)) = (e² + 2e) / (e² + 2e + 2)."""
    e = exp(minimum(x.of(20.0), x))
    w = e * (e + 2.0)
    return select(x > 20.0, x, x * (w / (w + 2.0)))


def relu(x: Lanes) -> Lanes:
    return maximum(x.of(0), x)


def leaky_relu(x: Lanes, alpha: Lanes) -> Lanes:
    return select(x < 0.0, x * alpha, x)


def elu(x: Lanes, alpha: Lanes) -> Lanes:
    return select(x < 0.0, expm1(x) * alpha, x)


def hard_sigmoid(x: Lanes, alpha: Lanes, beta: Lanes) -> Lanes:
    return minimum(x.of(1.0), maximum(x.of(0.0), fma(x, alpha, beta)))


def hard_swish(x: Lanes) -> Lanes:
    return x * hard_sigmoid(x, x.of(1 / 6), x.of(0.5))


def sign(x: Lanes) -> Lanes:
    positive = select(x > 0, x.of(1), x.of(0))
    result = select(x < 0, x.of(-1), positive)
    return select(isnan(x), x, result) if x.is_float else result


def sinh(x: Lanes) -> Lanes:
    """(e + e / (e + 1)) / 2 with e = exp(|x|) - 1."""
    if x.dtype != types.float32:
        return c_library("sinh", x)
    scale, r = _quarter_of_power(absolute(x))
    half = 2.0 * fma(scale, _expm1_reduced(r), scale - 0.25)  # of e
    few = minimum(half.of(1e9), half)
    return copysign(half + few / (few + few + 1.0), x)


def cosh(x: Lanes) -> Lanes:
    if x.dtype != types.float32:
        return c_library("cosh", x)
    scale, r = _quarter_of_power(absolute(x))
    half = 2.0 * (scale * _exp_reduced(r))  # of exp(|x|)
    return half + 0.25 / half


def _quarter_of_power(t: Lanes) -> tuple[Lanes, Lanes]:
    """2**(n - 2) and r with t = n ln 2 + r, for t >= 0, clamped to 89.5, whose power is infinite."""
    shifted, r = _split(minimum(t.of(89.5), t))
    return _times_small_power(t.of(0.25), shifted), r


def sin(x: Lanes) -> Lanes:
    return _circular("sin", x, partial(_sine if x.dtype == types.float32 else double.sine, quarter=0))


def cos(x: Lanes) -> Lanes:
    return _circular("cos", x, partial(_sine if x.dtype == types.float32 else double.sine, quarter=1))


def _circular(name: str, x: Lanes, function: Callable[[Lanes], Lanes]) -> Lanes:
    """A trigonometric function. Vectors with an argument too large to reduce here, which are rare, use the C library's."""
    if not x.lanes:
        return c_library(name, x)
    result = cgutils.alloca_once_value(x.builder, function(x).value)
    with x.builder.if_then(any_lane(absolute(x) > LARGEST_ANGLE).value, likely=False):
        x.builder.store(c_library(name, x).value, result)
    return x.like(x.builder.load(result))


def _sine(x: Lanes, quarter: int) -> Lanes:
    turns, r = _reduced_angle(x)
    place = turns + quarter
    z = r * r
    sine = fma(z * polynomial(z, -0.16666667, 0.0083333319, -0.00019840087, 2.7249964e-06), r, r)
    cosine = fma(
        z * z, polynomial(z, 0.041666668, -0.0013888888, 2.48006e-05, -2.7300987e-07), fma(z, z.of(-0.5), z.of(1.0))
    )
    value = select((place & 1) != 0, cosine, sine)
    value = select((place & 2) != 0, -value, value)
    return value if quarter else select(x == 0.0, x, value)


def _reduced_angle(x: Lanes) -> tuple[Lanes, Lanes]:
    """q = round(x / (π/2)) and x - q π/2, in float64: exact enough even near the multiples."""
    wide = convert(x, types.float64)
    turns = round_even(wide * (2 / math.pi))
    r = fma(turns, wide.of(-RIGHT_ANGLE_LOW), fma(turns, wide.of(-RIGHT_ANGLE_HIGH), wide))
    return convert(turns, types.int32), convert(r, types.float32)


def tan(x: Lanes) -> Lanes:
    return _circular("tan", x, _tangent) if x.dtype == types.float32 else c_library("tan", x)


def _tangent(x: Lanes) -> Lanes:
    turns, r = _reduced_angle(x)
    z = r * r
    tangent = fma(r * z, polynomial(z, 0.33333157, 0.13338799, 0.05341131, 0.024430098, 0.0031199128, 0.0093854355), r)
    return select(x == 0.0, x, select((turns & 1) != 0, -1.0 / tangent, tangent))


def power(a: Lanes, b: Lanes) -> Lanes:
    """aᵇ. Vectors with a negative, an infinite or a denormal base, or with a NaN exponent, which are rare, use
    the C library's."""
    if a.dtype != types.float32 or not a.lanes:
        return c_library("pow", a, b)
    is_zero = (reinterpret(a, types.int32) == 0) & (b > 0.0)
    is_plain = (a >= 1.1754944e-38) & (a < math.inf) & (absolute(b) < math.inf)
    result = cgutils.alloca_once_value(a.builder, select(is_zero, a.of(0.0), _positive_power(a, b)).value)
    with a.builder.if_then(any_lane(~(is_plain | is_zero)).value, likely=False):
        a.builder.store(c_library("pow", a, b).value, result)
    return a.like(a.builder.load(result))


def _positive_power(a: Lanes, b: Lanes) -> Lanes:
    """aᵇ for normal a > 0, as 2**(b log₂ a) in double precision, with about 40 correct bits of the logarithm."""
    bits = reinterpret(a, types.int32)
    n = (bits - 0x3F3504F3) >> 23  # so that the significand lies between √½ and √2
    significand = convert(reinterpret(bits - (n << 23), types.float32), types.float64)
    s = (significand - 1.0) / (significand + 1.0)
    scale = 2 / math.log(2)
    logarithm = s * long_polynomial(s * s, *(scale / (2 * k + 1) for k in range(9)))  # the series of the inverse tanh
    exponent = convert(b, types.float64) * (convert(n, types.float64) + logarithm)
    exponent = maximum(minimum(exponent, exponent.of(200.0)), exponent.of(-200.0))
    whole = round_even(exponent)
    factors = (math.log(2) ** k / math.factorial(k) for k in range(10))
    fraction = long_polynomial(exponent - whole, *factors)
    places = convert(convert(whole, types.int32), types.int64) << 52
    return convert(reinterpret(reinterpret(fraction, types.int64) + places, types.float64), types.float32)


def power_half(x: Lanes) -> Lanes:
    """x ** 0.5: unlike sqrt's, that of -∞ is ∞."""
    return select(x == -math.inf, x.of(math.inf), sqrt(x + 0.0))


# ---- divisions; those of integers are undefined where b is 0, which kernels check first ----


def divide(a: Lanes, b: Lanes) -> Lanes:
    """a / b; integers are truncated towards zero."""
    return a / b if a.is_float else _quotient(a, b)


_FRACTION_BITS = {types.float32: 23, types.float64: 52}


def fmod(a: Lanes, b: Lanes) -> Lanes:
    """a - b trunc(a / b)."""
    if not a.is_float:
        return a - b * _quotient(a, b)
    if not a.lanes or not active_target().has("fma"):
        return c_library("fmod", a, b)
    rest, is_exact = _remainder(a, b)
    result = cgutils.alloca_once_value(a.builder, rest.value)
    with a.builder.if_then(any_lane(~is_exact).value, likely=False):
        a.builder.store(c_library("fmod", a, b).value, result)
    return a.like(a.builder.load(result))


def _remainder(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """`fmod`, and the mask where it is exact: where the quotient has fewer bits than the significand.

    There rounding moves the quotient by at most one, which makes the remainder negative. Each remainder is representable, so
    that it is exact.
    """
    x, y = absolute(a), absolute(b)
    quotient = trunc(x / y)
    rest = fma(-quotient, y, x)
    rest = select(rest < 0.0, rest + y, rest)
    return copysign(rest, a), (quotient < 2.0 ** _FRACTION_BITS[a.dtype]) & (y < math.inf)


def remainder(a: Lanes, b: Lanes) -> Lanes:
    """a - b floor(a / b), with the sign of b."""
    rest = fmod(a, b)
    if a.is_float:
        return select(rest == 0.0, copysign(rest, b), select((rest < 0.0) ^ (b < 0.0), rest + b, rest))
    return select((rest != 0) & ((rest < 0) ^ (b < 0)), rest + b, rest)


def floor_divide(a: Lanes, b: Lanes) -> Lanes:
    """⌊a / b⌋, of floats from the exact remainder."""
    if not a.is_float:
        whole = _quotient(a, b)
        return _minus_one_where_signs_differ(whole, a - b * whole, b)
    rest = fmod(a, b)
    quotient = _minus_one_where_signs_differ((a - rest) / b, rest, b)
    nearest = floor(quotient)
    nearest = select(quotient - nearest > 0.5, nearest + 1.0, nearest)
    return select(b == 0.0, a / b, nearest)


def _minus_one_where_signs_differ(quotient: Lanes, rest: Lanes, b: Lanes) -> Lanes:
    """Rounds a truncated quotient down: they differ where the remainder has the other sign."""
    return select((rest != 0) & ((rest < 0) ^ (b < 0)), quotient - 1, quotient)


def shift_left(a: Lanes, b: Lanes) -> Lanes:
    """a · 2ᵇ; 0 if b is a's width or more."""
    near = (b >= 0) & (b < a.dtype.bitwidth)
    return select(near, a << select(near, b, b.of(0)), a.of(0))


def shift_right(a: Lanes, b: Lanes) -> Lanes:
    """⌊a / 2ᵇ⌋; all sign bits if b is a's width or more."""
    near = (b >= 0) & (b < a.dtype.bitwidth)
    if a.is_signed:
        return a >> select(near, b, b.of(a.dtype.bitwidth - 1))
    return select(near, a >> select(near, b, b.of(0)), a.of(0))


def _quotient(a: Lanes, b: Lanes) -> Lanes:
    """a / b of integers, truncated; a where b is 0, and the least integer divided by -1 is itself: the instruction would trap
    in both cases."""
    by = _by_instruction if isinstance(b.value, ir.Constant) or not a.lanes or a.dtype.bitwidth > 32 else _by_floats
    if not a.is_signed:
        return by(a, select(b == 0, b.of(1), b))
    is_negation = b == -1
    return select(is_negation, -a, by(a, select(is_negation | (b == 0), b.of(1), b)))


def _by_instruction(a: Lanes, b: Lanes) -> Lanes:
    """Divides by an instruction; LLVM turns a division by a constant into a product."""
    return a.like((a.builder.sdiv if a.is_signed else a.builder.udiv)(a.value, b.value))


def _by_floats(a: Lanes, b: Lanes) -> Lanes:
    """Divides as floats, since vectors have no integer division. With floats of more bits than a, the quotient is not rounded up
    to a whole number."""
    wide = types.float32 if a.dtype.bitwidth < 32 else types.float64
    quotient = (convert(a, wide) / convert(b, wide)).value
    return a.like((a.builder.fptosi if a.is_signed else a.builder.fptoui)(quotient, a.value.type))


FUNCTIONS: tuple[Callable[..., Lanes], ...] = (
    exp, exp_of_negative, weight_of, short_weight_of, expm1, log, log1p, tanh, sigmoid, erf, gelu, gelu_tanh, silu, softplus,
    softsign, mish, relu, leaky_relu, elu, hard_sigmoid, hard_swish, sign, sinh, cosh, sin, cos, tan,
    power, power_half, divide, fmod, remainder, floor_divide, shift_left, shift_right,
)  # fmt: skip
