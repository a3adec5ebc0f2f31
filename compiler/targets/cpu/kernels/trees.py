"""The template of tree_ensemble: nodes are data, which one loop walks, whatever the trees.

Eight rows go down a tree together, one step after the other and without a branch, so that their loads overlap: a step is
bound by how many instructions it has, not by what it waits for. The rows' columns lie side by side in the scratch memory. A
block of rows meets a block of trees, whose nodes stay in L1, before the next one. Of fewer than seven rows at the end of a block
of rows, four go down two trees together, and others one by one down eight, which are of no block: of large trees, a block is one.
After the depth of a tree's highest leaf, the walk ends where nothing moves any more.

The tables are untrusted: nodes and columns are taken modulo powers of two, and a tree's range is checked before it
is entered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from .....formats.primitive import PrimitiveDefinition
from ....operators.table import bound_attributes
from ....operators.trees import COLUMN_SCALE, TREE, columns_mask, link_word, neutral, node_words, power_of_two
from .. import costs
from ..target import Target
from .expression import literal
from .kernel import Kernel
from .writer import Writer, estimate, scaled, shape_of

_LANES = COLUMN_SCALE  # rows that go down a tree together
_ROWS = 4  # of a last group that go down two trees together
_MOST_GROUPS = 64  # of eight rows in a block


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of tree_ensemble, alone in its definition, with tables of known sizes; else None."""
    if len(definition.nodes) != 1 or definition.outputs != (4,):
        return None
    tables = [shape_of(param) for param in definition.params[1:]]
    if not all(isinstance(dim, int) for shape in tables for dim in shape):
        return None
    it = _Trees(definition, target)
    it.write_all()
    return it.write.kernel(estimate(shape_of(definition.params[0])[0]) * it.row_picoseconds / 1000, it.scratch_bytes)


class _Walk(NamedTuple):
    """Names of the variables of one of the eight walks."""

    tree: str
    reach: str
    row_at: str  # bytes from a column's first row to the walk's


