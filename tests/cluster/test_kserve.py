"""KServe's model of ours, as its server calls it; the server itself is run by test_serving_page.py.

KServe is not among what tests need: `make cluster-test` has it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from treadle import map_batches

pytest.importorskip("kserve")

from kserve import InferInput, InferRequest
from kserve.errors import InvalidInput
from treadle.cluster.kserve import TreadleModel


def request(data: np.ndarray) -> InferRequest:
    given = InferInput("x", list(data.shape), "FP32")
    given.set_data_from_numpy(data)
    return InferRequest("classifier", [given], request_id="7")


def test_a_request_is_answered(path: Path, rows: np.ndarray) -> None:
    model = TreadleModel("classifier", path)
    answer = model.predict(request(rows[:5]))
    right = map_batches(path, rows[:5], batch_size=5, workers=1).numpy()
    (output,) = answer.outputs
    assert (model.ready, answer.id, output.name, output.datatype, list(output.shape)) == (
        True,
        "7",
        "output",
        "FP32",
        [5, 4],
    )
    assert np.allclose(output.as_numpy(), right, atol=1e-6)
    assert asyncio.run(model.get_input_types()) == [{"name": "x", "datatype": "FP32", "shape": [-1, 16]}]


def test_a_request_that_does_not_fit_is_a_client_error(path: Path, rows: np.ndarray) -> None:
    model = TreadleModel("classifier", path)
    with pytest.raises(InvalidInput, match="x"):
        model.predict(request(rows[:5, :3]))
    with pytest.raises(InvalidInput, match="Open Inference Protocol"):
        model.predict({"instances": [[1]]})
