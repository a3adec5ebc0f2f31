"""ResNet with normalisation before convolutions (He et al., Identity Mappings in Deep Residual Networks, 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import op
from ..expr import Expr, Function, var
from ..module import IRModule
from .init import create_workload
from .layers import as_function, batch_norm_infer, conv2d, dense_add_bias

_EPSILON = 2e-5
_UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    269: (3, 30, 48, 8),
}


class _Layers:
    """Layers of a layout."""

    def __init__(self, layout: str) -> None:
        self.layout, self.axis = layout, layout.index("C")
        self.kernel = "OIHW" if layout == "NCHW" else "HWIO"

    def norm(self, x: Expr, name: str, **options: Any) -> Expr:
        return batch_norm_infer(x, epsilon=_EPSILON, axis=self.axis, name=name, **options)

    def active(self, x: Expr, name: str) -> Expr:
        return op.nn.relu(self.norm(x, name))

    def conv(self, x: Expr, channels: int, size: int, stride: int, name: str) -> Expr:
        return conv2d(
            x,
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(size // 2, size // 2),
            data_layout=self.layout,
            kernel_layout=self.kernel,
            name=name,
        )


def residual_unit(
    data: Expr,
    num_filter: int,
    stride: tuple[int, int],
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
) -> Expr:
    """Two convolutions, or three with fewer channels between them, beside a short way."""
    layers = _Layers(data_layout)
    first = layers.active(data, f"{name}_bn1")
    if bottle_neck:
        x = layers.conv(first, num_filter // 4, 1, stride[0], f"{name}_conv1")
        x = layers.conv(layers.active(x, f"{name}_bn2"), num_filter // 4, 3, 1, f"{name}_conv2")
        x = layers.conv(layers.active(x, f"{name}_bn3"), num_filter, 1, 1, f"{name}_conv3")
    else:
        x = layers.conv(first, num_filter, 3, stride[0], f"{name}_conv1")
        x = layers.conv(layers.active(x, f"{name}_bn2"), num_filter, 3, 1, f"{name}_conv2")
    return op.add(x, data if dim_match else layers.conv(first, num_filter, 1, stride[0], f"{name}_sc"))


def resnet(
    units: Sequence[int],
    num_stages: int,
    filter_list: Sequence[int],
    num_classes: int,
    data_shape: tuple[int, ...],
    bottle_neck: bool = True,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The function with `units` in each stage."""
    layers = _Layers(layout)
    x: Expr = var("data", shape=data_shape, dtype=dtype)
    x = layers.norm(x, "bn_data", scale=False)
    if data_shape[layout.index("H")] <= 32:  # small images
        x = layers.conv(x, filter_list[0], 3, 1, "conv0")
    else:
        x = layers.active(layers.conv(x, filter_list[0], 7, 2, "conv0"), "bn0")
        x = op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    for stage in range(num_stages):
        for unit in range(units[stage]):
            stride = 2 if stage and not unit else 1
            name = f"stage{stage + 1}_unit{unit + 1}"
            x = residual_unit(x, filter_list[stage + 1], (stride, stride), unit > 0, name, bottle_neck, layout)
    x = op.nn.global_avg_pool2d(layers.active(x, "bn1"), layout=layout)
    x = dense_add_bias(op.nn.batch_flatten(x), units=num_classes, name="fc1")
    return as_function(op.nn.softmax(x))


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> Function:
    """The function of `num_layers` layers. Raises ValueError for an unsupported number."""
    data_shape = (batch_size, *image_shape)
    if data_shape[layout.index("H")] <= 28:
        deep = num_layers >= 164
        per_unit, rest = divmod(num_layers - 2, 9 if deep else 6)
        if rest:
            raise ValueError(f"no experiments done on num_layers {num_layers}")
        filters = [16, 64, 128, 256] if deep else [16, 16, 32, 64]
        return resnet([per_unit] * 3, 3, filters, num_classes, data_shape, deep, layout, dtype)
    if num_layers not in _UNITS:
        raise ValueError(f"no experiments done on num_layers {num_layers}")
    deep = num_layers >= 50
    filters = [64, 256, 512, 1024, 2048] if deep else [64, 64, 128, 256, 512]
    return resnet(_UNITS[num_layers], 4, filters, num_classes, data_shape, deep, layout, dtype)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> tuple[IRModule, dict[str, Any]]:
    """The module, and weights from a seed."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs))
