"""Dumps, statistics and timelines of a call."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import debug
from treadle.debug import trace
from treadle.debug.dumping import INDEX
from treadle.formats.executable import Executable
from treadle.formats.messages.errors import ArgumentError, FileError
from treadle.tools.cli import main
from treadle.tools.dev import planted


@pytest.fixture(scope="module")
def right() -> Executable:
    return treadle.compile(planted.model(), progress=False)


@pytest.fixture(scope="module")
def file(right: Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inside") / "right.trdl"
    right.export_library(path)
    return path


def test_a_dump_holds_every_tensor_by_number_and_whole_name(right: Executable, tmp_path: Path) -> None:
    folder = debug.dump(right, None, tmp_path / "dump")
    rows = json.loads((folder / INDEX).read_text())["tensors"]
    assert [row["kind"] for row in rows] == ["argument", *["kernel"] * 20, "result"]
    assert rows[1]["name"].startswith("block0/MatMul_product + ")
    last, result = (np.load(folder / row["file"]) for row in rows[-2:])
    np.testing.assert_array_equal(last, result)


def test_names_of_a_model_choose_no_path(tmp_path: Path) -> None:
    model = planted.model()
    for node in model.graph.node:
        node.name = f"../../{'x' * 300}/{node.name}\0"
    folder = debug.dump(model, None, tmp_path / "a" / "dump")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    assert all(path.parent == folder and len(path.name) < 100 for path in folder.iterdir())


def test_a_folder_that_is_not_empty_is_kept(right: Executable, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ArgumentError, match="not empty"):
        debug.dump(right, None, tmp_path)
    debug.dump(right, None, tmp_path, overwrite=True)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.fixture
def full(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk that has room for 300 bytes of each file. Modules that are imported then are not kept as bytecode: Python would cut
    it, and take the cut file for whole ever after."""
    resource = pytest.importorskip("resource")
    path = request.getfixturevalue("tmp_path")
    request.getfixturevalue("monkeypatch").setattr(sys, "dont_write_bytecode", True)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, most[1]))
    yield path
    resource.setrlimit(resource.RLIMIT_FSIZE, most)


@pytest.mark.parametrize(
    "command", ["graph -o g.netron", "profile --trace t.json", "dis -o d.tasm", "compare --html p.html"]
)
def test_a_full_disk_leaves_the_old_file(file: Path, full: Path, command: str) -> None:
    name, option, target = command.split()
    (full / target).write_text("old")
    assert main([name, str(file), option, str(full / target)]) == 4
    assert (full / target).read_text() == "old"
    assert os.listdir(full) == [target]


def test_a_result_that_a_full_disk_has_no_room_for_is_an_error(file: Path, full: Path) -> None:
    """NumPy's own writer gives 0, and half a file."""
    assert main(["run", str(file), "--input", "4x24xf32=random:1", "--output", f"@{full}/y.npy"]) == 4
    assert os.listdir(full) == []


def test_a_full_disk_is_an_error_with_a_name(right: Executable, full: Path) -> None:
    with pytest.raises(FileError, match=r"the dump in .*File too large"):
        debug.dump(right, None, full / "dump")


def test_statistics_count_steps_and_the_memory_in_use(right: Executable) -> None:
    found = debug.stats(right)
    size = 4 * 24 * 4
    assert (found.steps, found.instructions["call"], len(found.tensors)) == (20, 20, 20)
    assert {each.bytes for each in found.tensors} == {size}
    assert found.peak_bytes == 2 * size  # what a block reads and what it makes
    assert found.constant_bytes == sum(array.nbytes for array in right.constants)
    assert "peak 768 bytes" in repr(found)


def test_what_lives_at_the_peak_is_shown(file: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["profile", str(file), "--memory"]) == 0
    assert "in use at the peak" in capsys.readouterr().out


def test_a_trace_for_chrome_nests_kernels_in_the_call(file: Path, tmp_path: Path) -> None:
    assert main(["profile", str(file), "--trace", str(tmp_path / "t.json")]) == 0
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    whole, *kernels = [event for event in events if event["ph"] == "X"]
    assert (whole["name"], len(kernels)) == ("main", 20)
    assert all(whole["ts"] <= each["ts"] and each["ts"] + each["dur"] <= whole["dur"] for each in kernels)
    assert max(event["args"]["bytes"] for event in events if event["ph"] == "C") == 768


