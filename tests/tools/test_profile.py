"""`treadle profile`: every primitive, with its work and its share of what the machine can do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser
from treadle.compiler.targets.cpu.target import host
from treadle.formats.dtypes import DType
from treadle.tools import machine_limits
from treadle.tools.cli import main
from treadle.tools.machine_limits import Level, Limits
from treadle.tools.roofline import Row, _without_traps

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[n, 8] x, float[8, 4] w, int64[n] rows) => (float[n, 4] y) {
    h = MatMul(x, w)
    s = Softmax(h)
    y = Gather(s, rows)
}"""
INTEGERS = """<ir_version: 8, opset_import: ["" : 17]>
agraph (uint8[64, 64] x) => (int32[64, 64] y) { y = MatMulInteger(x, w) }"""
LIMITS = Limits(1, 1e11, 5e10, 4e11, (Level("L2", 1 << 20, 1e11), Level("memory", 1 << 26, 1e10)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "model.onnx"
    path.write_bytes(parser.parse_model(MODEL).SerializeToString())
    return path


@pytest.fixture(autouse=True)
def known_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits, "limits", lambda threads, again=False: LIMITS)


@pytest.fixture
def measures(known_limits: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is known of this machine: limits are measured."""
    monkeypatch.undo()
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    monkeypatch.setattr(machine_limits, "_doubtful", {})


def profile(model: Path, capsys: pytest.CaptureFixture, *options: str) -> dict:
    assert main(["profile", str(model), "--json", "--repeat", "2", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_work_follows_from_the_shapes_of_the_run(model: Path, capsys: pytest.CaptureFixture) -> None:
    report = profile(model, capsys, "--dim", "n=6")
    rows = {row["template"]: row for row in report["primitives"]}
    assert rows["matmul"]["operations"] == 2 * 6 * 8 * 4
    assert rows["matmul"]["bytes"] == 4 * (6 * 8 + 8 * 4 + 6 * 4)
    assert rows["matmul"]["node"] == "MatMul h"
    assert rows["take"]["bytes"] == 4 * (6 * 4 + 6 * 4) + 8 * 6
    assert {row["template"] for row in report["templates"]} == {"matmul", "softmax", "take"}
    assert report["seconds"] == pytest.approx(sum(row["seconds"] for row in report["primitives"]))


def test_sizes_are_those_of_the_inputs_that_are_given(model: Path, capsys: pytest.CaptureFixture) -> None:
    report = profile(model, capsys, "--input", "x=3x8xf32=random:1")
    assert sum(row["operations"] for row in report["primitives"] if row["template"] == "matmul") == 2 * 3 * 8 * 4


def test_a_table_for_people(model: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["profile", str(model), "--roofline", "--repeat", "1", "--top", "1"]) == 0
    text = capsys.readouterr().out
    assert "float32 100 GFLOP/s" in text
    assert "% roofline" in text
    assert "… 2 more; --top 0 shows all" in text


@pytest.mark.parametrize(
    ("measured", "traps", "least", "seconds"), [(9.0, 2.0, 5.0, 7.0), (9.0, 8.0, 5.0, 5.0), (9.0, 2.0, 20.0, 9.0)]
)
def test_no_time_is_longer_than_it_was_measured(measured: float, traps: float, least: float, seconds: float) -> None:
    assert _without_traps(measured, traps, least) == seconds


def test_the_slower_of_arithmetic_and_traffic_is_the_roofline() -> None:
    row = Row("p", "t", None, 1, seconds=1.0, compute_seconds=0.25, memory_seconds=0.5)
    assert (row.bound, row.roofline) == ("memory", 0.5)


@pytest.mark.parametrize(("dtype", "peak"), [("float32", 1e11), ("float64", 5e10), ("uint8", 4e11), ("int64", 1e11)])
def test_the_peak_is_that_of_what_is_multiplied(dtype: str, peak: float) -> None:
    assert LIMITS.peak(DType[dtype]) == peak


def test_products_of_integers_are_held_against_their_own_peak(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "integers.onnx"
    integers = parser.parse_model(INTEGERS)
    integers.graph.initializer.append(numpy_helper.from_array(np.ones((64, 64), np.int8), "w"))
    path.write_bytes(integers.SerializeToString())
    (row,) = (row for row in profile(path, capsys)["primitives"] if row["operations"])
    assert row["peak_share"] == pytest.approx(2 * 64**3 / 4e11 / row["seconds"])


def test_bandwidth_is_that_of_the_nearest_level() -> None:
    assert LIMITS.bandwidth(1 << 20) == 1e11
    assert LIMITS.bandwidth((1 << 20) + 1) == 1e10
    assert LIMITS.bandwidth(1 << 40) == 1e10


def test_limits_are_measured_once(measures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    monkeypatch.setattr(machine_limits, "_measure", lambda threads, _: measured.append(threads) or LIMITS)
    assert [machine_limits.limits(1) for _ in range(3)] == [LIMITS] * 3
    assert measured == [1]
    machine_limits.limits(1, again=True)
    assert measured == [1, 1]


def test_limits_are_those_of_a_cpu(measures: None) -> None:
    found = machine_limits.limits(1)
    assert found.int8 > 0
    assert np.isfinite([level.bandwidth for level in found.levels]).all()
    (*_, last) = found.levels
    assert last.name == "memory"


def test_operations_on_wider_numbers_take_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The best of some measurements in turns, since others may take the core during one of them."""
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    rounds = [[machine_limits._peak(name, 1, host()).seconds for name in ("float32", "float64")] for _ in range(3)]
    single, double = map(min, zip(*rounds, strict=True))
    assert 0 < single < double


@pytest.mark.parametrize(("option", "message"), [("n", "write NAME=SIZE"), ("n=x", "write NAME=SIZE")])
def test_bad_dimensions_are_usage(model: Path, capsys: pytest.CaptureFixture, option: str, message: str) -> None:
    assert main(["profile", str(model), "--dim", option]) == 2
    assert message in capsys.readouterr().err
