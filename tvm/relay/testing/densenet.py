"""DenseNet (Huang et al., 2017), its blocks as TVM has them: a layer takes the one before it, a block joins its layers."""

from __future__ import annotations

from .. import op
from ..expr import Expr, Function, var
from .init import workload
from .layers import as_function, batch_norm_infer, conv2d, dense_add_bias

# first channels, channels that a layer adds, layers of each block
_SIZES = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (69, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}
_BOTTLENECK = 4


def _active(x: Expr, name: str) -> Expr:
    return op.nn.relu(batch_norm_infer(x, name=name))


def _layer(x: Expr, growth: int, index: str) -> Expr:
    x = conv2d(
        _active(x, f"batch_1_{index}"), channels=_BOTTLENECK * growth, kernel_size=(1, 1), name=f"conv2d_1_{index}"
    )
    x = _active(x, f"batch_2_{index}")
    return conv2d(x, channels=growth, kernel_size=(3, 3), padding=(1, 1), name=f"conv2d_2_{index}")


def get_net(densenet_size: int, classes: int, batch_size: int, image_shape: tuple[int, ...], dtype: str) -> Function:
    """The function of 121, 161, 169 or 201 layers. Raises ValueError for another number."""
    if densenet_size not in _SIZES:
        raise ValueError(f"Invalid densenet_size {densenet_size}. Choices are {', '.join(map(str, _SIZES))}.")
    channels, growth, blocks = _SIZES[densenet_size]
    x: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = conv2d(x, channels=channels, kernel_size=(7, 7), strides=(2, 2), padding=(3, 3), name="conv1")
    x = op.nn.max_pool2d(_active(x, "batch1"), pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for block, count in enumerate(blocks):
        layers = []
        for layer in range(count):
            x = _layer(x, growth, f"{block}_{layer}")
            layers.append(x)
        x = op.concatenate(layers, 1)
        channels += count * growth
        if block != len(blocks) - 1:
            channels //= 2
            x = conv2d(_active(x, f"batch_t_{block}"), channels=channels, kernel_size=(1, 1), name=f"conv_t_{block}")
            x = op.nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    x = op.nn.avg_pool2d(_active(x, "batch2"), pool_size=(7, 7))
    return as_function(dense_add_bias(op.nn.batch_flatten(x), units=classes, name="dense"))


get_workload = workload(
    get_net, densenet_size=121, classes=1000, batch_size=4, image_shape=(3, 224, 224), dtype="float32"
)
