"""The template of recurrent layers, fused over time: a sequence runs through all its steps in one call.

A step multiplies the hidden state with the recurrent weights, which come from L2 again and again. So a tile
takes as many sequences as the registers hold gates for, and 16 units of each: the operands of the activations are in
registers when the sum is done. The last hidden state is read from the outputs, where it was stored. The tiles of a part go
from step to step together.

Sequences and directions are independent: they are the units of work. If there are too few of these, or too many weights
for L2, all parts take every step together, and each computes a share of the units: half of the
weights may fit into a cache that the whole does not. Then a step is a *phase* (two, if the reset gate comes before
the product), and a share is, in the call's notes, a word: twice the phase that it waits for, one more when it is taken.
A part first takes its own share, and keeps it from then on; then any free one, so that no part depends on another's
progress; and continues when all shares are done.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence

from .....formats import dims
from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.expression import literal
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, shape_of
from ..products.precision import BFLOAT16, FLOAT32, QUANTISED
from ..products.tile import BLOCK, VECTOR_BYTES, multiply_add
from ..target import Target
from .quantization import coded, write_facts, write_range

_GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_OPERANDS = {
    "rnn": ("projected", "weights", "hidden", "lengths"),
    "gru": ("projected", "weights", "hidden", "bias", "lengths"),
    "lstm": ("projected", "weights", "hidden", "cell", "peephole", "lengths"),
}
_PRECISIONS = {DType.float32: FLOAT32, DType.bfloat16: BFLOAT16, DType.int8: QUANTISED}
_MOST_ROWS = 12  # sequences of a tile: its text grows with them
_ROWS = (4, 3, 2, 1)  # … where their number is not known: as many as possible of each, one after the other
_SHARES = 8  # at most; each of their words has two cache lines of its own, which processors like to fetch together
_LINE = 2 * costs.LINE_BYTES // 8  # words
_STEPS_OF_HALVES = 8  # 8 * 2 * 15 * 128 is less than 2^15
_PATIENCE = 20_000  # looks at a share that is not done, and one a nanosecond of a step: who waits longer leaves


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of rnn, gru or lstm, alone in its definition, of float32 and of a known number of units; else None."""
    (node,) = definition.nodes if len(definition.nodes) == 1 else (None,)
    params = len(definition.params)
    if node is None or max(node.inputs) >= params:
        return None
    is_plain = definition.outputs == tuple(range(params, params + len(node.results)))
    projected, state = (definition.params[node.inputs[operand]] for operand in (0, 2))
    hidden = shape_of(state)[2]
    if not is_plain or projected.dtype is not DType.float32 or not isinstance(hidden, int) or not hidden:
        return None
    return _Layer(definition, target, hidden).kernel()


