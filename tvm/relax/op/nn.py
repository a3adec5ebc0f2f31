"""`relax.op.nn`."""

from __future__ import annotations

from typing import Any

from ....compiler.builder.programs import Expression
from ....compiler.builder.programs import op as own

__all__ = ["flattened", "gelu", "layer_norm", "log_softmax", "relu", "silu", "softmax"]


def relu(data: Expression) -> Expression:
    return own.relu(data)


def gelu(data: Expression) -> Expression:
    return own.gelu(data)


def silu(data: Expression) -> Expression:
    return own.silu(data)


def softmax(data: Expression, axis: int = -1) -> Expression:
    return own.softmax(data, axis=axis)


def log_softmax(data: Expression, axis: int = -1) -> Expression:
    return own.log_softmax(data, axis=axis)


def layer_norm(
    data: Expression, gamma: Expression, beta: Expression, axes: Any = -1, epsilon: float = 1e-5
) -> Expression:
    """Over the last axes, the first of which is `axes`, or its first one."""
    first = axes if isinstance(axes, int) else min(axes)
    return own.layer_normalization(data, gamma, beta, axis=first, epsilon=epsilon)


def flattened(data: Expression) -> Expression:
    """All elements along one axis."""
    return own.reshape(data, shape=(-1,))
