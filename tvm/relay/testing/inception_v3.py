"""Inception v3 (Szegedy et al., 2015)."""

from __future__ import annotations

from typing import Any

from .. import op
from ..expr import Expr, Function, var
from .init import workload
from .layers import as_function, batch_norm_infer, conv2d, dense_add_bias

Size = tuple[int, int]


def _conv(x: Expr, channels: int, name: str, kernel: Size = (1, 1), pad: Size = (0, 0), stride: Size = (1, 1)) -> Expr:
    x = conv2d(x, channels=channels, kernel_size=kernel, strides=stride, padding=pad, name=f"{name}_conv1")
    return op.nn.relu(batch_norm_infer(x, epsilon=2e-5, scale=False, name=f"{name}_bn"))


def _same(x: Expr, channels: int, name: str, kernel: Size) -> Expr:
    """A convolution that keeps the image's size."""
    return _conv(x, channels, name, kernel, (kernel[0] // 2, kernel[1] // 2))


def _pool(x: Expr, kind: str) -> Expr:
    """Pooling over 3 by 3 that keeps the image's size."""
    options: dict[str, Any] = {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1)}
    return op.nn.max_pool2d(x, **options) if kind == "max" else op.nn.avg_pool2d(x, count_include_pad=True, **options)


def _half(x: Expr) -> Expr:
    return op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))


def _chain(x: Expr, name: str, steps: list[tuple[int, Size]]) -> Expr:
    """Convolutions that keep the size, one after another."""
    for number, (channels, kernel) in enumerate(steps):
        x = _same(x, channels, f"{name}_conv{f'_{number}' if number else ''}", kernel)
    return x


def _mixed_a(x: Expr, projected: int, name: str) -> Expr:
    parts = [
        _conv(x, 64, f"{name}_conv"),
        _chain(x, f"{name}_tower", [(48, (1, 1)), (64, (5, 5))]),
        _chain(x, f"{name}_tower_1", [(64, (1, 1)), (96, (3, 3)), (96, (3, 3))]),
        _conv(_pool(x, "avg"), projected, f"{name}_tower_2_conv"),
    ]
    return op.concatenate(parts, axis=1)


def _mixed_b(x: Expr, name: str) -> Expr:
    deep = _chain(x, f"{name}_tower", [(64, (1, 1)), (96, (3, 3))])
    parts = [
        _conv(x, 384, f"{name}_conv", (3, 3), stride=(2, 2)),
        _conv(deep, 96, f"{name}_tower_conv_2", (3, 3), stride=(2, 2)),
        _half(x),
    ]
    return op.concatenate(parts, axis=1)


def _mixed_c(x: Expr, between: int, name: str) -> Expr:
    deep = [(between, (7, 1)), (between, (1, 7)), (between, (7, 1)), (192, (1, 7))]
    parts = [
        _conv(x, 192, f"{name}_conv"),
        _chain(x, f"{name}_tower", [(between, (1, 1)), (between, (1, 7)), (192, (7, 1))]),
        _chain(x, f"{name}_tower_1", [(between, (1, 1)), *deep]),
        _conv(_pool(x, "avg"), 192, f"{name}_tower_2_conv"),
    ]
    return op.concatenate(parts, axis=1)


def _mixed_d(x: Expr, name: str) -> Expr:
    first = _conv(x, 192, f"{name}_tower_conv")
    second = _chain(x, f"{name}_tower_1", [(192, (1, 1)), (192, (1, 7)), (192, (7, 1))])
    parts = [
        _conv(first, 320, f"{name}_tower_conv_1", (3, 3), stride=(2, 2)),
        _conv(second, 192, f"{name}_tower_1_conv_3", (3, 3), stride=(2, 2)),
        _half(x),
    ]
    return op.concatenate(parts, axis=1)


def _mixed_e(x: Expr, pool: str, name: str) -> Expr:
    first = _conv(x, 384, f"{name}_tower_conv")
    second = _chain(x, f"{name}_tower_1", [(448, (1, 1)), (384, (3, 3))])
    parts = [
        _conv(x, 320, f"{name}_conv"),
        _same(first, 384, f"{name}_tower_mixed_conv", (1, 3)),
        _same(first, 384, f"{name}_tower_mixed_conv_1", (3, 1)),
        _same(second, 384, f"{name}_tower_1_mixed_conv", (1, 3)),
        _same(second, 384, f"{name}_tower_1_mixed_conv_1", (3, 1)),
        _conv(_pool(x, pool), 192, f"{name}_tower_2_conv"),
    ]
    return op.concatenate(parts, axis=1)


def get_net(batch_size: int, num_classes: int, image_shape: tuple[int, ...], dtype: str) -> Function:
    """The function."""
    x: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = _conv(x, 32, "conv", (3, 3), stride=(2, 2))
    x = _half(_same(_conv(x, 32, "conv_1", (3, 3)), 64, "conv_2", (3, 3)))
    x = _half(_conv(_conv(x, 80, "conv_3"), 192, "conv_4", (3, 3)))
    for projected, name in ((32, "mixed"), (64, "mixed_1"), (64, "mixed_2")):
        x = _mixed_a(x, projected, name)
    x = _mixed_b(x, "mixed_3")
    for between, name in ((128, "mixed_4"), (160, "mixed_5"), (160, "mixed_6"), (192, "mixed_7")):
        x = _mixed_c(x, between, name)
    x = _mixed_d(x, "mixed_8")
    x = _mixed_e(_mixed_e(x, "avg", "mixed_9"), "max", "mixed_10")
    x = op.nn.avg_pool2d(x, pool_size=(8, 8), strides=(1, 1), count_include_pad=True)
    x = dense_add_bias(op.nn.batch_flatten(x), units=num_classes, name="fc1")
    return as_function(op.nn.softmax(x))


get_workload = workload(get_net, batch_size=1, num_classes=1000, image_shape=(3, 299, 299), dtype="float32")
