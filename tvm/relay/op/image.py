"""`relay.image`: sizes of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....compiler.builder.programs import Expression, op
from ....formats.dims import Dim
from ....formats.messages.errors import InferenceError
from ..ty import dtype_name
from .dynamic import dims_of
from .layouts import transformed
from .sampling import affine_grid, crop_and_resize, dilation2d, grid_sample  # noqa: F401  (TVM has them here too)
from .table import Tensor, behind, operator, type_of

_METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}
_PLACES = {
    "half_pixel": "half_pixel",
    "pytorch_half_pixel": "pytorch_half_pixel",
    "align_corners": "align_corners",
    "asymmetric": "asymmetric",
    "": "asymmetric",
}
_ROUNDING = {
    "round": "round_prefer_ceil",
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
    "floor": "floor",
    "ceil": "ceil",
}


def resized(
    data: Expression,
    sizes: Sequence[Dim],
    method: str,
    places: str,
    rounding: str,
    alpha: float,
    exclude: bool,
    waits: Sequence[Expression] = (),
) -> Expression:
    """An image of channels first in another size, which `waits` bind; integers are interpolated as float32. Raises InferenceError
    for what is not in the tables above."""
    for what, table in ((method, _METHODS), (places, _PLACES), (rounding or "floor", _ROUNDING)):
        if what not in table:
            raise InferenceError(f"{what!r} is not supported; there are {', '.join(filter(None, table))}")
    own = type_of(data).dtype
    data = data if own.is_float or method == "nearest_neighbor" else op.cast(data, dtype="float32")
    rounding = rounding or ("round" if places == "align_corners" else "floor")
    for axis, size in enumerate(sizes, 2):
        if type_of(data).shape[axis] != size or places not in ("half_pixel", "align_corners", "asymmetric", ""):
            data = behind(
                "resize",
                data,
                waits,
                axis=axis,
                size=size,
                mode=_METHODS[method],
                coordinates=_PLACES[places],
                rounding=_ROUNDING[rounding],
                cubic=float(alpha),
                exclude_outside=bool(exclude),
            )
    return data if type_of(data).dtype is own else op.cast(data, dtype=own)


def _resize(plain: str) -> Callable[..., Any]:
    """`image.resize<n>d` of images in the layout `plain`."""
    count = len(plain) - 2

    @operator(f"image.resize{count}d", summary=f"Images {plain} in another size.")
    def resize(
        data: Tensor,
        size: Any,
        roi: Any = None,
        layout: str = plain,
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        cubic_alpha: float = -0.5,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
    ) -> Expression:
        waits, sizes = dims_of(size)
        sizes = sizes * count if len(sizes) == 1 else sizes
        mode, exclude = coordinate_transformation_mode, bool(cubic_exclude)
        channels_first = transformed(data, layout, plain)
        made = resized(channels_first, sizes, method, mode, rounding_method, cubic_alpha, exclude, waits)
        result = transformed(made, plain, layout)
        return op.cast(result, dtype=dtype_name(out_dtype)) if out_dtype else result

    return resize


resize1d, resize2d, resize3d = map(_resize, ("NCW", "NCHW", "NCDHW"))
