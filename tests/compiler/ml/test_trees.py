"""Ensembles of trees: imported, evaluated, compiled, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from . import forests
from .forests import by_evaluator, by_machine, by_onnxruntime

SEEDS = st.integers(0, 1 << 32)


def regressor(random: np.random.Generator, x: str = "float32", *, dense: bool, **attributes: Any) -> Any:
    """A model of some trees, whose leaves have weights for one target each, or for some."""
    columns, targets = int(random.integers(1, 7)), int(random.integers(1, 4))
    nodes, leaves = forests.forest(random, int(random.integers(1, 6)), int(random.integers(0, 6)), columns)
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


@given(SEEDS, st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"]), st.booleans(), st.sampled_from(["float32", "float64"]))
@settings(max_examples=25, deadline=None)
def test_machine_gives_what_the_evaluator_does(seed: int, aggregate: str, dense: bool, dtype: str) -> None:
    random = np.random.default_rng(seed)
    model, columns = regressor(random, dtype, dense=dense, aggregate_function=aggregate)
    x = forests.features(random, int(random.integers(0, 40)), columns, dtype)
    np.testing.assert_array_equal(by_machine(model, x=x)[0], by_evaluator(model, x=x)[0])
