"""The template of best_boxes: the boxes of the best scores that overlap no better one.

A class of an image is one unit of work. The numbers of its boxes form a heap, the best one in front, which is sorted only as
far as boxes are taken. A box is compared with all kept ones, a vector of them at a time: their corners lie in
the scratch memory.

The scratch size of a kernel cannot depend on sizes that are known only at run time. If the number of boxes is
such a size, all may be kept, and the heap lies in the result: the chosen boxes' numbers fill it from the end, where the heap
has shrunk, and are reversed at last. Corners of the first kept boxes are in scratch, those of later ones are
read again.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from .....formats import dims
from .....formats.primitive import PrimitiveDefinition
from ....operators.table import bound_attributes
from .. import costs
from ..target import Target
from .kernel import Kernel
from .writer import Writer, estimate, shape_of

_MOST_KEPT = 4096  # boxes whose corners lie in the scratch memory, whose number is known only at run time
_KEPT = ("low_y", "low_x", "high_y", "high_x", "area")


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of best_boxes, alone in its definition, of a known number of boxes, or as many results as boxes; else None."""
    if len(definition.nodes) != 1 or definition.outputs != (5,):
        return None
    images, kinds, count = shape_of(definition.params[1])
    room = shape_of(definition.results[0])[2]
    is_known = isinstance(count, int) and isinstance(room, int)
    if not is_known and count != room:
        return None
    attributes = bound_attributes(definition.nodes[0])
    write = Writer(definition, target, "best_boxes" + (", centred" if attributes["centred"] else ""))
    write.inputs(range(5), "boxes", "scores", "most", "overlap", "least")
    write.output("target", 0)
    write.sizes(images=images, kinds=kinds, count=count, room=room)
    write.split("images * kinds", f"images * kinds * count * {costs.BOX_PS} // 1000")
    write("limit = min(load_int64(most, 0), room)", "threshold = load_float32(least, 0)")
    write("allowed = splat_float32(load_float32(overlap, 0))")
    places = -(-room // write.lanes) * write.lanes if isinstance(room, int) and is_known else _MOST_KEPT
    heap_bytes = 8 * count if isinstance(count, int) and is_known else 0
    write(f"stride = {4 * places}", f"kept = scratch + {heap_bytes}")
    with write.block("for unit in range(first, last)"):
        write("of_image = boxes + unit // kinds * count * 16", "of_kind = scores + unit * count * 4")
        write("best = target + unit * room * 8", "heap = scratch" if is_known else "heap = best")
        _write_heap(write)
        choice = _Choice(write, attributes["centred"], is_known)
        choice.write_all()
        with write.block("for i in range(found, room)"):
            write("store_int64(best, i * 8, -1)")
    units = estimate(dims.multiply(images, kinds))
    return write.kernel(units * estimate(count) * costs.BOX_PS / 1000, heap_bytes + 4 * len(_KEPT) * places)


def _write_heap(write: Writer) -> None:
    """The boxes whose scores are above the least one as a heap of size `left`."""
    lanes = write.lanes
    write("left = 0")
    with write.block(f"for begin in range(0, count, {lanes})"):
        write(f"rest = min({lanes}, count - begin)", "v = vload_float32(of_kind, begin * 4, rest)")
        with (
            write.block("if any_lane((v > threshold) & inside(rest))"),
            write.block("for i in range(begin, begin + rest)"),
            write.block("if load_float32(of_kind, i * 4) > threshold"),
        ):
            _write_key(write)
            write("store_int64(heap, left * 8, key)", "left += 1")
    with write.block("for root in range(left // 2 - 1, -1, -1)"):
        write("key = word(heap, root)", "hole = root")
        _write_sink(write)


def _write_key(write: Writer) -> None:
    """Defines `key` of box i: greater for a better score, and for the first one of equals."""
    write("bits = convert_int64(load_int32(of_kind, i * 4))", "magnitude = bits & 0x7FFFFFFF")
    write("order = magnitude if bits >= 0 else -magnitude", "key = order * 0x100000000 + (0xFFFFFFFF - i)")


def _write_sink(write: Writer) -> None:
    """Sifts `key` down from the `hole`."""
    with write.block("while True"):
        write("child = 2 * hole + 1")
        with write.block("if child >= left"):
            write("break")
        write("other = word(heap, child)")
        with write.block("if child + 1 < left and word(heap, child + 1) > other"):
            write("child += 1", "other = word(heap, child)")
        with write.block("if other <= key"):
            write("break")
        write("store_int64(heap, hole * 8, other)", "hole = child")
    write("store_int64(heap, hole * 8, key)")


@dataclass(frozen=True)
class _Choice:
    """Takes boxes from the heap, the best one first, and keeps those that overlap no kept one; `found` is their number."""

    write: Writer
    centred: bool
    is_known: bool  # the number of boxes

    def write_all(self) -> None:
        write = self.write
        write("found = 0", "behind = left - 1")
        with write.block("while left > 0 and found < limit"):
            write("number = 0xFFFFFFFF - (word(heap, 0) & 0xFFFFFFFF)", "left -= 1")
            write("key = word(heap, left)", "hole = 0")
            _write_sink(write)
            _write_corners(write, self.centred)
            write("area = (high_y - low_y) * (high_x - low_x)", "is_kept = True")
            near = "found" if self.is_known else f"min(found, {_MOST_KEPT})"
            with write.block(f"for i in range(0, {near}, {write.lanes})"):
                for place, name in enumerate(_KEPT):
                    write(f"kept_{name} = vload_float32(kept + {place} * stride, i * 4)")
                self._write_comparison(f"inside({near} - i)")
            if not self.is_known:
                self._write_far()
            with write.block("if is_kept"):
                write(f"store_int64(best, {'found' if self.is_known else '(behind - found)'} * 8, number)")
                with nullcontext() if self.is_known else write.block(f"if found < {_MOST_KEPT}"):
                    for place, name in enumerate(_KEPT):
                        write(f"vstore(kept + {place} * stride, found * 4, {name}, 1)")
                write("found += 1")
        if not self.is_known:
            self._write_turn()

    def _write_comparison(self, inside: str) -> None:
        _write_overlap(self.write)
        with self.write.block(f"if any_lane((share > allowed) & {inside})"):
            self.write("is_kept = False", "break")

    def _write_far(self) -> None:
        """Compares with the kept boxes whose corners are not in scratch."""
        write = self.write
        with write.block(f"for i in range({_MOST_KEPT}, found if is_kept else 0)"):
            _write_corners(write, self.centred, "kept_", "word(best, behind - i)")
            write("kept_area = (kept_high_y - kept_low_y) * (kept_high_x - kept_low_x)")
            self._write_comparison("inside(1)")

    def _write_turn(self) -> None:
        """Reverses the numbers, from `behind`, into the front of the result. Both ends are read before either is
        written: they may be the same words."""
        write = self.write
        with write.block("for i in range((found + 1) // 2)"):
            write("early = word(best, behind - i)", "late = word(best, behind - (found - 1 - i))")
            write(
                "store_int64(best, (behind - (found - 1 - i)) * 8, early)", "store_int64(best, (behind - i) * 8, late)"
            )
        with write.block("for i in range(found)"):
            write("store_int64(best, i * 8, word(best, behind - (found - 1) + i))")


def _write_corners(write: Writer, centred: bool, prefix: str = "", number: str = "number") -> None:
    """Defines the corners of a box, vectors of one value."""
    for place, name in enumerate(("b_0", "b_1", "b_2", "b_3")):
        write(f"{name} = splat_float32(load_float32(of_image, {number} * 16 + {4 * place}))")
    for axis, (middle, size, one, other) in (("y", ("b_1", "b_3", "b_0", "b_2")), ("x", ("b_0", "b_2", "b_1", "b_3"))):
        if centred:
            write(f"{prefix}low_{axis} = {middle} - {size} / 2.0", f"{prefix}high_{axis} = {middle} + {size} / 2.0")
        else:
            write(f"{prefix}low_{axis} = minimum({one}, {other})", f"{prefix}high_{axis} = maximum({one}, {other})")


def _write_overlap(write: Writer) -> None:
    """Defines `share`: intersection over union of the box and each loaded kept one; 0 for boxes without area."""
    for axis in "yx":
        low, high = f"maximum(low_{axis}, kept_low_{axis})", f"minimum(high_{axis}, kept_high_{axis})"
        write(f"shared_{axis} = maximum({high} - {low}, 0.0)")
    write("shared = shared_y * shared_x", "is_box = (area > 0.0) & (kept_area > 0.0)")
    write("covered = select(is_box, area + kept_area - shared, splat_float32(1.0))")
    write("share = select(is_box, shared / covered, splat_float32(0.0))")
