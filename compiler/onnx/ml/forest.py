"""Trees as ONNX lists them, made the tables that `operators/trees.py` tells of.

A `Forest` is nodes with the numbers of the two that may follow. All kinds of comparison become one, x <= t, with the sides
exchanged, or by several nodes: x == t is x <= t and not x < t. Whatever does not fit together (a node that is not there, a
cycle, a NaN among thresholds) is refused with the node's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ... import effort
from ...operators.trees import COLUMN_SCALE, TREE, link_word, neutral, node_words, power_of_two
from ..values import UnsupportedError

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)
DEPTH = 1 << 16  # of a tree; those that are trained without bounds have some hundreds of levels
DENSE_TIMES = 64  # as many elements as rows of leaves may have for each weight that the model lists
DENSE_LEAST = 1 << 20
NODE_BYTES = 1 << 31  # of a tree: distances are numbers of 32 bits
NODE_UNITS = 500  # nanoseconds that a node takes to import


@dataclass
class Forest:
    """`yes` and `no` are the numbers of next nodes, -1 of leaves. `names` says which node of the model a number is, in errors."""

    feature: np.ndarray  # int64
    threshold: np.ndarray  # of the type that x is compared in
    mode: np.ndarray  # uint8, of MODES
    nan_is_yes: np.ndarray  # bool: what a missing number is, whatever the mode
    yes: np.ndarray  # int64
    no: np.ndarray
    roots: np.ndarray
    leaf_node: np.ndarray  # of each weight
    leaf_target: np.ndarray
    leaf_weight: np.ndarray
    origin: np.ndarray  # of each node, its number in the model
    members: dict[int, np.ndarray]  # of BRANCH_MEMBER

    @property
    def inner(self) -> np.ndarray:
        return self.mode != LEAF

    def refuse(self, node: int, why: str) -> NoReturn:
        raise ModelError(f"node {int(self.origin[node])} of the trees {why}")

    def refuse_where(self, wrong: np.ndarray, why: str) -> None:
        """Raises ModelError that names the first node of which `wrong` holds."""
        found = np.flatnonzero(wrong)
        if len(found):
            self.refuse(int(found[0]), why)


@dataclass
class Tables:
    """The operands of tree_ensemble."""

    nodes: np.ndarray
    trees: np.ndarray
    leaves: np.ndarray
    columns: int  # that x must have at least
    nan_as_least: bool
    has_absent: bool  # some leaf has no weight for some target, which counts for minima and maxima


def tables(forest: Forest, targets: int, aggregate: str, columns: int | None) -> Tables:
    """The tables of a forest, whose x has `columns` columns, if known. Raises ModelError, UnsupportedError."""
    effort.spend(NODE_UNITS * len(forest.mode), "the trees")
    _check(forest, targets, columns)
    _write_out(forest)
    as_least = _compare_alike(forest)
    level, tree, order = _walked(forest)
    return _Maker(forest, targets, aggregate, columns, as_least, level, tree, order).made()


def _check(forest: Forest, targets: int, columns: int | None) -> None:
    inner = forest.inner
    forest.refuse_where(inner & (forest.mode != MEMBER) & np.isnan(forest.threshold), "has the threshold NaN")
    forest.refuse_where(inner & (forest.feature < 0), "has a negative feature")
    if columns is not None:
        forest.refuse_where(inner & (forest.feature >= columns), f"has a feature that is none of {columns}")
    forest.refuse_where(inner & (forest.feature >= 1 << 24), "has a feature of more than 24 bits")
    if not len(forest.roots):
        raise ModelError("the trees have no root: their nodes go round in a cycle, or there are none")
    wrong = (forest.leaf_target < 0) | (forest.leaf_target >= targets)
    if wrong.any():
        raise ModelError(f"a leaf's weight is for target {int(forest.leaf_target[wrong][0])}, of {targets}")


# ---- one kind of comparison ----


def _write_out(forest: Forest) -> None:
    """BRANCH_EQ, NEQ and MEMBER as nodes of the other kinds."""
    forest.nan_is_yes |= forest.mode == NEQ  # NaN equals nothing
    _swap(forest, forest.mode == NEQ, EQ)
    _write_members(forest)
    equal = np.flatnonzero(forest.mode == EQ)
    if not len(equal):
        return
    # x <= t leads to a new node, where x < t leads to "no", else to "yes"; NaN goes where it has to at once, or by both
    number = len(forest.mode) + np.arange(len(equal))
    nan = forest.nan_is_yes[equal]
    _append(
        forest, forest.feature[equal], forest.threshold[equal], LT, np.zeros(len(equal), bool),
        forest.no[equal], forest.yes[equal], forest.origin[equal],
    )  # fmt: skip
    forest.mode[equal], forest.yes[equal], forest.nan_is_yes[equal] = LEQ, number, nan


def _write_members(forest: Forest) -> None:
    """Each set as a tree over its values in order: as deep as its logarithm."""
    threshold, mode, yes, no, of = list[float](), list[int](), list[int](), list[int](), list[int]()
    base = len(forest.mode)
    for node in map(int, np.flatnonzero(forest.mode == MEMBER)):
        values = np.unique(forest.members[node])
        is_in, is_not = int(forest.yes[node]), int(forest.no[node])
        if not len(values):
            forest.threshold[node], forest.mode[node] = np.inf, LEQ
            forest.yes[node], forest.no[node] = is_not, is_in if forest.nan_is_yes[node] else is_not
            forest.nan_is_yes[node] = False
            continue
        tree = _SetTree(base + len(mode), is_in, is_not)
        tree.write(values)
        forest.threshold[node], forest.mode[node] = tree.thresholds[0], tree.modes[0]
        forest.yes[node], forest.no[node] = tree.yes[0], tree.no[0]
        threshold += tree.thresholds[1:]
        mode += tree.modes[1:]
        yes += tree.yes[1:]
        no += tree.no[1:]
        of += [node] * (len(tree.modes) - 1)
    _append(
        forest, forest.feature[of], np.array(threshold, forest.threshold.dtype), np.array(mode, np.uint8),
        forest.nan_is_yes[of], np.array(yes, np.int64), np.array(no, np.int64), forest.origin[of],
    )  # fmt: skip


class _SetTree:
    """The nodes of a set's tree: the first is the set's own, the others get numbers from `base` on. Of n values there are n - 1
    nodes that part them, and n that compare."""

    def __init__(self, base: int, is_in: int, is_not: int) -> None:
        self._base, self._is_in, self._is_not = base, is_in, is_not
        self.thresholds: list[float] = []
        self.modes: list[int] = []
        self.yes: list[int] = []
        self.no: list[int] = []

    def write(self, values: np.ndarray) -> None:
        pending = [(0, len(values), -1, 0)]
        while pending:
            begin, end, parent, side = pending.pop()
            number = len(self.modes)
            if parent >= 0:
                (self.yes if side == 0 else self.no)[parent] = self._base + number - 1
            if end - begin == 1:
                self._add(values[begin], EQ, self._is_in, self._is_not)
                continue
            middle = (begin + end) // 2
            self._add(values[middle - 1], LEQ, -1, -1)
            pending += [(middle, end, number, 1), (begin, middle, number, 0)]

    def _add(self, threshold: float, mode: int, yes: int, no: int) -> None:
        self.thresholds.append(threshold)
        self.modes.append(mode)
        self.yes.append(yes)
        self.no.append(no)


def _append(
    forest: Forest, feature: np.ndarray, threshold: np.ndarray, mode: np.ndarray | int, nan_is_yes: np.ndarray,
    yes: np.ndarray, no: np.ndarray, origin: np.ndarray,
) -> None:  # fmt: skip
    """More nodes after the others."""
    effort.spend(NODE_UNITS * len(feature), "the trees")
    forest.feature = np.append(forest.feature, feature)
    forest.threshold = np.append(forest.threshold, threshold)
    forest.mode = np.append(forest.mode, np.full(len(feature), mode, np.uint8))
    forest.nan_is_yes = np.append(forest.nan_is_yes, nan_is_yes)
    forest.yes, forest.no = np.append(forest.yes, yes), np.append(forest.no, no)
    forest.origin = np.append(forest.origin, origin)


def _swap(forest: Forest, which: np.ndarray, mode: int) -> None:
    """Exchanges the sides of nodes, which are of the opposite mode then."""
    forest.yes[which], forest.no[which] = forest.no[which], forest.yes[which]
    forest.nan_is_yes[which] = ~forest.nan_is_yes[which]
    forest.mode[which] = mode


def _compare_alike(forest: Forest) -> np.ndarray:
    """Makes all comparisons x <= t; whether a node takes NaN as the least number, so that it holds of it."""
    _swap(forest, forest.mode == GT, LEQ)
    _swap(forest, forest.mode == GTE, LT)
    less = forest.mode == LT
    # nothing is below -inf: x <= inf holds of all but NaN
    never = less & (forest.threshold == -np.inf)
    _swap(forest, never, LEQ)
    forest.threshold[never] = np.inf
    less &= ~never
    least = forest.threshold.dtype.type(-np.inf)
    forest.threshold[less] = np.nextafter(forest.threshold[less], least)
    forest.mode[less] = LEQ
    return forest.inner & forest.nan_is_yes


# ---- the order of nodes ----


def _walked(forest: Forest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The level and the tree of each node, and the nodes in the order of levels."""
    count = len(forest.mode)
    level, tree = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    inner, visits = forest.inner, 0
    most = int(inner.sum()) + 1
    frontier, of_tree = forest.roots, np.arange(len(forest.roots))
    depth = 0
    while len(frontier):
        visits += len(frontier)
        if depth > most or visits > 64 * count + 1024:
            forest.refuse(int(frontier[0]), "is in a cycle, or reached by too many ways")
        if depth > DEPTH:
            forest.refuse(int(frontier[0]), f"lies deeper than {DEPTH} levels")
        other = (tree[frontier] >= 0) & (tree[frontier] != of_tree)
        if other.any():
            forest.refuse(int(frontier[np.flatnonzero(other)[0]]), "is in two trees")
        level[frontier], tree[frontier] = depth, of_tree
        going = inner[frontier]
        at, of_tree = frontier[going], of_tree[going]
        following = np.concatenate([forest.yes[at], forest.no[at]])
        of_tree = np.concatenate([of_tree, of_tree])
        frontier, first = np.unique(following, return_index=True)
        if len(frontier) < len(following):  # a node that several lead to, of one tree unless the model is wrong
            different = np.ones(len(following), bool)
            different[first] = False
            places = np.searchsorted(frontier, following[different])
            if (of_tree[first][places] != of_tree[different]).any():
                forest.refuse(int(following[different][0]), "is in two trees")
        of_tree = of_tree[first]
        depth += 1
    forest.refuse_where(level < 0, "is in a cycle: no root leads to it")
    return level, tree, np.argsort(level, kind="stable")


