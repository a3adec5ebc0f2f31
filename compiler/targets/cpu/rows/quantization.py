"""The template of quantize_rows: two passes over a row, one for its range, one for its codes (`operators/int8.py`)."""

from __future__ import annotations

from .....formats import dims
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, shape_of
from ..operators.int8 import FACTS, LEAST, STEPS, WORD
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


def write_range(write: Writer, count: str) -> None:
    """Defines `low`, `high` and `spoilt` of `count` elements from `x` on: the least one, the greatest one, and whether one is not
    finite, by a NaN in place of 0."""
    step, some = write.lanes * _SIDE_BY_SIDE, range(_SIDE_BY_SIDE)
    for i in some:
        write(*(f"{name}_{i} = splat_float32(0)" for name in ("low", "high", "spoilt")))

    def add(i: int, place: str) -> None:
        write(f"v = vload_float32(x, {place})", f"low_{i} = select(v < low_{i}, v, low_{i})")
        write(f"high_{i} = select(v > high_{i}, v, high_{i})", f"spoilt_{i} = spoilt_{i} + v * 0.0")

    write(f"whole = {count} - {count} % {step}")
    with write.block(f"for k in range(0, whole, {step})"):
        for i in some:
            add(i, f"k * 4 + {4 * i * write.lanes}")
    with write.block(f"for k in range(whole, {count}, {write.lanes})"):
        add(0, f"k * 4, {count} - k")
    write("low = select(low_0 < low_1, low_0, low_1)", "high = select(high_0 > high_1, high_0, high_1)")
    write("spoilt = spoilt_0 + spoilt_1")


def write_facts(write: Writer) -> None:
    """Defines `scale`, `factor` and `zero` of a range, as vectors."""
    write("low = splat_float32(horizontal_minimum(low))", "high = splat_float32(horizontal_maximum(high))")
    write("spoilt = splat_float32(horizontal_sum(spoilt))", f"steps = splat_float32({float(STEPS)})")
    write("scale = high / steps - low / steps", f"scale = select(scale > {LEAST!r}, scale, splat_float32({LEAST!r}))")
    write("scale = select(spoilt == 0.0, scale, splat_float32(math.nan))")
    write("factor = splat_float32(1) / scale", "zero = round_even(splat_float32(0) - low * factor)")


def coded(elements: str) -> str:
    """The codes of a vector."""
    return f"saturated_uint8(round_even({elements} * factor) + zero)"
