"""Dask's workers and arrays. Dask is not among what tests need: `make cluster-test` has it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import Module, function, map_batches, op, var, while_loop
from treadle.formats.messages.errors import ArgumentError, BatchError

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

import dask.array as da  # noqa: E402
from treadle.cluster import dask as ours  # noqa: E402


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_results_are_those_of_one_call(
    client: Any, exe: treadle.Executable, fixed: treadle.Executable, rows: np.ndarray
) -> None:
    right = map_batches(exe, rows, batch_size=10, workers=1).numpy()
    for each in (exe, fixed):
        results = map_batches(each, rows, batch_size=10, engine="dask", engine_options={"client": client}).numpy()
        assert np.allclose(results, right, atol=1e-6)


def test_a_batch_that_the_program_refuses_is_named(client: Any, exe: treadle.Executable, rows: np.ndarray) -> None:
    with pytest.raises(BatchError, match="batch 1 has no result, tried once"):
        list(map_batches(exe, iter([rows[:4], rows[:4, :3]]), batch_size=4, engine="dask"))


def test_the_cluster_says_how_many_workers(client: Any, exe: treadle.Executable, rows: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match="workers=2; with Dask the client's cluster"):
        map_batches(exe, rows, batch_size=4, engine="dask", workers=2)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a minute or two, where nothing else runs
def test_one_of_two_workers_killed_amid_10000_batches(client: Any, exe: treadle.Executable, rows: np.ndarray) -> None:
    machine, count = treadle.VirtualMachine(exe), 0

    def source() -> Iterator[np.ndarray]:
        for number in range(10_000):
            yield np.roll(rows, number, axis=0)[:8] + np.float32(number % 7)

    for number, (result, batch) in enumerate(
        zip(map_batches(exe, source(), batch_size=8, engine="dask"), source(), strict=True)
    ):
        assert np.array_equal(result, machine["main"](batch).numpy())
        count += 1
        if number == 5000:
            os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)
    assert count == 10_000


def test_a_call_without_end_is_named(client: Any) -> None:
    x = var("x", ("n",))
    endless = while_loop(lambda y: op.greater(op.sum(y), -1.0), lambda y: y + 0.0, [x])
    exe = treadle.compile(Module(main=function([x], endless)))
    with pytest.raises(BatchError, match=r"batch [01] .*raise max_seconds"):
        list(map_batches(exe, np.ones(4, np.float32), batch_size=2, engine="dask", retries=1, max_seconds=0.3))


def test_blocks_of_an_array_are_mapped_lazily(path: Path, rows: np.ndarray) -> None:
    right = map_batches(path, rows, batch_size=10, workers=1).numpy()
    array = da.from_array(rows, chunks=(10, 7))
    mapped = ours.map_blocks(path, array)
    assert (mapped.shape, mapped.dtype, mapped.chunks[0]) == (right.shape, right.dtype, array.chunks[0])
    assert np.allclose(mapped.compute(scheduler="threads"), right, atol=1e-6)
    x, y = var("x", ("n", 2, 3)), var("y", ("n",))
    exe = treadle.compile(Module(main=function([x, y], op.sum(x, axes=(1, 2), keepdims=False) + y)))
    a, b = np.arange(24, dtype=np.float32).reshape(4, 2, 3), np.ones(4, np.float32)
    both = ours.map_blocks(exe, da.from_array(a, chunks=(3, 1, 3)), da.from_array(b, chunks=2))
    assert np.array_equal(both.compute(scheduler="threads"), a.sum((1, 2)) + 1)


def test_a_dask_array_is_a_source_whose_chunks_are_computed_once(path: Path, rows: np.ndarray) -> None:
    computed = []

    def chunk(block: np.ndarray) -> np.ndarray:
        computed.append(len(block))
        return block

    array = da.from_array(rows, chunks=(25, 16)).map_blocks(chunk, meta=np.empty((0, 0), np.float32))
    with dask.config.set(scheduler="synchronous"):
        results = map_batches(path, array, batch_size=10, workers=1).numpy()
    assert np.allclose(results, map_batches(path, rows, batch_size=10, workers=1).numpy(), atol=1e-6)
    assert sum(computed) == len(rows)


def test_a_plugin_links_the_program_on_each_worker(client: Any, path: Path) -> None:
    client.register_plugin(ours.TreadlePlugin(path))

    def linked() -> tuple[int, int]:
        from treadle.cluster import dask

        return len(dask._runners), treadle.get_num_threads()

    assert all(count >= 1 and threads == 1 for count, threads in client.run(linked).values())