class _Layer:
    """Writes one layer. `row` is the first sequence of a tile, `before` and `after` are the addresses of its hidden states."""

    def __init__(self, definition: PrimitiveDefinition, target: Target, hidden: int) -> None:
        (self.node,) = definition.nodes
        self.target, self.hidden, self.blocks = target, hidden, -(-hidden // BLOCK)
        self.attributes = bound_attributes(self.node)
        self.operator, self.gates = self.node.operator, _GATES[self.node.operator]
        # the parameter that an operand is: one may be two of them, such as zeros for both first states
        self.operands = dict(zip(_OPERANDS[self.operator], self.node.inputs, strict=False))
        # [steps, batch, directions, gates, hidden]
        self.shape = shape_of(definition.params[self.operands["projected"]])
        self.precision = _PRECISIONS[definition.params[self.operands["weights"]].dtype].on(target)
        self.depth = -(-hidden // self.precision.each)  # steps of a sum
        # multiply-adds a nanosecond
        self.macs = int(costs.RECURRENT_BYTES * target.byte_speed) if self.precision.facts else costs.RECURRENT_MACS
        self.functions = self.attributes["activations"].split(" ")
        self.resets_before = self.operator == "gru" and not self.attributes["reset_after"]
        self.rows = self._choose_rows(self.shape[1])
        # for one sequence, codes are split in two of four bits
        self.halves = target.dot_halves if self.precision.facts and self.rows == 1 else ""
        self.is_far = self.blocks * self._block_bytes > target.half_l2
        self.is_shareable = self._groups(1, range(self.gates)) > 1
        self.write = Writer(definition, target, f"{self.operator}, {self.rows} sequences at a time")
        self.write.lanes = BLOCK

    def _choose_rows(self, batch: Dim) -> int:
        """Sequences of a tile: sums, a vector of weights for each gate and an element of the state fill the registers."""
        most = self._most_rows(self.gates)
        if not isinstance(batch, int):
            return next(rows for rows in _ROWS if rows <= most)
        if batch > most and self.operator == "lstm":
            most = self._most_rows(self.gates // 2)
        tiles = max(1, -(-batch // most))
        return max(1, -(-batch // tiles))

    def _most_rows(self, gates: int) -> int:
        """The most sequences whose sums of some gates fit into the registers."""
        return max(1, min(_MOST_ROWS, (self.target.block_registers - gates - 1) // gates))

    def _passes(self, rows: int) -> int:
        """Passes over the weights for a tile of `rows` sequences: an LSTM may take half of the gates at a time."""
        return 2 if self.operator == "lstm" and (rows > self._most_rows(self.gates) or self.halves) else 1

    # ---- the kernel ----

    def kernel(self) -> Kernel:
        write, batch = self.write, self.shape[1]
        self._write_sizes()
        is_known = isinstance(batch, int)
        if is_known:  # tiles of all rows, then of one less
            write(f"chains = (batch + {self.rows - 1}) // {self.rows}", f"tiles = batch - chains * {self.rows - 1}")
        else:
            write("chains = 0", "left = batch")
            for rows in _ROWS[_ROWS.index(self.rows) :]:
                write(f"row_{rows} = batch - left - chains * {rows}", f"chains += left // {rows}")
                write(f"left = left % {rows}", f"tiles_{rows} = chains")
        write("units = directions * chains")
        work = f"directions * batch * steps * {self.gates * self.hidden} * {self.hidden} // {self.macs}"
        if self.is_shareable:
            self._write_shares(work)
        write.split("units", work)
        write("unit = first")
        with write.block("while unit < last"):
            write("direction = unit // chains", "chain = unit - direction * chains")
            if not is_known:
                self._write_chains(_ROWS[_ROWS.index(self.rows) :])
            elif batch % self.rows:
                write("whole = max(0, min(tiles, chain + last - unit) - chain)")
                counts = {self.rows: "whole", self.rows - 1: "count - whole"}
                self._write_chain("chains", f"chain * {self.rows} - max(0, chain - tiles)", counts)
            else:
                self._write_chain("chains", f"chain * {self.rows}", {self.rows: "count"})
            write("unit += count")
        macs = estimate(dims.product(self.shape)) * self.hidden
        scratch = self._sums * VECTOR_BYTES + (self.rows * self._words_bytes if self.precision.takes_words else 0)
        return write.kernel(macs / self.macs, scratch)

    def _write_chains(self, kinds: Sequence[int]) -> None:
        """The chain of tiles whose rows the chain's number selects."""
        rows, *others = kinds
        arguments = f"tiles_{rows}", f"row_{rows} + chain * {rows}", {rows: "count"}
        if not others:
            self._write_chain(*arguments)
            return
        with self.write.block(f"if chain < tiles_{rows}"):
            self._write_chain(*arguments)
        with self.write.block("else"):
            self._write_chains(others)

    def _write_shares(self, work: str) -> None:
        """Decides whether parts take steps together, and if so, gives this one all units, and a share of their steps."""
        write, each = self.write, max(1, self.rows * self.gates * self.hidden**2 // self.macs)
        write.notes("notes")
        with write.block("if part < 0"):
            together = f"units * {each} + {costs.MEETING_NS} * directions * parts < (units + parts - 1) // parts * parts * {each}"
            write(f"is_shared = {'units > 0' if self.is_far else together}")
            write(f"atomic_store(notes, {_SHARES * _LINE}, 1 if is_shared else 0)")
            with write.block("if is_shared"):
                with write.block(f"for share in range({_SHARES})"):
                    write(f"atomic_store(notes, share * {_LINE}, 0)")
                write(f"return min(parts, parts_for({work}, {_SHARES}, parts))")
        write("shares = 1", "own = 0", "phase = 0")
        with write.block(f"if parts > 1 and atomic_load(notes, {_SHARES * _LINE}) == 1"):
            write(f"shares = min(parts, {_SHARES})", "own = part", "part = 0", "parts = 1")
            with write.block("if own >= shares"):
                write("return 0")
        write("is_held = 1 if shares == 1 else 0")
        write(f"patience = {_PATIENCE} + units * {each}")

    @property
    def _row_bytes(self) -> int:
        """Bytes of a sequence's state."""
        return 4 * self.hidden

    def _write_sizes(self) -> None:
        write = self.write
        for name, number in self.operands.items():
            write.input(name, number)
        for i, name in enumerate(("states", "last_hidden", "last_cell")[: len(self.node.results)]):
            write.output(name, i)
        for name, dim in zip(("steps", "batch", "directions"), self.shape, strict=False):
            write.size(name, dim)
        if self.halves:
            write.size("sum_steps", self.depth)  # a literal would let LLVM unroll both loops, and spill

    def _write_chain(self, end: str, row: str, counts: Mapping[int, str]) -> None:
        """`count` tiles of sequences, up to chain number `end`, from the first step to the last, side by side: weights that
        L2 does not hold are read once a step for all of them. `counts`: number of tiles by their rows."""
        write, row_bytes = self.write, self._row_bytes
        write(f"count = min(last - unit, {end} - chain)", f"row = {row}")
        write(f"place = (direction * batch + row) * {row_bytes}", "before_first = hidden + place")
        write(f"w_cell = weights + direction * {self.blocks * self._block_bytes}", "end = steps")
        write("sequences = " + " + ".join(f"({count}) * {rows}" for rows, count in counts.items()))
        if "lengths" in self.operands:
            write("end = 0")
            with write.block("for sequence in range(row, row + sequences)"):
                write(f"end = max(end, min(steps, {self._length}))")
        if self.operator == "lstm":
            write("c_first = cell + place")
        with write.block("for step in range(end)"):
            write(f"t = {self._step}", f"after_first = {self._state('t')}")
            write(f"p_first = projected + ((t * batch + row) * directions + direction) * {self.gates * row_bytes}")
            for gates in ((0, 1), (2,)) if self.resets_before else (range(self.gates),):
                self._write_phase(counts, gates)
            write("before_first = after_first")
            if self.operator == "lstm":
                write("c_first = last_cell + place")
        # by all parts with shares, since the last to arrive may be the only one to stay to the end
        if self.operator == "lstm":
            with write.block("if end == 0"):
                self._write_copy("c_first", "last_cell + place", f"sequences * {self.hidden}")
        if "lengths" in self.operands:
            self._write_ends()
        else:
            self._write_copy("before_first", "last_hidden + place", f"sequences * {self.hidden}")

    def _write_ends(self) -> None:
        """Zeros after the end of each sequence. Until then the first state stands there, so that the
        next step may be the previous one."""
        write, row_bytes = self.write, self._row_bytes
        outermost = {"forward": "length - 1", "reverse": "0", "bidirectional": "0 if direction == 1 else length - 1"}
        with write.block("for sequence in range(row, row + sequences)"):
            write(f"length = max(0, min(steps, {self._length}))", f"t = {outermost[self.attributes['direction']]}")
            write(f"place = (direction * batch + sequence) * {row_bytes}")
            write(f"final = {self._state('t', 'sequence')} if length > 0 else hidden + place")
            self._write_copy("final", "last_hidden + place", str(self.hidden))
            with write.block("for t in range(length, steps)"):
                write(f"after = {self._state('t', 'sequence')}")
                with write.block(f"for i in range(0, {self.hidden}, {BLOCK})"):
                    write(f"vstore(after, i * 4, splat_float32(0.0), {self.hidden} - i)")

    @property
    def _length(self) -> str:
        """The length of sequence number `sequence`."""
        dtype = self.write.definition.params[self.operands["lengths"]].dtype
        return f"convert_int64(load_{dtype.name}(lengths, sequence * {dtype.itemsize}))"

    @property
    def _step(self) -> str:
        """The time step that is processed as number `step`."""
        if self.attributes["direction"] == "bidirectional":
            return "end - 1 - step if direction == 1 else step"
        return "step" if self.attributes["direction"] == "forward" else "end - 1 - step"

    def _state(self, step: str, sequence: str = "row") -> str:
        return f"states + (({step} * directions + direction) * batch + {sequence}) * {self._row_bytes}"

    def _write_copy(self, source: str, target: str, elements: str) -> None:
        write = self.write
        write(f"source = {source}", f"target = {target}", f"elements = {elements}")
        with write.block(f"for i in range(0, elements, {BLOCK})"):
            write("vstore(target, i * 4, vload_float32(source, i * 4, elements - i), elements - i)")

    # ---- a step ----

    @property
    def _block_bytes(self) -> int:
        """Bytes of the weights of 16 units."""
        return (self.depth + self.precision.facts) * self.gates * VECTOR_BYTES

    @property
    def _words_bytes(self) -> int:
        """Bytes of a sequence's state in words, in whole vectors, and of its facts."""
        return (
            -(-self.hidden // (self.precision.each * BLOCK)) * (1 + bool(self.halves)) + bool(self.precision.facts)
        ) * VECTOR_BYTES

    def _write_phase(self, counts: Mapping[int, str], gates: Sequence[int]) -> None:
        """Some gates of all units, and their activations."""
        groups = self._groups(max(counts), gates)
        if self.precision.takes_words:
            self.write("is_rounded = 0")
        if not self.is_shareable:
            with self.write.block(f"for group in range({groups})"):
                self._write_group(counts, gates)
            return
        of_share = f"for group in range({groups} * share // shares, {groups} * behind // shares)"
        with self._each_share(), self.write.block(of_share):
            self._write_group(counts, gates)
        self._write_meeting()

    @contextlib.contextmanager
    def _each_share(self) -> Iterator[None]:
        """Takes each free `share` of the phase, beginning with the part's own."""
        write = self.write
        write("ready = 2 * phase")
        with write.block("for turn in range(shares)"):
            write("share = own + turn", "share -= shares if share >= shares else 0", "behind = share + 1")
            write(f"state = notes + share * {8 * _LINE}")
            is_mine = "atomic_load(state, 0) == ready and atomic_replace(state, 0, ready, ready + 1)"
            with write.block(f"if (is_held == 1 and turn == 0) or ({is_mine})"):
                yield
                with write.block("if shares > 1"):
                    write("atomic_store(state, 0, ready + 3 if turn == 0 else ready + 2)")
                    with write.block("if turn == 0"):
                        write("is_held = 1")

    def _write_meeting(self) -> None:
        """Waits until all shares of the phase are done."""
        write = self.write
        with write.block("if shares > 1"):
            write("looks = 0")
            waiting = f"while atomic_load(notes, share * {_LINE}) < ready + 2"
            with write.block("for share in range(shares)"), write.block(waiting):
                write("relax()", "looks += 1")
                with write.block("if looks > patience"):
                    write(f"atomic_store(notes, own * {_LINE}, ready + 2) if is_held == 1 else 0", "return 0")
            write("phase += 1")

    def _write_group(self, counts: Mapping[int, str], gates: Sequence[int]) -> None:
        width = self._width(max(counts), gates)
        self.write(f"block = group * {width}")
        if self.blocks % width == 0:
            self._write_tiles(counts, width, gates)
            return
        with self.write.block(f"if block + {width} <= {self.blocks}"):
            self._write_tiles(counts, width, gates)
        with self.write.block("else"), self.write.block(f"for block in range(block, {self.blocks})"):
            self._write_tiles(counts, 1, gates)

    def _write_tiles(self, counts: Mapping[int, str], width: int, gates: Sequence[int]) -> None:
        """A group of blocks of units for each tile of the sequences."""
        write = self.write
        write("offset = 0")
        for rows, count in counts.items():
            with write.block(f"for _ in range({count})"):
                write("before = before_first + offset", "after = after_first + offset")
                write(f"p = p_first + offset * directions * {self.gates}")
                if self.operator == "lstm":
                    write("c = c_first + offset", "c_after = last_cell + place + offset")
                if self.resets_before:
                    write("reset = last_hidden + place + offset")
                if "lengths" in self.operands:
                    write(f"tile_row = row + offset // {self._row_bytes}", "first_state = hidden + place + offset")
                self._write_block(rows, width, gates)
                write(f"offset += {rows * self._row_bytes}")

    def _groups(self, rows: int, gates: Sequence[int]) -> int:
        """The number of groups of blocks of the units."""
        return -(-self.blocks // self._width(rows, gates))

    def _width(self, rows: int, gates: Sequence[int]) -> int:
        """Blocks of 16 units at a time.

        Reading from several blocks hides more of L2's latency: with half of the registers for
        sums, an LSTM takes a fifth less time than with a quarter of them.
        """
        if self.halves:  # sums are of one block after the other, activations of two
            most = min(2, self._sums // len(gates))
        else:
            most = max(1, self.target.block_registers // 2 // (rows * len(gates) // self._passes(rows)))
        return -(-self.blocks // -(-self.blocks // most))

    def _write_block(self, rows: int, width: int, gates: Sequence[int]) -> None:
        write = self.write
        write(f"here = block * {VECTOR_BYTES}")
        if self.hidden % BLOCK:
            write(f"lanes = {self.hidden} - block * {BLOCK}")
        if self.halves:
            self._write_sums_apart(width, gates)
        else:
            self._write_sums(rows, width, gates)
        # a loop instead of unrolled code: activations are long
        write("sums = scratch")
        with write.block(f"for i in range({rows})"), write.block(f"for j in range({width})"):
            write(f"unit_at = here + j * {VECTOR_BYTES}", f"at = unit_at + i * {self._row_bytes}")
            if self.hidden % BLOCK:
                write(f"lanes = {self.hidden} - (block + j) * {BLOCK}")
            self._write_finish(gates)
            write(f"sums += {len(gates) * VECTOR_BYTES}")

    def _write_sums_apart(self, width: int, gates: Sequence[int]) -> None:
        """The sums of one block after the other, of one sequence."""
        write = self.write
        write("first_block = block", "all_sums = scratch")
        with write.block(f"for block in range(first_block, first_block + {width})"):
            write(f"here = block * {VECTOR_BYTES}")
            if self.hidden % BLOCK:
                write(f"lanes = {self.hidden} - block * {BLOCK}")
            self._write_sums(1, 1, gates, "all_sums")
            write(f"all_sums += {len(gates) * VECTOR_BYTES}")
        write("block = first_block", f"here = block * {VECTOR_BYTES}")

    def _write_sums(self, rows: int, width: int, gates: Sequence[int], place: str = "scratch") -> None:
        """Writes some gates' sums of a tile to that place: [rows, width, gates] vectors."""
        write, row_bytes = self.write, self._row_bytes
        passes = self._passes(rows)
        at_once = gates[: len(gates) // passes]
        blocks = list(itertools.product(range(width), at_once))
        offsets = {(j, gate): j * self._block_bytes + gate * VECTOR_BYTES for j, gate in blocks}
        sums = {(i, j, gate): f"sum_{i}_{j}_{gate}" for i in range(rows) for j, gate in blocks}
        write("p_at = p + here", f"w_at = w_cell + block * {self._block_bytes}", f"sums = {place}")
        x, x_row = "reset" if gates == (2,) else "before", row_bytes
        if self.precision.takes_words:
            write(f"pairs = scratch + {self._sums * VECTOR_BYTES}")
            # once a phase for a tile that is alone
            with write.block("if is_rounded == 0"):
                (self._write_codes if self.precision.facts else self._write_pairs)(rows, x)
                write(f"is_rounded = 1 if sequences == {rows} else 0")
            x, x_row = "pairs", self._words_bytes
        with write.block(f"for _ in range({passes})"):
            zero = "splat_int32(0)" if self.precision.facts else ""
            write(*(f"{name} = {zero or self._start(*place)}" for place, name in sums.items()))
            write(f"x = {x}", "w = w_at")
            if self.halves:
                self._write_sums_of_halves(sums, offsets)
            else:
                with write.block(f"for _ in range({self.depth})"):
                    self._write_step(rows, x_row, sums, offsets)
            if self.precision.facts:
                self._write_scaled(sums, offsets)
            for (i, j, gate), name in sums.items():
                number = (i * width + j) * len(gates) + gate - gates[0]
                write(f"vstore(sums, {number * VECTOR_BYTES}, {(self.precision.facts and 'scaled_') or ''}{name})")
            if passes > 1:
                write(f"p_at += {len(at_once) * row_bytes}")
                write(*(f"{name} += {len(at_once) * VECTOR_BYTES}" for name in ("w_at", "sums")))

    def _write_step(
        self, rows: int, x_row: int, sums: Mapping[tuple[int, int, int], str], offsets: Mapping[tuple[int, int], int]
    ) -> None:
        """A step of the sums of a tile."""
        write = self.write
        if self.is_far:
            write(*(f"prefetch(w, {costs.PREFETCH_BYTES + offset})" for offset in offsets.values()))
        for part in self.precision.parts or ("",):
            for (j, gate), offset in offsets.items():
                write(f"w_{j}_{gate} = {self.precision.vector(f'w, {offset}', part)}")
            for i in range(rows):
                write(f"x_{i} = {self.precision.broadcast(f'x, {i * x_row}', part)}")
                for j, gate in offsets:
                    total, vector = sums[i, j, gate], f"w_{j}_{gate}"
                    write(multiply_add(total, f"x_{i}", vector, self.target, self.precision))
        write("x += 4", f"w += {self.gates * VECTOR_BYTES}")

    def _write_sums_of_halves(
        self, sums: Mapping[tuple[int, int, int], str], offsets: Mapping[tuple[int, int], int]
    ) -> None:
        """The sums of one sequence, by products of the lower and the upper four bits of its codes, added in words of 16 bits as
        often as these hold."""
        write, behind = self.write, (self._words_bytes - VECTOR_BYTES) // 2
        with write.block(f"for begin in range(0, sum_steps, {_STEPS_OF_HALVES})"):
            for name in sums.values():
                write(f"lower_{name} = splat_int32(0)", f"upper_{name} = splat_int32(0)")
            with write.block(f"for _ in range(min({_STEPS_OF_HALVES}, sum_steps - begin))"):
                ahead = costs.PREFETCH_BYTES if self.is_far else costs.PREFETCH_L2_BYTES
                write(*(f"prefetch(w, {ahead + offset})" for offset in offsets.values()))
                write("lower = splat_int32(load_int32(x, 0))", f"upper = splat_int32(load_int32(x, {behind}))")
                for (_, j, gate), name in sums.items():
                    write(f"w_at_once = {self.precision.vector(f'w, {offsets[j, gate]}')}")
                    write(*(f"{x}_{name} = {self.halves}({x}_{name}, {x}, w_at_once)" for x in ("lower", "upper")))
                write("x += 4", f"w += {self.gates * VECTOR_BYTES}")
            for name in sums.values():
                for x, unit in (("lower", 1), ("upper", 16)):
                    ones = f"splat_int32({unit * 0x10001})"
                    write(f"{name} = {self.target.dot_words}({name}, {x}_{name}, {ones})")

    def _write_pairs(self, rows: int, name: str) -> None:
        """Rounds the states of a tile's sequences to bfloat16, behind the sums in the scratch memory."""
        write = self.write
        with write.block(f"for i in range({rows})"), write.block(f"for at in range(0, {self.hidden}, {2 * BLOCK})"):
            write(f"source = {name} + i * {self._row_bytes} + at * 4")
            within = f", {self.hidden} - at" if self.hidden % (2 * BLOCK) else ""
            halves = (f"vload_float32(source, {4 * at}{within and f'{within} - {at}'})" for at in (0, BLOCK))
            write(f"vstore(pairs, i * {self._words_bytes} + at * 2, bfloat16_pairs({', '.join(halves)}))")

    def _write_codes(self, rows: int, name: str) -> None:
        """Quantises the states of a tile's sequences likewise; behind the codes of each, its scale and its zero point."""
        write, behind = self.write, self._words_bytes - VECTOR_BYTES
        with write.block(f"for i in range({rows})"):
            write(f"x = {name} + i * {self._row_bytes}", f"codes = pairs + i * {self._words_bytes}")
            write_range(write, str(self.hidden), whole="pairs_of_vectors")
            write_facts(write, steps="steps_of_range")
            with write.block(f"for k in range(0, {self.hidden}, {BLOCK})"):
                within = f", {self.hidden} - k" if self.hidden % BLOCK else ""
                code = coded(f"vload_float32(x, k * 4{within})")
                if self.halves:
                    write(
                        f"code = {code}", "vstore(codes, k, code & 15)", f"vstore(codes, k + {behind // 2}, code >> 4)"
                    )
                else:
                    write(f"vstore(codes, k, {code})")
            write(f"vstore(codes, {behind}, scale, 1)", f"vstore(codes, {behind + 4}, convert_int32(zero), 1)")

    def _write_scaled(self, sums: Mapping[tuple[int, int, int], str], offsets: Mapping[tuple[int, int], int]) -> None:
        """The sums in float32, by the facts of states and weights, which `w` has reached, plus where they start."""
        write, behind = self.write, self._words_bytes - VECTOR_BYTES
        for (i, j, gate), name in sums.items():
            facts = f"pairs, {i * self._words_bytes + behind}"
            write(f"scale = splat_float32(load_float32({facts})) * vload_float32(w, {offsets[j, gate]})")
            column = f"vload_int32(w, {offsets[j, gate] + self.gates * VECTOR_BYTES})"
            write(f"exact = {name} - splat_int32(load_int32({facts} + 4)) * {column}")
            write(f"scaled_{name} = {self._start(i, j, gate)} + convert_float32(exact) * scale")

    @property
    def _sums(self) -> int:
        """The most vectors of sums of a tile."""
        return max(2 * self.target.block_registers, self.gates)

    def _start(self, i: int, j: int, gate: int) -> str:
        """The start value of a gate's sum, to which the state's part is added."""
        count = f", lanes - {j * BLOCK}" if self.hidden % BLOCK else ""
        if self.operator == "gru" and gate == 2:
            return f"vload_float32(bias, here + {j * VECTOR_BYTES} + direction * {self._row_bytes}{count})"
        offset = f"{gate * self._row_bytes + j * VECTOR_BYTES} + directions * {i * self.gates * self._row_bytes}"
        return f"vload_float32(p_at, {offset}{count})"

    # ---- the activations of 16 units of a sequence ----

    def _write_finish(self, gates: Sequence[int]) -> None:
        """… unless it is over, or has not begun."""
        if "lengths" not in self.operands:
            self._finish(gates)
            return
        write = self.write
        write("sequence = tile_row + i")
        with write.block(f"if t < {self._length}"):
            self._finish(gates)
        with write.block("else"):
            self._store("after", self._load("first_state", "at"))
            if self.operator == "lstm":
                self._store("c_after", self._load("c", "at"))

    def _finish(self, gates: Sequence[int]) -> None:
        for number, gate in enumerate(gates):
            self.write(f"sum_{gate} = vload_float32(sums, {number * VECTOR_BYTES})")
        if self.operator == "rnn":
            self._store("after", self._activated(0, "sum_0"))
        elif self.operator == "lstm":
            self._finish_lstm()
        elif not self.resets_before:
            self.write(f"n = {self._projected()} + {self._activated(0, 'sum_1')} * sum_2")
            self._write_blend(self._activated(0, "sum_0"))
        elif gates == (2,):
            self.write(f"n = {self._projected()} + sum_2")
            self._write_blend(self._load("after", "at"))
        else:
            # r * h, all units of which the last gate reads, is kept in the last state's place, and z in the new one's
            self._store("reset", f"{self._activated(0, 'sum_1')} * {self._load('before', 'at')}")
            self._store("after", self._activated(0, "sum_0"))

    def _projected(self) -> str:
        """The input's part of a GRU's last gate."""
        return self._load("p", f"unit_at + {2 * self._row_bytes} + i * directions * {3 * self._row_bytes}")

    @property
    def _count(self) -> str:
        """The count of loads and stores that keeps them within the state."""
        return ", lanes" if self.hidden % BLOCK else ""

    def _load(self, name: str, offset: str) -> str:
        return f"vload_float32({name}, {offset}{self._count})"

    def _store(self, name: str, value: str) -> None:
        self.write(f"vstore({name}, at, {value}{self._count})")

    def _activated(self, function: int, value: str) -> str:
        if self.attributes["clip"] is not None:
            bound = literal(self.attributes["clip"], DType.float32)
            value = f"maximum(-{bound}, minimum({bound}, {value}))"
        return f"{self.functions[function]}({value})"

    def _write_blend(self, z: str) -> None:
        """The new state, blended from the old one and n."""
        self.write(f"n = {self._activated(1, 'n')}", f"z = {z}", f"h = {self._load('before', 'at')}")
        self._store("after", "n + z * (h - n)")

    def _finish_lstm(self) -> None:
        write = self.write
        into, out, keep, new = (f"sum_{gate}" for gate in range(4))
        write(f"old = {self._load('c', 'at')}")
        if "peephole" in self.operands:
            into, keep = f"{into} + {self._peephole(0)} * old", f"{keep} + {self._peephole(2)} * old"
        write(f"kept = {self._activated(0, keep)} * old")
        write(f"new = kept + {self._activated(0, into)} * {self._activated(1, new)}")
        self._store("c_after", "new")
        if "peephole" in self.operands:
            out = f"{out} + {self._peephole(1)} * new"
        self._store("after", f"{self._activated(0, out)} * {self.functions[2]}(new)")

    def _peephole(self, number: int) -> str:
        return self._load("peephole", f"unit_at + (direction * 3 + {number}) * {self._row_bytes}")
