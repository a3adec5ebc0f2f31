"""The generator of DCGAN (Radford et al., 2015)."""

from __future__ import annotations

from .. import op
from ..expr import Expr, Function, var
from .init import workload
from .layers import as_function, batch_norm_infer, conv2d_transpose


def _doubled(x: Expr, channels: int, layout: str, name: str) -> Expr:
    """An image of twice the size."""
    return conv2d_transpose(
        x,
        channels=channels,
        kernel_size=(4, 4),
        strides=(2, 2),
        padding=(1, 1),
        data_layout=layout,
        kernel_layout="IOHW" if layout == "NCHW" else "HWOI",
        name=name,
    )


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    code: Expr | None = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The function, from a code to an image of 64 by 64. Raises ValueError for another size or layout."""
    if tuple(oshape[-2:]) != (64, 64) or layout not in ("NCHW", "NHWC"):
        raise ValueError(f"oshape={oshape}, layout={layout!r}: expected images of 64 by 64, NCHW or NHWC")
    x: Expr = var("data", shape=(batch_size, random_len), dtype=dtype) if code is None else code
    x = op.nn.relu(op.nn.dense(x, var("dense_weight"), units=4 * 4 * ngf * 8))
    x = op.reshape(x, (-1, ngf * 8, 4, 4) if layout == "NCHW" else (-1, 4, 4, ngf * 8))
    for name, channels in (("g2", ngf * 4), ("g3", ngf * 2), ("g4", ngf)):
        x = _doubled(x, channels, layout, f"{name}_deconv")
        axis = layout.index("C")
        x = op.nn.relu(batch_norm_infer(x, epsilon=1e-5 + 1e-12, scale=False, axis=axis, name=f"{name}_batch_norm"))
    return as_function(op.tanh(_doubled(x, oshape[0], layout, "g5_deconv")))


get_workload = workload(get_net, "batch_size oshape ngf random_len layout dtype")
