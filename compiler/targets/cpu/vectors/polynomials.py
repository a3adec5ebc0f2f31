"""Polynomials of vectors, as series of multiply-adds."""

from __future__ import annotations

from .lanes import Lanes, fma


def polynomial(x: Lanes, *coefficients: float) -> Lanes:
    """Σ coefficients[i] x**i, by Horner's scheme."""
    result = x.of(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, x.of(coefficient))
    return result


def long_polynomial(x: Lanes, *coefficients: float) -> Lanes:
    """The same, with even and odd powers apart: one more operation, but half the dependency chain."""
    square = x * x
    return fma(polynomial(square, *coefficients[1::2]), x, polynomial(square, *coefficients[::2]))