class _Maker:
    """Tables, of a forest of one kind of comparison whose levels are known."""

    def __init__(
        self, forest: Forest, targets: int, aggregate: str, columns: int | None, as_least: np.ndarray,
        level: np.ndarray, tree: np.ndarray, order: np.ndarray,
    ) -> None:  # fmt: skip
        self.forest, self.targets, self.aggregate, self.as_least = forest, targets, aggregate, as_least
        self.level, self.tree = level, tree
        used = forest.feature[forest.inner]
        self.columns = columns or max(int(used.max()) + 1 if len(used) else 1, 1)
        self.dtype = forest.threshold.dtype
        self.count = len(forest.roots)
        # nodes of a tree together, upper ones first, leaves last
        self.order = order[np.argsort(2 * tree[order] + ~forest.inner[order], kind="stable")]
        self.sizes = np.bincount(tree[order], minlength=self.count)
        self.first = np.cumsum(self.sizes) - self.sizes
        self.local = np.full(len(level), -1, np.int64)  # a node's number in its tree
        self.local[self.order] = np.arange(len(self.order)) - np.repeat(self.first, self.sizes)

    def made(self) -> Tables:
        node_bytes = 4 * self.dtype.itemsize
        if self.sizes.max(initial=0) * node_bytes * 2 > NODE_BYTES:
            raise UnsupportedError(f"a tree of {int(self.sizes.max())} nodes")
        payload, columns, leaves, has_absent = self._weights()
        nodes = self._nodes(payload, node_bytes)
        trees = self._trees(columns)
        behind = int((trees[:, TREE.FIRST] + trees[:, TREE.REACH]).max()) + 1 - len(nodes)
        nodes = np.concatenate([nodes, np.zeros((max(behind, 0), nodes.shape[1]), np.int32)])
        return Tables(nodes, trees, leaves, self.columns, bool(self.as_least[self.order].any()), has_absent)

    def _nodes(self, payload: np.ndarray, node_bytes: int) -> np.ndarray:
        """Rows of nodes; of leaves with what `payload` says."""
        forest, order, dtype = self.forest, self.order, self.dtype
        inner = forest.inner[order]
        words = np.zeros((len(order), node_words(DType.of(dtype))), np.int32)
        half = link_word(DType.of(dtype))
        numbers = np.where(inner, forest.threshold[order], payload[order]).astype(dtype)
        words[:, : half // 2] = numbers.view(np.int32).reshape(len(order), -1)
        column = forest.feature[order] + np.where(self.as_least[order], self.columns, 0)
        words[:, half // 2] = np.where(inner, column * COLUMN_SCALE, 0)
        own = self.local[order]
        words[:, half] = np.where(inner, self.local[forest.no[order]], own) * node_bytes
        words[:, half + 1] = np.where(inner, self.local[forest.yes[order]], own) * node_bytes
        return words

    def _trees(self, columns: np.ndarray) -> np.ndarray:
        trees = np.zeros((self.count, TREE.WORDS), np.int32)
        trees[:, TREE.FIRST] = self.first
        trees[:, TREE.REACH] = [power_of_two(int(size)) - 1 for size in self.sizes]
        ends = self.order[~self.forest.inner[self.order]]
        least, most = np.full(self.count, DEPTH), np.zeros(self.count, np.int64)
        np.minimum.at(least, self.tree[ends], self.level[ends])
        np.maximum.at(most, self.tree[ends], self.level[ends])
        trees[:, TREE.LEAST], trees[:, TREE.MOST], trees[:, TREE.COLUMN] = least, most, columns
        return trees

    def _weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """The weights of leaves, the column that each tree adds to, the rows of leaves, and whether some weight is absent."""
        forest, dtype = self.forest, self.dtype
        is_used = ~forest.inner[forest.leaf_node] & (self.tree[forest.leaf_node] >= 0)
        node, target = forest.leaf_node[is_used], forest.leaf_target[is_used]
        weight = forest.leaf_weight[is_used].astype(dtype)
        of_tree = self.tree[node]
        columns = np.zeros(self.count, np.int64)
        columns[of_tree] = target
        is_single = bool((np.bincount(node) <= 1).all() and (columns[of_tree] == target).all())
        payload = np.full(len(forest.mode), neutral(self.aggregate), dtype)
        all_leaves = self.order[~forest.inner[self.order]]
        if is_single:
            payload[node] = weight
            reached = np.zeros(self.targets, bool)
            reached[columns[of_tree]] = True
            return (
                payload,
                columns,
                np.zeros((0, self.targets), dtype),
                len(node) < len(all_leaves) or not reached.all(),
            )
        elements = len(all_leaves) * self.targets
        if elements > max(DENSE_LEAST, DENSE_TIMES * len(weight)) or len(all_leaves) >= 1 << 24:
            raise UnsupportedError(f"{len(all_leaves)} leaves for {self.targets} targets, most of which have no weight")
        row = np.full(len(forest.mode), -1, np.int64)
        row[all_leaves] = np.arange(len(all_leaves))
        leaves = np.full((len(all_leaves), self.targets), neutral(self.aggregate), dtype)
        combine = {"min": np.minimum, "max": np.maximum}.get(self.aggregate, np.add)
        combine.at(leaves, (row[node], target), weight)
        payload[all_leaves] = np.arange(len(all_leaves))
        is_filled = np.zeros((len(all_leaves), self.targets), bool)
        is_filled[row[node], target] = True
        return payload, columns, leaves, not is_filled.all()
