"""Decoding of image files: a host operator, by Pillow."""

from __future__ import annotations

import contextlib
import io
import math
import os
import select
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...formats.dtypes import DType
from ...formats.messages.errors import ExecutionError
from ...formats.metering import STEPS, look, pay, step
from ...formats.types import UNKNOWN, TensorType
from ...native import processes
from .shapes import mismatch
from .table import Attribute, Fusion, Kind, register

# Of Pillow's formats, those of the standard: others run programs, or have rarely reviewed readers.
FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


def _infer(inputs: Sequence[TensorType], pixel_format: str) -> TensorType:
    (encoded,) = inputs
    if encoded.dtype is not DType.uint8 or encoded.rank != 1:
        raise mismatch("the bytes of a file, uint8[n]", str(encoded))
    return TensorType(DType.uint8, (UNKNOWN, UNKNOWN, 1 if pixel_format == "Grayscale" else 3))


def _decoded(encoded: np.ndarray, pixel_format: str) -> np.ndarray:
    """[height, width, channels]; empty if it cannot be decoded, or has more than 178 million pixels."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ExecutionError("images are decoded by Pillow: pip install 'treadle[host]'") from None
    pay(3 * encoded.nbytes)
    try:
        # Pillow's warnings pass: silencing them for a while would do so for all threads
        pixels = _pixels(Image, _bare(encoded.tobytes()), _MODES[pixel_format])
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return np.zeros((0, 0, 1 if pixel_format == "Grayscale" else 3), np.uint8)
    if pixel_format == "Grayscale":
        return pixels[:, :, np.newaxis]
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels


def _pixels(library: Any, data: bytes, mode: str) -> np.ndarray:
    """Decodes by Pillow, whose memory is accounted for in advance. Raises Pillow's errors."""
    file = _File(data)
    if (size := _webp_size(data)) is not None:  # allocates memory when opened
        library._decompression_bomb_check(size)
        pay(math.prod(size) * _PIXEL_BYTES["WEBP"])
        if math.prod(size) > _FEW["WEBP"]:
            return _decoded_aside(data, "WEBP", mode, size[::-1])
    pay(min(_MOST_NOTES, data.count(b"zTXt") + data.count(b"iTXt") + data.count(b"iCCP")) * _NOTE_BYTES)
    with library.open(file, formats=FORMATS) as image:
        file.times = 1
        count = image.width * image.height
        if size is None:
            pay(count * _PIXEL_BYTES.get(image.format, max(_PIXEL_BYTES.values())))
        if image.format == "TIFF":
            pay(_tile_bytes(image))
        if count > _FEW.get(image.format, count):
            return _decoded_aside(data, image.format, mode, (image.height, image.width))
        return np.array(image.convert(mode))


# Most bytes per pixel of Pillow and its libraries: two images of 4 bytes, copies of the rows, and a library's
# own data: coefficients of JPEG, numbers of JPEG 2000, two canvases of WebP, a strip of TIFF.
_PIXEL_BYTES = {"BMP": 20, "PPM": 20, "PNG": 20, "JPEG": 28, "TIFF": 32, "WEBP": 36, "JPEG2000": 52}
_TILE_WIDTH, _TILE_HEIGHT = 322, 323  # tags of TIFF
_TILE_BYTES = 16  # most bytes of a pixel in a tile
_NOTE_BYTES, _MOST_NOTES = (
    1 << 20,
    64,
)  # inflated size of a text chunk of PNG, and the number of these that Pillow takes
_TAG_TIMES = 20  # bytes of memory per byte of a TIFF tag: two of them are a Python number


class _File(io.BytesIO):
    """A file in memory. Reads are counted, since they copy: many TIFF tags may refer to the same bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.times = _TAG_TIMES if data[:2] in (b"II", b"MM") else 1

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        pay(self.times * len(data))
        step(1 + len(data) // STEPS)
        return data


def _webp_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a WebP's canvas (RFC 9649); None for other formats."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    if data[12:16] == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


def _tile_bytes(image: Any) -> int:
    """Bytes of a TIFF tile, which may be larger than the image."""
    sides = [image.tag_v2.get(tag, 0) for tag in (_TILE_WIDTH, _TILE_HEIGHT)]
    return _TILE_BYTES * math.prod(side if isinstance(side, int) else 0 for side in sides)


def _bare(data: bytes) -> bytes:
    """A JPEG without EXIF data, which is an embedded TIFF and does not change pixels; other files unchanged."""
    if data[:2] != b"\xff\xd8":
        return data
    kept, at = [data[:2]], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] not in (0xDA, 0xD9):
        marker = data[at + 1]
        has_size = marker not in (0x01, 0xFF) and not 0xD0 <= marker <= 0xD7
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") if has_size else at + (1 if marker == 0xFF else 2)
        if marker in (0xE0, 0xEE) or not 0xE0 <= marker <= 0xEF:  # JFIF, and Adobe's, which defines the colours
            kept.append(data[at:end])
        at = end
        step(1)
    return b"".join([*kept, data[at:]])


# ---- in another process ----

# Pixels that take about 50 ms, by formats whose libraries decode all in one call that holds the GIL
_FEW = {"JPEG2000": 1 << 16, "WEBP": 1 << 22}
_DECODE = """
import io, sys
from PIL import Image
with Image.open(io.BytesIO(sys.stdin.buffer.read()), formats=(sys.argv[2],)) as image:
    sys.stdout.buffer.write(image.convert(sys.argv[1]).tobytes())
"""


def _decoded_aside(data: bytes, form: str, mode: str, shape: tuple[int, int]) -> np.ndarray:
    """Decodes in a child process, which ends with its last waiter. Raises ExecutionError if it cannot be started."""
    process = processes.start(
        _DECODE, mode, form, stdin=processes.PIPE, stdout=processes.PIPE, stderr=processes.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    pixels = np.empty((*shape, len(mode)), np.uint8)
    rest = pixels.reshape(-1).data
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(data)
            process.stdin.close()
        while len(rest):
            look()
            if select.select([process.stdout], [], [], _PERIOD)[0]:
                count = os.readv(process.stdout.fileno(), [rest])
                if not count:
                    raise OSError("the image cannot be decoded")
                rest = rest[count:]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with contextlib.suppress(OSError):
            process.stdin.close()
    return pixels if len(mode) > 1 else pixels[:, :, 0]


_PERIOD = 0.01  # seconds between two polls

# fmt: off
register("decode_image", "encoded", _infer, _decoded, Fusion.OPAQUE,
         "the pixels of an image's file, [height, width, channels]; none for any other file",
         attributes={"pixel_format": Attribute(Kind.STRING, "the channels and their order", "RGB", choices=tuple(_MODES))},
         data_dependent=True, inflates=True)
# fmt: on
