"""Work that was cut short goes on where it was, and never with results of other work."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle import Module, function, map_batches, var
from treadle.cluster.checkpoint import Checkpoint
from treadle.formats.messages.errors import CheckpointError, FileError


def test_finished_batches_are_not_computed_again(exe: treadle.Executable, rows: np.ndarray, tmp_path: Path) -> None:
    whole = map_batches(exe, rows, batch_size=10, workers=2).numpy()
    with map_batches(exe, rows, batch_size=10, workers=2, checkpoint=tmp_path) as results:
        for _ in range(4):
            next(results)
    finished = {path: path.stat().st_ino for path in tmp_path.glob("*.batch")}
    assert 4 <= len(finished) < 11 + 1
    assert np.array_equal(map_batches(exe, rows, batch_size=10, workers=2, checkpoint=tmp_path).numpy(), whole)
    assert len(list(tmp_path.glob("*.batch"))) == 11
    assert all(path.stat().st_ino == inode for path, inode in finished.items())


def test_a_run_of_finished_batches_starts_no_worker(
    exe: treadle.Executable, rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = map_batches(exe, rows, batch_size=10, workers=1, checkpoint=tmp_path).numpy()
    monkeypatch.setattr(treadle.cluster.local.LocalEngine, "start", lambda self: pytest.fail("a worker was started"))
    assert np.array_equal(map_batches(exe, rows, batch_size=10, checkpoint=tmp_path).numpy(), whole)
    assert len(dict(map_batches(exe, rows, batch_size=10, checkpoint=tmp_path, ordered=False))) == 11


def test_a_damaged_result_is_computed_again(exe: treadle.Executable, rows: np.ndarray, tmp_path: Path) -> None:
    whole = map_batches(exe, rows, batch_size=10, workers=1, checkpoint=tmp_path).numpy()
    paths = sorted(tmp_path.glob("*.batch"))
    paths[2].write_bytes(b"")
    paths[3].write_bytes(paths[3].read_bytes()[:-1] + b"\x00")
    paths[4].write_bytes(paths[4].read_bytes()[:30])
    assert np.array_equal(map_batches(exe, rows, batch_size=10, workers=1, checkpoint=tmp_path).numpy(), whole)


def test_a_folder_of_other_work_is_refused(exe: treadle.Executable, rows: np.ndarray, tmp_path: Path) -> None:
    map_batches(exe, rows, batch_size=10, workers=1, checkpoint=tmp_path).numpy()
    with pytest.raises(CheckpointError, match="is of other work: batch_size was 10 and is 20"):
        map_batches(exe, rows, batch_size=20, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="is of other work: source was"):
        map_batches(exe, rows + 1, batch_size=10, checkpoint=tmp_path)
    x = var("x", ("n", 16))
    with pytest.raises(CheckpointError, match="is of other work: executable was"):
        map_batches(treadle.compile(Module(main=function([x], x + x))), rows, batch_size=10, checkpoint=tmp_path)


def test_a_folder_with_results_of_nobody_is_refused(exe: treadle.Executable, rows: np.ndarray, tmp_path: Path) -> None:
    map_batches(exe, rows, batch_size=10, workers=1, checkpoint=tmp_path).numpy()
    (tmp_path / "work.json").unlink()
    with pytest.raises(CheckpointError, match=r"no work\.json"):
        map_batches(exe, rows, batch_size=10, checkpoint=tmp_path)
    (tmp_path / "work.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        map_batches(exe, rows, batch_size=10, checkpoint=tmp_path)


def test_one_run_at_a_time_uses_a_folder(exe: treadle.Executable, rows: np.ndarray, tmp_path: Path) -> None:
    with (
        map_batches(exe, rows, batch_size=10, workers=1, checkpoint=tmp_path),
        pytest.raises(CheckpointError, match="in use by another run"),
    ):
        map_batches(exe, rows, batch_size=10, checkpoint=tmp_path)
    map_batches(exe, rows, batch_size=10, checkpoint=tmp_path).close()


def test_a_source_that_raises_goes_on_where_it_was(exe: treadle.Executable, rows: np.ndarray, tmp_path: Path) -> None:
    def source(is_whole: bool) -> Iterator[np.ndarray]:
        for start in range(0, 100, 10):
            if start == 50 and not is_whole:
                raise ConnectionError("the store is away")
            yield rows[start : start + 10]

    with pytest.raises(ConnectionError):
        map_batches(exe, source(False), batch_size=10, workers=1, checkpoint=tmp_path).numpy()
    assert len(list(tmp_path.glob("*.batch"))) == 5
    results = map_batches(exe, source(True), batch_size=10, workers=1, checkpoint=tmp_path).numpy()
    assert np.array_equal(results, map_batches(exe, rows[:100], batch_size=10, workers=1).numpy())


def test_a_full_disk_is_named_and_keeps_what_was_there(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path, {})
    kept.put(0, np.zeros(4))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limit[1]))
    try:
        with pytest.raises(FileError, match="the result of batch 1 cannot be kept in checkpoint"):
            kept.put(1, np.zeros(1 << 16))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert sorted(os.listdir(tmp_path)) == [".lock", "0000000000.batch", "work.json"]
    assert np.array_equal(kept.get(0), np.zeros(4))
    kept.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can mount a small disk")
def test_work_goes_on_when_a_full_disk_has_room_again(
    exe: treadle.Executable, rows: np.ndarray, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    try:
        with pytest.raises(FileError, match="No space left"):
            map_batches(exe, rows, batch_size=2, workers=2, checkpoint=disk).numpy()
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        results = map_batches(exe, rows, batch_size=2, workers=2, checkpoint=disk).numpy()
        assert np.allclose(results, map_batches(exe, rows, batch_size=2, workers=1).numpy(), atol=1e-6)
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_process_that_is_killed_goes_on_where_it_was(path: Path, rows: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", rows)
    code = (
        "import sys, os, numpy as np, treadle\nfolder, model = sys.argv[1:]\n"
        "rows = np.load(folder + '/rows.npy', mmap_mode='r')\n"
        "for number, _ in enumerate(treadle.map_batches(model, rows, batch_size=2, workers=1, checkpoint=folder + '/kept')):\n"
        "    if number == 9: os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path, path], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    kept = len(list((tmp_path / "kept").glob("*.batch")))
    assert 10 <= kept <= 20
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    results = map_batches(path, mapped, batch_size=2, workers=1, checkpoint=tmp_path / "kept").numpy()
    assert np.array_equal(results, map_batches(path, rows, batch_size=2, workers=1).numpy())
