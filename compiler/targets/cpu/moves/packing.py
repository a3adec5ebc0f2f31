"""Packing images into blocks of channels and back: squares of pixels by channels, transposed in registers; if the channels
of the unpacked image are last, vectors only move. For elements of four bytes and of one."""

from __future__ import annotations

from collections.abc import Callable

from .....formats import dims
from .....formats.primitive import PrimitiveDefinition
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, is_streamed, shape_of, write_streaming
from ..products.tile import BLOCK
from ..target import Target

_PIXELS = 256  # of one block of channels, that a unit of work covers
_PIXELS_OF_VECTORS = 32  # likewise, but of all blocks, where the channels lie last


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The template of pack_channels and unpack_channels for elements of four bytes or one, alone in their definition."""
    size = definition.params[0].dtype.itemsize
    if len(definition.nodes) != 1 or size not in (1, 4):
        return None
    (node,) = definition.nodes
    is_packing = node.operator == "pack_channels"
    plain = shape_of(definition.params[0] if is_packing else definition.results[0])
    is_last = bool(bound_attributes(node)["last"])
    write = Writer(definition, target, node.operator + (", channels last" if is_last else ""))
    write.lanes = BLOCK
    write.input("source", 0)
    write.output("target", 0)
    write.size("images", plain[0])
    write.size("channels", plain[-1] if is_last else plain[1])
    write.size("pixels", dims.product(plain[1:-1] if is_last else plain[2:]))
    span = _PIXELS_OF_VECTORS if is_last else _PIXELS
    write(f"blocks = (channels + {BLOCK - 1}) // {BLOCK}", f"spans = (pixels + {span - 1}) // {span}")
    units = "images * spans" if is_last else "images * blocks * spans"
    write.split(units, f"images * channels * pixels * {costs.PACK_PS} // 1000")
    with write.block("for unit in range(first, last)"):
        (_write_vectors if is_last else _write_unit)(write, is_packing, size)
    if is_streamed(definition.results[0]) and not is_packing and not is_last:
        write("streamed()")
    elements = estimate(dims.element_count(plain))
    return write.kernel(elements * costs.PACK_PS / 1000, BLOCK * BLOCK * size)


def _write_unit(write: Writer, is_packing: bool, size: int) -> None:
    write("plane = unit // spans", f"start = (unit - plane * spans) * {_PIXELS}")
    write("image = plane // blocks", "block = plane - image * blocks")
    write(
        f"planar = (image * channels + block * {BLOCK}) * pixels * {size}", f"blocked = plane * pixels * {BLOCK * size}"
    )
    write(f"count = min({BLOCK}, channels - block * {BLOCK})")
    with write.block(f"for pixel in range(start, min(start + {_PIXELS}, pixels), {BLOCK})"):
        write(f"rest = min({BLOCK}, pixels - pixel)")
        here, there = f"planar + pixel * {size}", f"blocked + pixel * {BLOCK * size}"
        with write.block(f"if count == {BLOCK} and rest == {BLOCK}"):
            if is_packing:
                _write_square(write, True, size, here, there, "")
            else:
                kinds = {"vstream": "streamed", "vstore": ""}
                _either_way(
                    write, here, size, lambda store: _write_square(write, False, size, here, there, kinds[store])
                )
        if is_packing and size == 1:  # some bytes of rows, and some rows, are slow to load where the CPU has no masks
            with write.block(f"elif rest == {BLOCK}"):
                _write_filled_rows(write, size, here, there)
        if not is_packing:
            with write.block(f"elif rest == {BLOCK}"):
                _either_way(write, here, size, lambda store: _write_rows(write, size, here, there, store))
        with write.block("else"):
            _write_square(write, is_packing, size, here, there, "partly")


def _either_way(write: Writer, planar: str, size: int, write_square: Callable[[str], None]) -> None:
    """A whole square's rows of the unpacked image, non-temporal if it fits into no cache."""
    streams = is_streamed(write.definition.results[0])
    write_streaming(write, streams, f"target + {planar} | pixels * {size}", write_square)


