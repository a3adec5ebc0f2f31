"""Ensembles of trees: imported, evaluated, compiled, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treadle
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from treadle.compiler.onnx.importer import from_onnx
from treadle.compiler.onnx.ml import forest
from treadle.compiler.targets.cpu.kernels.lower import lower
from treadle.compiler.targets.emulated.call import Step, run_kernel
from treadle.formats.messages.errors import TreadleError
from treadle.formats.types import tensor
from treadle.tests import timing

from ...targets.cpu.harness import TARGET, definition_of
from . import forests
from .forests import by_evaluator, by_machine, by_onnxruntime

SEEDS = st.integers(0, 1 << 32)


def regressor(
    random: np.random.Generator, x: str = "float32", *, dense: bool, trees: int = 0, **attributes: Any
) -> Any:
    """A model of some trees, whose leaves have weights for one target each, or for some."""
    columns, targets = int(random.integers(1, 7)), int(random.integers(1, 4))
    nodes, leaves = forests.forest(random, trees or int(random.integers(1, 6)), int(random.integers(0, 6)), columns)
    entries = [(t, n, int(target)) for t, n in leaves for target in (range(targets) if dense else [t % targets])]
    given: dict[str, Any] = {
        "n_targets": targets,
        "target_treeids": [entry[0] for entry in entries],
        "target_nodeids": [entry[1] for entry in entries],
        "target_ids": [entry[2] for entry in entries],
        "target_weights": [float(weight) for weight in random.standard_normal(len(entries)).astype(np.float32)],
    }
    if random.integers(2):
        given["base_values"] = [float(value) for value in random.standard_normal(targets).astype(np.float32)]
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **nodes, **given, **attributes)
    return forests.model(node, {"x": (x, ("n", columns))}, ["y"], 1), columns


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regressors_of_all_modes_and_aggregates_are_onnxruntimes(aggregate: str, dense: bool) -> None:
    for seed in range(12):
        random = np.random.default_rng(seed)
        model, columns = regressor(random, dense=dense, aggregate_function=aggregate)
        x = forests.features(random, 37, columns)
        expected = by_onnxruntime(model, x=x)
        np.testing.assert_allclose(by_evaluator(model, x=x)[0], expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("targets", [1, 2])
def test_a_leaf_that_is_listed_again_counts_as_in_onnxruntime(targets: int) -> None:
    """Once where there is one target, as scikit-learn's exporter means it of the paths of decisions; else its weights add up."""
    random = np.random.default_rng(5)
    model, columns = next(
        made
        for made in (regressor(random, dense=True) for _ in range(100))
        if _attribute(made[0], "n_targets").i == targets
    )
    for name, more in (("treeids", ()), ("nodeids", ()), ("ids", ()), ("weights", (3.0,))):
        entries = _attribute(model, f"target_{name}")
        values = entries.floats if more else entries.ints
        values.extend([each + sum(more) for each in values])
    x = forests.features(random, 37, columns)
    expected = by_onnxruntime(model, x=x)[0]
    np.testing.assert_allclose(by_evaluator(model, x=x)[0], expected, rtol=1e-5, atol=1e-6)


def _attribute(model: Any, name: str) -> Any:
    return next(each for each in model.graph.node[0].attribute if each.name == name)


