"""`relay.vision`: regions of images."""

from __future__ import annotations

from typing import Any

from ....compiler.builder.programs import Expression, op
from ....formats.messages.errors import InferenceError
from ..._lazy import lazy
from .absent import VISION
from .boxes import (  # noqa: F401  (TVM has them here too)
    all_class_non_max_suppression,
    get_valid_counts,
    multibox_prior,
    multibox_transform_loc,
    non_max_suppression,
    roi_pool,
    yolo_reorg,
)
from .layouts import transformed
from .table import Tensor, operator, pair


@operator("vision.roi_align")
def roi_align(
    data: Tensor,
    rois: Tensor,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    layout: str = "NCHW",
    mode: str = "avg",
) -> Expression:
    """Regions [image, x, y, x, y] of images, each parted into bins."""
    modes = {"avg": "avg", b"avg": "avg", "max": "max_of_places", b"max": "max_of_places"}
    if mode not in modes:
        raise InferenceError(f"mode {mode!r}; there are avg and max")
    images = op.cast(
        op.squeeze(op.slice(rois, starts=(0,), ends=(1,), axes=(1,), steps=(1,)), axes=(1,)), dtype="int64"
    )
    boxes = op.slice(rois, starts=(1,), ends=(5,), axes=(1,), steps=(1,))
    found = op.roi_align(
        transformed(data, layout, "NHWC"),
        boxes,
        images,
        size=pair(pooled_size, 2),
        samples=max(int(sample_ratio), 0),
        scale=float(spatial_scale),
        mode=modes[mode],
    )
    return transformed(found, "NHWC", layout)


__getattr__, __dir__ = lazy(__name__, absent=VISION)
