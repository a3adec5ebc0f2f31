"""Quantised networks as exporters write them (Q/DQ): floats that are dequantised from integers, and quantised again.

A product of dequantised operands becomes a scaled one of integers. A sum of integers times constants, such as
that product, its bias, and a residual, is requantised with one multiplication for each of them: the scales of both sides form one
factor, zero points and biases one summand. So results differ from those of the floats only by rounding: a number
half way between two integers, up to the last bits of a float, may become the other one. A value that is quantised as it was
before it was dequantised, and only moved since, is unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from .....formats.dtypes import DType
from .... import ir
from ....operators.table import lookup
from ....passes.rewriting import Emitter, constant, operator_call, rewriting, tensor_type
from . import pack_integers

_BYTES = frozenset({DType.int8, DType.uint8})
_MOST_TERMS = 3  # of a sum of products of integers


@dataclass(frozen=True)
class _Quantised:
    """A dequantised tensor: its integers, and scale and zero point in float64, which broadcast to it."""

    integers: ir.Atom
    scale: np.ndarray
    zero: np.ndarray

    @property
    def is_even(self) -> bool:
        """Whether scale and zero point are the same for all elements."""
        return self.scale.size == self.zero.size == 1

    @property
    def type(self) -> DType:
        return tensor_type(self.integers).dtype

    def zero_point(self) -> ir.Constant:
        return constant(self.zero.astype(self.type.numpy))


_GREATEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class _Linear:
    """Σ integers · factor, + offset. Factors and offset, in float64, broadcast to the whole."""

    terms: tuple[tuple[ir.Atom, np.ndarray], ...]
    offset: np.ndarray

    @property
    def is_finite(self) -> bool:
        """Whether all of it is finite in float32: else integers times factors would be NaN where floats are infinite."""
        return all(np.all(np.abs(each) <= _GREATEST) for each in (*(factor for _, factor in self.terms), self.offset))

    def plus(self, other: _Linear) -> _Linear:
        return _Linear((*self.terms, *other.terms), self.offset + other.offset)

    def times(self, factor: np.ndarray) -> _Linear:
        return _Linear(tuple((atom, each * factor) for atom, each in self.terms), self.offset * factor)


# A rule's result: a call in place of the variable's, or another atom; None if it stays.
_Result = Union[ir.OperatorCall, ir.Atom, None]


class _Walk(Emitter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.quantised: dict[ir.Atom, _Quantised] = {}
        self.linear: dict[ir.Atom, _Linear] = {}

    def call(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        if call.operator not in _RULES:
            return (binding,)
        self.begin(binding)
        result = _RULES[call.operator](self, binding.var, call)
        if isinstance(result, ir.Var) and result.type == binding.var.type:
            self.atoms[binding.var] = result
            if binding.var in self.linear:
                self.linear[result] = self.linear[binding.var]
            return self.new
        if isinstance(result, ir.OperatorCall):
            binding = dataclasses.replace(binding, value=result)
        return (*self.new, binding)

    def linears(self, call: ir.OperatorCall) -> list[_Linear | None]:
        """The operands as integers, or constants. Values of replaceable weights are read only if they matter."""
        if any(isinstance(arg, ir.Weight) for arg in call.args) and self.linear.keys().isdisjoint(call.args):
            return [None] * len(call.args)
        return [self.linear_of(arg) for arg in call.args]

    def linear_of(self, atom: ir.Atom) -> _Linear | None:
        """The atom as integers, or a constant."""
        if isinstance(atom, ir.Constant) and atom.array.dtype == np.float32:
            return _Linear((), atom.value.astype(np.float64))
        return self.linear.get(atom)


# ---- rules ----


def _dequantize(walk: _Walk, var: ir.Var, call: ir.OperatorCall) -> None:
    integers, scale, zero = call.args
    if not isinstance(scale, ir.Constant) or not isinstance(zero, ir.Constant):
        return
    found = _Quantised(integers, scale.value.astype(np.float64), zero.value.astype(np.float64))
    walk.quantised[var] = found
    _note_linear(walk, var, found)


def _note_linear(walk: _Walk, var: ir.Var, found: _Quantised) -> None:
    if not np.all(np.isfinite(found.scale)):
        return
    if not isinstance(found.integers, ir.Constant):
        walk.linear[var] = _Linear(((found.integers, found.scale),), -found.zero * found.scale)
    elif tensor_type(var).rank < 2:  # biases, numbers; no weights, which are large
        walk.linear[var] = _Linear((), (found.integers.value - found.zero) * found.scale)


def _move(walk: _Walk, var: ir.Var, call: ir.OperatorCall) -> None:
    """Data movement and maxima apply to the integers instead."""
    found = walk.quantised.get(call.args[0])
    if found is None or (call.operator == "max_pool" and np.any(found.scale <= 0)):
        return
    integers = found.integers
    if isinstance(integers, ir.Constant):
        if call.operator == "permute_dims":
            moved = [_permuted(array, call, integers.array.ndim) for array in (integers.value, found.scale, found.zero)]
            walk.quantised[var] = _Quantised(constant(moved[0]), *moved[1:])
    elif found.is_even:
        result = walk.emit(call.operator, integers, *call.args[1:], **dict(call.attributes))
        walk.quantised[var] = dataclasses.replace(found, integers=result)
        _note_linear(walk, var, walk.quantised[var])


def _permuted(array: np.ndarray, call: ir.OperatorCall, rank: int) -> np.ndarray:
    """An array that broadcasts to that rank, with its axes in another order."""
    whole = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return lookup(call.operator).evaluate([whole], call.attributes)[0]


def _add(walk: _Walk, var: ir.Var, call: ir.OperatorCall) -> None:
    a, b = walk.linears(call)
    if a is not None and b is not None and len(a.terms) + len(b.terms) <= _MOST_TERMS:
        walk.linear[var] = a.plus(b)


def _scale(walk: _Walk, var: ir.Var, call: ir.OperatorCall) -> None:
    """A multiplication with a constant, or division by one."""
    a, b = walk.linears(call)
    if a is None or b is None or (a.terms and b.terms):
        return
    if call.operator == "divide":
        if not b.terms and np.all(b.offset != 0):
            walk.linear[var] = a.times(1 / b.offset)
    else:
        walk.linear[var] = b.times(a.offset) if b.terms else a.times(b.offset)


def _quantize(walk: _Walk, var: ir.Var, call: ir.OperatorCall) -> _Result:
    x, scale, zero = call.args
    if not isinstance(scale, ir.Constant) or not isinstance(zero, ir.Constant):
        return None
    found, dtype = walk.quantised.get(x), tensor_type(zero).dtype
    if found is not None and found.type is dtype and isinstance(found.integers, ir.Var):
        is_same = np.array_equal(found.scale, scale.value) and np.array_equal(found.zero, zero.value)
        if is_same:
            return found.integers
    linear = walk.linear.get(x)
    if linear is None or not linear.terms or not np.all(scale.value > 0):
        return None
    linear = linear.times(1 / scale.value.astype(np.float64))
    if not linear.is_finite:
        return None
    total = _summed(walk, _Linear(linear.terms, linear.offset + zero.value))
    if tensor_type(total) != tensor_type(x):
        return None
    return operator_call("quantize", total, constant(np.ones((), np.float32)), constant(np.zeros((), dtype.numpy)))


def _summed(walk: _Walk, linear: _Linear) -> ir.Var:
    """The sum in float32. Constants are tensors, since scalars would be literals in kernels' texts."""

    def factor(array: np.ndarray) -> ir.Constant:
        return constant(np.atleast_1d(array).astype(np.float32))

    products = [walk.emit("multiply", _as_float(walk, atom), factor(each)) for atom, each in linear.terms]
    total = products[0]
    for product in products[1:]:
        total = walk.emit("add", total, product)
    return walk.emit("add", total, factor(linear.offset)) if np.any(linear.offset) else total


