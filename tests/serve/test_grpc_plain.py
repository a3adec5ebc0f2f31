"""Messages over gRPC that are known but for their elements are answered as those that are read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import models

pytest.importorskip("grpc")
pytest.importorskip("prometheus_client")
from treadle.serve.errors import ServeError
from treadle.serve.grpc_messages import message
from treadle.serve.grpc_service import Methods
from treadle.serve.repository import Repository
from treadle.serve.service import Service
from treadle.serve.shared_memory import Regions

from .test_hostile import Context


@pytest.fixture
def methods(tmp_path: Path) -> Methods:
    repository = Repository(models.folder(tmp_path, rows=models.rows(), sums=models.rows(), texts=models.texts()))
    repository.refresh()
    return Methods(Service(repository), Regions())


def request(x: np.ndarray, model: str = "rows", outputs: tuple[str, ...] = (), **fields: Any) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": x.shape}
    wanted = [{"name": name} for name in outputs]
    made = message("ModelInferRequest")(
        model_name=model, inputs=[tensor], outputs=wanted, raw_input_contents=[x.tobytes()], **fields
    )
    return made.SerializeToString()


def asked(methods: Methods, data: bytes, is_read: bool = False) -> Any:
    """The answer, or the error's text; `is_read`: as if the message were not known."""
    try:
        if is_read:
            return methods.ModelInfer(message("ModelInferRequest").FromString(data), Context())
        return message("ModelInferResponse").FromString(methods.infer(data, Context()))
    except ServeError as error:
        return str(error)


def test_the_second_message_is_not_read(methods: Methods, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    methods.infer(request(np.ones((3, 8), np.float32)), Context())
    monkeypatch.setattr(methods, "_request", None)
    for _ in range(3):
        x = rng.standard_normal((3, 8)).astype(np.float32)
        (raw,) = asked(methods, request(x)).raw_output_contents
        np.testing.assert_allclose(np.frombuffer(raw, np.float32).reshape(3, 4), models.expected(x), rtol=1e-5)


def test_messages_of_one_length_are_told_apart(methods: Methods):
    x = np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)
    other_shape = request(x).replace(b"\x02\x08", b"\x08\x02")
    kinds = [
        request(x), request(x, "sums"), request(x, "none"), request(-x), other_shape, request(x.astype(">f4")),
        request(x, outputs=("relu",)), request(x, outputs=("rule",)), request(x, id="1"), request(x, id="2"),
        request(x, model_version="1"), request(x, model_version="2"), request(x) + b"\x3a\x00", request(x)[:-1],
        request(x, parameters={"sequence_id": {"int64_param": 0}}), request(x[:0]), b"",
    ]  # fmt: skip
    rng = random.Random(0)
    for _ in range(200):
        data = rng.choice(kinds)
        try:
            expected = asked(methods, data, is_read=True)
        except Exception:  # no message at all
            expected = None
        found = asked(methods, data)
        assert found == expected or (expected is None and "not a ModelInferRequest" in found)


def test_a_model_that_is_replaced_answers_with_its_own_version(methods: Methods, tmp_path: Path):
    x = np.ones((2, 8), np.float32)
    for _ in range(2):
        assert asked(methods, request(x)).model_version == "1"
    (tmp_path / "rows" / "7").mkdir(parents=True)
    (tmp_path / "rows.trdl").rename(tmp_path / "rows" / "7" / "model.trdl")
    methods._service.repository.refresh()
    assert asked(methods, request(x)).model_version == "7"


def test_what_is_known_is_bounded(methods: Methods):
    for rows in range(1, 600):
        methods.infer(request(np.ones((rows, 8), np.float32)), Context())
    assert 0 < len(methods._plain._known) <= 256
    assert all(len(each.prefix) < 100 for each in methods._plain._known.values())


def test_elements_behind_json_of_any_length_are_aligned():
    from treadle.formats.dtypes import DType
    from treadle.serve.http_tensors import elements

    data = bytes(3) + np.arange(4, dtype=np.float32).tobytes()
    for at in range(4):
        found = elements("x", memoryview(bytes(at) + data[3:])[at:], DType.float32, (4,))
        assert found.flags.aligned
        assert found.tolist() == [0, 1, 2, 3]
