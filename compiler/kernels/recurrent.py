"""The template of recurrent layers, fused over time: a sequence runs through all its steps in one call.

A step multiplies the hidden state with the recurrent weights, which come from the second cache again and again. So a tile
takes several sequences, as many as the registers hold gates for, and 16 units of each: what the activations need is in
registers when the sum is done. The last hidden state is read where it was stored, among the outputs. Sequences and
directions are independent of each other: they are the units of work. The tiles of a part go from step to step together.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...formats import dims
from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.primitive import PrimitiveDefinition
from .expression import bound_attributes, literal
from .kernel import Kernel
from .target import Target
from .tile import BLOCK, VECTOR_BYTES, multiply_add
from .writer import Writer, estimate, shape_of

_GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_MOST_ROWS = 6  # sequences of a tile: its text grows with them
_MACS_A_NANOSECOND = 16


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of rnn, gru or lstm, alone in its definition, of float32 and of a known number of units; else None."""
    (node,) = definition.nodes if len(definition.nodes) == 1 else (None,)
    params = len(definition.params)
    if node is None or node.inputs != tuple(range(params)):
        return None
    is_plain = definition.outputs == tuple(range(params, params + len(node.results)))
    hidden = shape_of(definition.params[2])[2]
    if not is_plain or definition.params[0].dtype is not DType.float32 or not isinstance(hidden, int) or not hidden:
        return None
    return _Layer(definition, target, hidden).kernel()


