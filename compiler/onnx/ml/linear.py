"""Importers of the linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..table import importer
from ..values import GraphBuilder, UnsupportedError, Value
from .scores import DOMAIN, above, best, chosen, labels_of, rows, transformed

Floats = Sequence[float]


def _matrix(name: str, values: Floats | None, lines: int) -> np.ndarray:
    """A list of numbers as a matrix of `lines` rows."""
    array = np.asarray(values if values is not None else (), np.float32)
    if lines < 1 or not array.size or array.size % lines:
        raise ModelError(f"{name} has {array.size} numbers, which are not {lines} rows")
    return array.reshape(lines, -1)


def _product(g: GraphBuilder, x: Value, matrix: np.ndarray) -> Value:
    """x times the transposed matrix."""
    if isinstance(x.shape[1], int) and x.shape[1] != matrix.shape[1]:
        raise ModelError(f"expected {matrix.shape[1]} features, got {x.type}")
    x = g.checked(x, (x.shape[0], matrix.shape[1]))
    return g.op("matmul", x, g.constant(np.ascontiguousarray(matrix.T), x.dtype))


def _plus(g: GraphBuilder, scores: Value, name: str, numbers: Floats | None) -> Value:
    if numbers is None or not len(numbers):
        return scores
    if len(numbers) not in (1, scores.shape[1]):
        raise ModelError(f"{name} has {len(numbers)} numbers, for {scores.shape[1]} columns")
    return g.op("add", scores, g.constant(np.asarray(numbers, np.float32), scores.dtype))


@importer("LinearRegressor", domain=DOMAIN)
def _linear_regressor(
    g: GraphBuilder,
    x: Value,
    *,
    coefficients: Floats | None = None,
    intercepts: Floats | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Value:
    scores = _product(g, rows(g, x, DType.float32), _matrix("coefficients", coefficients, targets))
    return transformed(g, _plus(g, scores, "intercepts", intercepts), post_transform)


@importer("LinearClassifier", domain=DOMAIN)
def _linear_classifier(
    g: GraphBuilder,
    x: Value,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Floats,
    intercepts: Floats | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Value, Value]:
    """`multi_class` says nothing of the result. One row of coefficients for two labels is of the second one."""
    labels = labels_of(classlabels_ints, classlabels_strings)
    x = rows(g, x, DType.float32)
    lines = len(intercepts) if intercepts else max(len(labels), 1)
    scores = _plus(g, _product(g, x, _matrix("coefficients", coefficients, lines)), "intercepts", intercepts)
    if scores.shape[1] == 1 and len(labels) == 2:
        label = above(g, scores, 0, labels)
        scores = g.op("concat", g.op("negative", scores), scores, axis=1)
        return label, transformed(g, scores, post_transform)
    if scores.shape[1] == 1:
        one = g.op("squeeze", scores, axes=(1,))
        places = g.op("cast", g.op("greater", one, g.constant(0, one.dtype)), dtype=DType.int64)
        label = (
            chosen(g, np.array([0, *labels[:1]], np.int64), places)
            if labels.dtype != object and len(labels)
            else places
        )
        return label, transformed(g, scores, post_transform)
    if len(labels) not in (0, scores.shape[1]):
        raise ModelError(f"there are {len(labels)} labels for {scores.shape[1]} columns of scores")
    return best(g, scores, labels), transformed(g, scores, post_transform)


# ---- support vectors ----


def _kernel(g: GraphBuilder, x: Value, vectors: np.ndarray, kind: str, params: Floats | None) -> Value:
    """[N, vectors]: how near each row is to each vector."""
    gamma, coef0, degree = (*params, 0.0, 0.0, 0.0)[:3] if params else (0.0, 0.0, 0.0)
    number = lambda value: g.constant(value, x.dtype)  # noqa: E731
    if kind == "RBF":
        if isinstance(x.shape[1], int) and x.shape[1] != vectors.shape[1]:
            raise ModelError(f"expected {vectors.shape[1]} features, got {x.type}")
        x = g.checked(x, (x.shape[0], vectors.shape[1]))
        apart = g.op("subtract", g.op("expand_dims", x, axes=(1,)), g.constant(vectors[None], x.dtype))
        # |x|² + |v|² - 2xv would cancel
        distance = g.op("sum", g.op("multiply", apart, apart), axes=(2,), keepdims=False)
        return g.op("exp", g.op("multiply", distance, number(-gamma)))
    product = _product(g, x, vectors)
    if kind == "LINEAR":
        return product
    product = g.op("add", g.op("multiply", product, number(gamma)), number(coef0))
    if kind == "POLY":
        return g.op("pow", product, number(int(degree)))
    if kind == "SIGMOID":
        return g.op("tanh", product)
    raise UnsupportedError(f"kernel_type={kind!r}; there are LINEAR, POLY, RBF and SIGMOID")


@importer("SVMRegressor", domain=DOMAIN)
def _svm_regressor(
    g: GraphBuilder,
    x: Value,
    *,
    coefficients: Floats | None = None,
    kernel_params: Floats | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Floats | None = None,
    support_vectors: Floats | None = None,
) -> Value:
    x = rows(g, x, DType.float32)
    weights = _matrix("coefficients", coefficients, 1)
    if n_supports > 0:
        if weights.shape[1] != n_supports:
            raise ModelError(f"coefficients has {weights.shape[1]} numbers, for {n_supports} support vectors")
        x = _kernel(g, x, _matrix("support_vectors", support_vectors, n_supports), kernel_type, kernel_params)
    scores = _plus(g, _product(g, x, weights), "rho", (rho or (0.0,))[:1])
    if one_class:
        inside = g.op("greater", scores, g.constant(0, scores.dtype))
        return g.op("where", inside, g.constant(1, scores.dtype), g.constant(-1, scores.dtype))
    return transformed(g, scores, post_transform)


@importer("SVMClassifier", domain=DOMAIN)
def _svm_classifier(
    g: GraphBuilder,
    x: Value,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Floats,
    kernel_params: Floats | None = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Floats | None = None,
    prob_b: Floats | None = None,
    rho: Floats | None = None,
    support_vectors: Floats | None = None,
    vectors_per_class: Sequence[int] | None = None,
) -> tuple[Value, Value]:
    """Each pair of classes has a score, which is a vote for one of them; with `prob_a`, probabilities are fitted to these."""
    labels = labels_of(classlabels_ints, classlabels_strings)
    count = max(len(labels), 1)
    x = rows(g, x, DType.float32)
    if not vectors_per_class or not sum(vectors_per_class):
        scores = _product(g, x, _matrix("coefficients", coefficients, count))
        scores = _plus(g, scores, "rho", (rho or (0.0,))[:1])
        if count == 1:
            raise UnsupportedError("a linear support vector machine of one label")
        return best(g, scores, labels), transformed(g, scores, post_transform)
    if len(vectors_per_class) != count or min(vectors_per_class) < 0 or count < 2:
        raise ModelError(
            f"vectors_per_class has {len(vectors_per_class)} numbers, for {count} labels; two at least are needed"
        )
    total = sum(vectors_per_class)
    pairs = list(itertools.combinations(range(count), 2))
    if rho is None or len(rho) != len(pairs):
        raise ModelError(f"rho has {len(rho or ())} numbers, for {len(pairs)} pairs of classes")
    near = _kernel(g, x, _matrix("support_vectors", support_vectors, total), kernel_type, kernel_params)
    lines = _matrix("coefficients", coefficients, count - 1)
    if lines.shape[1] != total:
        raise ModelError(f"coefficients has {lines.size} numbers, for {total} support vectors and {count} classes")
    scores = _plus(g, _product(g, near, _of_pairs(lines, vectors_per_class, pairs)), "rho", rho)
    votes = _votes(g, scores, pairs, count)
    if prob_a:
        if len(prob_a) != len(pairs) or prob_b is None or len(prob_b) != len(pairs):
            raise ModelError(
                f"prob_a and prob_b have {len(prob_a)} and {len(prob_b or ())} numbers, for {len(pairs)} pairs"
            )
        likely = _probabilities(g, scores, count, prob_a, prob_b)
        return best(g, votes, labels), transformed(g, likely, post_transform)
    if count > 2:
        return best(g, votes, labels), transformed(g, scores, post_transform)
    label = best(g, votes, labels)
    return label, transformed(g, g.op("concat", g.op("negative", scores), scores, axis=1), post_transform)


def _of_pairs(lines: np.ndarray, each: Sequence[int], pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """The coefficient of each support vector for each pair: libsvm has class i's against j in line j - 1, j's in line i."""
    begins = np.concatenate([[0], np.cumsum(each)])
    weights = np.zeros((len(pairs), lines.shape[1]), np.float32)
    for row, (i, j) in enumerate(pairs):
        of_i, of_j = slice(begins[i], begins[i + 1]), slice(begins[j], begins[j + 1])
        weights[row, of_i] = lines[j - 1, of_i]
        weights[row, of_j] = lines[i, of_j]
    return weights


def _votes(g: GraphBuilder, scores: Value, pairs: Sequence[tuple[int, int]], count: int) -> Value:
    """[N, classes]: of each pair, the first class is voted for if the score is above 0."""
    first, second = np.zeros((count, len(pairs)), np.float32), np.zeros((count, len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        first[i, column] = second[j, column] = 1
    wins = g.op("cast", g.op("greater", scores, g.constant(0, scores.dtype)), dtype=scores.dtype)
    lost = g.op("subtract", g.constant(1, scores.dtype), wins)
    return g.op("add", _product(g, wins, first), _product(g, lost, second))


def _probabilities(g: GraphBuilder, scores: Value, count: int, prob_a: Floats, prob_b: Floats) -> Value:
    """Of classes, from those of pairs, which a sigmoid of the scores is."""
    number = lambda values: g.constant(np.asarray(values, np.float32), scores.dtype)  # noqa: E731
    fitted = g.op("add", g.op("multiply", scores, number(prob_a)), number(prob_b))
    first = g.op("sigmoid", g.op("negative", fitted))
    first = g.op("minimum", g.op("maximum", first, number(1e-7)), number(1 - 1e-7))
    return g.op("coupled_probabilities", first, classes=count)
