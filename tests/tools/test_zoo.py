"""The zoo's models are valid, their inputs fit, and (slowly) Treadle's results are those of onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from treadle.tools.dev.bench import engines
from treadle.tools.dev.zoo.catalogue import CATALOGUE, inputs


@pytest.mark.parametrize("name", CATALOGUE)
def test_models_are_valid_and_modern(name: str) -> None:
    model = CATALOGUE[name].build()
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version >= 18
    feeds = inputs(CATALOGUE[name], model)
    assert [info.name for info in model.graph.input] == list(feeds)


@pytest.mark.parametrize("name", ["mobilenet-v3-small", "gru"])
def test_a_seed_always_gives_the_same_model(name: str) -> None:
    build = CATALOGUE[name].build
    assert build().SerializeToString() == build().SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_results_are_those_of_onnxruntime(name: str) -> None:
    model = CATALOGUE[name].build()
    feeds = inputs(CATALOGUE[name], model)
    found = engines.treadle(model, feeds, 1)()
    for a, b in zip(found, engines.onnxruntime(model, feeds, 1)(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * float(np.abs(b).max()))
