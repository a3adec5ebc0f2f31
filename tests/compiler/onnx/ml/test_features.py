"""What prepares features, and linear models: imported, evaluated and compiled, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from . import forests
from .forests import by_evaluator, by_machine, by_onnxruntime

LABELS = [5, 9, 7, 3]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def numbers(count: int, seed: int = 0) -> list[float]:
    return [float(value) for value in floats(count, seed=seed)]


def one(op: str, outputs: int, *arrays: np.ndarray, version: int = 3, **attributes: Any) -> Any:
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(op, names, ["y", "z"][:outputs], domain="ai.onnx.ml", **attributes)
    shapes = {name: (array.dtype.name, ("n", *array.shape[1:])) for name, array in zip(names, arrays, strict=True)}
    return forests.model(node, shapes, ["y", "z"][:outputs], version)


def check(op: str, outputs: int, *arrays: np.ndarray, version: int = 3, **attributes: Any) -> None:
    model = one(op, outputs, *arrays, version=version, **attributes)
    feeds = {f"x{i}": array for i, array in enumerate(arrays)}
    expected = by_onnxruntime(model, **feeds)
    for results in (by_evaluator(model, **feeds), by_machine(model, **feeds)):
        for came, wanted in zip(results, expected, strict=True):
            assert came.dtype == wanted.dtype
            assert came.shape == wanted.shape
            np.testing.assert_allclose(came, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("offset", [1, 5])
def test_scaler(offset: int) -> None:
    check("Scaler", 1, floats(4, 5), offset=numbers(offset), scale=numbers(offset, 1))


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = floats(4, 5)
    check("Normalizer", 1, x, norm=norm)


def test_binarizer() -> None:
    check("Binarizer", 1, floats(4, 5), threshold=0.25)


@pytest.mark.parametrize("count", [1, 3])
def test_imputer(count: int) -> None:
    x = np.float32([[1, np.nan, 3], [np.nan, 2, 7]])
    check("Imputer", 1, x, imputed_value_floats=numbers(count), replaced_value_float=float("nan"))
    check("Imputer", 1, x, imputed_value_floats=numbers(count), replaced_value_float=7.0)
    whole = np.int64([[1, 0, 3], [0, 2, 0]])
    check("Imputer", 1, whole, imputed_value_int64s=[4, 5, 6][:count], replaced_value_int64=0)


def test_feature_vectorizer() -> None:
    check("FeatureVectorizer", 1, floats(4, 2), floats(4, 3), inputdimensions=[2, 3])


def test_columns_are_extracted_by_their_numbers() -> None:
    node = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain="ai.onnx.ml")
    model = forests.model(node, {"x": ("float32", ("n", 4))}, ["y"], 1)
    model.graph.initializer.append(numpy_helper.from_array(np.int64([[2, 0]]), "i"))
    x = floats(3, 4)
    expected = by_onnxruntime(model, x=x)[0]
    np.testing.assert_array_equal(by_machine(model, x=x)[0], expected)


def test_label_encoder_of_numbers() -> None:
    x = np.int64([[3, 1], [8, 7]])
    check("LabelEncoder", 1, x, keys_int64s=[1, 3, 7], values_floats=[0.5, 1.5, 2.5], default_float=-1.0)
    keys = np.float32([1.5, 0.5, np.nan])
    check("LabelEncoder", 1, keys, keys_floats=[0.5, float("nan")], values_int64s=[4, 6], default_int64=9, version=4)


def test_one_hot_encoder_of_numbers() -> None:
    check("OneHotEncoder", 1, np.int64([[3, 1], [8, 7]]), cats_int64s=[1, 3, 7])


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("labels", [2, 3])
def test_linear_classifier(labels: int, transform: str) -> None:
    lines = labels
    given = {"coefficients": numbers(4 * lines), "intercepts": numbers(lines, 1), "classlabels_ints": LABELS[:labels]}
    check("LinearClassifier", 2, floats(6, 4), post_transform=transform, **given)


@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(targets: int) -> None:
    check(
        "LinearRegressor",
        1,
        floats(6, 4),
        targets=targets,
        coefficients=numbers(4 * targets),
        intercepts=numbers(targets),
    )


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel: str, one_class: int) -> None:
    check(
        "SVMRegressor", 1, floats(6, 4), kernel_type=kernel, kernel_params=[0.3, 0.5, 3.0], coefficients=numbers(5),
        support_vectors=numbers(20, 1), n_supports=5, rho=[0.25], one_class=one_class,
    )  # fmt: skip


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("likely", [False, True])
def test_svm_classifier(kernel: str, classes: int, likely: bool) -> None:
    each = [2, 3, 1, 2][:classes]
    pairs = classes * (classes - 1) // 2
    more = {"prob_a": [-1.5] * pairs, "prob_b": [0.25] * pairs} if likely else {}
    check(
        "SVMClassifier", 2, floats(9, 4), kernel_type=kernel, kernel_params=[0.3, 0.5, 3.0], vectors_per_class=each,
        coefficients=numbers(sum(each) * (classes - 1)), support_vectors=numbers(sum(each) * 4, 1),
        rho=numbers(pairs, 2), classlabels_ints=LABELS[:classes], **more,
    )  # fmt: skip
