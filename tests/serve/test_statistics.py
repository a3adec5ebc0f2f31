"""What is counted of requests that wait, and of those that are called together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from . import models

pytest.importorskip("prometheus_client")
from treadle.serve.descriptions import model_statistics, overview
from treadle.serve.repository import Repository
from treadle.serve.scheduler import Scheduler
from treadle.serve.service import Request, Service

WAIT = 0.05  # seconds that requests are held up for


@pytest.fixture
def service(tmp_path: Path) -> Service:
    models.folder(tmp_path, rows=models.rows(), mixed=models.mixed())
    repository = Repository(tmp_path)
    repository.refresh()
    return Service(repository, Scheduler(lambda: 1))


def held_up(service: Service, model: str, x: np.ndarray, count: int) -> dict[str, Any]:
    """The statistics of a model after simultaneous requests had to wait."""
    line = service.repository.find(model).line
    assert service.scheduler.enter(line)
    threads = [threading.Thread(target=service.infer, args=(Request(model, {"x": x}),)) for _ in range(count)]
    for thread in threads:
        thread.start()
    while service.scheduler.waiting() < count:
        time.sleep(0.001)
    time.sleep(WAIT)
    service.scheduler.leave(line, WAIT)
    for thread in threads:
        thread.join()
    (found,) = model_statistics(service.repository, model)
    return found


def test_a_request_that_waits_was_queued(service: Service):
    found = held_up(service, "mixed", np.zeros((2, 4), np.float32), 1)["inference_stats"]
    assert found["queue"]["ns"] >= WAIT * 1e9
    assert 0 < found["compute_infer"]["ns"] <= found["success"]["ns"] - found["queue"]["ns"]


def test_merged_requests_are_one_call(service: Service):
    found = held_up(service, "rows", np.zeros((2, 8), np.float32), 3)
    assert found["inference_stats"]["queue"]["ns"] >= 3 * WAIT * 1e9
    assert found["inference_stats"]["queue"]["count"] == found["inference_stats"]["success"]["count"] == 3
    assert (found["inference_count"], found["execution_count"]) == (6, 1)
    (batch,) = found["batch_stats"]
    assert batch["batch_size"] == 6
    assert batch["compute_infer"]["count"] == 1
    assert 0 < batch["compute_infer"]["ns"] <= found["inference_stats"]["compute_infer"]["ns"]
    assert (
        0 < batch["compute_input"]["ns"] <= found["inference_stats"]["compute_input"]["ns"]
    )  # three shared the gathering


def test_what_is_tried_when_a_model_is_loaded_is_no_call(service: Service):
    (found,) = model_statistics(service.repository, "rows")
    assert (found["execution_count"], found["batch_stats"]) == (0, [])


def test_calls_are_counted_by_their_rows(service: Service):
    for count in (1, 3, 3):
        service.infer(Request("rows", {"x": np.zeros((count, 8), np.float32)}))
    (found,) = model_statistics(service.repository, "rows")
    assert [(each["batch_size"], each["compute_infer"]["count"]) for each in found["batch_stats"]] == [(1, 1), (3, 2)]


def test_numbers_of_rows_that_are_counted_are_bounded(service: Service):
    statistics = service.repository.find("rows").statistics["main"]
    for rows in range(1000):
        statistics.called(0.0, 1e-6, rows)
    assert (statistics.calls, len(statistics.sizes)) == (1000, 256)


def test_waiting_is_in_the_histograms(service: Service):
    held_up(service, "rows", np.zeros((1, 8), np.float32), 2)
    waits = service.repository.find("rows").statistics["main"].waits
    assert sum(waits) == 2
    assert sum(waits[:10]) == 0  # 50 us * 2**9 = 25.6 ms
    page = service.metrics.text().decode()
    assert 'treadle_queue_seconds_bucket{function="main",le="0.025",model="rows"} 0.0' in page
    assert 'treadle_queue_seconds_count{function="main",model="rows"} 2.0' in page
    assert 'treadle_request_seconds_bucket{function="main",le="+Inf",model="rows"} 2.0' in page


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_reading_and_printing_tensors_are_counted(transport: str, folder: Path, start: Callable[..., Any]):
    clients = pytest.importorskip(f"tritonclient.{transport}")
    server = start()
    client = clients.InferenceServerClient(f"127.0.0.1:{getattr(server, transport + '_port')}")
    x = clients.InferInput("x", [500, 8], "FP32")
    x.set_data_from_numpy(np.zeros((500, 8), np.float32))
    for _ in range(3):
        client.infer("rows", [x])
    (found,) = model_statistics(server.service.repository, "rows")
    stats = found["inference_stats"]
    parts = [stats[name] for name in ("queue", "compute_input", "compute_infer", "compute_output")]
    assert [part["count"] for part in parts] == [3, 3, 3, 3]
    assert all(part["ns"] > 0 for part in parts[1:])
    assert sum(part["ns"] for part in parts) <= stats["success"]["ns"]
    client.close()


def test_triton_clients_see_batch_statistics(folder: Path, start: Callable[..., Any]):
    clients = pytest.importorskip("tritonclient.grpc")
    client = clients.InferenceServerClient(f"127.0.0.1:{start().grpc_port}")
    x = clients.InferInput("x", [5, 8], "FP32")
    x.set_data_from_numpy(np.zeros((5, 8), np.float32))
    client.infer("rows", [x])
    (found,) = client.get_inference_statistics("rows").model_stats
    (batch,) = found.batch_stats
    assert (batch.batch_size, batch.compute_infer.count) == (5, 1)
    client.close()


def test_the_metrics_tell_of_calls_files_and_memory(service: Service, tmp_path: Path):
    held_up(service, "rows", np.zeros((2, 8), np.float32), 3)
    (tmp_path / "broken.trdl").write_bytes(b"no executable")
    service.repository.refresh()
    page = service.metrics.text().decode()
    labels = 'function="main",model="rows"'
    assert 'treadle_batch_rows_bucket{function="main",le="4",model="rows"} 0.0' in page
    assert 'treadle_batch_rows_bucket{function="main",le="8",model="rows"} 1.0' in page
    assert f"treadle_batch_rows_sum{{{labels}}} 6.0" in page
    assert f"treadle_compute_seconds_count{{{labels}}} 1.0" in page
    assert f"treadle_queue_seconds_count{{{labels}}} 3.0" in page
    assert f"treadle_merged{{{labels}}} 1.0" in page
    assert 'treadle_merged{function="main",model="mixed"} 0.0' in page
    assert 'treadle_load_failures_total{model="broken"} 1.0' in page
    assert (
        f'treadle_model_info{{model="rows",sha256="{service.repository.find("rows").digest}",version="1"}} 1.0' in page
    )
    assert 'treadle_model_bytes{model="rows",version="1"} ' in page


def test_the_page_has_a_row_a_look(service: Service, monkeypatch: pytest.MonkeyPatch):
    clock = [100.0]
    monkeypatch.setattr("treadle.serve.statistics.time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    service.history.look()
    held_up(service, "rows", np.zeros((2, 8), np.float32), 3)
    service.history.look()  # too soon
    clock[0] += 2
    service.history.look()
    (row,) = overview(service)["history"]
    assert (row["answered"], row["refused"], row["together"]) == (1.5, 0, 3)
    assert WAIT <= row["half"] <= row["most"]
    assert row["memory"] >= 0
    clock[0] += 2
    service.history.look()
    assert overview(service)["history"][-1]["half"] is None
