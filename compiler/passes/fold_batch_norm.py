"""Batch normalisation with known statistics is a scale and a shift of each channel; after a convolution with known weights
it is folded into them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from ...formats.dtypes import DType
from ...formats.types import TensorType
from .. import ir
from ..named_weights import computed
from ..operators.table import lookup
from .rewriting import Rewriter, constant, rewriting


class _Folder(Rewriter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.convolutions: dict[ir.Var, ir.Binding] = {}

    def call(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        if call.operator == "conv":
            self.convolutions[binding.var] = binding
        if call.operator != "batch_normalization":
            return (binding,)
        if not all(isinstance(arg, ir.Constant) for arg in call.args[1:]):
            return (binding,)
        scale, shift = _scale_and_shift(call)
        x = call.args[0]
        before = self.convolutions.get(x) if self.uses[x] == 1 else None  # type: ignore[arg-type]
        conv = before.value if before is not None else None
        if isinstance(conv, ir.OperatorCall) and all(isinstance(arg, ir.Constant) for arg in conv.args[1:]):
            assert before is not None
            origin = " + ".join(dict.fromkeys(filter(None, (before.origin, binding.origin))))
            folded = dataclasses.replace(binding, value=_fold_into(conv, scale, shift), origin=origin)
            self.convolutions[binding.var] = folded
            return (folded,)
        return _multiply_and_add(binding, x, scale, shift)


def _scale_and_shift(call: ir.OperatorCall) -> tuple[ir.Constant, ir.Constant]:
    """x ↦ x · scale + shift in double precision, one number a channel."""
    scale, bias, mean, variance = (
        computed("cast", arg, dtype=DType.float64) for arg in call.args[1:] if isinstance(arg, ir.Constant)
    )
    epsilon = constant(np.array(lookup(call.operator).bind(call.attributes)["epsilon"], np.float64))
    factor = computed("divide", scale, computed("sqrt", computed("add", variance, epsilon)))
    return factor, computed("subtract", bias, computed("multiply", mean, factor))


def _fold_into(conv: ir.OperatorCall, scale: ir.Constant, shift: ir.Constant) -> ir.OperatorCall:
    """The convolution with weights [M, …] and bias [M] scaled, and the bias shifted."""
    x, weight, *bias = conv.args
    assert isinstance(weight, ir.Constant)
    dtype = weight.type.dtype
    single = DType.of(np.promote_types(dtype.numpy, np.float32))  # all the weights in double precision would be slow
    factors = computed("reshape", _cast(scale, single), shape=(-1, *(1,) * (weight.type.rank - 1)))
    scaled = computed("multiply", _cast(weight, single), factors)
    if bias:
        assert isinstance(bias[0], ir.Constant)
        shift = computed("add", computed("multiply", _cast(bias[0], DType.float64), scale), shift)
    return dataclasses.replace(conv, args=(x, _cast(scaled, dtype), _cast(shift, dtype)))


def _multiply_and_add(binding: ir.Binding, x: ir.Atom, scale: ir.Constant, shift: ir.Constant) -> Iterable[ir.Binding]:
    type_ = binding.var.type
    assert isinstance(type_, TensorType)
    channels = (-1, *[1] * (type_.rank - 2))
    scaled = ir.Var(binding.var.name, type_)
    factor = _cast(computed("reshape", scale, shape=channels), type_.dtype)
    offset = _cast(computed("reshape", shift, shape=channels), type_.dtype)
    return (
        ir.Binding(scaled, ir.OperatorCall("multiply", (x, factor)), binding.origin),
        ir.Binding(binding.var, ir.OperatorCall("add", (scaled, offset)), binding.origin),
    )


def _cast(value: ir.Constant, dtype: DType) -> ir.Constant:
    return value if value.type.dtype is dtype else computed("cast", value, dtype=dtype)


FoldBatchNorm = rewriting("fold_batch_norm", _Folder)
