"""VGG (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

from .. import op
from ..expr import Expr, Function, var
from .init import workload
from .layers import as_function, batch_norm_infer, conv2d, dense_add_bias

_FILTERS = (64, 128, 256, 512, 512)
_DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def get_net(
    batch_size: int,
    image_shape: tuple[int, ...],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
) -> Function:
    """The function of 11, 13, 16 or 19 layers. Raises ValueError for another number."""
    if num_layers not in _DEPTHS:
        raise ValueError(f"Invalid num_layers {num_layers}. Choices are 11,13,16,19.")
    x: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for stage, (filters, depth) in enumerate(zip(_FILTERS, _DEPTHS[num_layers], strict=True), 1):
        for layer in range(1, depth + 1):
            name = f"{stage}_{layer}"
            x = conv2d(x, kernel_size=(3, 3), padding=(1, 1), channels=filters, name=f"conv{name}")
            x = op.nn.bias_add(x, var(f"conv{name}_bias"))
            x = batch_norm_infer(x, name=f"bn{name}") if batch_norm else x
            x = op.nn.relu(x)
        x = op.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    x = op.nn.batch_flatten(x)
    for name in ("fc6", "fc7"):
        x = op.nn.dropout(op.nn.relu(dense_add_bias(x, units=4096, name=name)), rate=0.5)
    return as_function(op.nn.softmax(dense_add_bias(x, units=num_classes, name="fc8")))


get_workload = workload(
    get_net,
    "batch_size num_classes image_shape dtype num_layers batch_norm",
    num_classes=1000,
    image_shape=(3, 224, 224),
    dtype="float32",
)
