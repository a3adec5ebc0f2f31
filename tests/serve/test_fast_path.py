"""What keeps the way of a small request short."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from treadle.formats.dtypes import DType
from treadle.serve.config import ModelConfig
from treadle.serve.errors import BadRequestError
from treadle.serve.model import Model
from treadle.serve.shared_memory import Regions

from . import models

ROW = np.ones((1, 8), np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    models.folder(tmp_path, rows=models.rows())
    return Model("rows", 1, tmp_path / "rows.trdl", ModelConfig())


@pytest.mark.parametrize("dtype", [each for each in DType if each not in (DType.bool, DType.string)])
def test_sent_elements_have_numpys_own_type(dtype: DType):
    pytest.importorskip("prometheus_client")
    from treadle.serve.http_tensors import elements

    sent = np.arange(4).astype(dtype.numpy)
    found = elements("x", memoryview(sent.astype(dtype.numpy.newbyteorder("<")).tobytes()), dtype, (2, 2))
    assert found.dtype is sent.dtype
    assert found.tobytes() == sent.tobytes()


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


def head(**parameters: object) -> bytes:
    entry = {"name": "x", "shape": [1, 8], "datatype": "FP32", "parameters": {"binary_data_size": 32}}
    return json.dumps({"inputs": [entry], "parameters": parameters}).encode()


def test_the_same_head_is_read_once_and_its_bytes_each_time():
    pytest.importorskip("prometheus_client")
    from treadle.serve import http_tensors

    regions = Regions(False)
    for value in (1, 2, 3):
        found = http_tensors.read_head(head(binary_data_output=True))
        sent = np.full((1, 8), value, np.float32)
        request = http_tensors.make_request(found, memoryview(sent.tobytes()), "rows", "", regions)
        np.testing.assert_array_equal(request.inputs["x"], sent)
    assert http_tensors.read_head(head(binary_data_output=True)) is found


def test_a_known_head_starts_a_new_timeout():
    pytest.importorskip("prometheus_client")
    from treadle.serve import http_tensors

    data = memoryview(bytes(32))
    first, second = (
        http_tensors.make_request(http_tensors.read_head(head(timeout=1000)), data, "rows", "", Regions(False))
        for _ in range(2)
    )
    assert first.deadline is not None
    assert second.deadline is not None
    assert second.deadline > first.deadline


def test_heads_that_are_remembered_are_bounded():
    pytest.importorskip("prometheus_client")
    from treadle.serve import http_tensors

    for number in range(1000):
        http_tensors.read_head(head(number=number))
    http_tensors.read_head(head(text="a" * 2000))
    assert len(http_tensors._known_heads) <= 256
    assert max(map(len, http_tensors._known_heads)) <= 1024


def test_inputs_that_were_found_right_once_are_right_of_that_type_and_shape_alone(model: Model):
    endpoint = model.endpoint("main")
    endpoint.arguments({"x": ROW})
    for wrong in (ROW.astype(np.float64), ROW[:, :7], ROW[0]):
        with pytest.raises(BadRequestError, match="expected FP32"):
            endpoint.arguments({"x": wrong})
    with pytest.raises(BadRequestError, match="no input 'y'"):
        endpoint.arguments({"x": ROW, "y": ROW})
    with pytest.raises(BadRequestError, match="'x' is missing"):
        endpoint.arguments({})
