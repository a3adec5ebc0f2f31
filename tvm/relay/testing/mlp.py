"""A perceptron of three layers."""

from __future__ import annotations

from .. import op
from ..expr import Function, var
from .init import workload
from .layers import as_function, dense_add_bias


def get_net(
    batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> Function:
    """The function."""
    x = op.nn.batch_flatten(var("data", shape=(batch_size, *image_shape), dtype=dtype))
    x = op.nn.relu(dense_add_bias(x, units=128, name="fc1"))
    x = op.nn.relu(dense_add_bias(x, units=64, name="fc2"))
    return as_function(op.nn.softmax(dense_add_bias(x, units=num_classes, name="fc3")))


get_workload = workload(get_net)
