"""Seeds of random numbers, different in each call. Ordinary operators draw from them."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence

import numpy as np

from ...formats.dtypes import DType
from ...formats.types import TensorType
from ...native import knobs
from .table import Attribute, Fusion, Kind, register

_calls = itertools.count()  # number of seeds requested in this process; next() is atomic


def _infer_call_seed(inputs: Sequence[TensorType], place: int) -> TensorType:
    return TensorType(DType.uint64, ())


def _call_seed(place: int) -> np.ndarray:
    """A seed, from TREADLE_SEED if set: a process that makes the same calls in the same order then gets the same numbers."""
    seed = knobs.get("TREADLE_SEED")
    if seed is None:
        return np.asarray(np.uint64(secrets.randbits(64)))
    words = np.random.SeedSequence([seed, place, next(_calls)]).generate_state(1, np.uint64)
    return np.asarray(words[0])


# fmt: off
register("call_seed", "", _infer_call_seed, _call_seed, Fusion.OPAQUE,
         "64 random bits, others each time",
         attributes={"place": Attribute(Kind.INT, "which of the model's draws it is for: each has its own")},
         varies=True)
# fmt: on
