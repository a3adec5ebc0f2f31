"""Elementary functions of float64 vectors, by series on a reduced range, as `elementary.py` for float32.

Errors stay below two units in the last place, which tests/compiler/targets/cpu/vectors/test_elementary.py measures.
"""

from __future__ import annotations

import math

from numba.core import types

from .conversions import reinterpret
from .lanes import Lanes, absolute, copysign, fma, maximum, minimum, select
from .polynomials import polynomial

_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # their sum is ln 2; n * _LN2_HIGH is exact
_INVERSE_FACTORIALS = tuple(1 / math.factorial(k) for k in range(18))
_ROUNDER = 1.5 * 2.0**52  # adding it leaves a number's nearest integer in the low bits

# Their sum is pi / 2; products of the first two with whole numbers below 2**20 are exact.
_RIGHT_ANGLE = 1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21


def _split(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """Whole n, given as _ROUNDER + n, and r with x = n ln 2 + r and |r| <= ln 2 / 2; and the rounding error of r."""
    shifted = fma(x, x.of(1 / math.log(2)), x.of(_ROUNDER))
    n = shifted - _ROUNDER
    near = fma(-n, n.of(_LN2_HIGH), x)
    r = fma(-n, n.of(_LN2_LOW), near)
    return shifted, r, fma(-n, n.of(_LN2_LOW), near - r)


def _expm1_reduced(r: Lanes, lost: Lanes) -> Lanes:
    """exp(r + lost) - 1 for |r| <= ln 2 / 2."""
    return r + fma(r * r, polynomial(r, *_INVERSE_FACTORIALS[2:15]), lost)


def _power_of_two(n: Lanes) -> Lanes:
    """2**n for -1023 < n < 1024, given by its low bits."""
    return reinterpret((n + 1023) << 52, types.float64)


def exp(x: Lanes) -> Lanes:
    shifted, r, lost = _split(minimum(x.of(710.0), maximum(x.of(-746.0), x)))
    n = reinterpret(shifted, types.int64) - 0x4338000000000000
    half = n >> 1  # two factors, since 2**n alone may be out of range where the result is not
    return (_expm1_reduced(r, lost) + 1.0) * _power_of_two(half) * _power_of_two(n - half)


def _half_expm1(x: Lanes) -> Lanes:
    """Half of exp(x) - 1, for -40 <= x < 710."""
    shifted, r, lost = _split(x)
    scale = _power_of_two(reinterpret(shifted, types.int64) - 1)
    return fma(scale, _expm1_reduced(r, lost), scale - 0.5)


def expm1(x: Lanes) -> Lanes:
    return select(x == 0.0, x, 2.0 * _half_expm1(minimum(x.of(710.0), maximum(x.of(-40.0), x))))


def tanh(x: Lanes) -> Lanes:
    """As for float32."""
    half = _half_expm1(minimum(x.of(40.0), absolute(x + x)))
    quotient = half / (half + 1.0)
    return copysign(select(half < 0.5, fma(-half, quotient, half), quotient), x)


def sine(x: Lanes, quarter: int) -> Lanes:
    """sin(x + quarter π/2) for |x| below 2**20 right angles."""
    shifted = fma(x, x.of(2 / math.pi), x.of(_ROUNDER))
    turns, place = shifted - _ROUNDER, reinterpret(shifted, types.int64) + quarter
    high, middle, low = (turns.of(part) for part in _RIGHT_ANGLE)
    near = fma(-turns, high, x)
    nearer = fma(-turns, middle, near)
    rest = fma(-turns, low, fma(-turns, middle, near - nearer))
    r = nearer + rest
    lost = rest - (r - nearer)
    z = r * r
    signed = [(-1) ** (k // 2) * factor for k, factor in enumerate(_INVERSE_FACTORIALS)]
    by_sine = r + fma(r * z, polynomial(z, *signed[3::2]), lost)
    half = z * 0.5
    whole = 1.0 - half
    rounding = (1.0 - whole) - half  # of 1 - z / 2
    by_cosine = whole + fma(z * z, polynomial(z, *signed[4::2]), rounding - r * lost)
    value = select((place & 1) != 0, by_cosine, by_sine)
    value = select((place & 2) != 0, -value, value)
    return value if quarter else select(x == 0.0, x, value)
