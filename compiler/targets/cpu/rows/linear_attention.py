"""Linear attention with a state: each token reads and writes a matrix of its head.

A unit of the work is a sequence, a head, and some columns of its state, which do not depend on one another. Its tokens are taken
one after another, so that a token's bits depend on those before it alone, not on the pieces of a call.
"""

from __future__ import annotations

from dataclasses import dataclass

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.expression import literal
from ..kernels.kernel import Kernel
from ..kernels.values import OUT_OF_RANGE
from ..kernels.writer import Writer, estimate, shape_of
from ..products.tile import BLOCK, VECTOR_BYTES, multiply_add
from ..target import Target

_NAMES = ("q", "k", "v", "state", "decay", "beta", "texts")
_MOST_VECTORS = 4  # columns of a unit: sums of as many side by side hide each other's latency


@dataclass(frozen=True)
class _Sizes:
    heads: int
    depth: int
    width: int
    decays: int  # of a head: 1 or depth

    @property
    def vectors(self) -> int:
        """Columns of a unit, in vectors."""
        return next(count for count in range(_MOST_VECTORS, 0, -1) if self.width % (count * BLOCK) == 0)

    @property
    def row(self) -> int:
        """Bytes of a row of a state."""
        return 4 * self.width

    @property
    def places(self) -> range:
        """Bytes from a unit's first column to each of its vectors."""
        return range(0, self.vectors * VECTOR_BYTES, VECTOR_BYTES)


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of linear_attention, alone in its definition, of float32, and a known depth and width, a multiple of 16."""
    if len(definition.nodes) != 1:
        return None
    (node,) = definition.nodes
    numbers = dict(zip(_NAMES, node.inputs, strict=False))
    params = len(definition.params)
    if max(node.inputs) >= params or definition.outputs != (params, params + 1):
        return None
    types = {name: definition.params[number] for name, number in numbers.items()}
    batch, length, heads, depth = shape_of(types["q"])
    known = (heads, depth, shape_of(types["v"])[3], shape_of(types["decay"])[3])
    if types["q"].dtype is not DType.float32 or not all(isinstance(each, int) and each for each in known):
        return None
    sizes = _Sizes(*known)  # type: ignore[arg-type]
    if sizes.width % BLOCK:
        return None
    blocks, state = sizes.width // (sizes.vectors * BLOCK), sizes.heads * sizes.depth * sizes.width
    write = Writer(definition, target, "linear attention")
    write.lanes = BLOCK
    for name, number in numbers.items():
        write.input(f"{name}_at", number)
    write.output("result_at", 0)
    write.output("new_at", 1)
    write.sizes(batch=batch, length=length, sequences=shape_of(types["state"])[0])
    if "texts" in numbers:
        _write_checks(write)
    write(f"units = sequences * {heads * blocks}")
    write.split("units", f"batch * length * {state} // {costs.STATE_ELEMENTS}")
    with write.block("for unit in range(first, last)"):
        write(f"number = unit // {heads * blocks}", f"rest = unit - number * {heads * blocks}")
        write(f"head = rest // {blocks}", f"column = (rest - head * {blocks}) * {sizes.vectors * VECTOR_BYTES}")
        if "texts" in numbers:
            write("row = load_int64(texts_at, number * 32)", "count = load_int64(texts_at, number * 32 + 8)")
        else:
            write("row = number * length", "count = length")
        write(f"held = (number * {heads} + head) * {depth * sizes.row} + column")
        with write.block(f"for step in range({depth})"):
            for at in sizes.places:
                place = f"step * {sizes.row} + {at}"
                write(f"vstore(new_at + held, {place}, vload_float32(state_at + held, {place}))")
        with write.block("for token in range(row, row + count)"):
            _write_token(write, sizes, target, **bound_attributes(node))
    tokens = estimate(dims.multiply(batch, length))
    return write.kernel(tokens * state / costs.STATE_ELEMENTS)


def _write_token(write: Writer, sizes: _Sizes, target: Target, scale: float, delta: bool) -> None:
    """Changes the columns of a state by a token, and computes its result."""
    heads, depth, row, places = sizes.heads, sizes.depth, sizes.row, sizes.places
    write(f"line = token * {heads} + head", f"x = q_at + line * {4 * depth}", f"w = k_at + line * {4 * depth}")
    write(f"decays = decay_at + line * {4 * sizes.decays}", f"here = line * {row} + column")
    if sizes.decays == 1:
        write("kept = splat_float32(load_float32(decays, 0))")
    write(*(f"sum_{at} = splat_float32(0.0)" for at in places))
    with write.block(f"for step in range({depth})"):
        if sizes.decays != 1:
            write("kept = splat_float32(load_float32(decays, step * 4))")
        write("key = splat_float32(load_float32(w, step * 4))")
        for at in places:
            write(f"old_{at} = vload_float32(new_at + held, step * {row} + {at}) * kept")
            write(f"vstore(new_at + held, step * {row} + {at}, old_{at})")
            write(multiply_add(f"sum_{at}", "key", f"old_{at}", target))
    write(*(f"value_{at} = vload_float32(v_at + here, {at})" for at in places))
    if delta:
        write("rate = splat_float32(load_float32(beta_at, line * 4))")
        write(*(f"value_{at} = (value_{at} - sum_{at}) * rate" for at in places))
    write(*(f"sum_{at} = splat_float32(0.0)" for at in places))
    with write.block(f"for step in range({depth})"):
        write("key = splat_float32(load_float32(w, step * 4))", "query = splat_float32(load_float32(x, step * 4))")
        for at in places:
            write(f"old_{at} = vload_float32(new_at + held, step * {row} + {at})")
            write(multiply_add(f"old_{at}", "key", f"value_{at}", target))
            write(f"vstore(new_at + held, step * {row} + {at}, old_{at})")
            write(multiply_add(f"sum_{at}", "query", f"old_{at}", target))
    write(*(f"vstore(result_at + here, {at}, sum_{at} * {literal(scale, DType.float32)})" for at in places))


def _write_checks(write: Writer) -> None:
    """Fails for a text that is not where it must be."""
    write("row = 0")
    with write.block("for text in range(sequences)"):
        write("begin = load_int64(texts_at, text * 32)", "count = load_int64(texts_at, text * 32 + 8)")
        with write.block("if begin != row or count < 0 or count > length - row"):
            write(f"return {OUT_OF_RANGE}")
        write("row += count")
    with write.block("if row != length"):
        write(f"return {OUT_OF_RANGE}")
