"""`vm.builtin.*` that choose a token: softmax with a temperature, penalties, and samples of the most probable."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from ....formats.messages.errors import CheckError
from ....vm.tensor import Tensor
from .registering import builtin
from .values import tensor


def _row(value: Any, doing: str) -> np.ndarray:
    """The last axis of a tensor whose other axes have one element. Raises ArgumentError, CheckError."""
    array = tensor(value, doing).array
    if array.dtype != np.float32 or not array.ndim or array.size != array.shape[-1] or not array.size:
        raise CheckError(f"{doing}: expected float32[…, 1, n], got {array.dtype}{list(array.shape)}")
    return array.reshape(-1)


def _softmax(row: np.ndarray, temperature: float, doing: str) -> np.ndarray:
    if not temperature > 0:
        raise CheckError(f"{doing}: expected a temperature above 0, got {temperature}")
    weights = np.exp((row - row.max()) / np.float32(temperature), dtype=np.float64)
    return weights / weights.sum()


def _sampled(probabilities: np.ndarray, top_p: float, uniform: float) -> int:
    """The most probable ones that together have `top_p` share what `uniform`, from 0 to 1, falls on."""
    order = np.argsort(-probabilities, kind="stable")
    sums = np.cumsum(probabilities[order], dtype=np.float64)
    last = int(np.searchsorted(sums, min(top_p, sums[-1]), side="left"))
    kept = sums[: last + 1]
    return int(order[min(int(np.searchsorted(kept, uniform * kept[-1], side="right")), last)])


@builtin
def sample_top_p_from_logits(logits: Tensor, temperature: float, top_p: float, uniform: Any = None) -> int:
    """An index; the most probable one for a temperature of (nearly) 0."""
    row = _row(logits, "sample_top_p_from_logits")
    if temperature < 1e-6:
        return int(row.argmax())
    probabilities = _softmax(row, temperature, "sample_top_p_from_logits")
    return _sampled(probabilities, top_p, random.random() if uniform is None else float(uniform))


@builtin
def sample_top_p_from_prob(prob: Tensor, top_p: float, uniform: Any = None) -> int:
    """An index, by probabilities that need not sum up to 1."""
    row = _row(prob, "sample_top_p_from_prob")
    return _sampled(row, top_p * float(row.sum()), random.random() if uniform is None else float(uniform))


@builtin
def multinomial_from_uniform(prob: Tensor, uniform: Tensor) -> Tensor:
    """For each row, the index on which its number from 0 to 1 falls: int64[rows, 1]."""
    doing = "multinomial_from_uniform"
    rows, numbers = tensor(prob, doing).array, tensor(uniform, doing).array
    if rows.ndim != 2 or numbers.size != len(rows) or not rows.shape[1]:
        raise CheckError(f"{doing}: expected [rows, n] and [rows, 1], got {list(rows.shape)} and {list(numbers.shape)}")
    sums = np.cumsum(rows, axis=1, dtype=np.float64)
    found = [
        min(int(np.searchsorted(row, number, side="right")), int(np.flatnonzero(own)[-1]) if own.any() else 0)
        for row, own, number in zip(sums, rows, numbers.reshape(-1), strict=True)
    ]
    return type(prob)(np.array(found, np.int64).reshape(-1, 1))


@builtin
def apply_softmax_with_temperature(logits: Tensor, temperature: float) -> None:
    """Makes logits probabilities, in place."""
    row = _row(logits, "apply_softmax_with_temperature")
    row[:] = _softmax(row, temperature, "apply_softmax_with_temperature")


@builtin
def apply_repetition_penalty(logits: Tensor, token_ids: Tensor, penalty: float) -> None:
    """Divides the logits of earlier tokens by a penalty, or multiplies those below 0, in place."""
    row, ids = _row(logits, "apply_repetition_penalty"), _ids(token_ids, logits, "apply_repetition_penalty")
    row[ids] = np.where(row[ids] > 0, row[ids] / np.float32(penalty), row[ids] * np.float32(penalty))


@builtin
def apply_presence_and_frequency_penalty(
    logits: Tensor, token_ids: Tensor, token_freqs: Tensor, presence: float, frequency: float
) -> None:
    """Subtracts a number from the logits of earlier tokens, and another one for each time, in place."""
    doing = "apply_presence_and_frequency_penalty"
    row, ids = _row(logits, doing), _ids(token_ids, logits, doing)
    often = tensor(token_freqs, doing).array.reshape(-1)
    if len(often) != len(ids):
        raise CheckError(f"{doing}: got {len(ids)} tokens and {len(often)} counts")
    row[ids] -= np.float32(frequency) * often + np.float32(presence)


def _ids(value: Any, logits: Tensor, doing: str) -> np.ndarray:
    ids = tensor(value, doing).array.reshape(-1)
    if ids.dtype.kind != "i" or (ids.size and not 0 <= ids.min() <= ids.max() < logits.array.shape[-1]):
        raise CheckError(f"{doing}: expected indices of {logits.array.shape[-1]} tokens, got {ids.tolist()}")
    return ids
