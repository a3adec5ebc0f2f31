"""An operator on the bytes of an image's file: a host operator, made of Pillow."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from ...formats.dtypes import DType
from ...formats.errors import ExecutionError
from ...formats.types import UNKNOWN, TensorType
from .shapes import mismatch
from .table import Attribute, Fusion, Kind, register

# Of the formats that Pillow reads, those of the standard: others run programs, or are read by code that few look at.
FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


def _infer(inputs: Sequence[TensorType], pixel_format: str) -> TensorType:
    (encoded,) = inputs
    if encoded.dtype is not DType.uint8 or encoded.rank != 1:
        raise mismatch("the bytes of a file, uint8[n]", str(encoded))
    return TensorType(DType.uint8, (UNKNOWN, UNKNOWN, 1 if pixel_format == "Grayscale" else 3))


def _decoded(encoded: np.ndarray, pixel_format: str) -> np.ndarray:
    """[height, width, channels]; nothing of what cannot be decoded, or has more than 178 million pixels."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ExecutionError("images are decoded by Pillow: pip install 'treadle[host]'") from None
    try:
        # what Pillow warns of comes through: to silence it for a while is to do so for all threads
        with Image.open(io.BytesIO(encoded.tobytes()), formats=FORMATS) as image:
            pixels = np.array(image.convert(_MODES[pixel_format]))
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return np.zeros((0, 0, 1 if pixel_format == "Grayscale" else 3), np.uint8)
    if pixel_format == "Grayscale":
        return pixels[:, :, np.newaxis]
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels


register(
    "decode_image",
    "encoded",
    _infer,
    _decoded,
    Fusion.OPAQUE,
    "the pixels of an image's file, [height, width, channels]; none of what is no such file",
    attributes={"pixel_format": Attribute(Kind.STRING, "the channels and their order", "RGB", choices=tuple(_MODES))},
    data_dependent=True,
)
