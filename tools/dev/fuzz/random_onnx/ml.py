"""Steps of random graphs: the operators of ai.onnx.ml, and the optimisers of ai.onnx.preview.training."""

from __future__ import annotations

from typing import Any

import numpy as np

from .walk import Walk, Ways, step

ML = "ai.onnx.ml"
_KINDS = ("float32", "float64", "int64", "int32")


def _floats(w: Walk, count: int, low: int = -4, high: int = 4) -> list[float]:
    return [float(value) for value in w.array("float32", (count,), low, high)]


@step("Scaler", domain=ML)
def _scaler(w: Walk, op: str) -> None:
    x = w.tensor(_KINDS, rank=2)
    count = w.one(1, x.shape[1]) or 1
    w.add(op, [x], domain=ML, offset=_floats(w, count), scale=_floats(w, count))


@step("Normalizer", domain=ML)
def _normalizer(w: Walk, op: str) -> None:
    w.add(op, [w.tensor("float32", rank=2, low=0.5)], domain=ML, norm=w.one("MAX", "L1", "L2"))


@step("Binarizer", domain=ML)
def _binarizer(w: Walk, op: str) -> None:
    w.add(op, [w.tensor("float32", rank=(1, 2), exact=True)], domain=ML, exact=True, threshold=0.25)


@step("Imputer", domain=ML)
def _imputer(w: Walk, op: str) -> None:
    x = w.tensor(("float32", "int64"), rank=2, exact=True)
    count = w.one(1, x.shape[1]) or 1
    if x.dtype == "int64":
        w.add(op, [x], domain=ML, imputed_value_int64s=[7] * count, replaced_value_int64=1)
    else:
        w.add(op, [x], domain=ML, imputed_value_floats=_floats(w, count), replaced_value_float=0.5)


@step("ArrayFeatureExtractor", domain=ML)
def _extractor(w: Walk, op: str) -> None:
    x = w.tensor(_KINDS, rank=2, fits=lambda s: len(s) == 2 and 0 not in s)
    w.add(op, [x, w.tensor("int64", (2,), low=0, high=x.shape[1] - 1)], domain=ML, exact=True)


@step("FeatureVectorizer", domain=ML)
def _vectorizer(w: Walk, op: str) -> None:
    kind = w.random.choice(_KINDS)
    rows, widths = w.one(1, 3), [w.one(1, 2, 4) for _ in range(2)]
    parts = [w.tensor(kind, (rows, width)) for width in widths]
    w.add(op, parts, domain=ML, exact=True, inputdimensions=widths)


@step("LabelEncoder", domain=ML)
def _labels(w: Walk, op: str) -> None:
    x = w.tensor("int64", rank=(1, 2), low=0, high=5)
    if w.chance(0.5):
        w.add(op, [x], domain=ML, keys_int64s=[0, 1, 4], values_floats=[0.5, 1.5, -2.0], default_float=9.0)
    else:
        w.add(op, [w.tensor("float32", x.shape, exact=True)], domain=ML, keys_floats=[0.5, 1.0], values_int64s=[3, 4])


@step("OneHotEncoder", domain=ML)
def _one_hot(w: Walk, op: str) -> None:
    w.add(op, [w.tensor("int64", rank=(1, 2), low=0, high=5)], domain=ML, cats_int64s=[0, 2, 3, 5], zeros=1)


@step("LinearRegressor", domain=ML)
def _regressor(w: Walk, op: str) -> None:
    x = w.tensor("float32", rank=2, fits=lambda s: len(s) == 2 and 0 not in s)
    targets = w.one(1, 2, 3)
    more: Ways = {"intercepts": _floats(w, targets)} if w.chance(0.7) else {}
    w.add(op, [x], domain=ML, coefficients=_floats(w, targets * x.shape[1]), targets=targets, **more)


@step("LinearClassifier", domain=ML)
def _classifier(w: Walk, op: str) -> None:
    x = w.put(w.rng.normal(size=(w.one(1, 3), w.one(2, 5))).astype(np.float32))
    classes = 3
    weights = [float(value) for value in w.rng.normal(size=classes * x.shape[1])]
    ways: Ways = {"post_transform": w.one("NONE", "SOFTMAX", "LOGISTIC")}
    labels = list(range(classes))
    intercepts = _floats(w, classes)
    w.add(op, [x], 2, domain=ML, coefficients=weights, intercepts=intercepts, classlabels_ints=labels, **ways)