@given(SEEDS, st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"]), st.booleans(), st.sampled_from(["float32", "float64"]))
@settings(max_examples=25, deadline=None)
def test_machine_gives_what_the_evaluator_does(seed: int, aggregate: str, dense: bool, dtype: str) -> None:
    random = np.random.default_rng(seed)
    model, columns = regressor(random, dtype, dense=dense, aggregate_function=aggregate)
    x = forests.features(random, int(random.integers(0, 40)), columns, dtype)
    np.testing.assert_array_equal(by_machine(model, x=x)[0], by_evaluator(model, x=x)[0])


@pytest.mark.parametrize("aggregate", ["SUM", "MIN"])
@pytest.mark.parametrize("dense", [False, True])
def test_a_row_gives_the_same_alone_as_among_others(dense: bool, aggregate: str) -> None:
    """Alone, or one of few, it goes down eight of the 19 trees together."""
    random = np.random.default_rng(3)
    model, columns = regressor(random, dense=dense, aggregate_function=aggregate, trees=19)
    x = forests.features(random, 11, columns)
    machine = treadle.VirtualMachine(treadle.compile(model, progress=False))["main"]
    expected = by_evaluator(model, x=x)[0]
    for first, last in ((0, 11), (0, 1), (3, 5), (4, 7), (0, 6), (0, 7), (1, 10)):
        np.testing.assert_array_equal(machine(x[first:last]), expected[first:last])


@pytest.mark.parametrize(("rows", "nodes", "count"), [(1, 1, 3), (1, 2000, 3), (4, 1, 12), (5, 2000, 12 + 3)])
def test_few_rows_go_down_several_trees_together_whatever_their_size(rows: int, nodes: int, count: int) -> None:
    """One goes down eight of the 24, four down two. 2,000 nodes are more than a block of trees has."""
    shapes = {"nodes": ("int32", (24 * nodes, 4)), "trees": ("int32", (24, 8)), "leaves": ("float32", (0, 1))}
    types = [tensor("float32", (rows, 3)), *(tensor(*type_) for type_ in shapes.values())]
    definition = definition_of("tree_ensemble", types, targets=1)
    kernel = lower(definition, TARGET)
    assert kernel is not None
    walks: list[Step] = []
    arrays = [np.zeros(type_.shape, type_.dtype.numpy) for type_ in types]  # each tree is a leaf
    run_kernel(kernel, definition, arrays, watch=lambda step: walks.append(step) if "n7 = 0" in step.text else None)
    assert len(walks) == count


def classifier(labels: int, weights: list[list[float]], **attributes: Any) -> Any:
    """A tree of three leaves, x <= 0, x <= 1/2 and the others."""
    given = {
        "nodes_treeids": [0] * 5,
        "nodes_nodeids": [0, 1, 2, 3, 4],
        "nodes_featureids": [0] * 5,
        "nodes_values": [0.0, 0, 0.5, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 3, 0, 0],
        "nodes_falsenodeids": [2, 0, 4, 0, 0],
        "class_treeids": [0] * (3 * len(weights[0])),
        "class_nodeids": [leaf for leaf in (1, 3, 4) for _ in weights[0]],
        "class_ids": [number for _ in weights for number in range(len(weights[0]))],
        "class_weights": [weight for row in weights for weight in row],
        "classlabels_int64s": [5, 9, 7][:labels],
    }
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["y", "z"], domain="ai.onnx.ml", **{**given, **attributes})
    return forests.model(node, {"x": ("float32", ("n", 1))}, ["y", "z"], 1)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("base", [{}, {"base_values": [0.25]}])
@pytest.mark.parametrize("weights", [[[0.1], [0.3], [0.7]], [[-0.1], [0.3], [0.7]]])
def test_classifier_of_two_labels_and_one_weight_is_onnxruntimes(weights: Any, base: Any, transform: str) -> None:
    model = classifier(2, weights, post_transform=transform, **base)
    x = np.float32([[0.2], [0.8], [-1]])
    for came, expected in zip(by_evaluator(model, x=x), by_onnxruntime(model, x=x), strict=True):
        np.testing.assert_allclose(came, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_classifier_of_three_labels_is_onnxruntimes(transform: str) -> None:
    model = classifier(3, [[0.1, 0.2, 0], [0.3, 0.2, 0.5], [0.7, 0.1, 0.2]], post_transform=transform)
    x = np.float32([[0.2], [0.8], [-1]])
    for came, expected in zip(by_machine(model, x=x), by_onnxruntime(model, x=x), strict=True):
        np.testing.assert_allclose(came, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": [0, 0, 3, 0, 0]}, "root|cycle"),
        ({"nodes_falsenodeids": [2, 0, 2, 0, 0]}, "cycle|ways"),
        ({"nodes_truenodeids": [77, 0, 3, 0, 0]}, "node 77 of tree 0, which is not there"),
        ({"nodes_truenodeids": [1, 0, 3, 0]}, "nodes_truenodeids has 4 entries, nodes_nodeids has 5"),
        ({"nodes_values": [float("nan"), 0, 0, 0, 0]}, "threshold NaN"),
        ({"nodes_featureids": [-1] * 5}, "negative feature"),
        ({"nodes_featureids": [1] * 5}, "none of 1"),
        ({"nodes_nodeids": [0, 1, 2, 3, 3]}, "listed twice"),
        ({"class_ids": [9, 0, 0]}, "target 9"),
        ({"nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH", "LEAF", "LEAF"]}, "mode 'BRANCH'"),
    ],
)
def test_trees_that_do_not_fit_together_are_refused_by_name(change: dict, message: str) -> None:
    with pytest.raises(TreadleError, match=message):
        from_onnx(classifier(2, [[0.1], [0.3], [0.7]], **change))


