"""Ensembles of decision trees as one operator, whose trees are tables of numbers.

A node is four words of 32 bits, or, where x is float64, eight:

    float32   float64   what
    0         0-1       the threshold's bits; of a leaf, its weight, or the number of its row of `leaves`, as a float
    1         2         eight times its column: one of x, or, counted after them, of x where NaN is the least number
    2         4         the next node where its column is above the threshold, or NaN
    3         5         the next node where it is not

Nodes are named by their distance in bytes from their tree's first one. A leaf is followed by itself. A tree is four words: its
first node, how many nodes after that it may reach, its least and its greatest depth, and, without `leaves`, the result's column
that it adds to: see `TREE`. Distances and columns are taken modulo powers of two, so that whatever the tables hold, nothing
outside of them is read; a tree that does not lie in its table is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from ...formats.dtypes import DType
from ...formats.messages.errors import IndexOutOfRangeError
from ...formats.types import TensorType
from .shapes import mismatch, require, require_rank
from .table import Attribute, Fusion, Kind, register

FLOATS = frozenset({DType.float32, DType.float64})
_INT32 = frozenset({DType.int32})
COLUMN_SCALE = 8  # of a column's number in a node: the rows that a kernel walks through a tree together
AGGREGATES = ("sum", "average", "min", "max")


class TREE(IntEnum):
    """The words of a tree."""

    FIRST = 0  # the number of its first node
    REACH = 1  # 2^k - 1: no node lies farther after the first one
    LEAST = 2  # the depth of the highest leaf, of which nothing but speed depends
    MOST = 3  # the depth of the lowest one
    COLUMN = 4  # of the result
    WORDS = 8


def node_words(dtype: DType) -> int:
    """How many words of 32 bits a node has, for x of that type."""
    return dtype.itemsize


def link_word(dtype: DType) -> int:
    """Which word of a node is the first of the two next nodes."""
    return dtype.itemsize // 2


def columns_mask(columns: int) -> int:
    """The mask of a node's scaled column: a power of two, at least `columns`, in multiples of 8."""
    return (power_of_two(columns) - 1) * COLUMN_SCALE


def power_of_two(count: int) -> int:
    """The least one that is not below `count`, or 1."""
    return 1 << max(count - 1, 0).bit_length()


def neutral(aggregate: str) -> float:
    """The neutral element of an aggregation."""
    return {"min": np.inf, "max": -np.inf}.get(aggregate, 0.0)


def _infer(inputs: Sequence[TensorType], targets: int, aggregate: str, nan_as_least: bool) -> TensorType:
    x, nodes, trees, leaves = inputs
    require(x, FLOATS)
    require(nodes, _INT32)
    require(trees, _INT32)
    require_rank(x, 2, "rows [N, F]")
    require_rank(nodes, 2, "nodes [M, words]")
    require_rank(trees, 2, "trees [T, 8]")
    require_rank(leaves, 2, "rows of leaves [L, targets]")
    if nodes.shape[1] != node_words(x.dtype):
        raise mismatch(f"nodes of {node_words(x.dtype)} words, for {x.dtype.name}", nodes)
    if trees.shape[1] != TREE.WORDS:
        raise mismatch(f"trees of {TREE.WORDS.value} words", trees)
    if leaves.dtype is not x.dtype or leaves.shape[1] != targets or targets < 1:
        raise mismatch(f"leaves of {x.dtype.name}[L, {targets}], of one target at least", leaves)
    if not isinstance(x.shape[1], int) or not 0 < x.shape[1] < 1 << 24:
        raise mismatch("a known number of columns, one at least", x)
    return TensorType(x.dtype, (x.shape[0], targets))


