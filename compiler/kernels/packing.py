"""Packing images into blocks of channels and back: squares of pixels by channels, turned in registers."""

from __future__ import annotations

from ...formats import dims
from ...formats.primitive import PrimitiveDefinition
from .kernel import Kernel
from .target import Target
from .tile import BLOCK, VECTOR_BYTES
from .writer import Writer, estimate, shape_of

_PIXELS = 256  # of one block of channels, that a unit of work covers
_PICOSECONDS = 120  # that an element takes


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The template of pack_channels and unpack_channels for elements of four bytes, alone in their definition."""
    if len(definition.nodes) != 1 or definition.params[0].dtype.itemsize != 4:
        return None
    (node,) = definition.nodes
    is_packing = node.operator == "pack_channels"
    plain = shape_of(definition.params[0] if is_packing else definition.results[0])
    write = Writer(definition, target, node.operator)
    write.lanes = BLOCK
    write.input("source", 0)
    write.output("target", 0)
    write.size("images", plain[0])
    write.size("channels", plain[1])
    write.size("pixels", dims.product(plain[2:]))
    write(f"blocks = (channels + {BLOCK - 1}) // {BLOCK}", f"spans = (pixels + {_PIXELS - 1}) // {_PIXELS}")
    write.split("images * blocks * spans", f"images * channels * pixels * {_PICOSECONDS} // 1000")
    with write.block("for unit in range(first, last)"):
        _write_unit(write, is_packing)
    elements = estimate(dims.element_count(plain))
    return write.kernel(elements * _PICOSECONDS / 1000)


def _write_unit(write: Writer, is_packing: bool) -> None:
    write("plane = unit // spans", f"start = (unit - plane * spans) * {_PIXELS}")
    write("image = plane // blocks", "block = plane - image * blocks")
    write(f"planar = (image * channels + block * {BLOCK}) * pixels * 4", f"blocked = plane * pixels * {VECTOR_BYTES}")
    write(f"count = min({BLOCK}, channels - block * {BLOCK})")
    with write.block(f"for pixel in range(start, min(start + {_PIXELS}, pixels), {BLOCK})"):
        write(f"rest = min({BLOCK}, pixels - pixel)")
        here, there = "planar + pixel * 4", f"blocked + pixel * {VECTOR_BYTES}"
        with write.block(f"if count == {BLOCK} and rest == {BLOCK}"):
            _write_square(write, is_packing, here, there, "")
        with write.block("else"):
            _write_square(write, is_packing, here, there, "partly")


def _write_square(write: Writer, is_packing: bool, planar: str, blocked: str, partly: str) -> None:
    if is_packing:
        if partly:
            # lanes behind the last channel are zero, so that no elementwise operator meets strange numbers there
            with write.block("for i in range(rest)"):
                write(f"vstore(target, {blocked} + i * {VECTOR_BYTES}, splat_uint32(0))")
        counts = ", count, rest" if partly else ""
        write(f"transpose_uint32(source + {planar}, pixels * 4, target + {blocked}, {VECTOR_BYTES}{counts})")
    else:
        counts = ", rest, count" if partly else ""
        write(f"transpose_uint32(source + {blocked}, {VECTOR_BYTES}, target + {planar}, pixels * 4{counts})")