class _Layer:
    """Writes one layer. `row` is the first sequence of a tile, `before` and `after` are the addresses of its hidden states."""

    def __init__(self, definition: PrimitiveDefinition, target: Target, hidden: int) -> None:
        (self.node,) = definition.nodes
        self.target, self.hidden, self.blocks = target, hidden, -(-hidden // BLOCK)
        self.attributes = bound_attributes(self.node)
        self.operator, self.gates = self.node.operator, _GATES[self.node.operator]
        self.shape = shape_of(definition.params[0])  # [steps, batch, directions, gates, hidden]
        optional = {"rnn": ("lengths",), "gru": ("lengths",), "lstm": ("peephole", "lengths")}[self.operator]
        first = 3 if self.operator == "rnn" else 4
        self.optional = dict(zip(optional, range(first, len(definition.params)), strict=False))
        self.functions = self.attributes["activations"].split(" ")
        self.resets_before = self.operator == "gru" and not self.attributes["reset_after"]
        self.rows = self._choose_rows(self.shape[1])
        self.write = Writer(definition, target, f"{self.operator}, {self.rows} sequences at a time")
        self.write.lanes = BLOCK

    def _choose_rows(self, batch: Dim) -> int:
        """Sequences of a tile: their sums, a vector of weights for each gate and an element of the state fill the registers."""
        most = max(1, min(_MOST_ROWS, (self._registers - self.gates - 1) // self.gates))
        if "lengths" in self.optional:
            return 1  # each sequence has its own end
        if not isinstance(batch, int):
            return most
        tiles = max(1, -(-batch // most))
        return max(1, batch // tiles)

    @property
    def _registers(self) -> int:
        """Each of them, or several where they are shorter, holds a vector."""
        return self.target.vector_registers * self.target.vector_bytes // VECTOR_BYTES

    # ---- the kernel ----

    def kernel(self) -> Kernel:
        write, batch = self.write, self.shape[1]
        self._write_sizes()
        alone = "rest" if not isinstance(batch, int) or batch % self.rows else ""
        write(f"tiles = batch // {self.rows}", f"rest = batch - tiles * {self.rows}", "chains = tiles + rest")
        work = f"directions * batch * steps * {self.gates * self.hidden} * {self.hidden} // {_MACS_A_NANOSECOND}"
        write.split("directions * chains", work)
        write("unit = first")
        with write.block("while unit < last"):
            write("direction = unit // chains", "chain = unit - direction * chains")
            if alone and self.rows > 1:
                with write.block("if chain < tiles"):
                    write(self._side_by_side("tiles"), f"row = chain * {self.rows}")
                    self._write_chain(self.rows)
                with write.block("else"):
                    write(self._side_by_side("chains"), f"row = tiles * {self.rows} + chain - tiles")
                    self._write_chain(1)
            else:
                write(self._side_by_side("chains"), f"row = chain * {self.rows}")
                self._write_chain(self.rows)
            write("unit += count")
        macs = estimate(dims.product(self.shape)) * self.hidden
        return write.kernel(macs / _MACS_A_NANOSECOND, 2 * self._row_bytes * self.rows if self.resets_before else 0)

    def _side_by_side(self, end: str) -> str:
        """How many tiles are taken together, up to chain number `end`: one where sequences end at steps of their own, or need
        scratch memory from gate to gate."""
        is_alone = "lengths" in self.optional or self.resets_before
        return "count = 1" if is_alone else f"count = min(last - unit, {end} - chain)"

    @property
    def _row_bytes(self) -> int:
        """Of a sequence's state."""
        return 4 * self.hidden

    def _write_sizes(self) -> None:
        write = self.write
        for name, number in (("projected", 0), ("weights", 1), ("hidden", 2)):
            write.input(name, number)
        if self.operator != "rnn":
            write.input("cell" if self.operator == "lstm" else "bias", 3)
        for name, number in self.optional.items():
            write.input(name, number)
        for i, name in enumerate(("states", "last_hidden", "last_cell")[: len(self.node.results)]):
            write.output(name, i)
        for name, dim in zip(("steps", "batch", "directions"), self.shape, strict=False):
            write.size(name, dim)

    def _write_chain(self, rows: int) -> None:
        """`count` tiles of sequences from the first step to the last, side by side: what weights the second cache does not
        hold come from behind it once a step for all of them."""
        write, row_bytes = self.write, self._row_bytes
        write(f"place = (direction * batch + row) * {row_bytes}", "before_first = hidden + place")
        write(f"w_cell = weights + direction * {self.blocks * self._block_bytes}", "end = steps")
        if "lengths" in self.optional:
            dtype = self.write.definition.params[self.optional["lengths"]].dtype
            write(f"length = convert_int64(load_{dtype.name}(lengths, row * {dtype.itemsize}))")
            write("end = max(0, min(length, steps))")
        if self.operator == "lstm":
            write("c_first = last_cell + place")
            self._write_copy("cell + place", "c_first", rows)
        with write.block("for step in range(end)"):
            write(f"t = {self._step}", f"after_first = {self._state('t')}")
            write(f"p_first = projected + ((t * batch + row) * directions + direction) * {self.gates * row_bytes}")
            if self.resets_before:
                self._write_blocks(rows, (0, 1))
                self._write_blocks(rows, (2,))
            else:
                self._write_blocks(rows, range(self.gates))
            write("before_first = after_first")
        self._write_copy("before_first", "last_hidden + place", rows)
        if "lengths" in self.optional:
            with write.block("for t in range(end, steps)"):
                write(f"after = {self._state('t')}")
                with write.block(f"for i in range(0, {self.hidden}, {BLOCK})"):
                    write(f"vstore(after, i * 4, splat_float32(0.0), {self.hidden} - i)")

    @property
    def _step(self) -> str:
        """The step that is taken as number `step`."""
        if self.attributes["direction"] == "bidirectional":
            return "end - 1 - step if direction == 1 else step"
        return "step" if self.attributes["direction"] == "forward" else "end - 1 - step"

    def _state(self, step: str) -> str:
        return f"states + (({step} * directions + direction) * batch + row) * {self._row_bytes}"

    def _write_copy(self, source: str, target: str, rows: int) -> None:
        """Copies the states of neighbouring sequences."""
        write = self.write
        write(f"source = {source}", f"target = {target}", f"elements = count * {rows * self.hidden}")
        with write.block(f"for i in range(0, elements, {BLOCK})"):
            write("vstore(target, i * 4, vload_float32(source, i * 4, elements - i), elements - i)")

    # ---- a step ----

    @property
    def _block_bytes(self) -> int:
        """Of the weights of 16 units."""
        return self.hidden * self.gates * VECTOR_BYTES

    def _write_blocks(self, rows: int, gates: Sequence[int]) -> None:
        """Some gates of all units, and what comes of them."""
        width = self._width(rows * len(gates))
        whole = self.blocks - self.blocks % width
        with self.write.block(f"for block in range(0, {whole}, {width})"):
            self._write_tiles(rows, width, gates)
        if whole < self.blocks:
            with self.write.block(f"for block in range({whole}, {self.blocks})"):
                self._write_tiles(rows, 1, gates)

    def _write_tiles(self, rows: int, width: int, gates: Sequence[int]) -> None:
        """A block of units for each tile of the sequences."""
        write, tile_bytes = self.write, rows * self._row_bytes
        with write.block("for tile in range(count)"):
            write(f"before = before_first + tile * {tile_bytes}", f"after = after_first + tile * {tile_bytes}")
            write(f"p = p_first + tile * directions * {self.gates * tile_bytes}")
            if self.operator == "lstm":
                write(f"c = c_first + tile * {tile_bytes}")
            self._write_block(rows, width, gates)

    def _width(self, sums: int) -> int:
        """Blocks of 16 units at a time, of so many sums each.

        A core that reads from several blocks gets their weights sooner from the second cache: with half of the registers for
        sums, an LSTM takes a fifth less time than with a quarter of them.
        """
        most = max(1, self._registers // 2 // sums)
        return -(-self.blocks // -(-self.blocks // most))

    def _write_block(self, rows: int, width: int, gates: Sequence[int]) -> None:
        write, row_bytes = self.write, self._row_bytes
        places = [(i, j) for i in range(rows) for j in range(width)]
        write(f"here = block * {VECTOR_BYTES}")
        if self.hidden % BLOCK:
            write(f"lanes = {self.hidden} - block * {BLOCK}")
        for i, j in places:
            for gate in gates:
                write(f"{self._sum(i, j, gate)} = {self._start(i, j, gate)}")
        write(f"w = w_cell + block * {self._block_bytes}")
        write("x = scratch" if gates == (2,) else "x = before")
        with write.block(f"for _ in range({self.hidden})"):
            for j in range(width):
                for gate in gates:
                    write(f"w_{j}_{gate} = vload_float32(w, {j * self._block_bytes + gate * VECTOR_BYTES})")
            for i in range(rows):
                write(f"x_{i} = splat_float32(load_float32(x, {i * row_bytes}))")
                for j in range(width):
                    for gate in gates:
                        write(multiply_add(self._sum(i, j, gate), f"x_{i}", f"w_{j}_{gate}", self.target))
            write("x += 4", f"w += {self.gates * VECTOR_BYTES}")
        finish = {"rnn": self._finish_rnn, "gru": self._finish_gru, "lstm": self._finish_lstm}[self.operator]
        if self.resets_before:
            finish = self._finish_reset if gates == (0, 1) else self._finish_after_reset
        for i, j in places:
            finish(i, j)

    def _sum(self, row: int, block: int, gate: int) -> str:
        return f"sum_{row}_{block}_{gate}"

    def _start(self, i: int, j: int, gate: int) -> str:
        """What the state's part of a gate is added to."""
        if self.operator == "gru" and gate == 2:
            return self._load("bias", j, f"direction * {self._row_bytes}")
        return self._projected(i, j, gate)

    def _projected(self, i: int, j: int, gate: int) -> str:
        text = f"vload_float32(p, here + {gate * self._row_bytes + j * VECTOR_BYTES}"
        if i:
            text += f" + directions * {i * self.gates * self._row_bytes}"
        return text + self._count(j) + ")"

    def _count(self, j: int) -> str:
        """The argument of loads and stores that keeps them in the state."""
        if self.hidden % BLOCK == 0:
            return ""
        return f", lanes - {j * BLOCK}" if j else ", lanes"

    def _load(self, name: str, j: int, offset: str) -> str:
        return f"vload_float32({name}, here + {j * VECTOR_BYTES} + {offset}{self._count(j)})"

    def _store(self, name: str, i: int, j: int, value: str) -> None:
        self.write(f"vstore({name}, here + {i * self._row_bytes + j * VECTOR_BYTES}, {value}{self._count(j)})")

    def _state_of(self, name: str, i: int, j: int) -> str:
        return self._load(name, j, str(i * self._row_bytes))

    def _activated(self, function: int, value: str) -> str:
        if self.attributes["clip"] is not None:
            bound = literal(self.attributes["clip"], DType.float32)
            value = f"maximum(-{bound}, minimum({bound}, {value}))"
        return f"{self.functions[function]}({value})"

    # ---- what comes of the sums ----

    def _finish_rnn(self, i: int, j: int) -> None:
        self._store("after", i, j, self._activated(0, self._sum(i, j, 0)))

    def _finish_gru(self, i: int, j: int) -> None:
        z, r, n = (self._sum(i, j, gate) for gate in range(3))
        self.write(f"n = {self._projected(i, j, 2)} + {self._activated(0, r)} * {n}")
        self._write_blend(i, j, self._activated(0, z))

    def _finish_reset(self, i: int, j: int) -> None:
        """Puts r * h and z into the scratch memory: the last gate sees r * h of all units."""
        self._store("scratch", i, j, f"{self._activated(0, self._sum(i, j, 1))} * {self._state_of('before', i, j)}")
        self.write(f"z_at = scratch + {self.rows * self._row_bytes}")
        self._store("z_at", i, j, self._activated(0, self._sum(i, j, 0)))

    def _finish_after_reset(self, i: int, j: int) -> None:
        self.write(f"z_at = scratch + {self.rows * self._row_bytes}")
        self.write(f"n = {self._projected(i, j, 2)} + {self._sum(i, j, 2)}")
        self._write_blend(i, j, self._state_of("z_at", i, j))

    def _write_blend(self, i: int, j: int, z: str) -> None:
        """The new state, of the old one and what n says."""
        write = self.write
        write(f"n = {self._activated(1, 'n')}", f"z = {z}", f"h = {self._state_of('before', i, j)}")
        self._store("after", i, j, "n + z * (h - n)")

    def _finish_lstm(self, i: int, j: int) -> None:
        write = self.write
        into, out, keep, new = (self._sum(i, j, gate) for gate in range(4))
        write(f"old = {self._state_of('c', i, j)}")
        if "peephole" in self.optional:
            into, keep = f"{into} + {self._peephole(j, 0)} * old", f"{keep} + {self._peephole(j, 2)} * old"
        write(f"kept = {self._activated(0, keep)} * old")
        write(f"new = kept + {self._activated(0, into)} * {self._activated(1, new)}")
        self._store("c", i, j, "new")
        if "peephole" in self.optional:
            out = f"{out} + {self._peephole(j, 1)} * new"
        self._store("after", i, j, f"{self._activated(0, out)} * {self.functions[2]}(new)")

    def _peephole(self, j: int, number: int) -> str:
        return self._load("peephole", j, f"(direction * 3 + {number}) * {self._row_bytes}")
