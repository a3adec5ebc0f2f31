"""Joining, splitting and shuffling channels of channel-blocked images that do not end on a block boundary.

The pixels of a tile are first stored with all their channels side by side, in scratch, and read again from where
a block of the result begins. Lanes beyond an image's last channel are overwritten by the next image's. If parts of the
channels alternate, and their number is a power of two, vectors are interleaved in pairs, repeatedly.
"""

from __future__ import annotations

from collections.abc import Sequence

from .....formats import dims
from .....formats.primitive import PrimitiveDefinition
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, shape_of
from ..products.tile import BLOCK
from ..target import Target

_MOST_PIXELS = 32  # of a tile; with few, elements would be read before they have left the store buffer
_FIELDS = ("image_number", "lane_bytes", "first_block", "end_block", "image_blocks")


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The template of join_channels, alone in its definition."""
    (node,) = definition.nodes if len(definition.nodes) == 1 else (None,)
    if node is None or any(number >= len(definition.params) for number in node.inputs):
        return None
    attributes = bound_attributes(node)
    start, count, channels = attributes["start"], attributes["count"], attributes["channels"]
    turns, apart = attributes["turns"], attributes["apart"]
    first = definition.params[node.inputs[0]]
    image, size = shape_of(first), first.dtype.itemsize
    row = (-(-sum(channels) // BLOCK) + 2 | 1) * BLOCK * size
    tile = max(1, min(_MOST_PIXELS, costs.HALF_L1_BYTES // row))
    write = Writer(definition, target, "join_channels" + (f", {turns} in turns" if turns > 1 else ""))
    write.lanes = BLOCK
    write.output("result", 0)
    table = _entries([write.argument(number) for number in node.inputs], channels, start, start + count, size)
    write.sizes(images=image[0], pixels=dims.product(image[2:-1]), row=row, tile=tile, parts_apart=apart)
    write.sizes(blocks=-(-count // apart // BLOCK), start=size * start)
    write.sizes(part_bytes=size * count // (turns * apart), entries=len(table))
    write(f"table = words + {8 * len(write.words)}", "tiles = (pixels + tile - 1) // tile")
    write.words.extend(word for entry in table for word in entry)
    picoseconds = costs.CHANNELS_PS * BLOCK
    write.split("images * tiles", f"images * parts_apart * blocks * pixels * {picoseconds} // 1000")
    with write.block("for unit in range(first, last)"):
        write("image = unit // tiles", "begin = (unit - image * tiles) * tile", "width = min(tile, pixels - begin)")
        _write_pixels(write, size)
        with write.block("for part_apart in range(parts_apart)"):
            _write_blocks(write, turns, size)
    elements = estimate(dims.element_count(shape_of(definition.results[0])))
    return write.kernel(elements * costs.CHANNELS_PS / 1000, row * tile)


def _entries(
    words: Sequence[int], channels: tuple[int, ...], start: int, end: int, size: int
) -> list[tuple[int, int, int, int, int]]:
    """The values of `_FIELDS` for each image that has channels from `start` to `end`."""
    found, place = [], 0
    for word, count in zip(words, channels, strict=True):
        low, high = max(start - place, 0), min(end - place, count)
        if low < high:
            found.append((word, size * place, low // BLOCK, -(-high // BLOCK), -(-count // BLOCK)))
        place += count
    return found


def _write_pixels(write: Writer, size: int) -> None:
    vector = BLOCK * size
    with write.block("for number in range(entries)"):
        write(f"entry = table + number * {8 * len(_FIELDS)}")
        write(*(f"{name} = word(entry, {place})" for place, name in enumerate(_FIELDS)))
        write(f"source = word(args, image_number) + (image * image_blocks * pixels + begin) * {vector}")
        with write.block("for block in range(first_block, end_block)"):
            write(f"a = source + block * pixels * {vector}", f"b = scratch + lane_bytes + block * {vector}")
            with write.block("for pixel in range(width)"):
                write(f"vstore(b, pixel * row, vload_uint{8 * size}(a, pixel * {vector}))")


def _write_blocks(write: Writer, turns: int, size: int) -> None:
    """The blocks of one of the separate parts."""
    vector = BLOCK * size
    with write.block("for block in range(blocks)"):
        write(f"a = scratch + start + part_apart * part_bytes + block * {vector // turns}")
        write(f"b = result + (((image * parts_apart + part_apart) * blocks + block) * pixels + begin) * {vector}")
        with write.block("for pixel in range(width)"):
            write(f"vstore(b, pixel * {vector}, {_in_turns(range(turns), size)})")


def _in_turns(parts: Sequence[int], size: int) -> str:
    """A vector of the first channels of each part, interleaved."""
    if len(parts) == 1:
        return f"vload_uint{8 * size}(a, pixel * row + {parts[0]} * part_bytes)"
    return f"interleaved({_in_turns(parts[::2], size)}, {_in_turns(parts[1::2], size)})"
