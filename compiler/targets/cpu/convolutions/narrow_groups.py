"""Groups of channels that do not begin on a block boundary: the channels that a block of results needs (its band), and masks that
exclude other groups' channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kernels.writer import Writer
from ..operators.packing import NarrowGroups
from ..products.tile import BLOCK, Tile


def narrow_groups(attributes: dict[str, Any]) -> NarrowGroups | None:
    """The groups of a convolution, if some do not begin on a block boundary."""
    sizes = [attributes.get(name, 0) for name in ("groups", "channels", "outputs")]
    return NarrowGroups(*sizes) if sizes[-1] else None


def write_channel_band_sizes(write: Writer, narrow: NarrowGroups) -> None:
    """The words that `write_channel_band` needs."""
    write.sizes(
        image_channels=narrow.count * narrow.channels,
        image_blocks=narrow.image_blocks,
        group_channels=narrow.channels,
        group_outputs=narrow.outputs,
        outputs=narrow.count * narrow.outputs,
    )


def write_channel_band(write: Writer) -> None:
    """Defines `image_block`, the first one with weights for result block `group`, and the range of channels from
    there on that are used: `band_begin` to `band_end`."""
    write(f"lowest = group * {BLOCK} // group_outputs * group_channels")
    write(f"image_block = min(lowest // {BLOCK}, image_blocks - channels)")
    write(f"band_begin = lowest - image_block * {BLOCK}", f"highest = min(group * {BLOCK} + {BLOCK}, outputs) - 1")
    write(f"band_end = (highest // group_outputs + 1) * group_channels - image_block * {BLOCK}")


def write_mask(write: Writer, channel: str) -> str:
    """Defines the mask of the lanes of result block `group` that are in the same group as a channel, counted from those of
    `image_block`; the name of that mask."""
    write(f"lane = (image_block * {BLOCK} + {channel}) // group_channels * group_outputs - group * {BLOCK}")
    write("of_group = inside(lane + group_outputs) & ~inside(lane)")
    return "of_group"


def write_exactly(write: Writer, tile: Tile, write_sums: Callable[[bool], None]) -> None:
    """The sums of narrow groups: first with the zero weights between groups. NaN may come from another group's infinity,
    times such a zero. If there is one, all is repeated: `write_sums(True)` masks other groups."""
    write_sums(False)
    sums = [tile.accumulator(i, j) for i in range(tile.rows) for j in range(tile.blocks)]
    with write.block(f"if any_lane({' | '.join(f'isnan({each})' for each in sums)})"):
        write_sums(True)