def _as_float(walk: _Walk, atom: ir.Atom) -> ir.Atom:
    return atom if tensor_type(atom).dtype is DType.float32 else walk.emit("cast", atom, dtype=DType.float32)


# ---- products ----


def _product(walk: _Walk, var: ir.Var, call: ir.OperatorCall) -> _Result:
    """A product of dequantised values with dequantised constants, whose scales differ by column at most."""
    a, b = map(walk.quantised.get, call.args)
    if a is None or b is None or not a.is_even or not {a.type, b.type} <= _BYTES:
        return None
    if not isinstance(b.integers, ir.Constant) or b.integers.array.ndim != 2 or tensor_type(a.integers).rank < 2:
        return None
    if not all(array.ndim < 2 or len(array) == 1 for array in (b.scale, b.zero)):
        return None
    zeros = (constant(a.zero.astype(a.type.numpy)), constant(b.zero.astype(b.type.numpy)))
    sums = walk.emit("matmul_integer", a.integers, b.integers, *zeros)
    walk.linear[var] = _Linear(((sums, a.scale.reshape(()) * b.scale.reshape(-1)),), np.zeros(()))
    return _summed(walk, walk.linear[var])


def _convolution(walk: _Walk, var: ir.Var, call: ir.OperatorCall) -> _Result:
    """A convolution of dequantised values with dequantised constants, whose scales differ by the result's channel at most."""
    x, weight = map(walk.quantised.get, call.args[:2])
    if x is None or weight is None or not x.is_even or not {x.type, weight.type} <= _BYTES:
        return None
    bias = _Linear((), np.zeros(())) if len(call.args) < 3 else walk.linear_of(call.args[2])
    if bias is None or bias.terms:
        return None
    if not all(array.size == array.shape[0] or array.size == 1 for array in (weight.scale, weight.zero) if array.ndim):
        return None
    operands = (x.integers, weight.integers, *(constant(each.zero.astype(each.type.numpy)) for each in (x, weight)))
    integers = operator_call("conv_integer", *operands, **dict(call.attributes))
    dtype = pack_integers.convolution_sums(integers)
    if dtype is None:
        return None
    sums = walk.emit("conv_integer", *operands, **dict(call.attributes), dtype=dtype)
    over = (-1, *(1,) * (tensor_type(var).rank - 2))  # pixels
    scale = (x.scale.reshape(()) * weight.scale.reshape(-1)).reshape(over)
    walk.linear[var] = _Linear(((sums, scale),), bias.offset.reshape(over) if bias.offset.ndim else bias.offset)
    return _summed(walk, walk.linear[var])


def _convolution_of_integers(walk: _Walk, var: ir.Var, call: ir.OperatorCall) -> _Result:
    """Computed in floats where no kernel takes it; cast where a kernel makes its sums in floats."""
    made, wanted = pack_integers.convolution_sums(call), tensor_type(var).dtype
    if made is None:
        return pack_integers.convolution_by_floats(walk, call)
    if made is wanted:
        return None
    sums = walk.emit("conv_integer", *call.args, **{**dict(call.attributes), "dtype": made})
    return operator_call("cast", sums, dtype=wanted)


_RULES: dict[str, Callable[[_Walk, ir.Var, ir.OperatorCall], Any]] = {
    "dequantize": _dequantize,
    "quantize": _quantize,
    "add": _add,
    "multiply": _scale,
    "divide": _scale,
    "matmul": _product,
    "conv": _convolution,
    "conv_integer": _convolution_of_integers,
    **dict.fromkeys(("reshape", "permute_dims", "expand_dims", "squeeze", "max_pool"), _move),
}


IntegerProducts = rewriting("integer_products", _Walk)
