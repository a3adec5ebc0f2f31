"""Files that come and go, end too early or are none at all: what is served goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import models

pytest.importorskip("prometheus_client")
from treadle.serve.config import ModelConfig
from treadle.serve.errors import BadRequestError, OverloadedError, ServeError
from treadle.serve.repository import Repository
from treadle.serve.scheduler import Line, Scheduler
from treadle.serve.shared_memory import Regions

X = np.ones((2, 8), np.float32)
OVERWRITTEN = """
import sys
from pathlib import Path
import numpy as np
from treadle.serve.repository import Repository
path = Path(sys.argv[1])
repository = Repository(path.parent)
repository.refresh()
_, endpoint = repository.endpoint("rows")
with open(path, "r+b") as file:
    file.truncate(100)
assert endpoint.run([np.ones((2, 8), np.float32)])[0].shape == (2, 4)
repository.refresh()
assert "cannot be loaded" in repository.index()[0][2].reason
assert repository.endpoint("rows")[1] is endpoint
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return models.folder(tmp_path, rows=models.rows()) / "rows.trdl"


def loaded(path: Path, **settings: Any) -> Repository:
    repository = Repository(path.parent, **settings)
    repository.refresh()
    return repository


def test_a_file_that_is_written_over_in_place_is_served_from_memory(path: Path):
    subprocess.run([sys.executable, "-c", OVERWRITTEN, str(path)], check=True, timeout=120)


def test_constants_that_are_damaged_are_not_served(path: Path):
    data = path.read_bytes()
    at = data.index(models.WEIGHTS[:1].tobytes())
    path.write_bytes(data[:at] + bytes(4) + data[at + 4 :])
    assert "checksum" in loaded(path).index()[0][2].reason


@pytest.mark.parametrize("name", ["rows.trdl", "rows.json", "other.trdl"])
def test_pipes_are_no_files(path: Path, name: str):
    (path.parent / name).unlink(missing_ok=True)
    os.mkfifo(path.parent / name)
    repository = loaded(path)
    index = {found: state for found, _, state in repository.index()}
    if name == "rows.json":
        assert "not a regular file" in index["rows"].reason
    else:
        assert name.removesuffix(".trdl") not in index


def test_devices_and_folders_are_no_files(path: Path):
    (path.parent / "zero.trdl").symlink_to("/dev/zero")
    (path.parent / "rows.json").symlink_to("/dev/zero")
    (path.parent / "folder.trdl").mkdir()
    (path.parent / "loop.trdl").symlink_to("loop.trdl")
    assert [name for name, _, _ in loaded(path).index()] == ["rows"]


def test_a_folder_that_cannot_be_read_for_once_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "rows" / "1").mkdir(parents=True)
    models.rows().export_library(tmp_path / "rows" / "1" / "model.trdl")
    repository = Repository(tmp_path)
    repository.refresh()
    scandir = os.scandir

    def fail(folder: Any) -> Any:
        if Path(folder).name == "rows":
            raise OSError(24, "Too many open files")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", fail)
    repository.refresh()
    assert repository.find("rows").version == 1
    with pytest.raises(BadRequestError, match="cannot read rows: Too many open files"):
        repository.load("rows")


# ---- configurations that clients bring ----


def test_a_client_s_configuration_holds_until_another_comes(path: Path):
    repository = loaded(path)
    repository.load("rows", repository.config_of({"config": '{"max_queue": 3}'}))
    repository.refresh()
    assert repository.find("rows").config.max_queue == 3
    repository.load("rows")
    assert repository.find("rows").config.max_queue == 128


@pytest.mark.parametrize(
    "text", ['{"max_queue": 1000}', '{"max_memory": null}', '{"max_memory": 2000}', '{"max_seconds": 61}']
)
def test_a_client_s_configuration_has_no_larger_bounds_than_the_owner_s(path: Path, text: str):
    repository = loaded(path, config=ModelConfig(max_memory=1000))
    with pytest.raises(ValueError, match="the server's owner allows"):
        repository.config_of({"config": text})
    assert repository.config_of({"config": '{"max_memory": 500}'}).max_memory == 500


# ---- shared memory ----


@pytest.fixture
def region() -> Any:
    memory = SharedMemory(create=True, size=4096)
    yield memory
    memory.close()
    memory.unlink()


def test_regions_have_short_names(region: SharedMemory):
    with pytest.raises(BadRequestError, match="at most 256 characters, got 100000"):
        Regions(True).register("x" * 100_000, region.name, 0, 64)


def test_what_the_system_says_of_a_region_is_a_named_error(region: SharedMemory, monkeypatch: pytest.MonkeyPatch):
    regions = Regions(True)
    regions.register("r", region.name, 0, 64)

    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(ServeError, match="'r': No space left on device"):
        regions.write("r", 0, 64, np.zeros(16, np.float32))


def test_the_system_may_transfer_fewer_bytes_at_once(region: SharedMemory, monkeypatch: pytest.MonkeyPatch):
    regions, data = Regions(True), np.arange(64, dtype=np.uint8)
    regions.register("r", region.name, 0, 64)
    write, read = os.pwritev, os.preadv
    monkeypatch.setattr(os, "pwritev", lambda file, parts, at: write(file, [parts[0][:10]], at))
    monkeypatch.setattr(os, "preadv", lambda file, parts, at: read(file, [parts[0][:10]], at))
    regions.write("r", 0, 64, data)
    assert np.array_equal(regions.read("r", 0, 64), data)


# ---- threads ----


def test_a_system_without_threads_is_a_named_error(monkeypatch: pytest.MonkeyPatch):
    import threading

    scheduler, line = Scheduler(), Line("a", 8, None)

    def fail(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    class Work:
        is_done = threading.Event()

        def run(self) -> None:
            self.is_done.set()

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(OverloadedError, match="no thread"):
            scheduler.submit(line, Work())
    assert scheduler.waiting() == 0
    scheduler.submit(line, Work())
    assert Work.is_done.wait(20)
    assert scheduler.close(5)


def test_work_that_raises_gives_its_slot_back():
    class Work:
        def run(self) -> None:
            raise MemoryError

    scheduler, line = Scheduler(lambda: 1), Line("a", 8, None)
    for _ in range(3):
        scheduler.submit(line, Work())
    end = time.monotonic() + 20
    while (scheduler.waiting() or scheduler.running()) and time.monotonic() < end:
        time.sleep(0.01)
    assert (scheduler.waiting(), scheduler.running()) == (0, 0)
