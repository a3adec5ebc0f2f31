"""MobileNet (Howard et al., 2017)."""

from __future__ import annotations

from typing import Any

from .. import op
from ..expr import Expr, Function, var
from ..module import IRModule
from .init import create_workload
from .layers import as_function, batch_norm_infer, conv2d, conv_kernel_layout, dense_add_bias

# of each block the channels that come, those that go, and whether it halves the image
_BLOCKS = (
    *((32, 64, False), (64, 128, True), (128, 128, False), (128, 256, True), (256, 256, False), (256, 512, True)),
    *((512, 512, False),) * 5,
    *((512, 1024, True), (1024, 1024, False)),
)
_SHALLOW = (*_BLOCKS[:6], (512, 1024, True), (1024, 1024, True))


def _normed(x: Expr, layout: str, name: str) -> Expr:
    return op.nn.relu(batch_norm_infer(x, epsilon=1e-5, axis=layout.index("C"), name=name))


def _block(x: Expr, name: str, channels: int, results: int, halves: bool, layout: str, dtype: str) -> Expr:
    """A convolution of each channel, then one of 1 by 1 over all."""
    shape = (channels, 1, 3, 3) if layout == "NCHW" else (3, 3, channels, 1)
    x = conv2d(
        x,
        weight=var(f"{name}_weight", shape=shape, dtype=dtype),
        channels=channels,
        groups=channels,
        kernel_size=(3, 3),
        strides=(2, 2) if halves else (1, 1),
        padding=(1, 1),
        data_layout=layout,
        kernel_layout=conv_kernel_layout(layout, is_depthwise=True),
        name=f"{name}_depthwise_conv1",
    )
    x = conv2d(
        _normed(x, layout, f"{name}_bn1"),
        channels=results,
        kernel_size=(1, 1),
        data_layout=layout,
        kernel_layout=conv_kernel_layout(layout),
        name=f"{name}_conv2",
    )
    return _normed(x, layout, f"{name}_bn2")


def mobile_net(
    num_classes: int = 1000,
    data_shape: tuple[int, ...] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> Function:
    """The function; `alpha` times as many channels."""
    x: Expr = var("data", shape=data_shape, dtype=dtype)
    x = conv2d(
        x,
        channels=int(32 * alpha),
        kernel_size=(3, 3),
        strides=(2, 2),
        padding=(1, 1),
        data_layout=layout,
        kernel_layout=conv_kernel_layout(layout),
        name="conv_block_1_conv",
    )
    x = _normed(x, layout, "conv_block_1_bn")
    for number, (channels, results, halves) in enumerate(_SHALLOW if is_shallow else _BLOCKS, 1):
        name = f"separable_conv_block_{number}"
        x = _block(x, name, int(channels * alpha), int(results * alpha), halves, layout, dtype)
    x = op.nn.batch_flatten(op.nn.global_avg_pool2d(x, layout=layout))
    return as_function(op.nn.softmax(dense_add_bias(x, units=num_classes, name="fc")))


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[IRModule, dict[str, Any]]:
    """The module, and weights from a seed."""
    return create_workload(mobile_net(num_classes, (batch_size, *image_shape), dtype, layout=layout))
