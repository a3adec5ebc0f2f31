"""What an attention kernel reads, copied to scratch memory as its tiles want it: queries scaled, keys transposed into panels,
values together; as float32, or as bfloat16 in pairs (`narrow`)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cached_property

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from .....formats.types import TensorType
from ....operators.attention import part_of, permuted
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.expression import literal
from ..kernels.writer import Writer, estimate, shape_of
from ..products.precision import BFLOAT16, FLOAT32
from ..products.tile import BLOCK, VECTOR_BYTES, Tile, choose
from ..target import Target
from .attention_operands import NAMES, SPAN, Layout, Operand


class Packing:
    """Operands and result are known by their logical axes: batch …, row, depth."""

    write: Writer

    def __init__(self, definition: PrimitiveDefinition, operands: dict[str, list[Operand]], target: Target) -> None:
        self.definition, self.target = definition, target
        self.node = definition.nodes[-1]
        self.attributes = bound_attributes(self.node)
        self.is_narrow = bool(self.attributes["narrow"])
        self.precision = BFLOAT16.on(target) if self.is_narrow else FLOAT32
        # "k", and, of what is joined from two tensors, "k_more" for the second
        self.numbers = {
            name if place == 0 else f"{name}_more": part.number
            for name, parts in operands.items()
            for place, part in enumerate(parts)
        }
        self.joined = {name: parts[0].rows for name, parts in operands.items() if len(parts) == 2}
        types = {name: definition.params[number] for name, number in self.numbers.items()}
        self.masks: dict[str, TensorType] = {name: types.pop(name) for name in ("mask", "bias") if name in types}
        self.mask = self.masks.get("mask")
        self.tensors = {**types, "out": definition.results[0]}
        rank = definition.results[0].rank
        self.orders = {
            name if place == 0 else f"{name}_more": part.order
            for name in "qkv"
            for place, part in enumerate(operands[name])
        }
        stored = [axis % rank for axis in self.attributes["result_axes"] or range(rank)]
        self.orders["out"] = tuple(stored.index(axis) for axis in range(rank))
        self.parts = {name: self.attributes.get(f"{name}_part") for name in self.tensors}
        whole = dict(zip(NAMES, (shape_of(definition.values[number]) for number in self.node.inputs), strict=False))
        axes = {name: self.attributes[f"{name}_axes"] for name in "qkv"}
        shapes = {name: permuted(part_of(whole[name], self.parts[name]), axes[name]) for name in "qkv"}
        (*self.batch, self.queries, self.depth), self.keys, self.width = shapes["q"], shapes["k"][-2], shapes["v"][-1]

    @property
    def is_possible(self) -> bool:
        rank = len(self.batch) + 2
        return (
            len(self.definition.outputs) == 1
            and all(type_.dtype is DType.float32 for type_ in self.tensors.values())
            and all(isinstance(size, int) and 0 < size <= costs.ATTENTION_ROW for size in (self.depth, self.width))
            and all(order[-1] == rank - 1 for order in self.orders.values())
            and all(part is None or part[0] < rank for part in self.parts.values())
        )

    @cached_property
    def rows(self) -> int:
        """Queries of a unit: few bands of equal size, since each transposes all keys; their sums stay in L2."""
        if not isinstance(self.queries, int):
            return costs.ATTENTION_BAND
        matrices, row = max(1, estimate(dims.product(self.batch))), Layout(1, 1, self.depth, self.width)
        most = max(costs.ATTENTION_LEAST_BAND, self.target.half_l2 // (row.query_row + row.sum_row))
        bands = max(
            1, -(-self.queries // most), min(costs.SOME_UNITS // matrices, self.queries // costs.ATTENTION_LEAST_BAND)
        )
        if matrices * bands % 2 and matrices * bands < costs.SOME_UNITS and self.queries >= 2 * costs.ATTENTION_TILED:
            bands += 1  # two threads would not share an odd number of units evenly
        return -(-self.queries // bands) or 1

    @property
    def is_online(self) -> bool:
        """Whether keys may take several spans, so that the sums of earlier ones must be kept."""
        return not isinstance(self.keys, int) or not 0 < self.keys <= SPAN

    @property
    def has_rest(self) -> bool:
        """Whether the last block of keys, or the last one of two, may be partial."""
        return not isinstance(self.keys, int) or self.keys % (2 * BLOCK if self.is_narrow else BLOCK) != 0

    @cached_property
    def tile(self) -> Tile:
        return replace(choose(self.rows, 2, self.target), precision=self.precision)

    @cached_property
    def layout(self) -> Layout:
        band = -(-self.rows // self.tile.rows) * self.tile.rows
        return Layout(band, self.tile.rows, self.depth, self.width, "k" in self.joined, self.is_narrow)

    def _write_sizes(self) -> None:
        write = self.write
        for name, number in self.numbers.items():
            write.input(f"{name}_at", number)
        write.output("out_at", 0)
        for axis, dim in enumerate(self.batch):
            write.size(f"batch_{axis}", dim)
        write.size("queries", self.queries)
        write.size("keys", self.keys)
        for name, type_ in self.tensors.items():
            shape, (part, index) = shape_of(type_), self.parts[name] or (type_.rank, 0)
            for axis, left in enumerate(self.orders[name][:-1]):
                stored = left + (left >= part)
                write.size(f"{name}_step_{axis}", dims.multiply(4, dims.product(shape[stored + 1 :])))
            if index:
                write.size(f"{name}_start", dims.multiply(4 * index, dims.product(shape[part + 1 :])))
                write(f"{name}_at = {name}_at + {name}_start")
        for name, rows in self.joined.items():
            write.size(f"{name}_first", rows)
        for name, type_ in self.masks.items():
            shape = shape_of(type_)
            for axis, dim in enumerate(shape, len(self.batch) + 2 - len(shape)):
                inner = dims.product(shape[axis - len(self.batch) - 2 + len(shape) + 1 :])
                write.size(f"{name}_step_{axis}", 0 if dim == 1 else dims.multiply(type_.dtype.itemsize, inner))
        start = 0
        for name, size in self.layout.parts.items():
            write(f"{name} = scratch + {start}")
            start += size

    def _step(self, name: str) -> str:
        """The bytes from one row of an operand to the next."""
        return f"{name}_step_{len(self.batch)}"

    def _write_queries(self, is_narrow: bool) -> None:
        """The band's queries, scaled; each padded with zeros to whole vectors. Narrow ones fill whole tiles, by the last query:
        a tile reads all its rows."""
        write, scale, step = self.write, literal(self.attributes["scale"], DType.float32), self.tile.rows
        written, row = ("rows", "row")
        if is_narrow:
            written, row = f"(rows + {step - 1}) // {step} * {step}", "min(row, rows - 1)"
        with write.block(f"for row in range({written})"):
            write(f"source = q + {row} * {self._step('q')}", f"target = queries_at + row * {self.layout.query_row}")
            self._write_row(self.depth, is_narrow, f" * {scale}")

    def _write_row(self, length: int, is_narrow: bool, scaled: str = "") -> None:
        """Copies the row at `source` to `target`."""
        rows = [f"vload_float32(source, {4 * at}{self._lanes(at, length)}){scaled}" for at in range(0, length, BLOCK)]
        if is_narrow:
            pairs = itertools.zip_longest(rows[::2], rows[1::2], fillvalue="splat_float32(0.0)")
            rows = [f"bfloat16_pairs({first}, {second})" for first, second in pairs]
        self.write(*(f"vstore(target, {place * VECTOR_BYTES}, {row})" for place, row in enumerate(rows)))

    @staticmethod
    def _lanes(at: int, length: int) -> str:
        """The ending of a load or store of the vector at that element of a row."""
        return f", {length - at}" if length - at < BLOCK else ""

    def _row(self, name: str, row: str) -> str:
        """The address of a row of keys or values."""
        if name not in self.joined:
            return f"{name} + ({row}) * {self._step(name)}"
        more = f"{name}_more + ({row} - {name}_first) * {self._step(f'{name}_more')}"
        return f"({name} + ({row}) * {self._step(name)}) if {row} < {name}_first else ({more})"

    def _write_panels(self) -> None:
        """Turns the span's keys, square by square; where rows end with half a square, the last one overlaps the one before."""
        write, depth = self.write, self.layout.lanes
        deep = min(BLOCK, depth)
        with write.block(f"for block in range((length + {BLOCK - 1}) // {BLOCK})"):
            write(f"left = min({BLOCK}, length - block * {BLOCK})")
            begin, step = self._write_block()
            with write.block(f"for corner in range(0, {depth}, {BLOCK})"):
                write(f"at = min(corner, {depth - deep})", f"source = {begin} + at * 4")
                write(f"target = panels + block * {VECTOR_BYTES * depth} + at * {VECTOR_BYTES}")
                with write.block(f"if left + {deep} == {2 * BLOCK}"):
                    write(f"transpose_uint32(source, {step}, target, {VECTOR_BYTES})")
                with write.block("else"):
                    write(f"transpose_uint32(source, {step}, target, {VECTOR_BYTES}, left, {deep})")

    def _write_block(self) -> tuple[str, str]:
        """Where a block of keys is, and the bytes from one to the next. Rounded ones, and those of both tensors, lie together."""
        write, begin, row = self.write, f"key + block * {BLOCK}", self.layout.query_row
        if self.is_narrow:
            self._write_lines(begin)
            return "block_of_both", str(row)
        if "k" not in self.joined:
            return self._row("k", begin), self._step("k")
        write(f"block_at = {self._row('k', begin)}")
        write(f"block_step = {self._step('k')} if {begin} < k_first else {self._step('k_more')}")
        with write.block(f"if {begin} < k_first < {begin} + left"):
            write("block_at = block_of_both", f"block_step = {row}")
            self._write_lines(begin)
        return "block_at", "block_step"

    def _write_lines(self, begin: str) -> None:
        """Copies a block of keys side by side."""
        with self.write.block("for line in range(left)"):
            row = self.layout.query_row
            self.write(f"source = {self._row('k', f'{begin} + line')}", f"target = block_of_both + line * {row}")
            self._write_row(self.depth, self.is_narrow)

    def _write_values(self) -> None:
        """Copies the span's values together: heads that are far apart share few sets of L1."""
        write, width = self.write, self.layout.sum_row
        if self.is_narrow:
            self._write_pairs()
            return
        with write.block("for at in range(length)"):
            write(f"source = {self._row('v', 'key + at')}", f"target = values + at * {width}")
            self._write_row(self.width, is_narrow=False)

    def _write_pairs(self) -> None:
        """The span's values as bfloat16, those of two keys together, of which the last may have a zero as its neighbour."""
        write = self.write
        with write.block("for at in range(0, length, 2)"):
            write(f"source = {self._row('v', 'key + at')}", f"target = values + at // 2 * {self.layout.sum_row}")
            write(f"second = {self._row('v', 'key + min(at + 1, length - 1)')}", "others = length - at - 1")
            for at in range(0, self.width, BLOCK):
                ending = f", min({min(BLOCK, self.width - at)}, {BLOCK} * others)"
                row = f"vload_float32(source, {4 * at}{self._lanes(at, self.width)})"
                write(f"vstore(target, {4 * at}, bfloat16_words({row}, vload_float32(second, {4 * at}{ending})))")
