"""Ray's workers, data sets and deployments. Ray is not among what tests need: `make cluster-test` has it."""

from __future__ import annotations

import contextlib
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import treadle
from treadle import map_batches
from treadle.formats.messages.errors import ArgumentError, BatchError

ray = pytest.importorskip("ray")

from treadle.cluster import TreadlePredictor  # noqa: E402  it needs Ray


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def actors(count: int) -> list[psutil.Process]:
    """So many actors of this process's cluster, as soon as they are there."""
    end = time.monotonic() + 120
    while True:
        found = []
        for each in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "ray::_Actor" in " ".join(each.cmdline()):
                    found.append(each)
        if len(found) >= count:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.05)


def test_results_are_those_of_one_call(exe: treadle.Executable, fixed: treadle.Executable, rows: np.ndarray) -> None:
    right = map_batches(exe, rows, batch_size=10, workers=1).numpy()
    for each in (exe, fixed):
        results = map_batches(each, rows, batch_size=10, engine="ray", workers=2).numpy()
        assert np.allclose(results, right, atol=1e-6)
        results[:] = 0  # the caller's own


def test_a_batch_that_the_program_refuses_is_named(exe: treadle.Executable, rows: np.ndarray) -> None:
    pieces = iter([rows[:4], rows[:4, :3]])
    with pytest.raises(BatchError, match="batch 1 has no result, tried once"):
        list(map_batches(exe, pieces, batch_size=4, engine="ray", workers=1))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a minute or two, where nothing else runs
def test_one_of_two_workers_killed_amid_10000_batches(exe: treadle.Executable, rows: np.ndarray) -> None:
    machine, count = treadle.VirtualMachine(exe), 0

    def source() -> Iterator[np.ndarray]:
        for number in range(10_000):
            yield np.roll(rows, number, axis=0)[:8] + np.float32(number % 7)

    for number, (result, batch) in enumerate(
        zip(map_batches(exe, source(), batch_size=8, engine="ray", workers=2), source(), strict=True)
    ):
        assert np.array_equal(result, machine["main"](batch).numpy())
        count += 1
        if number == 5000:
            actors(2)[0].kill()
    assert count == 10_000


def test_a_worker_that_hangs_is_ended(exe: treadle.Executable, rows: np.ndarray) -> None:
    results = map_batches(
        exe, (rows[:8] for _ in range(200)), batch_size=8, engine="ray", workers=2, max_seconds=1, grace=1
    )
    for number, _ in enumerate(results):
        if number == 50:
            actors(2)[0].send_signal(signal.SIGSTOP)
    assert number == 199


def test_a_worker_has_the_threads_that_ray_gives_it(path: Path) -> None:
    @ray.remote(num_cpus=2)
    def threads() -> int:
        TreadlePredictor(path)
        return treadle.get_num_threads()

    assert ray.get(threads.remote()) == 2


def test_a_data_set_is_mapped_and_is_a_source(path: Path, rows: np.ndarray) -> None:
    right = map_batches(path, rows, batch_size=10, workers=1).numpy()
    dataset = ray.data.from_items([{"number": number, "x": row} for number, row in enumerate(rows)])
    mapped = dataset.map_batches(
        TreadlePredictor,
        fn_constructor_kwargs={"exe": str(path), "outputs": ["probabilities"], "keep": ["number"]},
        batch_size=10,
        concurrency=1,
        num_cpus=1,
    )
    found = {row["number"]: row["probabilities"] for row in mapped.iter_rows()}
    assert np.allclose(np.stack([found[number] for number in range(len(rows))]), right, atol=1e-6)
    results = map_batches(path, ray.data.from_numpy(rows), batch_size=10, workers=1).numpy()
    assert np.allclose(np.sort(results, axis=0), np.sort(right, axis=0), atol=1e-6)


def test_columns_that_are_not_there_are_named(path: Path, rows: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match="the batch has no 'x'"):
        TreadlePredictor(path)({"a": rows, "b": rows})
    assert list(TreadlePredictor(path, columns={"x": "a"})({"a": rows, "b": rows})) == ["output"]


def test_a_deployment_joins_requests_into_batches(path: Path, rows: np.ndarray) -> None:
    from ray import serve
    from treadle.cluster import ray_serve

    right = map_batches(path, rows, batch_size=10, workers=1).numpy()
    application = ray_serve.deployment(path, max_batch_size=8, ray_actor_options={"num_cpus": 1})
    handle = serve.run(application)
    try:
        asked = [handle.remote({"x": row}) for row in rows[:40]]
        wrong = handle.remote({"x": rows[0, :3]})
        assert np.allclose([each.result()["output"] for each in asked], right[:40], atol=1e-6)
        with pytest.raises(Exception, match="x"):
            wrong.result()
        body = json.dumps({"x": rows[0].tolist()}).encode()
        with urllib.request.urlopen("http://127.0.0.1:8000/", body, timeout=60) as answer:
            assert np.allclose(json.load(answer)["output"], right[0], atol=1e-6)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen("http://127.0.0.1:8000/", b'{"z": [1]}', timeout=60)
        assert caught.value.code == 400
        caught.value.close()
    finally:
        serve.shutdown()
