"""MLServer with our runtime. MLServer is not among what tests need: `make cluster-test` has it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treadle import map_batches

pytest.importorskip("mlserver")

from mlserver import ModelSettings
from mlserver.codecs import NumpyCodec
from mlserver.errors import MLServerError
from mlserver.settings import ModelParameters
from mlserver.types import InferenceRequest, RequestInput
from treadle.cluster.mlserver import TreadleRuntime


def answer(path: Path, data: np.ndarray) -> Any:
    async def ask() -> Any:
        parameters = ModelParameters(uri=str(path), extra={"threads": 1})
        model = TreadleRuntime(ModelSettings(name="classifier", implementation=TreadleRuntime, parameters=parameters))
        await model.load()
        asked = RequestInput(name="x", shape=list(data.shape), datatype="FP32", data=data.ravel().tolist())
        return await model.predict(InferenceRequest(id="7", inputs=[asked]))

    return asyncio.run(ask())


def test_a_request_is_answered(path: Path, rows: np.ndarray) -> None:
    found = answer(path, rows[:5])
    right = map_batches(path, rows[:5], batch_size=5, workers=1).numpy()
    assert (found.id, found.model_name, found.outputs[0].name) == ("7", "classifier", "output")
    assert np.allclose(NumpyCodec.decode_output(found.outputs[0]), right, atol=1e-6)


def test_a_request_that_does_not_fit_is_a_client_error(path: Path, rows: np.ndarray) -> None:
    with pytest.raises(MLServerError, match="x") as caught:
        answer(path, rows[:5, :3])
    assert caught.value.status_code == 400
