"""`relay.nn`: losses, the numbers that training would make small."""

from __future__ import annotations

from ....compiler.builder.programs import Expression, op
from ....formats.messages.errors import InferenceError
from .table import Tensor, known, like, operator, type_of


def _mean_loss(name: str, predictions: Expression, logarithms: Expression, targets: Expression) -> Expression:
    """The mean over the batch of -sum(targets · logarithms)."""
    (batch,) = known(f"nn.{name}: the batch", type_of(predictions).shape[0])
    return op.divide(op.negative(op.sum(op.multiply(logarithms, targets))), like(predictions, batch))


@operator("nn.cross_entropy")
def cross_entropy(predictions: Tensor, targets: Tensor) -> Expression:
    """The mean over the batch of -sum(targets log predictions)."""
    return _mean_loss("cross_entropy", predictions, op.log(predictions), targets)


@operator("nn.cross_entropy_with_logits")
def cross_entropy_with_logits(predictions: Tensor, targets: Tensor) -> Expression:
    """The mean over the batch of -sum(targets · predictions)."""
    return _mean_loss("cross_entropy_with_logits", predictions, predictions, targets)


@operator("nn.nll_loss")
def nll_loss(
    predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str = "mean", ignore_index: int = -100
) -> Expression:
    """-predictions [N, C, …] at the class that `targets` [N, …] tells, times the class's weight; 0 where it is `ignore_index`.
    All of them, their sum, or that by the sum of these weights."""
    if reduction not in ("none", "sum", "mean"):
        raise InferenceError(f"reduction {reduction!r}; there are none, sum and mean")
    rank = type_of(predictions).rank
    if rank < 2 or type_of(targets).rank != rank - 1:
        raise InferenceError(f"expected [N, C, …] and [N, …], got {type_of(predictions)} and {type_of(targets)}")
    counts = op.not_equal(targets, like(targets, ignore_index))
    place = op.cast(op.where(counts, targets, like(targets, 0)), dtype="int64")
    found = op.squeeze(op.take_along_axis(predictions, op.expand_dims(place, axes=(1,)), axis=1), axes=(1,))
    weight = op.where(counts, op.take(weights, place, axis=0), like(weights, 0))
    loss = op.negative(op.multiply(found, weight))
    if reduction == "none":
        return loss
    return op.divide(op.sum(loss), op.sum(weight)) if reduction == "mean" else op.sum(loss)
