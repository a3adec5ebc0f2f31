"""The measurement of servers under load, without the others' environments."""

from __future__ import annotations

from pathlib import Path

import pytest
from treadle.errors import TreadleError
from treadle.tools.dev.bench import throughput


def test_our_server_is_measured_alone(tmp_path: Path):
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    rows = list(throughput.measure("mlp", True, 0.05, tmp_path))
    assert [(row["model"], row["clients"], row["batching"]) for row in rows] == [("mlp", n, True) for n in (1, 8, 64)]
    for row in rows:
        assert row["treadle"]["requests_per_second"] > 0
        assert 0 < row["treadle"]["p50_ms"] <= row["treadle"]["p99_ms"]
        assert "requests_ratio" not in row


def test_first_requests_are_not_counted():
    watch = throughput._Watch(clients=2, seconds=0.0)
    for _ in range(2 * throughput._WARM):
        watch.answered(0.0)
    assert watch.times == []
    watch.answered(0.0)
    assert len(watch.times) == 1


def test_ratios_are_to_the_best_of_each(tmp_path: Path):
    times = {"treadle": [0.001] * 30, "a": [0.002] * 10, "b": [0.003] * 20}
    row = throughput._row("mlp", 1, False, times, dict.fromkeys(times, 1.0))
    assert (row["requests_ratio"], row["p99_ratio"]) == (1.5, 0.5)


def test_a_model_that_is_not_measured_is_named(tmp_path: Path):
    with pytest.raises(TreadleError, match="there are mlp, minilm, resnet50"):
        list(throughput.measure("unknown", True, 0.1, tmp_path))
