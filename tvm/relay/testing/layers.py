"""Layers whose weights are variables named after them."""

from __future__ import annotations

from typing import Any

from .. import op
from ..expr import Expr, Function, Var, var
from ..visit import free_vars


def batch_norm_infer(
    data: Any,
    gamma: Var | None = None,
    beta: Var | None = None,
    moving_mean: Var | None = None,
    moving_var: Var | None = None,
    name: str = "",
    **options: Any,
) -> Expr:
    """Batch normalisation: its first result."""
    weights = [
        given or var(f"{name}_{what}")
        for given, what in zip(
            (gamma, beta, moving_mean, moving_var), ("gamma", "beta", "moving_mean", "moving_var"), strict=True
        )
    ]
    return op.nn.batch_norm(data, *weights, **options)[0]


def conv2d(data: Any, weight: Var | None = None, name: str = "", **options: Any) -> Expr:
    """A convolution over two axes."""
    return op.nn.conv2d(data, weight or var(f"{name}_weight"), **options)


def conv3d(data: Any, weight: Var | None = None, name: str = "", **options: Any) -> Expr:
    """A convolution over three axes."""
    return op.nn.conv3d(data, weight or var(f"{name}_weight"), **options)


def conv2d_transpose(data: Any, weight: Var | None = None, name: str = "", **options: Any) -> Expr:
    """The transpose of a convolution."""
    return op.nn.conv2d_transpose(data, weight or var(f"{name}_weight"), **options)


def dense_add_bias(
    data: Any,
    weight: Var | None = None,
    bias: Var | None = None,
    units: int | None = None,
    name: str = "",
    **options: Any,
) -> Expr:
    """A product with weights, plus a bias."""
    product = op.nn.dense(data, weight or var(f"{name}_weight"), units, **options)
    return op.nn.bias_add(product, bias or var(f"{name}_bias"), axis=-1)


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """The layout of weights that goes with a layout of images."""
    layouts = {"NCHW": "OIHW", "NCDHW": "OIDHW", "NDHWC": "DHWIO", "NHWC": "HWOI" if is_depthwise else "HWIO"}
    if data_layout not in layouts:
        raise ValueError(f"Unknown data layout {data_layout}; there are {', '.join(layouts)}")
    return layouts[data_layout]


def as_function(result: Expr) -> Function:
    """A function of all that an expression needs."""
    return Function(free_vars(result), result)
