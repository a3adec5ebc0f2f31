"""The template of coupled_probabilities: a row is one unit of work; its matrix is in scratch.

The algorithm and its names are those of the operator's reference (`operators/coupling.py`), where the paper is named.
"""

from __future__ import annotations

from .....formats.primitive import PrimitiveDefinition
from ....operators.coupling import ERROR, rounds
from ....operators.table import bound_attributes
from .. import costs
from ..target import Target
from .kernel import Kernel
from .writer import Writer, estimate, shape_of

_MOST_CLASSES = 256  # whose matrix has 256 KiB


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of coupled_probabilities, alone in its definition, for a bounded number of classes; else None."""
    if len(definition.nodes) != 1 or definition.outputs != (1,):
        return None
    classes = bound_attributes(definition.nodes[0])["classes"]
    if classes > _MOST_CLASSES:
        return None
    write = Writer(definition, target, f"coupled_probabilities of {classes} classes")
    write.input("pairs", 0)
    write.output("target", 0)
    rows = shape_of(definition.params[0])[0]
    write.sizes(rows=rows)
    row_picoseconds = classes * classes * costs.COUPLING_ROUNDS * costs.COUPLING_PS
    write.split("rows", f"rows * {row_picoseconds} // 1000")
    write(
        f"qp = scratch + {4 * classes * classes}",
        "one = convert_float32(1.0)",
        f"bound = convert_float32({ERROR / classes!r})",
    )
    with write.block("for row in range(first, last)"):
        write(f"pair = pairs + row * {4 * (classes * (classes - 1) // 2)}", f"p = target + row * {4 * classes}")
        _write_matrix(write, classes)
        with write.block(f"for round in range({rounds(classes)})"):
            _write_products(write, classes)
            with write.block("if goes_on == 0"):
                write("break")
            _write_steps(write, classes)
    return write.kernel(estimate(rows) * row_picoseconds / 1000, 4 * classes * (classes + 1))


def _write_matrix(write: Writer, classes: int) -> None:
    """Fills the symmetric matrix q, and the probabilities, which start equal."""
    with write.block(f"for i in range({classes})"):
        write(f"store_float32(scratch, i * {4 * (classes + 1)}, convert_float32(0.0))")
        write(f"store_float32(p, i * 4, convert_float32({1 / classes!r}))")
    with write.block(f"for i in range({classes})"), write.block(f"for j in range(i + 1, {classes})"):
        write("a = load_float32(pair, 0)", "b = one - a", "pair += 4")
        for row, column in (("i", "j"), ("j", "i")):
            write(f"store_float32(scratch, ({row} * {classes} + {column}) * 4, -(a * b))")
        for at, square in (("j", "a * a"), ("i", "b * b")):
            place = f"{at} * {4 * (classes + 1)}"
            write(f"store_float32(scratch, {place}, load_float32(scratch, {place}) + {square})")


def _write_products(write: Writer, classes: int) -> None:
    """Defines qp, the sum pqp of p times qp, and whether any of qp has not converged to it; false if one is NaN."""
    write("pqp = convert_float32(0.0)")
    with write.block(f"for i in range({classes})"):
        write("total = convert_float32(0.0)")
        with write.block(f"for j in range({classes})"):
            write(f"total = total + load_float32(scratch, (i * {classes} + j) * 4) * load_float32(p, j * 4)")
        write("store_float32(qp, i * 4, total)", "pqp = pqp + load_float32(p, i * 4) * total")
    write("goes_on = 0", "fails = 0")
    with write.block(f"for i in range({classes})"):
        write("far = load_float32(qp, i * 4) - pqp")
        with write.block("if far >= bound or -far >= bound"):
            write("goes_on = 1")
        with write.block("if far != far"):
            write("fails = 1")
    with write.block("if fails == 1"):
        write("goes_on = 0")


def _write_steps(write: Writer, classes: int) -> None:
    with write.block(f"for t in range({classes})"):
        write(f"q_t = scratch + t * {4 * classes}", "q_tt = load_float32(q_t, t * 4)", "qp_t = load_float32(qp, t * 4)")
        write("step = (pqp - qp_t) / q_tt", "whole = one + step")
        write("store_float32(p, t * 4, load_float32(p, t * 4) + step)")
        write("pqp = (pqp + step * (step * q_tt + (qp_t + qp_t))) / (whole * whole)")
        with write.block(f"for i in range({classes})"):
            write("store_float32(qp, i * 4, (load_float32(qp, i * 4) + step * load_float32(q_t, i * 4)) / whole)")
            write("store_float32(p, i * 4, load_float32(p, i * 4) / whole)")