def _write_rows(write: Writer, size: int, planar: str, blocked: str, store: str) -> None:
    """A square of fewer channels, transposed in scratch: fully masked stores are slow."""
    kind, vector = f"uint{8 * size}", BLOCK * size
    write(f"transpose_{kind}(source + {blocked}, {vector}, scratch, {vector})", f"row = target + {planar}")
    with write.block("for channel in range(count)"):
        write(f"{store}(row, 0, vload_{kind}(scratch, channel * {vector}))", f"row += pixels * {size}")


def _write_filled_rows(write: Writer, size: int, planar: str, blocked: str) -> None:
    """A square of fewer channels, filled up with zeros in scratch."""
    kind, vector = f"uint{8 * size}", BLOCK * size
    write(f"row = source + {planar}")
    with write.block(f"for channel in range({BLOCK})"):
        with write.block("if channel < count"):
            write(f"vstore(scratch, channel * {vector}, vload_{kind}(row, 0))", f"row += pixels * {size}")
        with write.block("else"):
            write(f"vstore(scratch, channel * {vector}, splat_{kind}(0))")
    write(f"transpose_{kind}(scratch, {vector}, target + {blocked}, {vector})")


def _write_square(write: Writer, is_packing: bool, size: int, planar: str, blocked: str, how: str) -> None:
    turn, row, vector = f"transpose_uint{8 * size}", f"pixels * {size}", BLOCK * size
    turn += "_stream" * (how == "streamed")
    if is_packing:
        if how == "partly":
            # lanes beyond the last channel are zero, so that elementwise operators see no stray values there
            with write.block("for i in range(rest)"):
                write(f"vstore(target, {blocked} + i * {vector}, splat_uint{8 * size}(0))")
        counts = ", count, rest" if how == "partly" else ""
        write(f"{turn}(source + {planar}, {row}, target + {blocked}, {vector}{counts})")
    else:
        counts = ", rest, count" if how == "partly" else ""
        write(f"{turn}(source + {blocked}, {vector}, target + {planar}, {row}{counts})")


def _write_vectors(write: Writer, is_packing: bool, size: int) -> None:
    """All blocks of some pixels, written in order, so that no cache line is written twice."""
    write("image = unit // spans", f"start = (unit - image * spans) * {_PIXELS_OF_VECTORS}")
    write(f"end = min(start + {_PIXELS_OF_VECTORS}, pixels)", f"whole = channels // {BLOCK}")
    write(f"rest = channels - whole * {BLOCK}", f"row = channels * {size}", f"plane = pixels * {BLOCK * size}")
    blocked, plain = ("target", "source") if is_packing else ("source", "target")
    write(f"blocked = {blocked} + image * blocks * plane", f"plain = {plain} + image * pixels * row")
    each_pixel, each_block = "for pixel in range(start, end)", "for block in range(whole)"
    with write.block(each_block if is_packing else each_pixel):
        with write.block(each_pixel if is_packing else each_block):
            _write_vector(write, is_packing, size, "block", "")
        if not is_packing:
            with write.block("if rest > 0"):
                _write_vector(write, is_packing, size, "whole", ", rest")
    if is_packing:
        with write.block("if rest > 0"), write.block(each_pixel):
            _write_vector(write, is_packing, size, "whole", ", rest")


def _write_vector(write: Writer, is_packing: bool, size: int, block: str, count: str) -> None:
    here, there = f"{block} * plane + pixel * {BLOCK * size}", f"pixel * row + {block} * {BLOCK * size}"
    load = f"vload_uint{8 * size}"
    if is_packing:
        write(f"vstore(blocked, {here}, {load}(plain, {there}{count}))")
    else:
        write(f"vstore(plain, {there}, {load}(blocked, {here}){count})")
