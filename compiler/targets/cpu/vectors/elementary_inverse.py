"""Inverse trigonometric and inverse hyperbolic functions of vectors.

In float32, errors stay below 2.5 units in the last place. Those of float64 are the C library's, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from numba.core import types

from .elementary import c_library, log1p
from .lanes import Lanes, absolute, copysign, fma, maximum, minimum, select, sqrt
from .polynomials import long_polynomial, polynomial

_HALF_PI, _HALF_PI_LOW = 1.57079637, -4.37113883e-8  # their sum is pi / 2


def atan(x: Lanes) -> Lanes:
    """The arc tangent, from that of x or of 1 / x, whichever is at most π/4."""
    if x.dtype != types.float32:
        return c_library("atan", x)
    t = absolute(x)
    r = select(t > 1.0, t.of(1.0), t) / maximum(t.of(1.0), t)
    z = r * r
    p = long_polynomial(
        z, -0.33333306, 0.19998714, -0.14265763, 0.10959307, -0.084224896, 0.058260681, -0.031462024, 0.011059476, -0.0018245941,
    )  # fmt: skip
    angle = fma(r * z, p, r)
    return copysign(select(t > 1.0, _HALF_PI - (angle - _HALF_PI_LOW), angle), x)


def _asin_and_rest(x: Lanes) -> tuple[Lanes, Lanes]:
    """The inverse sine of |x|, if |x| is at most a half; else half of its complement to π/2. And a mask which."""
    t = absolute(x)
    is_near = t <= 0.5
    z = select(is_near, t * t, fma(t, t.of(-0.5), t.of(0.5)))
    r = select(is_near, t, sqrt(z))
    p = polynomial(z, 0.16666722, 0.074962372, 0.045371745, 0.024604939, 0.041517552)
    return fma(r * z, p, r), is_near


def asin(x: Lanes) -> Lanes:
    if x.dtype != types.float32:
        return c_library("asin", x)
    angle, is_near = _asin_and_rest(x)
    return copysign(select(is_near, angle, _HALF_PI - fma(angle, angle.of(2.0), angle.of(-_HALF_PI_LOW))), x)


def acos(x: Lanes) -> Lanes:
    if x.dtype != types.float32:
        return c_library("acos", x)
    angle, is_near = _asin_and_rest(x)
    double = angle * 2.0
    far = select(x < 0.0, 2 * _HALF_PI - (double - 2 * _HALF_PI_LOW), double)
    return select(is_near, _HALF_PI - (copysign(angle, x) - _HALF_PI_LOW), far)


_LARGE = 1e9  # from here on x ± 1, and the root of x² ± 1, are x


def asinh(x: Lanes) -> Lanes:
    """log(t + √(t² + 1)) with t = |x|."""
    if x.dtype != types.float32:
        return c_library("asinh", x)
    t = absolute(x)
    few = minimum(t.of(_LARGE), t)
    square = few * few
    return copysign(_log1p_or_twice(t, few + square / (sqrt(square + 1.0) + 1.0)), x)


def acosh(x: Lanes) -> Lanes:
    """log(x + √(x² - 1))."""
    if x.dtype != types.float32:
        return c_library("acosh", x)
    more = minimum(x.of(_LARGE), x) - 1.0
    return select(x < 1.0, x.of(math.nan), _log1p_or_twice(x, more + sqrt(fma(more, more, more + more))))


def _log1p_or_twice(x: Lanes, small: Lanes) -> Lanes:
    """log(1 + small), or of twice x where x is large."""
    is_large = x > _LARGE
    return log1p(select(is_large, x, small)) + select(is_large, x.of(math.log(2)), x.of(0.0))


def atanh(x: Lanes) -> Lanes:
    """log((1 + t) / (1 - t)) / 2 with t = |x|."""
    if x.dtype != types.float32:
        return c_library("atanh", x)
    t = absolute(x)
    return copysign(log1p((t + t) / (1.0 - t)) * 0.5, x)


FUNCTIONS: tuple[Callable[..., Lanes], ...] = (asin, acos, atan, asinh, acosh, atanh)
