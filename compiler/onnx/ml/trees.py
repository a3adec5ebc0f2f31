"""Importers of tree ensembles: lists of nodes as attributes, of versions 1, 3 and 5 of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..table import importer
from ..values import GraphBuilder, Value
from .forest import LEAF, MODES, Forest, tables
from .scores import DOMAIN, above, array_of, best, both, labels_of, rows, transformed

Ints = Sequence[int]
Floats = Sequence[float]

_NUMBERS = {name: number for number, name in enumerate(MODES)}
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")  # by their numbers of version 5
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _ensemble(g: GraphBuilder, x: Value, forest: Forest, targets: int, aggregate: str) -> Value:
    """The trees' weights together, [N, targets]."""
    aggregate = aggregate.lower()
    width = x.shape[1] if isinstance(x.shape[1], int) else None
    made = tables(forest, targets, aggregate, width)
    if width is None:  # the nodes know no feature after these
        x = g.op("slice", x, starts=(0,), ends=(made.columns,), axes=(1,), steps=(1,))
        x = g.checked(x, (x.shape[0], made.columns))
    result = g.op(
        "tree_ensemble",
        x,
        *(g.constant(array) for array in (made.nodes, made.trees, made.leaves)),
        targets=targets,
        aggregate=aggregate,
        nan_as_least=made.nan_as_least,
    )
    if aggregate in ("min", "max") and made.has_absent:  # what no leaf has a weight for
        result = g.op("where", g.op("isinf", result), g.constant(0, x.dtype), result)
    return result


@dataclass(frozen=True)
class _Nodes:
    """The lists of versions 1 and 3: nodes are named by their tree and their number in it."""

    tree: np.ndarray
    number: np.ndarray
    feature: Ints
    threshold: np.ndarray
    mode: np.ndarray  # uint8
    yes: Ints
    no: Ints
    nan_is_yes: np.ndarray


def _nodes(
    *,
    nodes_falsenodeids: Ints = (),
    nodes_featureids: Ints = (),
    nodes_hitrates: Floats | None = None,
    nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Ints = (),
    nodes_modes: Sequence[str] = (),
    nodes_nodeids: Ints = (),
    nodes_treeids: Ints = (),
    nodes_truenodeids: Ints = (),
    nodes_values: Floats | None = None,
    nodes_values_as_tensor: np.ndarray | None = None,
) -> _Nodes:
    """The attributes that a regressor and a classifier have in common. Raises ModelError."""
    count = len(nodes_nodeids)
    values = array_of("nodes_values", nodes_values, nodes_values_as_tensor)
    lists = {
        "nodes_treeids": nodes_treeids, "nodes_featureids": nodes_featureids, "nodes_modes": nodes_modes,
        "nodes_truenodeids": nodes_truenodeids, "nodes_falsenodeids": nodes_falsenodeids,
        "nodes_values": () if values is None else values,
    }  # fmt: skip
    for name, each in lists.items():
        if len(each) != count:
            raise ModelError(f"{name} has {len(each)} entries, nodes_nodeids has {count}")
    missing = nodes_missing_value_tracks_true
    if len(missing) not in (0, count):
        raise ModelError(f"nodes_missing_value_tracks_true has {len(missing)} entries, for {count} nodes")
    if values is None or not count:
        raise ModelError("the trees have no nodes")
    unknown = next((mode for mode in nodes_modes if mode not in _NUMBERS or mode == "BRANCH_MEMBER"), None)
    if unknown is not None:
        raise ModelError(f"there is no mode {unknown!r} of nodes")
    return _Nodes(
        np.asarray(nodes_treeids, np.int64),
        np.asarray(nodes_nodeids, np.int64),
        nodes_featureids,
        values,
        np.fromiter(map(_NUMBERS.__getitem__, nodes_modes), np.uint8, count),
        nodes_truenodeids,
        nodes_falsenodeids,
        np.asarray(missing, bool) if len(missing) else np.zeros(count, bool),
    )


@dataclass(frozen=True)
class _Leaves:
    """The weights of leaves, each for one target: the leaf is named by its tree and its number in it."""

    tree: Ints | np.ndarray
    number: Ints | np.ndarray
    target: Ints | np.ndarray
    weight: np.ndarray

    @staticmethod
    def of(tree: Ints, number: Ints, target: Ints, weight: np.ndarray | None) -> _Leaves:
        """Raises ModelError for lists that differ in length."""
        if weight is None or not len(tree) == len(number) == len(target) == len(weight):
            raise ModelError("the lists of the leaves' trees, nodes, targets and weights differ in length")
        return _Leaves(tree, number, target, weight)

    def first_of_each(self) -> _Leaves:
        """Without what a leaf is given after its first weight. Of a path of decisions, scikit-learn's exporter lists a leaf once
        for each class, and means the number once; so does onnxruntime where there is one target."""
        tree, number = np.asarray(self.tree, np.int64), np.asarray(self.number, np.int64)
        kept = np.sort(np.unique(np.stack([tree, number]), axis=1, return_index=True)[1])
        return _Leaves(tree[kept], number[kept], np.asarray(self.target, np.int64)[kept], self.weight[kept])