@pytest.mark.parametrize("case", ["tree_ensemble_set_membership", "tree_ensemble_single_tree"])
def test_trees_of_version_5_give_what_the_standard_says(case: str) -> None:
    from onnx.backend.test.case.node import collect_testcases

    (found,) = [each for each in collect_testcases(None) if each.name == f"test_ai_onnx_ml_{case}"]
    for inputs, outputs in found.data_sets:
        came = by_machine(found.model, x=np.asarray(inputs[0]))[0]
        assert came.dtype == outputs[0].dtype
        np.testing.assert_allclose(came, outputs[0], rtol=1e-6)


def test_a_machine_is_made_of_an_ensemble_whose_trees_have_many_sizes() -> None:
    random = np.random.default_rng(3)
    nodes, leaves = forests.forest(random, 200, 9, 20, ["BRANCH_LEQ"])
    weights = [float(value) for value in random.standard_normal(len(leaves)).astype(np.float32)]
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **nodes, target_treeids=[t for t, _ in leaves],
        target_nodeids=[n for _, n in leaves], target_ids=[0] * len(leaves), target_weights=weights, n_targets=1,
    )  # fmt: skip
    model = forests.model(node, {"x": ("float32", ("n", 20))}, ["y"], 1)
    x = forests.features(random, 1003, 20)
    vm = treadle.VirtualMachine(treadle.compile(model))["main"]
    np.testing.assert_allclose(np.asarray(vm(x)), by_onnxruntime(model, x=x)[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(np.asarray(vm(x[:5])), np.asarray(vm(x))[:5])


def test_no_function_is_called_for_each_number_of_a_list() -> None:
    """Of a classifier, whose leaves have weights for many classes."""
    classes, leaves = 500, 8
    weights = [[0.5] * classes] * leaves
    inner = leaves - 1
    model = classifier(
        classes,
        weights,
        classlabels_int64s=list(range(classes)),
        nodes_treeids=[0] * (inner + leaves),
        nodes_nodeids=list(range(inner + leaves)),
        nodes_featureids=[0] * (inner + leaves),
        nodes_values=[0.5] * (inner + leaves),
        nodes_modes=["BRANCH_LEQ"] * inner + ["LEAF"] * leaves,
        nodes_truenodeids=[2 * i + 1 for i in range(inner)] + [0] * leaves,
        nodes_falsenodeids=[2 * i + 2 for i in range(inner)] + [0] * leaves,
        class_treeids=[0] * (classes * leaves),
        class_nodeids=[inner + leaf for leaf in range(leaves) for _ in range(classes)],
        class_ids=list(range(classes)) * leaves,
    )
    from_onnx(model)  # what is made at first use
    assert timing.calls(lambda: from_onnx(model)) < classes * leaves


def test_sets_of_many_nodes_become_nodes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count, appended = 20, []
    append = forest._append
    monkeypatch.setattr(forest, "_append", lambda *given: (appended.append(given), append(*given)))
    nodes = np.arange(count)
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", tree_roots=[0], n_targets=1,
        nodes_featureids=[0] * count, nodes_modes=numpy_helper.from_array(np.full(count, 6, np.uint8)),
        nodes_splits=numpy_helper.from_array(np.zeros(count, np.float32)),
        nodes_truenodeids=list(range(count)), nodes_trueleafs=[1] * count,
        nodes_falsenodeids=[*range(1, count), count], nodes_falseleafs=[0] * (count - 1) + [1],
        membership_values=numpy_helper.from_array(np.float32([[i, i + 0.5, np.nan] for i in nodes]).reshape(-1)),
        leaf_targetids=[0] * (count + 1), leaf_weights=numpy_helper.from_array(np.arange(count + 1, dtype=np.float32)),
    )  # fmt: skip
    model = forests.model(node, {"x": ("float32", ("n", 1))}, ["y"], 5)
    x = np.float32([*nodes, *(nodes + 0.5), -1, 3.25])[:, None]
    (came,) = by_evaluator(model, x=x)
    np.testing.assert_array_equal(came[:, 0], [*nodes, *nodes, count, count])
    assert len(appended) == 2  # of all sets, and of all comparisons with one number
