"""SqueezeNet (Iandola et al., 2016), versions 1.0 and 1.1."""

from __future__ import annotations

from .. import op
from ..expr import Expr, Function, var
from .init import workload
from .layers import as_function, conv2d

# squeezed channels, expanded ones; None: pooling
_FIRES: dict[str, tuple[tuple[int, int] | None, ...]] = {
    "1.0": (None, (16, 64), (16, 64), (32, 128), None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256)),
    "1.1": (None, (16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256)),
}


def _conv(x: Expr, channels: int, size: int, name: str, bias: str = "", stride: int = 1) -> Expr:
    strides, padding = (stride, stride), (size // 2, size // 2)
    x = conv2d(x, channels=channels, kernel_size=(size, size), strides=strides, padding=padding, name=name)
    return op.nn.relu(op.nn.bias_add(x, var(bias or f"{name}_bias")))


def get_net(batch_size: int, image_shape: tuple[int, ...], num_classes: int, version: str, dtype: str) -> Function:
    """The function. Raises ValueError for an unknown version."""
    if version not in _FIRES:
        raise ValueError(f"Unsupported SqueezeNet version {version}: 1.0 or 1.1 expected")
    x: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = _conv(x, *((96, 7) if version == "1.0" else (64, 3)), name="conv1", stride=2)
    number = 0
    for fire in _FIRES[version]:
        if fire is None:
            x = op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))
            continue
        number += 1
        name = f"fire{number}"
        x = _conv(x, fire[0], 1, f"{name}_input_conv")
        parts = [_conv(x, fire[1], 1, f"{name}_left_conv"), _conv(x, fire[1], 3, f"{name}_right_conv")]
        x = op.concatenate(parts, axis=1)
    x = _conv(op.nn.dropout(x, rate=0.5), num_classes, 1, "conv_final")
    return as_function(op.nn.softmax(op.nn.batch_flatten(op.nn.global_avg_pool2d(x))))


get_workload = workload(
    get_net,
    "batch_size num_classes version image_shape dtype",
    batch_size=1,
    num_classes=1000,
    version="1.0",
    image_shape=(3, 224, 224),
    dtype="float32",
)
