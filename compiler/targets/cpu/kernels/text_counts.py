"""The template of count_text_ngrams: a walk over the bytes of each text, by tables.

A text is one unit of work. Its last tokens' numbers are in a ring buffer in scratch: each token closes the n-grams that end
with it, which are read from there backwards.

The tables are untrusted: states and slots are taken modulo powers of two, other contents are checked before they are
followed, and a full table ends a search after its number of slots.
"""

from __future__ import annotations

from .....formats.primitive import PrimitiveDefinition
from ....operators.table import bound_attributes
from .. import costs
from ..operators.text_counts import BEFORE, EDGE_FACTORS, END, HASH_FACTOR, HASH_START
from ..target import Target
from .kernel import Kernel
from .writer import Writer, estimate, shape_of


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of count_text_ngrams, alone in its definition, with tables of known sizes; else None."""
    if len(definition.nodes) != 1 or definition.outputs != (7,):
        return None
    tables = [shape_of(param) for param in definition.params[2:]]
    if not all(isinstance(dim, int) for shape in tables for dim in shape):
        return None
    it = _Counts(definition, target)
    it.write_all()
    nanoseconds = estimate(shape_of(definition.params[1])[0]) * costs.TEXT_BYTES * costs.TEXT_BYTE_PS / 1000
    return it.write.kernel(nanoseconds, 8 * it.ring)


class _Counts:
    """Variables: `begin` and `end` are a text's, `place` is the start of the current match, `best` the end of the longest
    one."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        attributes = bound_attributes(definition.nodes[0])
        self.width, self.least, self.most, self.skips = (
            attributes[name] for name in ("width", "least", "most", "skips")
        )
        self.reach = (self.most - 1) * (self.skips + 1) + 1  # tokens that the longest n-gram spans
        self.ring = 1 << (self.reach - 1).bit_length()
        self.definition = definition
        kind = f"up to {self.most} tokens, {self.skips} skipped" if self.most > 1 else "single tokens"
        self.write = Writer(definition, target, f"count_text_ngrams, {kind}")

    def write_all(self) -> None:
        write = self.write
        names = ("text", "ends", "moves", "tokens", "letters", "edges", "columns")
        write.inputs(range(7), *names)
        write.output("target", 0)
        text, ends, moves, tokens, letters, edges, columns = (shape_of(param)[0] for param in self.definition.params)
        write.sizes(size=text, rows=ends, states=moves, slots=tokens, letter_count=letters, edge_slots=edges)
        write.sizes(nodes=columns, width=self.width, least=self.least)
        write.split("rows", f"(size * {costs.TEXT_BYTE_PS} + rows * width * {costs.TEXT_COLUMN_PS}) // 1000")
        write(f"whole = width - width % {write.lanes}")
        with write.block("for row in range(first, last)"):
            write("begin = load_int64(ends, max(row - 1, 0) * 8) * min(row, 1)", "end = load_int64(ends, row * 8)")
            with write.block("if begin < 0 or end < begin or end > size"):
                write("return 1")
            write("out = target + row * width * 4")
            with write.block(f"for k in range(0, whole, {write.lanes})"):
                write("vstore(out, k * 4, splat_float32(0.0))")
            with write.block("if whole < width"):
                write("vstore(out, whole * 4, splat_float32(0.0), width - whole)")
            write("place = begin", f"state = {int(BEFORE.NOTHING)}", "count = 0")
            with write.block("while place < end"):
                self._write_match()
                with write.block("if characters >= least"):
                    self._write_number()
                    self._write_count()
                    write("place = best", "count += 1")
                with write.block("else"):
                    write("place += 1")
                    self._write_rest_of_character("place")
                self._write_state_behind()

    def _write_match(self) -> None:
        """Defines the end of the longest match at the place, its number of characters, and the hash of its bytes."""
        write = self.write
        start = HASH_START - (1 << 64)
        write("at = place", "seen = 0", "characters = 0", "best = place", f"hashed = {start}", f"key = {start}")
        with write.block("while True"):
            write(f"byte = {END}")
            with write.block("if at < end"):
                write("byte = convert_int64(load_uint8(text, at))")
            write("move = convert_int64(load_int32(moves, ((state & (states - 1)) * 256 + byte) * 4))")
            with write.block("if move & 1 != 0"):
                write("best = at", "characters = seen", "key = hashed")
            with write.block("if move < 2 or at >= end"):
                write("break")
            write("state = (move >> 1) - 1", f"hashed = (hashed ^ byte) * {HASH_FACTOR}", "at += 1", "seen += 1")
            with write.block("if byte > 127"):
                self._write_rest_of_character("at", hashes=True)

    def _write_rest_of_character(self, place: str, hashes: bool = False) -> None:
        """Moves a place from the second byte of a character to its end."""
        write = self.write
        with write.block(f"while {place} < end"):
            write(f"behind = convert_int64(load_uint8(text, {place}))")
            with write.block("if behind & 192 != 128"):
                write("break")
            if hashes:
                write(f"hashed = (hashed ^ behind) * {HASH_FACTOR}")
            write(f"{place} += 1")

    def _write_state_behind(self) -> None:
        write = self.write
        write("last_byte = convert_int64(load_uint8(text, place - 1))", f"state = {int(BEFORE.OTHER)}")
        with write.block(f"if last_byte == {ord(chr(10))}"):
            write(f"state = {int(BEFORE.NEW_LINE)}")
        write("letter = last_byte | 32")
        is_letter = f"(letter >= {ord('a')} and letter <= {ord('z')} and last_byte < 128)"
        is_digit = f"(last_byte >= {ord('0')} and last_byte <= {ord('9')})"
        with write.block(f"if {is_letter} or {is_digit} or last_byte == {ord('_')}"):
            write(f"state = {int(BEFORE.WORD)}")

    def _write_number(self) -> None:
        """Defines the number of the token from `place` to `best`; -1 for an unknown one."""
        write = self.write
        write("number = -1", "length = best - place", "key = (key ^ ((key >> 32) & 4294967295)) & 2147483647")
        write("slot = key")
        with write.block("for probe in range(slots)"):
            write("entry = tokens + (slot & (slots - 1)) * 16", "its_length = convert_int64(load_int32(entry, 8))")
            with write.block("if its_length == 0"):
                write("break")
            with write.block("if convert_int64(load_int32(entry, 0)) == key and its_length == length"):
                write("its_first = convert_int64(load_int32(entry, 4))")
                with write.block("if its_first < 0 or its_first + length > letter_count"):
                    write("return 1")
                write("equal = 0")
                with write.block("for k in range(length)"):
                    with write.block("if load_uint8(letters, its_first + k) != load_uint8(text, place + k)"):
                        write("break")
                    write("equal += 1")
                with write.block("if equal == length"):
                    write("number = convert_int64(load_int32(entry, 12))", "break")
            write("slot += 1")

    def _write_count(self) -> None:
        """Counts the n-grams that the token closes."""
        write = self.write
        if self.most > 1:
            write(f"store_int64(scratch, (count & {self.ring - 1}) * 8, number)")
        with write.block("if number >= 0"):
            write("node = number")
            self._write_column()
            if self.most == 1:
                return
            with write.block(f"for step in range(1, {self.skips + 2})"):
                write("node = number")
                with write.block(f"for far in range(1, {self.most})"):
                    write("ahead = count - far * step")
                    with write.block("if ahead < 0"):
                        write("break")
                    write(f"before = word(scratch, ahead & {self.ring - 1})")
                    self._write_edge()
                    with write.block("if node < 0"):
                        write("break")
                    self._write_column()

    def _write_edge(self) -> None:
        """Extends the node's n-gram by the previous token; -1 if there is no such node."""
        write = self.write
        first, second = (factor - (1 << 64) for factor in EDGE_FACTORS)
        write(f"edge = ((node * {first} + before * {second}) >> 32) & 2147483647", "found = -1")
        with write.block("for probe in range(edge_slots if before >= 0 else 0)"):
            write("entry = edges + (edge & (edge_slots - 1)) * 16", "its_node = convert_int64(load_int32(entry, 0))")
            with write.block("if its_node < 0"):
                write("break")
            with write.block("if its_node == node and convert_int64(load_int32(entry, 4)) == before"):
                write("found = convert_int64(load_int32(entry, 8))", "break")
            write("edge += 1")
        write("node = found")

    def _write_column(self) -> None:
        """Counts in the column of the node."""
        write = self.write
        with write.block("if node >= nodes"):
            write("return 1")
        write("column = convert_int64(load_int32(columns, node * 4))")
        with write.block("if column >= width"):
            write("return 1")
        with write.block("if column >= 0"):
            write("store_float32(out, column * 4, load_float32(out, column * 4) + convert_float32(1.0))")