def _listed(dtype: DType, nodes: _Nodes, leaves: _Leaves) -> Forest:
    """The forest of versions 1 and 3, that compares in `dtype`."""
    count = len(nodes.mode)
    places = _Places(nodes.tree, nodes.number)
    inner = nodes.mode != LEAF
    yes, no = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    for name, following, numbers in (("nodes_truenodeids", yes, nodes.yes), ("nodes_falsenodeids", no, nodes.no)):
        following[inner] = places.find(nodes.tree[inner], np.asarray(numbers, np.int64)[inner], name)
    leaf = places.find(np.asarray(leaves.tree, np.int64), np.asarray(leaves.number, np.int64), "the leaves' nodes")
    return Forest(
        np.asarray(nodes.feature, np.int64), nodes.threshold.astype(dtype.numpy), nodes.mode, nodes.nan_is_yes & inner,
        yes, no, _roots(yes, no), leaf, np.asarray(leaves.target, np.int64), leaves.weight.astype(dtype.numpy),
        np.arange(count), {},
    )  # fmt: skip


def _roots(yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    """The nodes that no other leads to, in their order: each is the top of a tree."""
    is_root = np.ones(len(yes), bool)
    for following in (yes, no):
        is_root[following[following >= 0]] = False
    return np.flatnonzero(is_root)


class _Places:
    """Where in the lists a node stands, by its tree and its number in it."""

    def __init__(self, tree: np.ndarray, node: np.ndarray) -> None:
        for name, numbers in (("nodes_treeids", tree), ("nodes_nodeids", node)):
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < 1 << 31):
                raise ModelError(f"{name} holds a number that is negative, or has more than 31 bits")
        keys = tree << 32 | node
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        twice = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        if len(twice):
            raise ModelError(f"{_node(int(self._keys[twice[0]]))} is listed twice")

    def find(self, tree: np.ndarray, node: np.ndarray, what: str) -> np.ndarray:
        """Raises ModelError for a node that is not there."""
        keys = tree << 32 | node
        found = np.searchsorted(self._keys, keys)
        found[found == len(self._keys)] = 0
        wrong = np.flatnonzero((self._keys[found] != keys) | (node < 0) | (node >> 32 != 0) | (tree < 0))
        if len(wrong):
            raise ModelError(
                f"{what} names node {int(node[wrong[0]])} of tree {int(tree[wrong[0]])}, which is not there"
            )
        return self._order[found]


def _node(key: int) -> str:
    return f"node {key & 0xFFFFFFFF} of tree {key >> 32}"


def _type_of(x: Value, *tensors: np.ndarray | None) -> DType:
    """The type in which trees compare: float64 if x or one of their lists is."""
    is_double = x.dtype is DType.float64 or any(each is not None and each.dtype == np.float64 for each in tensors)
    return DType.float64 if is_double else DType.float32


def _with_base(g: GraphBuilder, scores: Value, base: np.ndarray | None) -> Value:
    """One number for all columns, or one for each."""
    if base is None or not len(base):
        return scores
    if len(base) not in (1, scores.shape[1]):
        raise ModelError(f"base_values has {len(base)} numbers, for {scores.shape[1]} columns")
    return g.op("add", scores, g.constant(base, scores.dtype))


@importer("TreeEnsembleRegressor", domain=DOMAIN, attributes_of=_nodes)
def _regressor(
    g: GraphBuilder,
    x: Value,
    *,
    aggregate_function: str = "SUM",
    base_values: Floats | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    n_targets: int = 1,
    post_transform: str = "NONE",
    target_ids: Ints = (),
    target_nodeids: Ints = (),
    target_treeids: Ints = (),
    target_weights: Floats | None = None,
    target_weights_as_tensor: np.ndarray | None = None,
    **lists: Any,
) -> Value:
    if aggregate_function not in _AGGREGATES:
        raise ModelError(f"aggregate_function is {aggregate_function!r}; there are {', '.join(_AGGREGATES)}")
    if n_targets < 1:
        raise ModelError(f"n_targets is {n_targets}")
    nodes = _nodes(**lists)
    weights = array_of("target_weights", target_weights, target_weights_as_tensor)
    leaves = _Leaves.of(target_treeids, target_nodeids, target_ids, weights)
    if n_targets == 1:
        leaves = leaves.first_of_each()
    dtype = _type_of(x, nodes.threshold, leaves.weight)
    forest = _listed(dtype, nodes, leaves)
    scores = _ensemble(g, rows(g, x, dtype), forest, n_targets, aggregate_function)
    scores = _with_base(g, scores, array_of("base_values", base_values, base_values_as_tensor))
    scores = transformed(g, scores, post_transform)
    return scores if scores.dtype is DType.float32 else g.op("cast", scores, dtype=DType.float32)