class _Trees:
    """Variables: `columns_of` and `sums` are the addresses of a row group's columns and its part of the result, n0 … n7 offsets
    of its rows' nodes from the `tree`'s first one."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        attributes = bound_attributes(definition.nodes[0])
        x, nodes, trees, leaves = (shape_of(param) for param in definition.params)
        self.rows, self.columns, self.nodes, self.trees, self.leaves = x[0], int(x[1]), nodes[0], trees[0], leaves[0]  # type: ignore[arg-type]
        self.dtype, self.targets, self.aggregate = (
            definition.params[0].dtype,
            attributes["targets"],
            attributes["aggregate"],
        )
        self.has_copy = attributes["nan_as_least"]
        self.is_dense = leaves[0] != 0
        self.size = self.dtype.itemsize
        self.node_bytes = 4 * node_words(self.dtype)
        self.all_columns = self.columns * (2 if self.has_copy else 1)
        self.column_bytes = power_of_two(self.all_columns) * _LANES * self.size + costs.LINE_BYTES
        self.sum_bytes = self.targets * _LANES * self.size
        self.groups = min(max(1, costs.SMALL_L2_BYTES // 2 // (self.column_bytes + self.sum_bytes)), _MOST_GROUPS)
        self.scratch_bytes = self.groups * (self.column_bytes + self.sum_bytes)
        each = int(nodes[0]) // max(int(trees[0]), 1)  # type: ignore[arg-type]
        self.block = max(1, costs.HALF_L1_BYTES // max(each * self.node_bytes, 1))
        depth = max(1, each.bit_length())
        self.row_picoseconds = int(trees[0]) * depth * costs.TREE_STEP_PS + 1  # type: ignore[arg-type]
        kinds = [self.aggregate, self.dtype.name, "rows of leaves" * self.is_dense, "NaN as the least" * self.has_copy]
        self.write = Writer(definition, target, ", ".join(filter(None, ["tree_ensemble", *kinds])))

    def write_all(self) -> None:
        write = self.write
        write.inputs(range(4), "x", "nodes", "trees", "leaves")
        write.output("target", 0)
        write.sizes(rows=self.rows, columns=self.columns, targets=self.targets)
        write.sizes(node_count=self.nodes, tree_count=self.trees, leaf_count=self.leaves)
        write.sizes(most_groups=self.groups, tree_block=self.block, row_picoseconds=self.row_picoseconds)
        least = f"(rows // {costs.MANY_UNITS} + {_LANES - 1}) // {_LANES}"
        write(
            f"rows_each = {_LANES} * max(1, min(most_groups, {least}))", "units = (rows + rows_each - 1) // rows_each"
        )
        write.split("units", "rows * row_picoseconds // 1000")
        write(f"all_sums = scratch + most_groups * {self.column_bytes}")
        with write.block("for unit in range(first, last)"):
            write("row = unit * rows_each", "count = min(rows_each, rows - row)")
            write(f"groups = (count + {_LANES - 1}) // {_LANES}")
            write(f"whole = (count + {_LANES - costs.TREE_FEW_ROWS}) // {_LANES}")
            with write.block("for g in range(groups)"):
                self._write_places()
                self._write_columns()
                self._write_start()
            with write.block("for begin in range(0, tree_count, tree_block)"):
                write("end = min(begin + tree_block, tree_count)")
                with write.block("for g in range(whole)"):
                    self._write_places()
                    with write.block("for t in range(begin, end)"):
                        self._write_tree()
            with write.block("if whole < groups"):
                write("g = whole")
                self._write_places()
                self._write_few_rows()
            with write.block("for r in range(count)"):
                self._write_result()

    def _write_places(self) -> None:
        self.write(
            f"columns_of = scratch + g * {self.column_bytes}", f"sums = all_sums + g * targets * {self.size * _LANES}"
        )

    def _write_columns(self) -> None:
        """The columns of a group of rows; a partial group repeats its last row."""
        write, size, name = self.write, self.size, self.dtype.name
        with write.block(f"for lane in range({_LANES})"):
            write(f"source = x + min(row + g * {_LANES} + lane, rows - 1) * columns * {size}")
            write(f"place = columns_of + lane * {size}")
            with write.block("for c in range(columns)"):
                write(f"v = load_{name}(source, c * {size})")
                write(f"store_{name}(place, c * {_LANES * size}, v)")
                if self.has_copy:
                    least = f"v if v == v else convert_{name}({literal(float('-inf'), self.dtype)})"
                    write(f"store_{name}(place, (columns + c) * {_LANES * size}, {least})")
            with write.block(f"for c in range({self.all_columns}, {power_of_two(self.all_columns)})"):
                write(f"store_{name}(place, c * {_LANES * size}, convert_{name}(0.0))")

    def _write_start(self) -> None:
        name = self.dtype.name
        write = self.write
        with write.block(f"for k in range({_LANES} * targets)"):
            write(
                f"store_{name}(sums, k * {self.size}, convert_{name}({literal(neutral(self.aggregate), self.dtype)}))"
            )

    def _write_tree(self) -> None:
        """Eight rows down a tree."""
        self._write_head("t", "")
        self._write_walk(lambda lane: _Walk("tree", "reach", str(lane * self.size)))
        for lane in range(_LANES):
            if self.is_dense:
                self._write_row_of_leaves("tree", lane, f"{lane} * targets * {self.size}")
            else:
                self._write_weight("tree", "column_word", lane, str(lane * self.size))

    def _write_few_rows(self) -> None:
        """The rows of the last group: four of them down two trees together, and others one by one down eight."""
        write = self.write
        write(f"left = count - whole * {_LANES}", "taken = 0")
        with write.block(f"if left >= {_ROWS}"):
            write(f"taken = {_ROWS}")
            self._write_trees_together(_LANES // _ROWS)
        with write.block("if taken < left"):
            self._write_trees_together(_LANES)

    def _write_trees_together(self, trees: int) -> None:
        """Some rows down several trees together, whose weights are added in their order. Where there are fewer trees, the last
        one is walked again, and nothing added."""
        write, rows = self.write, _LANES // trees
        with write.block(f"for t in range(0, tree_count, {trees})"):
            for tree in range(trees):
                self._write_head(f"min(t + {tree}, tree_count - 1)", str(tree))
                if tree:
                    write(f"most = max(most, most{tree})", f"sure = min(sure, sure{tree})")
                else:
                    write("most = most0", "sure = sure0")
            with write.block("for r in range(taken, left)") if rows == 1 else contextlib.nullcontext():
                row = "r" if rows == 1 else "{}"
                walks = [
                    _Walk(f"tree{lane // rows}", f"reach{lane // rows}", f"{row} * {self.size}".format(lane % rows))
                    for lane in range(_LANES)
                ]
                self._write_walk(walks.__getitem__)
                for lane, walk in enumerate(walks):
                    tree = lane // rows
                    with write.block(f"if t + {tree} < tree_count"):
                        if self.is_dense:
                            at = f"{row.format(lane % rows)} * targets * {self.size}"
                            self._write_row_of_leaves(walk.tree, lane, at)
                        else:
                            self._write_weight(walk.tree, f"column_word{tree}", lane, walk.row_at)

    def _write_head(self, number: str, suffix: str) -> None:
        """Loads the header of a tree."""
        write = self.write
        write(f"head = trees + ({number}) * {4 * TREE.WORDS}")
        for word in (TREE.FIRST, TREE.REACH, TREE.LEAST, TREE.MOST):
            write(f"{word.name.lower()}_word = convert_int64(load_int32(head, {4 * word}))")
        write(f"column_word{suffix} = convert_int64(load_int32(head, {4 * TREE.COLUMN}))")
        with write.block("if first_word < 0 or reach_word < 0 or first_word + reach_word >= node_count"):
            write("return 1")
        write(f"tree{suffix} = nodes + first_word * {self.node_bytes}")
        write(f"reach{suffix} = reach_word * {self.node_bytes}")
        write(f"most{suffix} = min(most_word, reach_word + 1)")
        write(f"sure{suffix} = max(0, min(least_word, most{suffix}))")

    def _write_walk(self, walk: Callable[[int], _Walk]) -> None:
        """Eight walks, step by step, until none of them moves: a leaf's successor is itself."""
        write = self.write
        write(*(f"n{lane} = 0" for lane in range(_LANES)))
        with write.block("for s in range(sure)"):
            for lane in range(_LANES):
                self._write_step(lane, walk(lane))
                write(f"n{lane} = m{lane}")
        with write.block("for s in range(sure, most)"):
            for lane in range(_LANES):
                self._write_step(lane, walk(lane))
                change = f"(n{lane} ^ m{lane})"
                write(f"moved{lane} = {change}" if lane == 0 else f"moved{lane} = moved{lane - 1} | {change}")
                write(f"n{lane} = m{lane}")
            with write.block(f"if moved{_LANES - 1} == 0"):
                write("break")

    def _write_step(self, lane: int, walk: _Walk) -> None:
        """Defines a row's next node."""
        half = 4 * link_word(self.dtype)
        column = f"(convert_int64(load_int32({walk.tree}, n{lane} + {half // 2})) & {columns_mask(self.all_columns)})"
        value = f"load_{self.dtype.name}(columns_of, {column} * {self.size} + {walk.row_at})"
        self.write(f"goes{lane} = convert_int64({value} <= load_{self.dtype.name}({walk.tree}, n{lane}))")
        link = f"load_int32({walk.tree}, n{lane} + {half} + 4 * goes{lane})"
        self.write(f"m{lane} = convert_int64({link}) & {walk.reach}")

    def _combined(self, held: str, weight: str) -> str:
        """The minimum of sums propagates NaN, as in NumPy."""
        return (
            f"{held} + {weight}" if self.aggregate in ("sum", "average") else f"{self.aggregate}imum({held}, {weight})"
        )

    def _write_weight(self, tree: str, column: str, lane: int, row_at: str) -> None:
        write, name = self.write, self.dtype.name
        with write.block(f"if {column} < 0 or {column} >= targets"):
            write("return 1")
        write(f"held = sums + {column} * {_LANES * self.size} + {row_at}")
        write(f"store_{name}(held, 0, {self._combined(f'load_{name}(held, 0)', f'load_{name}({tree}, n{lane})')})")

    def _write_row_of_leaves(self, tree: str, lane: int, row_at: str) -> None:
        """Sums are [row, target] here."""
        write, name, size = self.write, self.dtype.name, self.size
        write(f"w{lane} = load_{name}({tree}, n{lane})")
        with write.block(f"if not (w{lane} >= 0.0 and w{lane} < convert_{name}(leaf_count))"):
            write("return 1")
        write(f"leaf{lane} = leaves + convert_int64(w{lane}) * targets * {size}")
        write(f"held{lane} = sums + {row_at}")
        with write.block(f"for k in range(0, targets, {write.lanes})"):
            write(f"rest = min(targets - k, {write.lanes})")
            held, weight = (f"vload_{name}({place}{lane}, k * {size}, rest)" for place in ("held", "leaf"))
            write(f"vstore(held{lane}, k * {size}, {self._combined(held, weight)}, rest)")

    def _write_result(self) -> None:
        write, name, size = self.write, self.dtype.name, self.size
        write(f"lane = r % {_LANES}", f"sums = all_sums + r // {_LANES} * targets * {_LANES * size}")
        with write.block("for k in range(targets)"):
            place = "lane * targets + k" if self.is_dense else f"k * {_LANES} + lane"
            value = f"load_{name}(sums, {scaled(f'({place})', size)})"
            if self.aggregate == "average":
                value += f" / convert_{name}(max(tree_count, 1))"
            write(f"store_{name}(target, ((row + r) * targets + k) * {size}, {value})")