def _support(w: Walk, features: int, count: int) -> Ways:
    kernel = w.one("LINEAR", "RBF", "POLY", "SIGMOID")
    vectors = [float(value) for value in w.rng.normal(size=count * features)]
    return {"kernel_type": kernel, "kernel_params": [0.25, 0.5, 2.0], "support_vectors": vectors}


@step("SVMRegressor", domain=ML)
def _svm_regressor(w: Walk, op: str) -> None:
    x = w.put(w.rng.normal(size=(3, 2)).astype(np.float32))
    coefficients = [float(value) for value in w.rng.normal(size=3)]
    w.add(op, [x], domain=ML, n_supports=3, coefficients=coefficients, rho=[0.25], **_support(w, 2, 3))


@step("SVMClassifier", domain=ML)
def _svm_classifier(w: Walk, op: str) -> None:
    x = w.put(w.rng.normal(size=(3, 2)).astype(np.float32))
    counts = [2, 1, 2]
    coefficients = [float(value) for value in w.rng.normal(size=2 * sum(counts))]
    ways = _support(w, 2, sum(counts))
    ways |= {"vectors_per_class": counts, "rho": [0.25, -0.5, 0.125], "classlabels_ints": [0, 1, 2]}
    w.add(op, [x], 2, domain=ML, coefficients=coefficients, **ways)


def _forest(w: Walk, features: int) -> tuple[Ways, list[tuple[int, int]]]:
    """The attributes of the nodes of two trees of a root and leaves, and trees and nodes of the leaves."""
    rows: list[dict[str, Any]] = []
    leaves = []
    for tree in range(2):
        threshold, feature = float(w.rng.normal()), int(w.rng.integers(features))
        for node in range(3):
            root = node == 0
            rows.append({"treeids": tree, "nodeids": node, "featureids": feature if root else 0})
            rows[-1] |= {"values": threshold if root else 0.0, "modes": "BRANCH_LEQ" if root else "LEAF"}
            rows[-1] |= {"truenodeids": 1 if root else 0, "falsenodeids": 2 if root else 0}
            if not root:
                leaves.append((tree, node))
    return {f"nodes_{key}": [row[key] for row in rows] for key in rows[0]}, leaves


@step("TreeEnsembleRegressor", "TreeEnsembleClassifier", domain=ML)
def _trees(w: Walk, op: str) -> None:
    x = w.put(w.rng.normal(size=(4, 3)).astype(np.float32))
    nodes, leaves = _forest(w, 3)
    kind, count = ("target", 2) if op == "TreeEnsembleRegressor" else ("class", 3)
    nodes[f"{kind}_treeids"], nodes[f"{kind}_nodeids"] = (list(part) for part in zip(*leaves, strict=True))
    nodes[f"{kind}_ids"] = [place % count for place in range(len(leaves))]
    nodes[f"{kind}_weights"] = _floats(w, len(leaves), 0)
    if kind == "target":
        w.add(op, [x], domain=ML, n_targets=count, aggregate_function=w.one("SUM", "MAX", "MIN"), **nodes)
    else:
        w.add(op, [x], 2, domain=ML, classlabels_int64s=[5, 6, 7], **nodes)


@step("Adagrad", "Adam", "Momentum", domain="ai.onnx.preview.training")
def _optimiser(w: Walk, op: str) -> None:
    shape = w.shape((1, 2))
    x, gradient, first = (w.tensor("float32", shape) for _ in range(3))
    second = [w.tensor("float32", shape, low=0)] if op == "Adam" else []
    if op == "Adagrad":
        first = w.tensor("float32", shape, low=0)
    rate, step_ = (
        w.setting(0.125, "float32"),
        w.setting(0 if op == "Adam" else w.one(0, 3)),
    )  # from then on the reference of Adam gives float64
    ways: Ways = {"norm_coefficient": 0.25}
    if op == "Momentum":
        ways |= {"alpha": 0.5, "beta": 0.25, "mode": w.one("standard", "nesterov")}
    w.add(op, [rate, step_, x, gradient, first, *second], 2 + len(second), domain="ai.onnx.preview.training", **ways)