@importer("TreeEnsembleClassifier", domain=DOMAIN, attributes_of=_nodes)
def _classifier(
    g: GraphBuilder,
    x: Value,
    *,
    base_values: Floats | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    class_ids: Ints = (),
    class_nodeids: Ints = (),
    class_treeids: Ints = (),
    class_weights: Floats | None = None,
    class_weights_as_tensor: np.ndarray | None = None,
    classlabels_int64s: Ints | None = None,
    classlabels_strings: Sequence[str] | None = None,
    post_transform: str = "NONE",
    **lists: Any,
) -> tuple[Value, Value]:
    labels = labels_of(classlabels_int64s, classlabels_strings)
    if not len(labels):
        raise ModelError("the classifier has no labels")
    nodes = _nodes(**lists)
    weights = array_of("class_weights", class_weights, class_weights_as_tensor)
    leaves = _Leaves.of(class_treeids, class_nodeids, class_ids, weights)
    dtype = _type_of(x, nodes.threshold, leaves.weight)
    forest = _listed(dtype, nodes, leaves)
    base = array_of("base_values", base_values, base_values_as_tensor)
    is_positive = bool((leaves.weight >= 0).all())
    found = _classified(g, rows(g, x, dtype), forest, labels, base, post_transform, is_positive)
    label, scores = found
    return label, scores if scores.dtype is DType.float32 else g.op("cast", scores, dtype=DType.float32)


def _classified(
    g: GraphBuilder,
    x: Value,
    forest: Forest,
    labels: np.ndarray,
    base: np.ndarray | None,
    transform: str,
    is_positive: bool,
) -> tuple[Value, Value]:
    count = len(labels)
    ids = np.unique(forest.leaf_target)
    if count == 1:
        scores = _with_base(g, _ensemble(g, x, forest, 1, "SUM"), base)
        one = g.op("squeeze", scores, axes=(1,))
        label = g.op("cast", g.op("greater", one, g.constant(0, x.dtype)), dtype=DType.int64)
        return label, transformed(g, scores, "PROBIT") if transform == "PROBIT" else scores
    if count != 2 or len(ids) != 1:
        scores = _with_base(g, _ensemble(g, x, forest, count, "SUM"), base)
        return best(g, scores, labels), transformed(g, scores, transform)
    threshold = 0.5 if is_positive else 0
    if ids[0] == 1:
        scores = _with_base(g, _ensemble(g, x, forest, 2, "SUM"), base if base is not None and len(base) == 2 else None)
        second = g.op("slice", scores, starts=(1,), ends=(2,), axes=(1,), steps=(1,))
        return above(g, second, threshold, labels), transformed(g, scores, transform)
    if base is not None and len(base) == 2:
        base = base[1:]
    scores = _with_base(g, _ensemble(g, x, forest, 1, "SUM"), base)
    return above(g, scores, threshold, labels), both(g, scores, transform, is_positive)


# ---- version 5 ----


@importer("TreeEnsemble", domain=DOMAIN, since=5)
def _tree_ensemble(
    g: GraphBuilder,
    x: Value,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Ints,
    leaf_weights: np.ndarray,
    membership_values: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_falseleafs: Ints,
    nodes_falsenodeids: Ints,
    nodes_featureids: Ints,
    nodes_hitrates: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Ints = (),
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: Ints,
    nodes_truenodeids: Ints,
    post_transform: int = 0,
    tree_roots: Ints,
) -> Value:
    if not 0 <= aggregate_function < len(_AGGREGATES):
        raise ModelError(f"aggregate_function is {aggregate_function}, of {len(_AGGREGATES)}")
    if not 0 <= post_transform < len(_TRANSFORMS):
        raise ModelError(f"post_transform is {post_transform}, of {len(_TRANSFORMS)}")
    if n_targets < 1:
        raise ModelError(f"n_targets is {n_targets}")
    dtype = _type_of(x, nodes_splits, leaf_weights)
    forest = _joined(
        dtype, nodes_featureids, nodes_splits, nodes_modes, nodes_truenodeids, nodes_trueleafs, nodes_falsenodeids,
        nodes_falseleafs, nodes_missing_value_tracks_true, leaf_targetids, leaf_weights, membership_values, tree_roots,
    )  # fmt: skip
    scores = _ensemble(g, rows(g, x, dtype), forest, n_targets, _AGGREGATES[aggregate_function])
    scores = transformed(g, scores, _TRANSFORMS[post_transform])
    return scores if scores.dtype is x.dtype else g.op("cast", scores, dtype=x.dtype)


