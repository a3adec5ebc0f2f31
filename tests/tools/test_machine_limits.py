"""What the machine can do: measured when it is idle, kept only if a CPU can be so, doubted aloud otherwise."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from treadle.compiler.targets.cpu.target import host
from treadle.native import platform
from treadle.tools import machine_limits, profile
from treadle.tools.machine_limits import Level, Limits, implausible
from treadle.tools.steady import Measured

TARGET = dataclasses.replace(host(), vector_bytes=32)
LEVELS = (Level("L2", 1 << 20, 6e10), Level("L3", 1 << 24, 3e10), Level("memory", 1 << 28, 1e10))
SOUND = Limits(1, 1e11, 5e10, 2e11, LEVELS)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    monkeypatch.setattr(machine_limits, "_doubtful", {})


def runs_take(monkeypatch: pytest.MonkeyPatch, seconds: float, is_steady: bool = True) -> list[int]:
    """Every round of every kernel takes so long; the list grows by each measurement."""
    asked: list[int] = []

    def measured(self: object) -> Measured:
        asked.append(1)
        return Measured(seconds, is_steady)

    monkeypatch.setattr(machine_limits._Runner, "seconds_of_a_round", measured)
    return asked


def test_sound_limits_are_sound() -> None:
    assert implausible(SOUND, TARGET) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"float32": 0.0},
        {"float32": 1e6},
        {"float64": 1e15},
        {"int8": 1.0},
        {"levels": (Level("L2", 1 << 20, 1e3), *LEVELS[1:])},
        {"levels": (*LEVELS[:2], Level("memory", 1 << 28, 1e12))},
    ],
)
def test_what_no_cpu_can_be_is_doubted(wrong: dict) -> None:
    doubts = implausible(dataclasses.replace(SOUND, **wrong), TARGET)
    assert "a second are none of the" in doubts[0]


def test_absurd_limits_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = runs_take(monkeypatch, 10.0)
    found = machine_limits.limits(1)
    assert found.doubts
    assert machine_limits.limits(1) is found  # a command measures once
    machine_limits._doubtful.clear()  # another process
    before = len(asked)
    machine_limits.limits(1)
    assert len(asked) == 2 * before


def test_limits_measured_under_load_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    runs_take(monkeypatch, 1e-9, is_steady=False)
    assert "other programs took the cores" in machine_limits.limits(1).doubts[0]


def test_doubts_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    text = profile._limits_text(dataclasses.replace(SOUND, doubts=("0 operations a second",)), 0)
    assert text.startswith("doubtful, and not kept: 0 operations a second\n")
    assert "--remeasure" in text
    assert "doubtful" not in profile._limits_text(SOUND, 0)


def test_another_cpu_has_limits_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits, "_measure", lambda threads, target: SOUND)
    assert machine_limits.limits(1) == SOUND
    monkeypatch.setattr(machine_limits, "_measure", lambda threads, target: dataclasses.replace(SOUND, float32=2e11))
    assert machine_limits.limits(1) == SOUND
    monkeypatch.setattr(platform, "processor_identity", lambda: "another processor")
    assert machine_limits.limits(1).float32 == 2e11
