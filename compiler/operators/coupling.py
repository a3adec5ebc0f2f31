"""Probabilities of classes from those of pairs of classes, for support vector machines."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ...formats.types import TensorType
from .shapes import FLOAT32, mismatch, require, require_rank
from .table import Attribute, Fusion, Kind, register

ERROR = 0.005  # times the reciprocal of the number of classes: libsvm's bound


def rounds(classes: int) -> int:
    """The most iterations, as in libsvm."""
    return max(100, classes)


def _infer(inputs: Sequence[TensorType], classes: int) -> TensorType:
    (pairs,) = inputs
    require(pairs, FLOAT32)
    require_rank(pairs, 2, "probabilities of pairs [N, pairs]")
    if classes < 2 or pairs.shape[1] != classes * (classes - 1) // 2:
        raise mismatch(f"the pairs of {classes} classes, which are two at least", pairs)
    return TensorType(pairs.dtype, (pairs.shape[0], classes))


def _coupled(pairs: np.ndarray, classes: int) -> np.ndarray:
    """Wu, Lin, Weng: Probability Estimates for Multi-class Classification by Pairwise Coupling (2004), algorithm 2, with libsvm's
    error bound as each row's stopping condition."""
    ratio = np.zeros((len(pairs), classes, classes), np.float32)
    for column, (i, j) in enumerate(itertools.combinations(range(classes), 2)):
        ratio[:, i, j], ratio[:, j, i] = pairs[:, column], 1 - pairs[:, column]
    q = -np.swapaxes(ratio, 1, 2) * ratio
    diagonal = np.arange(classes)
    q[:, diagonal, diagonal] = (ratio**2).sum(1)
    p = np.full((len(pairs), classes), 1 / classes, np.float32)
    active = np.arange(len(pairs))
    for _ in range(rounds(classes)):
        qa, pa = q[active], p[active]
        qp = np.einsum("nij,nj->ni", qa, pa)
        pqp = (pa * qp).sum(1)
        goes_on = np.abs(qp - pqp[:, None]).max(1, initial=0) >= ERROR / classes
        active, qa, pa, qp, pqp = active[goes_on], qa[goes_on], pa[goes_on], qp[goes_on], pqp[goes_on]
        if not len(active):
            break
        for t in range(classes):
            step = (pqp - qp[:, t]) / qa[:, t, t]
            pa[:, t] += step
            pqp = (pqp + step * (step * qa[:, t, t] + 2 * qp[:, t])) / (1 + step) ** 2
            qp = (qp + step[:, None] * qa[:, t]) / (1 + step)[:, None]
            pa /= (1 + step)[:, None]
        p[active] = pa
    return p


# fmt: off
register("coupled_probabilities", "pairs", _infer, _coupled, Fusion.OPAQUE,
         "[N, classes]: probabilities of classes that agree best with those of pairs [N, pairs], of the first class of each",
         attributes={"classes": Attribute(Kind.INT, "how many there are")})
# fmt: on
