"""The kernel of coupled_probabilities: a row is one unit of work; its matrix is in scratch.

The algorithm and its names are those of the operator's reference (`operators/coupling.py`), where the paper is named.
"""

from __future__ import annotations

from numpy import float32, isnan

from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.coupling import ERROR, rounds
from ....operators.table import bound_attributes
from .. import costs
from ..target import Target
from .kernel import Kernel
from .own import Scratch, write_function
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
    constants = {"classes": classes, "rounds": rounds(classes), "bound": ERROR / classes}
    scratch = [Scratch((classes, classes), DType.float32), Scratch((classes,), DType.float32)]
    row_picoseconds = classes * classes * costs.COUPLING_ROUNDS * costs.COUPLING_PS
    scratch_bytes = write_function(write, _coupled, scratch, constants, f"pairs_0 * {row_picoseconds} // 1000")
    rows = estimate(shape_of(definition.params[0])[0])
    return write.kernel(rows * row_picoseconds / 1000, scratch_bytes)


prange = range


def _coupled(pairs, p, q, qp, *, classes, rounds, bound):  # type: ignore[no-untyped-def]
    one = float32(1.0)
    limit = float32(bound)
    for row in prange(p.shape[0]):
        for i in range(classes):
            q[i, i] = 0.0
            p[row, i] = 1.0 / classes
        pair = 0
        for i in range(classes):
            for j in range(i + 1, classes):
                a = pairs[row, pair]
                b = one - a
                pair += 1
                q[i, j] = -(a * b)
                q[j, i] = -(a * b)
                q[j, j] += a * a
                q[i, i] += b * b
        for _ in range(rounds):
            pqp = float32(0.0)
            for i in range(classes):
                total = float32(0.0)
                for j in range(classes):
                    total += q[i, j] * p[row, j]
                qp[i] = total
                pqp += p[row, i] * total
            goes_on = 0
            fails = 0
            for i in range(classes):
                far = abs(qp[i] - pqp)
                if far >= limit:
                    goes_on = 1
                if isnan(far):
                    fails = 1
            if goes_on == 0 or fails == 1:
                break
            for t in range(classes):
                q_tt = q[t, t]
                qp_t = qp[t]
                step = (pqp - qp_t) / q_tt
                whole = one + step
                p[row, t] += step
                pqp = (pqp + step * (step * q_tt + (qp_t + qp_t))) / (whole * whole)
                for i in range(classes):
                    qp[i] = (qp[i] + step * q[t, i]) / whole
                    p[row, i] /= whole
