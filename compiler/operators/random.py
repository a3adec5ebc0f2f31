"""Where random numbers begin: a number that is another one in each call. What is drawn from it is made by ordinary operators."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence

import numpy as np

from ...formats.dtypes import DType
from ...formats.types import TensorType
from ...native import knobs
from .table import Attribute, Fusion, Kind, register

_calls = itertools.count()  # how often a seed was asked for in this process; next() is atomic


def _infer_call_seed(inputs: Sequence[TensorType], place: int) -> TensorType:
    return TensorType(DType.uint64, ())


def _call_seed(place: int) -> np.ndarray:
    """From TREADLE_SEED, where it is set: then a process that makes the same calls one after the other gets the same numbers."""
    seed = knobs.get("TREADLE_SEED")
    if seed is None:
        return np.asarray(np.uint64(secrets.randbits(64)))
    words = np.random.SeedSequence([seed, place, next(_calls)]).generate_state(1, np.uint64)
    return np.asarray(words[0])


register(
    "call_seed",
    "",
    _infer_call_seed,
    _call_seed,
    Fusion.OPAQUE,
    "64 random bits, others each time",
    attributes={"place": Attribute(Kind.INT, "which of the model's draws it is for: each has its own")},
    varies=True,
)
