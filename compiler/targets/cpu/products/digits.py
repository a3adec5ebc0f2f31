"""2–8-bit GEMM by the processor's 8-bit dot products (VNNI): activations as three int8 planes of 24-bit fixed point. In float32,
products would take longer than the weights take to arrive from memory. So rows become 24-bit integers with a scale ("unit") for
each group; their three signed 8-bit digits meet four weights at a time. Sums of a group are exact. A unit is the group's largest
element divided by about 2**23: rounding an element costs less than float32 sums do, above 1e-31.

    x ≈ unit · (d0 + 2**8 · d1 + 2**16 · d2)
    Σ x · (n - zero) · scale  =  scale · (unit · Σ d · (n - half) - (zero - half) · Σ x)

Rows that may be rounded to int8 have one digit, up to 127.

A thread makes the digits of a band of rows once. Infinities give infinities; where they meet one of the other sign, or 0, not
always NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer
from ..operators.dequantized import LARGEST_FACTOR, QUAD
from ..operators.int8 import LARGEST
from ..target import Target
from .dequantized import Numbers
from .epilogue import Epilogue
from .few_rows import STREAMS, FewRows, lower_as
from .precision import DIGITS
from .tile import BLOCK, VECTOR_BYTES, multiply_add

# by digits, the largest magnitude that cannot carry into one more when rounded
_LARGEST = {1: LARGEST, 3: LARGEST << 16}
_SHARING_ROWS = 4  # of one digit: with AVX2 1.04 to 1.3 times as fast as one row
_MIDDLES = 0x808080  # which make digits with sign of those without: added, then taken away digit by digit
_WHOLE = 256  # most elements of a group times the largest weight for which the sum of all digits fits into an int32
_SHORT = 64  # elements of a group
_LONGEST = 256  # elements of a group of which sums of two digits are an int32


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of matmul_dequantized by products of bytes, where these are fast or rows few; else None."""
    return lower_as(RowsOfDigits, definition, target)


