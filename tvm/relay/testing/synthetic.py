"""A small network of all kinds of layers."""

from __future__ import annotations

from .. import op
from ..expr import Expr, Function, var
from .init import Constant, workload
from .layers import as_function, batch_norm_infer


def get_net(
    input_shape: tuple[int, ...] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> Function:
    """The function: twice a product beside a convolution."""
    kind = wtype or dtype
    data = var("data", shape=input_shape, dtype=dtype)
    wide, channels = input_shape[3], input_shape[1]

    def both(x: Expr, prefix: str) -> Expr:
        weight = var(f"dense{prefix}_weight", shape=(wide, wide), dtype=kind)
        product = op.nn.relu(op.nn.dense(op.reshape(x, (-1, wide)), weight))
        window = var(f"conv{prefix}_weight", shape=(channels, channels, 3, 3), dtype=kind)
        conv = op.nn.softmax(op.nn.conv2d(x, window, padding=1, kernel_size=3))
        return op.add(op.reshape_like(product, data), conv)

    biased = op.nn.bias_add(both(data, ""), var("bias", dtype=kind))
    return as_function(both(batch_norm_infer(biased, name="batch_norm"), "2"))


get_workload = workload(get_net, initializer=Constant())