def test_a_trace_for_perfetto_says_the_same(file: Path, tmp_path: Path) -> None:
    assert main(["profile", str(file), "--trace", str(tmp_path / "t.pftrace")]) == 0
    packets = [dict(fields(packet)) for _, packet in fields((tmp_path / "t.pftrace").read_bytes())]
    tracks = [dict(fields(packet[60])) for packet in packets if 60 in packet]
    assert [track[1] for track in tracks] == [1, 2, 3]
    assert dict(fields(tracks[1][4]))[5] == b"MainThread"
    events = [(packet[8], dict(fields(packet[11]))) for packet in packets if 11 in packet]
    assert [at for at, _ in events] == sorted(at for at, _ in events)
    depths, depth = [], 0
    for _, event in events:
        depth += {1: 1, 2: -1}.get(event[9], 0)
        depths.append(depth)
    assert (max(depths), min(depths), depths[-1]) == (2, 0, 0)
    assert sum(event[9] == 1 for _, event in events) == 21
    assert max(event[30] for _, event in events if event[9] == 4) == 768


def test_functions_nest_in_a_timeline() -> None:
    n = treadle.var("n", (), "float32")
    below = treadle.global_function("down")(n - 1.0)
    down = treadle.function([n], treadle.if_(n > 0.0, below + n, n))
    timeline = trace.record(treadle.Module({"down": down}), [np.float32(3)], function="down")
    frames = [each for each in timeline.slices if each.name == "down"]
    assert len(frames) == 4
    for outer, inner in pairwise(frames):
        assert outer.begin <= inner.begin <= inner.end <= outer.end


def test_a_timeline_says_which_thread_did_which_part_of_a_kernel() -> None:
    x = treadle.var("x", (1, 16, 96, 96))
    weight = np.random.default_rng(0).standard_normal((32, 16, 3, 3)).astype(np.float32)
    convolution = treadle.Module(main=treadle.function([x], treadle.op.conv(x, weight, pads=(1, 1, 1, 1))))
    before = treadle.get_num_threads()
    treadle.set_num_threads(2)
    try:
        timeline = trace.record(convolution)
    finally:
        treadle.set_num_threads(before)
    caller, *workers = timeline.threads
    assert [worker.name for worker in workers] in (
        ["treadle-1"],
        [],
    )  # whom nobody gave a processor in time did nothing
    whole = {each.name: each for each in caller.slices if "part" not in each.details}
    shares = [each for track in timeline.threads for each in track.slices if "part" in each.details]
    assert shares
    for each in shares:
        assert whole[each.name].begin <= each.begin <= each.end <= whole[each.name].end
    for name in {each.name for each in shares}:
        parts = [each.details["part"] for each in shares if each.name == name]
        assert sorted(parts) == sorted(f"{1 + part} of {len(parts)}" for part in range(len(parts)))


def test_each_thread_has_its_track_in_a_trace() -> None:
    slices = [trace.Slice("kernel", 0.0, 1e-3, {"part": "1 of 2"})]
    timeline = trace.Timeline([trace.Track(7, "MainThread", slices), trace.Track(8, "treadle-1", slices)], [])
    events = json.loads(trace.as_chrome(timeline))["traceEvents"]
    assert [event["tid"] for event in events if event["ph"] == "X"] == [7, 8]
    packets = [dict(fields(packet)) for _, packet in fields(trace.as_perfetto(timeline))]
    threads = [dict(fields(track[4])) for track in (dict(fields(p[60])) for p in packets if 60 in p) if 4 in track]
    assert [(thread[2], thread[5]) for thread in threads] == [(7, b"MainThread"), (8, b"treadle-1")]
    tracks = [dict(fields(packet[11]))[11] for packet in packets if 11 in packet]
    assert sorted(tracks) == [2, 2, 4, 4]


def test_a_trace_of_another_ending_is_refused(right: Executable, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must end with \.json or \.pftrace"):
        debug.save_trace(right, None, tmp_path / "t.txt")


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer: number, and a varint or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size