class RowsOfDigits(FewRows):
    title = "by digits"
    steps = "word_count"
    prepares = True

    def __init__(self, write: Writer, found: Anchored, rows: Dim) -> None:
        self.rows = rows
        self.digits = 1 if found.attributes["int8_rows"] else 3
        # bytes: of each digit the sum over a group times -half; the unit; the sum of the elements
        self.facts = 4 * (self.digits + 2)
        most = self._most_rows(write.target)
        super().__init__(write, found, min(rows, most) if isinstance(rows, int) else most)
        self.numbers = Numbers(found)
        self.streams = STREAMS
        bytes_a_row = self.digits * self._plane + self.facts * self.numbers.groups
        self.band = max(self.tile.rows, write.target.half_l2 // bytes_a_row // most * most)
        if isinstance(rows, int):
            self.band = min(self.band, rows)

    @staticmethod
    def takes(found: Anchored, rows: Dim, target: Target) -> bool:
        numbers = Numbers(found)
        if not isinstance(numbers.depth, int) or numbers.group > _LONGEST or rows == 0:
            return False
        is_few = isinstance(rows, int) and rows <= costs.FEW_ROWS
        return target.multiplies_bytes or is_few or bool(found.attributes["int8_rows"])

    @property
    def depth(self) -> Dim:
        return self.numbers.depth

    @property
    def scratch_bytes(self) -> int:
        return super().scratch_bytes + self.band * (self.digits * self._plane + self.facts * self.numbers.groups)

    @property
    def _plane(self) -> int:
        """Bytes of one plane of a row's digits, with the overrun of the last store."""
        return -(-(self.numbers.words * self.numbers.packing.each + BLOCK) // VECTOR_BYTES) * VECTOR_BYTES

    def write_sizes(self) -> None:
        self.numbers.write_sizes(self.write)
        self.write.sizes(plane=self._plane, rows=self.rows, band=self.band)

    def write_split(self, nanoseconds: str) -> None:
        self.write("bands = (rows + band - 1) // band")
        self.write.split("bands * blocks", f"rows * {nanoseconds}")

    def write_all(self, epilogue: Epilogue) -> None:
        self.epilogue, write = epilogue, self.write
        write("a_row = 4 * depth", f"panel = {VECTOR_BYTES} * word_count")
        write("place = first", "last_place = last")
        write(f"digits = sums + {super().scratch_bytes}", f"facts = digits + band * {self.digits} * plane")
        with write.block("while place < last_place"):
            write("at_band = place // blocks", "first = place - at_band * blocks")
            write("last = min(blocks, first + last_place - place)", "place += last - first")
            write("first_row = at_band * band", "end_row = min(first_row + band, rows)")
            with write.block("if prepared != at_band"):
                write("prepared = at_band")
                self._write_band()
            self.write_panels()

    def write_tiles(self, streams: int) -> None:
        heights = [self.tile.rows]
        if not isinstance(self.rows, int) or self.rows % self.tile.rows:
            heights.append(1)
        self.write("row = first_row")
        for height in dict.fromkeys(heights):
            tile = replace(self.tile, rows=height)
            with self.write.block(f"while row + {height} <= end_row"):
                self.write(f"row_digits = digits + (row - first_row) * {self.digits} * plane")
                self.write(f"row_facts = facts + (row - first_row) * group_count * {self.facts}")
                self.write_tile(tile, streams)
                self.write(f"row += {height}")

    def _most_rows(self, target: Target) -> int:
        """The most rows for which the sums of all digits and streams stay in registers; of one digit, the totals too. But some
        rows share the work of unpacking weights even where registers are few."""
        least = _SHARING_ROWS if self.digits == 1 else 1
        return max(least, target.block_registers * 3 // 4 // (max(2, self.digits) * STREAMS))

    def _of_row(self, i: int) -> str:
        """The address of a tile row's facts, relative to the first row's."""
        return f"{i} * {self.facts} * group_count"

    # ---- digits ----

    def _write_band(self) -> None:
        """Writes the digits of a band's rows, and the facts (`facts`) of each group."""
        write = self.write
        with write.block("for number in range((end_row - first_row) * group_count)"):
            write("digit_row = number // group_count", "group = number - digit_row * group_count")
            write(
                "x_at = a_at + (first_row + digit_row) * a_row", f"planes = digits + digit_row * {self.digits} * plane"
            )
            write(f"begin = group * group_words * {self.numbers.packing.each}", f"fact = facts + number * {self.facts}")
            write(
                f"stop = {self.numbers.packing.each} * min((group + 1) * group_words, word_count)",
                "end = min(stop, depth)",
            )
            self._write_unit()
            self._write_digits()
            self._write_facts()

    def _write_vectors(self, write_vector: Callable[[str], None]) -> None:
        """Calls `write_vector` for each vector of a group, at `k`, with the argument by which a load ends with the row. If all
        groups are whole, they are unrolled: loads without masks take two thirds of the time."""
        group, depth = self.numbers.group, self.numbers.depth
        assert isinstance(depth, int)
        if depth % group == 0 and group % BLOCK == 0:
            for place in range(0, group, BLOCK):
                self.write(f"k = begin + {place}")
                write_vector("")
            return
        with self.write.block(f"for k in range(begin, stop, {BLOCK})"):
            write_vector(", end - k")

    def _write_unit(self) -> None:
        """Writes the group's factor to fixed point, and the factor back."""
        write = self.write
        write("most = splat_float32(0)")
        self._write_vectors(lambda left: write(f"most = maximum(most, absolute(vload_float32(x_at, k * 4{left})))"))
        write(f"largest = splat_float32({_LARGEST[self.digits]})", "most = splat_float32(horizontal_maximum(most))")
        write(f"factor = minimum({LARGEST_FACTOR}, largest / most)", "worth = 1.0 / factor")

    def _write_digits(self) -> None:
        self.write("exact = splat_int32(0)" if self.digits == 1 else "total = splat_float32(0)")
        self._write_vectors(self._write_digits_of)

    def _write_digits_of(self, left: str) -> None:
        write = self.write
        write(f"elements = vload_float32(x_at, k * 4{left})")
        write("scaled = select(isinf(elements), copysign(largest, elements), elements * factor)")
        write("whole = convert_int32(round_even(scaled))")
        if self.digits == 1:  # sums of one digit are exact
            write("exact = exact + whole", "vstore(planes, k, convert_uint8(whole))")
            return
        write("total = total + convert_float32(whole)", f"signed = (whole + {_MIDDLES}) ^ {_MIDDLES}")
        for digit in range(self.digits):
            shifted = f"signed >> {8 * digit}" if digit else "signed"
            write(f"vstore(planes, {digit} * plane + k, convert_uint8({shifted}))")

    def _write_facts(self) -> None:
        write = self.write
        if self.digits == 1:
            write("sum_of_digits = horizontal_sum(exact)")
            write(f"store_int32(fact, 0, sum_of_digits * -{self.numbers.packing.middle})")
            write("elements = convert_float32(splat_int32(sum_of_digits))")
        else:
            self._write_sums_of_digits()
            write("elements = splat_float32(horizontal_sum(total))")
        write(f"vstore(fact, {4 * self.digits}, worth, 1)", f"vstore(fact, {4 * self.digits + 4}, elements * worth, 1)")

    def _write_sums_of_digits(self) -> None:
        """Of each digit, from what has just been stored."""
        write = self.write
        for digit in range(self.digits):
            write("eights = splat_int32(0)")
            with write.block(f"for k in range(begin, stop, {VECTOR_BYTES})"):
                loaded = f"vload_int32(planes, {digit} * plane + k, (stop - k) // 4)"
                middles = f"splat_int32({self.numbers.packing.middle * 0x01010101})"
                write(multiply_add("eights", middles, loaded, self.target, DIGITS))
            write(f"store_int32(fact, {4 * digit}, -horizontal_sum(eights))")

    # ---- sums ----

    def write_totals(self, places: list[tuple[int, int]], streams: int) -> None:
        write, numbers = self.write, self.numbers
        # sums of each quad of a word; the next group's are independent of those of a short one
        turns = numbers.packing.quads if len(places) <= STREAMS and numbers.group > _SHORT else 1
        sums = [(i, j, digit) for i, j in places for digit in range(self.digits)]
        write(f"scales = scales_at + start * group_count * {VECTOR_BYTES}")
        if numbers.has_zeros:
            write(f"zeros = zeros_at + start * group_count * {BLOCK}")
        with write.block("for group in range(group_count)"):
            write(f"fact = row_facts + group * {self.facts}")
            for i, j, digit in sums:
                write(f"sum_{i}_{j}_{digit}_0 = splat_int32(load_int32(fact, {self._of_row(i)} + {4 * digit}))")
                write(*(f"sum_{i}_{j}_{digit}_{turn} = splat_int32(0)" for turn in range(1, turns)))
            with write.block("for step in range(group * group_words, min((group + 1) * group_words, word_count))"):
                self._write_word(places, streams, turns)
            for i, j, digit in sums:
                parts = [f"sum_{i}_{j}_{digit}_{turn}" for turn in range(turns)]
                write(f"sum_{i}_{j}_{digit} = {' + '.join(parts)}")
            for j in range(streams):
                at = f"(group + {j} * run * group_count)"
                write(f"prefetch(scales, {at} * {VECTOR_BYTES} + {costs.PREFETCH_BYTES // 4})")
                if numbers.has_zeros:
                    write(f"prefetch(zeros, {at} * {BLOCK} + {costs.PREFETCH_BYTES // 16})")
                numbers.write_scale(write, f"_{j}", f"scales, {at} * {VECTOR_BYTES}", f"zeros, {at} * {BLOCK}")
            for i, j in places:
                self._write_scaled(i, j)

    def _write_word(self, places: list[tuple[int, int]], streams: int, turns: int) -> None:
        """Multiplies one word of weights with each row's elements, four at a time."""
        write, packing = self.write, self.numbers.packing
        lows = ((1 << packing.bits) - 1) * 0x01010101
        for j in range(streams):
            write(f"prefetch(w, step * {VECTOR_BYTES} + {j} * b_run + {costs.PREFETCH_BYTES})")
            write(f"bits_{j} = vload_int32(w, step * {VECTOR_BYTES} + {j} * b_run)")
            for quad in range(packing.quads):
                shifted = f"(bits_{j} >> {packing.bits * quad}) & {lows}" if packing.quads > 1 else f"bits_{j}"
                write(f"four_{j}_{quad} = {shifted}")
        for i in sorted({i for i, _ in places}):
            for quad in range(packing.quads):
                for digit in range(self.digits):
                    at = f"{i * self.digits + digit} * plane + step * {self.numbers.packing.each} + {QUAD * quad}"
                    write(f"digit = splat_int32(load_int32(row_digits, {at}))")
                    for j in range(streams):
                        total = f"sum_{i}_{j}_{digit}_{quad % turns}"
                        write(multiply_add(total, f"four_{j}_{quad}", "digit", self.target, DIGITS))

    def _write_scaled(self, i: int, j: int) -> None:
        """Adds a group's sums to the total."""
        write, row = self.write, self._of_row(i)
        low = f"(sum_{i}_{j}_1 << 8) + sum_{i}_{j}_0"
        if self.digits == 1:
            write(f"result = convert_float32(sum_{i}_{j}_0)")
        elif self.numbers.group * self.numbers.packing.middle <= _WHOLE:
            write(f"result = convert_float32((sum_{i}_{j}_2 << 16) + {low})")
        else:
            write(f"result = convert_float32({low})", f"high = convert_float32(sum_{i}_{j}_2)")
            write(multiply_add("result", "high", "splat_float32(65536.0)", self.target))
        write(f"result = result * splat_float32(load_float32(fact, {row} + {4 * self.digits}))")
        if self.numbers.has_zeros:
            write(f"result = result - zero_{j} * splat_float32(load_float32(fact, {row} + {4 * self.digits + 4}))")
        if self.digits == 1:  # as the reference: no fused multiply-add
            write(f"total_{i}_{j} = total_{i}_{j} + scale_{j} * result")
        else:
            write(multiply_add(f"total_{i}_{j}", f"scale_{j}", "result", self.target))
