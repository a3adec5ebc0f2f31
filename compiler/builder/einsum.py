"""Einstein's sums as products of matrices: one at a time, from left to right, where what is summed is summed as soon as nothing
else needs it. ONNX's Einsum and `np.einsum` of expressions are built by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from ...formats import dims
from ...formats.dims import Dim
from ...formats.messages.errors import InferenceError


class Steps(Protocol):
    """How a program is built; its values have a `shape`."""

    def op(self, operator: str, *values: Any, **attributes: Any) -> Any:
        """An operator of one result."""

    def checked(self, value: Any, shape: tuple[Dim, ...]) -> Any:
        """The value as one of this shape: if it is not known to have it, a run checks."""


def einsum(steps: Steps, operands: Sequence[Any], equation: str) -> Any:
    """The sum that NumPy's notation says. Raises InferenceError for an equation that the operands do not fit."""
    terms, result = parsed(equation, [len(operand.shape) for operand in operands])
    parts = [_without_diagonals(steps, operand, term) for operand, term in zip(operands, terms, strict=True)]
    value, labels = parts[0]
    for number, (operand, term) in enumerate(parts[1:], 1):
        needed = set(result).union(*(later for _, later in parts[number + 1 :]))
        value, labels = _contracted(steps, value, labels, operand, term, needed)
    value, labels = _summed(steps, value, labels, set(result))
    return _permuted(steps, value, labels, result)


def parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The labels of the operands' axes, and of the result's. Axes under an ellipsis get labels that are not letters."""
    text = equation.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise InferenceError(f"einsum: {equation!r} names {len(terms)} operands, got {len(ranks)}")
    hidden = max((rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term), default=0)
    ellipsis = "".join(chr(0x2460 + i) for i in range(max(hidden, 0)))
    for place, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        before, dots, behind = term.partition("...")
        missing = rank - len(before) - len(behind)
        if missing < 0 or (missing and not dots):
            raise InferenceError(f"einsum: {term!r} of {equation!r} does not fit an operand of rank {rank}")
        terms[place] = before + ellipsis[len(ellipsis) - missing :] + behind if missing else before + behind
    if arrow:
        return terms, output.replace("...", ellipsis)
    counts = Counter("".join(terms))
    letters = sorted(label for label, count in counts.items() if count == 1 and label not in ellipsis)
    return terms, ellipsis + "".join(letters)


def _without_diagonals(steps: Steps, value: Any, labels: str) -> tuple[Any, str]:
    """The diagonal of axes that share a label."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            others = [axis for axis in range(len(labels)) if axis not in (first, second)]
            size = value.shape[first]
            value = steps.checked(value, (*value.shape[:second], size, *value.shape[second + 1 :]))
            moved = steps.op("permute_dims", value, axes=(*others, first, second))
            rest = tuple(value.shape[axis] for axis in others)
            places = steps.op("reshape", steps.checked(steps.op("arange", stop=size), (size,)), shape=(size, 1))
            places = steps.op("broadcast_to", places, shape=(*rest, size, 1))
            value = steps.op("squeeze", steps.op("take_along_axis", moved, places, axis=-1), axes=(-1,))
            labels = "".join(labels[axis] for axis in others) + label
    return value, labels


def _summed(steps: Steps, value: Any, labels: str, needed: set[str]) -> tuple[Any, str]:
    """Without the axes that nothing needs."""
    gone = tuple(axis for axis, label in enumerate(labels) if label not in needed)
    if not gone:
        return value, labels
    return steps.op("sum", value, axes=gone), "".join(label for label in labels if label in needed)


def _permuted(steps: Steps, value: Any, labels: str, wanted: str) -> Any:
    if sorted(labels) != sorted(wanted):
        raise InferenceError(f"einsum: the result's axes {wanted!r} are not those that are left, {labels!r}")
    order = tuple(labels.index(label) for label in wanted)
    return value if order == tuple(range(len(order))) else steps.op("permute_dims", value, axes=order)


def _contracted(steps: Steps, a: Any, of_a: str, b: Any, of_b: str, needed: set[str]) -> tuple[Any, str]:
    """Two operands as a product of matrices [batch …, rows, depth] and [batch …, depth, columns]."""
    a, of_a = _without_ones(steps, a, of_a, b, of_b, needed)
    b, of_b = _without_ones(steps, b, of_b, a, of_a, needed)
    a, of_a = _summed(steps, a, of_a, needed | set(of_b))
    b, of_b = _summed(steps, b, of_b, needed | set(of_a))
    batch = "".join(label for label in of_a if label in of_b and label in needed)
    depth = "".join(label for label in of_a if label in of_b and label not in needed)
    rows = "".join(label for label in of_a if label not in of_b)
    columns = "".join(label for label in of_b if label not in of_a)
    sizes = dict(zip(of_a, a.shape, strict=True))
    b = steps.checked(b, tuple(_joint(sizes.get(label, dim), dim) for label, dim in zip(of_b, b.shape, strict=True)))
    for label, dim in zip(of_b, b.shape, strict=True):
        sizes[label] = dim if sizes.get(label, 1) == 1 else sizes[label]
    labels = batch + rows + columns

    def parted(value: Any, own: str, *parts: str) -> Any:
        """The operand with its axes in order, those of each part as one."""
        moved = _permuted(steps, value, own, batch + "".join(parts))
        shape = dict(zip(own, value.shape, strict=True))
        merged = [dims.product(shape[label] for label in part) for part in parts]
        return steps.op("reshape", moved, shape=(*(shape[label] for label in batch), *merged))

    if depth:
        product = steps.op("matmul", parted(a, of_a, rows, depth), parted(b, of_b, depth, columns))
    else:
        product = steps.op("multiply", parted(a, of_a, rows, ""), parted(b, of_b, "", columns))
    return steps.op("reshape", product, shape=tuple(sizes[label] for label in labels)), labels


def _without_ones(steps: Steps, value: Any, own: str, other: Any, others: str, needed: set[str]) -> tuple[Any, str]:
    """Without axes of size 1 that would be summed together with longer ones: these are summed alone."""
    sizes = dict(zip(others, other.shape, strict=True))
    ones = tuple(
        axis
        for axis, (label, dim) in enumerate(zip(own, value.shape, strict=True))
        if dim == 1 and label not in needed and sizes.get(label, 1) != 1
    )
    if not ones:
        return value, own
    return steps.op("squeeze", value, axes=ones), "".join(each for axis, each in enumerate(own) if axis not in ones)


def _joint(a: Dim, b: Dim) -> Dim:
    """The common size of two dimensions; 1 broadcasts."""
    return b if a == 1 or b == 1 else a