def _evaluate(
    x: np.ndarray,
    nodes: np.ndarray,
    trees: np.ndarray,
    leaves: np.ndarray,
    targets: int,
    aggregate: str,
    nan_as_least: bool,
) -> np.ndarray:
    """All rows go down a tree together. Sums are made in the order of trees, in the precision of x."""
    columns = _columns(x, nan_as_least)
    thresholds, scaled, links = _parts(nodes, x.dtype)
    result = np.full((len(x), targets), neutral(aggregate), x.dtype)
    combine = {"min": np.minimum, "max": np.maximum}.get(aggregate, np.add)
    for tree in trees if len(x) else ():
        ends = _ends(columns, tree, thresholds, scaled, links)
        weights = thresholds[ends]
        if not len(leaves):
            column = tree[TREE.COLUMN]
            if not 0 <= column < targets:
                raise IndexOutOfRangeError(f"tree_ensemble: column {column} of a result of {targets}")
            result[:, column] = combine(result[:, column], weights)
            continue
        if not np.all((weights >= 0) & (weights < len(leaves))):
            raise IndexOutOfRangeError(f"tree_ensemble: a leaf has a row that is none of {len(leaves)}")
        result = combine(result, leaves[weights.astype(np.int64)])
    if aggregate == "average" and len(trees):
        result = result / x.dtype.type(len(trees))
    return result


def _columns(x: np.ndarray, nan_as_least: bool) -> np.ndarray:
    """The columns that nodes compare: x, then x with -inf in place of NaN, then zeros up to a power of two."""
    parts = [x, np.where(np.isnan(x), x.dtype.type(-np.inf), x)] if nan_as_least else [x]
    count = sum(part.shape[1] for part in parts)
    return np.concatenate([*parts, np.zeros((len(x), power_of_two(count) - count), x.dtype)], 1)


def _parts(nodes: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds, scaled columns, and next nodes [M, 2]."""
    half = dtype.itemsize // 2
    thresholds = np.ascontiguousarray(nodes[:, : half // 2]).view(dtype)[:, 0]
    return thresholds, nodes[:, half // 2], nodes[:, half : half + 2]


def _ends(
    columns: np.ndarray, tree: np.ndarray, thresholds: np.ndarray, scaled: np.ndarray, links: np.ndarray
) -> np.ndarray:
    """The numbers of the nodes at which the rows end."""
    first, reach, most = (int(tree[word]) for word in (TREE.FIRST, TREE.REACH, TREE.MOST))
    if first < 0 or reach < 0 or first + reach >= len(thresholds):
        raise IndexOutOfRangeError(f"tree_ensemble: nodes {first} to {first + reach} of {len(thresholds)}")
    node_bytes = 4 * columns.dtype.itemsize
    rows, at = np.arange(len(columns)), np.zeros(len(columns), np.int64)
    for _ in range(min(most, reach + 1)):
        node = first + at
        column = (scaled[node].astype(np.int64) & columns_mask(columns.shape[1])) // COLUMN_SCALE
        goes = columns[rows, column] <= thresholds[node]
        following = (links[node, goes.astype(np.int64)].astype(np.int64) & (reach * node_bytes)) // node_bytes
        if np.array_equal(following, at):
            break
        at = following
    return first + at


def _work(inputs: Sequence[TensorType], results: Sequence[TensorType], **attributes: Any) -> int:
    """A comparison for each level of each tree, taken as the logarithm of its nodes."""
    x, nodes, trees, _ = inputs
    rows, count, each = (dim if isinstance(dim, int) else 1 for dim in (x.shape[0], trees.shape[0], nodes.shape[0]))
    return rows * count * max(1, (each // max(count, 1)).bit_length())


# fmt: off
register("tree_ensemble", "x nodes trees leaves", _infer, _evaluate, Fusion.OPAQUE,
         "[N, targets]: what the leaves that trees lead rows x [N, F] to weigh together; operators/trees.py tells of the tables",
         attributes={"targets": Attribute(Kind.INT, "columns of the result"),
                     "aggregate": Attribute(Kind.STRING, "what becomes of the trees' weights", "sum", AGGREGATES),
                     "nan_as_least": Attribute(Kind.BOOL, "whether some nodes take NaN as the least number", False)},
         work=_work)
# fmt: on
