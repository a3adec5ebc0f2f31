"""LitServe's API of ours, as its server calls it; the server itself is run by test_serving_page.py.

LitServe is not among what tests need: `make cluster-test` has it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from treadle import map_batches

pytest.importorskip("litserve")

from fastapi import HTTPException
from treadle.cluster.litserve import TreadleLitAPI


@pytest.fixture
def api(path: Path) -> TreadleLitAPI:
    made = TreadleLitAPI(path, max_batch_size=8, batch_timeout=0.01)
    made.setup("cpu")
    return made


def test_requests_are_answered(api: TreadleLitAPI, path: Path, rows: np.ndarray) -> None:
    right = map_batches(path, rows[:5], batch_size=5, workers=1).numpy()
    assert np.allclose(api.encode_response(api.predict({"x": rows[0].tolist()}))["output"], right[0], atol=1e-6)
    batch = api.batch([{"x": row.tolist()} for row in rows[:5]])
    answers = [api.encode_response(each)["output"] for each in api.unbatch(api.predict(batch))]
    assert np.allclose(answers, right, atol=1e-6)


def test_a_request_that_does_not_fit_costs_the_others_nothing(api: TreadleLitAPI, rows: np.ndarray) -> None:
    good = {"x": rows[0].tolist()}
    first, *wrong, last = api.predict([good, {"x": [1, 2, 3]}, {"z": 1}, 7, {"x": "text"}, good])
    assert np.array_equal(first["output"], last["output"])
    for each in wrong:
        with pytest.raises(HTTPException) as caught:
            api.encode_response(each)
        assert caught.value.status_code == 400
