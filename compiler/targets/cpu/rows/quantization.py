"""The templates of quantize_rows and quantize_image, and of what is known of an image before: the range of each block of
channels, and scale and zero point of the whole (`operators/int8.py`). A row is passed over twice, for its range and its codes."""

from __future__ import annotations

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from ....operators.quantized import FACTS, LEAST, STEPS
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, shape_of
from ..operators.integers import WORD
from ..products.tile import BLOCK, VECTOR_BYTES
from ..target import Target

_SIDE_BY_SIDE = 2  # vectors of a row, to hide the latency of what is found of it


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of quantize_rows, alone in its definition."""
    if len(definition.nodes) != 1:
        return None
    *outer, depth = shape_of(definition.params[0])
    write = Writer(definition, target, "quantize_rows")
    write.input("x_at", 0)
    write.output("target", 0)
    write.sizes(rows=dims.product(outer), depth=depth)
    write(f"words = (depth + {WORD - 1}) // {WORD}", f"pitch = {WORD} * (words + {FACTS})")
    write.split("rows", f"rows * depth * {costs.QUANTIZE_PS} // 1000")
    with write.block("for row in range(first, last)"):
        write("x = x_at + row * depth * 4", "codes = target + row * pitch")
        write_range(write, "depth")
        write_facts(write)
        with write.block(f"for k in range(0, depth - depth % {write.lanes}, {write.lanes})"):
            write(f"vstore(codes, k, {coded('vload_float32(x, k * 4)')})")
        with write.block(f"if depth % {write.lanes}"):
            write(f"k = depth - depth % {write.lanes}")
            write(f"vstore(codes, k, {coded('vload_float32(x, k * 4, depth - k)')}, {WORD} * words - k)")
        write(f"vstore(codes, {WORD} * words, scale, 1)", f"vstore(codes, {WORD} * words + 4, convert_int32(zero), 1)")
    elements = estimate(dims.product([*outer, depth]))
    return write.kernel(elements * costs.QUANTIZE_PS / 1000)


def lower_ranges(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of image_ranges, alone in its definition."""
    image, write = _image_of(definition, target, "image_ranges")
    if write is None:
        return None
    channels = bound_attributes(definition.nodes[0])["channels"]
    write.output("target", 0)
    write.sizes(planes=dims.product(image[:2]), blocks=image[1], pixels=dims.product(image[2:-1]))
    write.size("last_channels", channels - (channels - 1) // BLOCK * BLOCK)
    write.split("planes", f"planes * pixels * {BLOCK * costs.QUANTIZE_PS} // 2000")
    with write.block("for plane in range(first, last)"):
        write(f"x = x_at + plane * pixels * {VECTOR_BYTES}")
        if channels % BLOCK:
            with write.block("if (plane + 1) % blocks == 0"):
                write_range(write, f"pixels * {BLOCK}", "last_channels")
            with write.block("else"):
                write_range(write, f"pixels * {BLOCK}")
        else:
            write_range(write, f"pixels * {BLOCK}")
        write("low = splat_float32(horizontal_minimum(low) + horizontal_sum(spoilt))")
        write("high = splat_float32(horizontal_maximum(high) + horizontal_sum(spoilt))")
        for at, name in enumerate(("low", "high")):
            write(f"{name} = select({name} == {name}, {name}, splat_float32(math.nan))")
            write(f"vstore(target, plane * 8 + {4 * at}, {name}, 1)")
    return write.kernel(estimate(dims.product(image)) * costs.QUANTIZE_PS / 2000)


def lower_facts(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of image_facts, alone in its definition."""
    if len(definition.nodes) != 1:
        return None
    images, blocks, _ = shape_of(definition.params[0])
    write = Writer(definition, target, "image_facts")
    write.input("x", 0)
    write.output("target", 0)
    write.sizes(images=images, blocks=blocks)
    write.split("images", "images * blocks")
    with write.block("for image in range(first, last)"):
        write(*(f"{name} = splat_float32(0)" for name in ("low", "high", "spoilt")))
        with write.block("for block in range(image * blocks, (image + 1) * blocks)"):
            write("least = splat_float32(load_float32(x, block * 8))", "low = select(least < low, least, low)")
            write("most = splat_float32(load_float32(x, block * 8 + 4))", "high = select(most > high, most, high)")
            write("spoilt = spoilt + least * 0.0")
        write_facts(write)
        write("zero = select(zero == zero, zero, splat_float32(math.nan))")
        write("vstore(target, image * 8, scale, 1)", "vstore(target, image * 8 + 4, zero, 1)")
    return write.kernel(estimate(images) * estimate(blocks))


def lower_image(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of quantize_image, alone in its definition. A unit is a line of the result, or a plane without pads."""
    image, write = _image_of(definition, target, "quantize_image")
    if write is None:
        return None
    *slices, columns = image[2:-1]
    if len(slices) > 1:
        return None
    pads = bound_attributes(definition.nodes[0])["pads"] or (0,) * 2 * (1 + len(slices))
    top, left, bottom, right = pads if slices else (0, pads[0], 0, pads[1])
    height, width = (slices[0] if slices else 1), columns
    if not any(pads):
        height, width = 1, dims.product(image[2:-1])
    write.input("facts", 1)
    write.output("target", 0)
    write.sizes(
        images=image[0], blocks=image[1], height=height, width=width, top=top, left=left, bottom=bottom, right=right
    )
    write("lines = height + top + bottom", f"line_bytes = (left + width + right) * {BLOCK}")
    write.split("images * blocks * lines", f"images * blocks * lines * line_bytes * {costs.QUANTIZE_PS} // 2000")
    with write.block("for unit in range(first, last)"):
        write("plane = unit // lines", "line = unit - plane * lines - top", "image = plane // blocks")
        write("scale = splat_float32(load_float32(facts, image * 8))", "factor = splat_float32(1) / scale")
        write(
            "zero = round_even(splat_float32(load_float32(facts, image * 8 + 4)))", "codes = target + unit * line_bytes"
        )
        write("point = saturated_uint8(zero)", f"begin = left * {BLOCK}", f"end = (left + width) * {BLOCK}")
        with write.block("if line < 0 or line >= height"):
            write("begin = line_bytes", "end = line_bytes")
        write(f"x = x_at + (plane * height + line) * width * {VECTOR_BYTES} - begin * 4")
        for span, code in (
            ("0, begin", "point"),
            ("begin, end", coded("vload_float32(x, at * 4)")),
            ("end, line_bytes", "point"),
        ):
            with write.block(f"for at in range({span}, {BLOCK})"):
                write(f"vstore(codes, at, {code})")
    return write.kernel(estimate(dims.product(image)) * costs.QUANTIZE_PS / 2000)


def _image_of(definition: PrimitiveDefinition, target: Target, title: str) -> tuple[tuple[Dim, ...], Writer | None]:
    """The shape of the image, at `x_at`, and a writer of vectors of a pixel's channels; none for more than one operator."""
    image = shape_of(definition.params[0])
    if len(definition.nodes) != 1:
        return image, None
    write = Writer(definition, target, title)
    write.lanes = BLOCK
    write.input("x_at", 0)
    return image, write


def write_range(write: Writer, count: str, channels: str = "", whole: str = "whole") -> None:
    """Defines `low`, `high` and `spoilt` of `count` elements from `x` on: the least one, the greatest one, and whether one is not
    finite, by a NaN in place of 0. Of each vector, the first `channels` count, if that is given. `whole`: a free name."""
    step, some, rest = write.lanes * _SIDE_BY_SIDE, range(_SIDE_BY_SIDE), f", {channels}" if channels else ""
    for i in some:
        write(*(f"{name}_{i} = splat_float32(0)" for name in ("low", "high", "spoilt")))

    def add(i: int, place: str) -> None:
        write(f"v = vload_float32(x, {place})", f"low_{i} = select(v < low_{i}, v, low_{i})")
        write(f"high_{i} = select(v > high_{i}, v, high_{i})", f"spoilt_{i} = spoilt_{i} + v * 0.0")

    write(f"{whole} = {count} - {count} % {step}")
    with write.block(f"for k in range(0, {whole}, {step})"):
        for i in some:
            add(i, f"k * 4 + {4 * i * write.lanes}{rest}")
    with write.block(f"for k in range({whole}, {count}, {write.lanes})"):
        add(0, f"k * 4{rest or f', {count} - k'}")
    write("low = select(low_0 < low_1, low_0, low_1)", "high = select(high_0 > high_1, high_0, high_1)")
    write("spoilt = spoilt_0 + spoilt_1")


def write_facts(write: Writer, steps: str = "steps") -> None:
    """Defines `scale`, `factor` and `zero` of a range, as vectors. `steps`: a free name."""
    write("low = splat_float32(horizontal_minimum(low))", "high = splat_float32(horizontal_maximum(high))")
    write("spoilt = splat_float32(horizontal_sum(spoilt))", f"{steps} = splat_float32({float(STEPS)})")
    write(
        f"scale = high / {steps} - low / {steps}", f"scale = select(scale > {LEAST!r}, scale, splat_float32({LEAST!r}))"
    )
    write("scale = select(spoilt == 0.0, scale, splat_float32(math.nan))")
    write("factor = splat_float32(1) / scale", "zero = round_even(splat_float32(0) - low * factor)")


def coded(elements: str) -> str:
    """The codes of a vector."""
    return f"saturated_uint8(round_even({elements} * factor) + zero)"