def _joined(
    dtype: DType,
    featureids: Ints,
    splits: np.ndarray,
    modes: np.ndarray,
    truenodeids: Ints,
    trueleafs: Ints,
    falsenodeids: Ints,
    falseleafs: Ints,
    missing: Ints,
    leaf_targetids: Ints,
    leaf_weights: np.ndarray,
    members: np.ndarray | None,
    roots: Ints,
) -> Forest:
    """The forest of version 5: nodes are named by their place, leaves by theirs in lists of their own. Each way to a leaf is a
    leaf here."""
    count, leaves = len(featureids), len(leaf_targetids)
    lists: dict[str, Any] = {
        "nodes_splits": splits, "nodes_modes": modes, "nodes_truenodeids": truenodeids, "nodes_trueleafs": trueleafs,
        "nodes_falsenodeids": falsenodeids, "nodes_falseleafs": falseleafs,
    }  # fmt: skip
    for name, numbers in lists.items():
        if np.size(numbers) != count:
            raise ModelError(f"{name} has {np.size(numbers)} entries, nodes_featureids has {count}")
    if len(missing) not in (0, count):
        raise ModelError(f"nodes_missing_value_tracks_true has {len(missing)} entries, for {count} nodes")
    if leaf_weights.size != leaves:
        raise ModelError(f"leaf_weights has {leaf_weights.size} entries, leaf_targetids has {leaves}")
    mode = modes.reshape(-1)
    if count and mode.max() >= LEAF:
        raise ModelError(f"nodes_modes holds {int(mode.max())}; there are {LEAF} modes")
    following, leaf_of = [], []
    behind = count  # the numbers of leaves
    for name, ids, leafs in (("true", truenodeids, trueleafs), ("false", falsenodeids, falseleafs)):
        number, is_leaf = np.asarray(ids, np.int64), np.asarray(leafs, np.int64) != 0
        wrong = np.flatnonzero((number < 0) | (number >= np.where(is_leaf, leaves, count)))
        if len(wrong):
            kind = f"{leaves} leaves" if is_leaf[wrong[0]] else f"{count} nodes"
            raise ModelError(f"nodes_{name}nodeids of node {wrong[0]} is {int(number[wrong[0]])}, of {kind}")
        leaf_of.append(number[is_leaf])
        number = number.copy()
        number[is_leaf] = behind + np.arange(int(is_leaf.sum()))
        behind += int(is_leaf.sum())
        following.append(number)
    leaf = np.concatenate(leaf_of)
    more = len(leaf)
    root = np.asarray(roots, np.int64)
    if len(root) and not (root.min() >= 0 and root.max() < count):
        raise ModelError(f"tree_roots names a node that is none of {count}")
    zeros = np.zeros(more, np.int64)
    nan = np.asarray(missing, bool) if len(missing) else np.zeros(count, bool)
    return Forest(
        np.append(np.asarray(featureids, np.int64), zeros),
        np.append(splits.reshape(-1).astype(dtype.numpy), zeros.astype(dtype.numpy)),
        np.append(mode, np.full(more, LEAF, np.uint8)),
        np.append(nan, zeros.astype(bool)),
        np.append(following[0], np.full(more, -1)),
        np.append(following[1], np.full(more, -1)),
        root,
        count + np.arange(more),
        np.asarray(leaf_targetids, np.int64)[leaf],
        leaf_weights.reshape(-1)[leaf].astype(dtype.numpy),
        np.append(np.arange(count), zeros),
        _sets(mode, members),
    )  # fmt: skip


def _sets(mode: np.ndarray, members: np.ndarray | None) -> dict[int, np.ndarray]:
    """The sets of nodes of mode BRANCH_MEMBER, which follow one another, each ended by NaN."""
    nodes = np.flatnonzero(mode == MODES.index("BRANCH_MEMBER"))
    values = np.zeros(0) if members is None else members.reshape(-1)
    ends = np.flatnonzero(np.isnan(values))
    if len(nodes) != len(ends) or (len(values) and not np.isnan(values[-1])):
        raise ModelError(f"membership_values holds {len(ends)} sets, each ended by NaN, for {len(nodes)} nodes")
    begins = np.append(0, ends[:-1] + 1) if len(ends) else ends
    return {int(node): values[begin:end] for node, begin, end in zip(nodes, begins, ends, strict=True)}
