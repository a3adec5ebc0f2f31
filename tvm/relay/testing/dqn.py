"""The network of deep Q-learning (Mnih et al., 2015)."""

from __future__ import annotations

from .. import op
from ..expr import Expr, Function, var
from .init import workload
from .layers import as_function, conv2d, conv_kernel_layout, dense_add_bias


def get_net(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """The function."""
    x: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for number, (channels, size, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 1):
        x = conv2d(
            x,
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(0, 0),
            data_layout=layout,
            kernel_layout=conv_kernel_layout(layout),
            name=f"conv{number}",
        )
        x = op.nn.relu(op.nn.bias_add(x, var(f"conv{number}_bias"), layout.index("C")))
    x = op.nn.relu(dense_add_bias(op.nn.batch_flatten(x), units=512, name="dense1"))
    return as_function(dense_add_bias(x, units=num_actions, name="dense2"))


get_workload = workload(get_net)
