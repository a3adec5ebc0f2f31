"""What keeps the way of a small request short."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from treadle.formats.dtypes import DType
from treadle.serve.config import ModelConfig
from treadle.serve.model import Model

from . import models

ROW = np.ones((1, 8), np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    models.folder(tmp_path, rows=models.rows())
    return Model("rows", 1, tmp_path / "rows.trdl", ModelConfig())


@pytest.mark.parametrize("dtype", [each for each in DType if each is not DType.bool])
def test_sent_elements_have_numpys_own_type(dtype: DType):
    pytest.importorskip("prometheus_client")
    from treadle.serve.http_tensors import elements

    sent = np.arange(4).astype(dtype.numpy)
    found = elements(memoryview(sent.astype(dtype.numpy.newbyteorder("<")).tobytes()), dtype, (2, 2), 0)
    assert found.dtype is sent.dtype
    np.testing.assert_array_equal(found.ravel(), sent)


def test_a_call_that_was_held_up_makes_no_model_slow(model: Model):
    endpoint = model.endpoint("main")
    for _ in range(10):
        endpoint._note([ROW], 20e-6)
    endpoint._note([ROW], 0.5)
    assert endpoint.is_short([ROW])


def test_calls_that_become_slow_are_found_slow(model: Model):
    endpoint = model.endpoint("main")
    endpoint._note([ROW], 20e-6)
    for _ in range(20):
        endpoint._note([ROW], 1e-3)
    assert not endpoint.is_short([ROW])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio takes another loop since 3.11")
def test_the_server_runs_on_uvicorns_loop():
    uvicorn, uvloop = pytest.importorskip("uvicorn"), pytest.importorskip("uvloop")
    import asyncio

    from treadle.serve.server import _run

    found = []

    async def main() -> None:
        found.append(asyncio.get_running_loop())

    _run(main(), uvicorn.Config(main).get_loop_factory())
    assert isinstance(found[0], uvloop.Loop)
