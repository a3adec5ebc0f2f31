"""What sharing work among threads costs and gives, as `treadle bench threads` tells it."""

from __future__ import annotations

import json

import pytest
from treadle import get_num_threads
from treadle.tools.cli import main
from treadle.tools.dev.bench import scaling


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "_TURN_SECONDS", 0.001)
    monkeypatch.setattr(scaling, "_CALLS", 10)


def test_starts_and_models_are_measured(capsys: pytest.CaptureFixture) -> None:
    before = get_num_threads()
    assert main(["bench", "threads", "--only", "mlp", "--threads", "1,3", "--repeat", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["start_us"]) == ["3"]
    (model,) = found["models"]
    assert (model["name"], model["threads"], model["rounds"]) == ("mlp", 3, 2)
    assert min(model["alone"] + model["shared"] + model["apart"]) > 0
    assert model["speedup"] > 0
    assert get_num_threads() == before


def test_the_table_names_counts_and_models(capsys: pytest.CaptureFixture) -> None:
    assert main(["bench", "threads", "--only", "mlp", "--threads", "1,2", "--repeat", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a start on 2 threads: ")
    assert lines[-1].startswith("mlp ")
    assert " of 1 rounds undisturbed" in lines[-1]


def test_rounds_count_by_the_cores_that_calls_apart_had() -> None:
    both, far, one = (30.0, 16.0, 15.5, 100.0), (30.0, 20.0, 15.5, 400.0), (30.0, 29.0, 31.0, 80.0)
    found = scaling_of(both, one, far, one)
    assert found.speedup == pytest.approx(2 * 30 / (20 + 29))
    assert found.undisturbed == scaling_of(both)
    assert scaling_of(one, far).undisturbed is None


def scaling_of(*rounds: tuple[float, float, float, float]) -> scaling.Scaling:
    return scaling.Scaling("model", 2, *map(list, zip(*rounds, strict=True)))
