"""The race track: what is measured, what is compared, and what happens when an engine cannot run a model."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from treadle.tools.cli import USAGE, main
from treadle.tools.dev.bench import race


@pytest.mark.serial
def test_every_engine_is_measured_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    page = tmp_path / "page.md"
    options = ["--only", "mlp", "--against", "onnxruntime", "--threads", "1", "--repeat", "2"]
    assert main(["bench", "models", *options, "--json", "--report", str(page)]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["model"] == "mlp"
    assert found["ratio"] > 0
    for result in found["engines"].values():
        assert result["failure"] == ""
        assert 0 < result["milliseconds"]["p10"] <= result["milliseconds"]["median"]
        assert result["error"] < 1e-5
    assert "| mlp |" in page.read_text()


@pytest.mark.usefixtures("failing_onnxruntime")
def test_an_engine_that_fails_is_a_result() -> None:
    (found,) = race.run_races(["mlp"], ["onnxruntime"], [1], rounds=1)
    assert found.engines["onnxruntime"].failure == "no such operator at line 3"
    assert found.ratio is None


@pytest.mark.usefixtures("wrong_treadle")
def test_a_wrong_answer_is_seen() -> None:
    (found,) = race.run_races(["mlp"], ["onnxruntime"], [1], rounds=1)
    assert found.engines["treadle"].error == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize("option", [["--only", "nothing"], ["--against", "nobody"], ["--threads", "0"]])
def test_unknown_names_are_usage_errors(option: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(["bench", "models", *option]) == USAGE
    assert capsys.readouterr().err


@pytest.mark.serial
def test_a_turn_begins_when_no_thread_is_busy() -> None:
    end = time.perf_counter() + 0.05

    def spin() -> None:
        while time.perf_counter() < end:
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    race.await_idle_threads()
    assert time.perf_counter() >= end
    thread.join()
