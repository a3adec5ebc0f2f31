"""Batch normalisation with known statistics is a scale and a shift of each channel; behind a convolution with known weights
it disappears into them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...formats.types import TensorType
from .. import ir
from ..operators.table import lookup
from .rewriting import Rewriter, constant


@dataclass(frozen=True)
class FoldBatchNorm:
    name: str = "fold_batch_norm"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Folder(module).run()


class _Folder(Rewriter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.convolutions: dict[ir.Var, ir.OperatorCall] = {}

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        call = binding.value
        if isinstance(call, ir.OperatorCall) and call.operator == "conv":
            self.convolutions[binding.var] = call
        if not isinstance(call, ir.OperatorCall) or call.operator != "batch_normalization":
            return (binding,)
        if not all(isinstance(arg, ir.Constant) for arg in call.args[1:]):
            return (binding,)
        scale, shift = _scale_and_shift(call)
        x = call.args[0]
        conv = self.convolutions.get(x) if self.uses[x] == 1 else None  # type: ignore[arg-type]
        if conv is not None and all(isinstance(arg, ir.Constant) for arg in conv.args[1:]):
            folded = _fold_into(conv, scale, shift)
            self.convolutions[binding.var] = folded
            return (dataclasses.replace(binding, value=folded),)
        return _multiply_and_add(binding, x, scale, shift)


def _scale_and_shift(call: ir.OperatorCall) -> tuple[np.ndarray, np.ndarray]:
    """x ↦ x · scale + shift in double precision, one number a channel."""
    scale, bias, mean, variance = (
        arg.value.astype(np.float64) for arg in call.args[1:] if isinstance(arg, ir.Constant)
    )
    factor = scale / np.sqrt(variance + lookup(call.operator).bind(call.attributes)["epsilon"])
    return factor, bias - mean * factor


def _fold_into(conv: ir.OperatorCall, scale: np.ndarray, shift: np.ndarray) -> ir.OperatorCall:
    """The convolution with weights [M, …] and bias [M] scaled, and the bias shifted."""
    x, *constants = conv.args
    weight, *bias = (each.value for each in constants if isinstance(each, ir.Constant))
    old_bias = bias[0].astype(np.float64) if bias else 0.0
    single = np.promote_types(weight.dtype, np.float32)  # all the weights in double precision would be slow
    scaled = weight * scale.astype(single).reshape(-1, *[1] * (weight.ndim - 1))
    return dataclasses.replace(
        conv, args=(x, _rounded(scaled, weight.dtype), _rounded(old_bias * scale + shift, weight.dtype))
    )


def _multiply_and_add(binding: ir.Binding, x: ir.Atom, scale: np.ndarray, shift: np.ndarray) -> Iterable[ir.Binding]:
    type_ = binding.var.type
    assert isinstance(type_, TensorType)
    channels = (-1, *[1] * (type_.rank - 2))
    scaled = ir.Var(binding.var.name, type_)
    factor = _rounded(scale.reshape(channels), type_.dtype.numpy)
    offset = _rounded(shift.reshape(channels), type_.dtype.numpy)
    return (
        ir.Binding(scaled, ir.OperatorCall("multiply", (x, factor)), binding.origin),
        ir.Binding(binding.var, ir.OperatorCall("add", (scaled, offset)), binding.origin),
    )


def _rounded(value: np.ndarray, dtype: np.dtype) -> ir.Constant:
    return constant(value.astype(dtype, copy=False))
