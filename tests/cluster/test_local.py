"""Batches on worker processes of this host: each result once, in order, whatever happens to workers."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import treadle
from treadle import Module, function, map_batches, op, var, while_loop
from treadle.cluster import Handle
from treadle.formats.messages.errors import (
    ArgumentError,
    BatchError,
    FileError,
    ShapeError,
    UnknownFunctionError,
    WorkerError,
)

Living = Callable[[], list[psutil.Process]]


@pytest.fixture
def right(exe: treadle.Executable) -> Callable[[np.ndarray, np.ndarray], bool]:
    machine = treadle.VirtualMachine(exe)

    def check(results: np.ndarray, rows: np.ndarray) -> bool:
        return bool(np.allclose(results, machine["main"](rows).numpy(), atol=1e-6))

    return check


def repeated(rows: np.ndarray, batches: int, size: int) -> Iterator[np.ndarray]:
    """Many batches, each of its own rows."""
    for number in range(batches):
        yield np.roll(rows, number, axis=0)[:size] + np.float32(number % 7)


# ---- what comes ----


def test_results_are_those_of_one_call(exe: treadle.Executable, rows: np.ndarray, right: Callable) -> None:
    results = list(map_batches(exe, rows, batch_size=10, workers=2))
    assert [len(result) for result in results] == [10] * 10 + [3]
    assert right(np.concatenate(results), rows)


def test_a_path_is_as_good_as_an_executable(path: Path, rows: np.ndarray, right: Callable) -> None:
    assert right(map_batches(path, rows, batch_size=50, workers=1).numpy(), rows)


def test_results_as_they_come_have_their_numbers(exe: treadle.Executable, rows: np.ndarray, right: Callable) -> None:
    results = dict(map_batches(exe, rows, batch_size=10, workers=2, ordered=False))
    assert sorted(results) == list(range(11))
    assert right(np.concatenate([results[number] for number in range(11)]), rows)


def test_results_may_be_written_into(exe: treadle.Executable, rows: np.ndarray) -> None:
    first, second = map_batches(exe, rows[:8], batch_size=4, workers=1)
    kept = second.copy()
    first[:] = 0
    assert np.array_equal(second, kept)


def test_a_source_of_no_rows_has_no_results_and_starts_nothing(exe: treadle.Executable, rows: np.ndarray) -> None:
    started = time.monotonic()
    assert list(map_batches(exe, rows[:0], batch_size=10)) == []
    assert list(map_batches(exe, iter([]), batch_size=10)) == []
    assert map_batches(exe, rows[:0], batch_size=10).numpy().shape == (0, 4)
    assert time.monotonic() - started < 5.0


def test_a_source_of_one_row(exe: treadle.Executable, rows: np.ndarray, right: Callable) -> None:
    assert right(map_batches(exe, rows[:1], batch_size=10, workers=2).numpy(), rows[:1])


def test_several_parameters_and_results() -> None:
    x, y = var("x", ("n", 3)), var("y", ("n", 3))
    exe = treadle.compile(Module(main=function([x, y], treadle.tuple_(x + y, treadle.tuple_(x - y)))))
    a, b = np.arange(30, dtype=np.float32).reshape(10, 3), np.ones((10, 3), np.float32)
    for source in ((a, b), {"y": b, "x": a}, ((a[i : i + 1], b[i : i + 1]) for i in range(10))):
        total, (difference,) = map_batches(exe, source, batch_size=4, workers=1).numpy()
        assert np.array_equal(total, a + b)
        assert np.array_equal(difference, a - b)


def test_another_function_is_called_by_name() -> None:
    x = var("x", ("n",))
    module = Module(main=function([x], x + x), square=function([x], x * x))
    exe = treadle.compile(module, entry=["main", "square"])
    squares = map_batches(exe, np.float32([1, 2, 3]), function="square", batch_size=2, workers=1)
    assert squares.numpy().tolist() == [1, 4, 9]


def test_progress_is_shown(exe: treadle.Executable, rows: np.ndarray, capsys: pytest.CaptureFixture) -> None:
    list(map_batches(exe, rows, batch_size=10, workers=1, progress=True))
    assert "11/11" in capsys.readouterr().err


# ---- rows that a program fixes ----


def test_a_fixed_number_of_rows_is_filled_up_and_cut(
    fixed: treadle.Executable, rows: np.ndarray, right: Callable
) -> None:
    results = list(map_batches(fixed, rows, batch_size=10, workers=2))
    assert [len(result) for result in results] == [10] * 10 + [3]
    assert right(np.concatenate(results), rows)


def test_rows_that_a_result_lacks_cannot_be_cut_off() -> None:
    x = var("x", (4, 3))
    exe = treadle.compile(Module(main=function([x], op.sum(x, axes=(0,)))))
    data = np.ones((6, 3), np.float32)
    whole = list(map_batches(exe, data[:4], batch_size=4, workers=1))
    assert whole[0].tolist() == [4, 4, 4]
    with pytest.raises(BatchError, match=r"batch 1 .* takes 4 rows at once") as caught:
        list(map_batches(exe, data, batch_size=4, workers=1))
    assert isinstance(caught.value.__cause__, ShapeError)


# ---- what cannot be ----


def test_wrong_arguments_are_named_before_anything_starts(exe: treadle.Executable, rows: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match="batch_size=0"):
        map_batches(exe, rows, batch_size=0)
    with pytest.raises(ArgumentError, match="engine='spark'; expected one of 'local'"):
        map_batches(exe, rows, batch_size=1, engine="spark")
    with pytest.raises(ArgumentError, match="retries=-1"):
        map_batches(exe, rows, batch_size=1, retries=-1)
    with pytest.raises(UnknownFunctionError, match="'other'"):
        map_batches(exe, rows, batch_size=1, function="other")
    with pytest.raises(ArgumentError, match="no option max_magic"):
        map_batches(exe, rows, batch_size=1, max_magic=1)
    with pytest.raises(ArgumentError, match="has 2 arrays, but function 'main' takes 1: x"):
        map_batches(exe, (rows, rows), batch_size=1)
    with pytest.raises(ArgumentError, match="a source of type int"):
        map_batches(exe, 7, batch_size=1)
    with pytest.raises(FileError, match=r"nowhere\.trdl"):
        map_batches("nowhere.trdl", rows, batch_size=1)


def test_what_is_no_tensor_cannot_travel() -> None:
    x = var("x", ())
    exe = treadle.compile(Module(main=function([x], x)))
    with pytest.raises(ArgumentError, match=r"parameter 'x' is a float32\[\]; batches are rows"):
        map_batches(exe, np.zeros(3, np.float32), batch_size=1)


def test_elements_that_no_tensor_has_are_named(exe: treadle.Executable) -> None:
    with pytest.raises(ArgumentError, match="parameter 'x' has elements of object, which no tensor has"):
        list(map_batches(exe, np.array([lambda: 1, print]), batch_size=1))


def test_a_batch_that_the_program_refuses_is_named_with_its_cause(exe: treadle.Executable, rows: np.ndarray) -> None:
    pieces = [rows[:4], rows[:4, :3], rows[:4]]
    results = map_batches(exe, ({"x": piece} for piece in pieces), batch_size=4, workers=1)
    with pytest.raises(BatchError, match=r"batch 1 has no result, tried once: .*x") as caught:
        list(results)
    assert caught.value.number == 1
    assert isinstance(caught.value.__cause__, ShapeError)


def test_a_source_that_raises_does_so_behind_the_results_before(exe: treadle.Executable, rows: np.ndarray) -> None:
    def source() -> Iterator[np.ndarray]:
        yield rows[:30]
        raise ZeroDivisionError("the source's own")

    results, got = map_batches(exe, source(), batch_size=10, workers=2), []
    with pytest.raises(ZeroDivisionError, match="the source's own"):
        got.extend(results)
    assert [len(each) for each in got] == [10, 10, 10]


# ---- workers that die ----


def test_batches_of_dead_workers_are_computed_again(exe: treadle.Executable, rows: np.ndarray, living: Living) -> None:
    machine, deaths, count = treadle.VirtualMachine(exe), 0, 0
    draw = np.random.default_rng(0)
    results = map_batches(exe, repeated(rows, 2000, 8), batch_size=8, workers=2, retries=5)
    for number, (result, batch) in enumerate(zip(results, repeated(rows, 2000, 8), strict=True)):
        assert np.allclose(result, machine["main"](batch).numpy(), atol=1e-6)
        count += 1
        if number % 400 == 100:
            victims = living()
            victims[draw.integers(len(victims))].kill()
            deaths += 1
    assert (count, deaths) == (2000, 5)


@pytest.mark.slow
def test_one_of_two_workers_killed_amid_10000_batches(
    exe: treadle.Executable, rows: np.ndarray, living: Living
) -> None:
    machine, count = treadle.VirtualMachine(exe), 0
    results = map_batches(exe, repeated(rows, 10_000, 8), batch_size=8, workers=2)
    for number, (result, batch) in enumerate(zip(results, repeated(rows, 10_000, 8), strict=True)):
        assert np.array_equal(result, machine["main"](batch).numpy())
        count += 1
        if number == 5000:
            living()[0].kill()
    assert count == 10_000


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a minute or two, where nothing else runs
def test_workers_killed_at_random_amid_10000_batches(exe: treadle.Executable, rows: np.ndarray, living: Living) -> None:
    machine, draw, is_over = treadle.VirtualMachine(exe), np.random.default_rng(), threading.Event()
    count, deaths = 0, []

    def kill() -> None:  # whatever they do at the time: start, read, compute, write
        seen = 0
        while not is_over.wait(draw.uniform(0, 0.5)):
            victims = living()
            if victims and count > seen + 100 and len(deaths) < 20:
                seen = count
                deaths.append(draw.choice(victims).kill())

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        results = map_batches(exe, repeated(rows, 10_000, 8), batch_size=8, workers=2, retries=50)
        for result, batch in zip(results, repeated(rows, 10_000, 8), strict=True):
            assert np.array_equal(result, machine["main"](batch).numpy())
            count += 1
    finally:  # else it would kill the next test's
        is_over.set()
        killer.join()
    assert count == 10_000
    assert len(deaths) > 5


def test_a_batch_that_kills_each_worker_is_named(
    exe: treadle.Executable, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.cluster import local

    deadly = local._CODE.replace("main()", "poisoned()").replace(
        "from", "import os, treadle.cluster.runner as r\nrun = r.Runner.run\n"
        "def f(self, arrays):\n if arrays[0][0, 0] == 77: os.kill(os.getpid(), 9)\n return run(self, arrays)\n"
        "r.Runner.run = f\nfrom", 1
    ).replace("import main; poisoned()", "import main; main()")  # fmt: skip
    monkeypatch.setattr(local, "_CODE", deadly)
    poisoned = rows.copy()
    poisoned[50] = 77
    results, got = map_batches(exe, poisoned, batch_size=10, workers=2, retries=2), []
    with pytest.raises(BatchError, match=r"batch 5 has no result, tried 3 times: .* ended by SIGKILL") as caught:
        got.extend(results)
    assert (caught.value.number, caught.value.attempts, len(got)) == (5, 3, 5)


def test_workers_that_cannot_start_are_an_error(
    exe: treadle.Executable, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.cluster import local

    monkeypatch.setattr(local, "_CODE", "raise SystemExit(3)")
    with pytest.raises(WorkerError, match="workers one after the other did not start: its process ended with status 3"):
        list(map_batches(exe, rows, batch_size=10, workers=2))


def test_a_worker_that_hangs_is_ended(exe: treadle.Executable, rows: np.ndarray, living: Living) -> None:
    machine = treadle.VirtualMachine(exe)
    results = map_batches(exe, repeated(rows, 60, 8), batch_size=8, workers=2, max_seconds=0.5, grace=0.5)
    for number, (result, batch) in enumerate(zip(results, repeated(rows, 60, 8), strict=True)):
        assert np.allclose(result, machine["main"](batch).numpy(), atol=1e-6)
        if number == 5:
            hung = living()[0]
            hung.send_signal(signal.SIGSTOP)
    assert not hung.is_running() or hung.status() == psutil.STATUS_ZOMBIE


def test_a_batch_that_takes_too_long_is_named(rows: np.ndarray) -> None:
    x = var("x", ("n",))
    endless = while_loop(lambda y: op.greater(op.sum(y), -1.0), lambda y: y + 0.0, [x])
    exe = treadle.compile(Module(main=function([x], endless)))
    with pytest.raises(BatchError, match=r"batch 0 has no result, tried 2 times: .*seconds"):
        list(map_batches(exe, np.ones(4, np.float32), batch_size=2, workers=1, retries=1, max_seconds=0.2))


def test_a_file_that_is_replaced_is_refused(exe: treadle.Executable, rows: np.ndarray, tmp_path: Path) -> None:
    file = tmp_path / "model.trdl"
    exe.export_library(file)
    results = map_batches(file, rows, batch_size=10, workers=1)
    x = var("x", ("n", 16))
    treadle.compile(Module(main=function([x], x + x))).export_library(file)
    with pytest.raises(FileError, match="another file than the one that this work was begun with"):
        list(results)


# ---- ends ----


def test_closing_ends_the_workers(exe: treadle.Executable, rows: np.ndarray, living: Living) -> None:
    with map_batches(exe, repeated(rows, 1000, 8), batch_size=8, workers=2) as results:
        next(results)
        assert living()
    assert not living()
    with pytest.raises(StopIteration):
        next(results)


def test_results_that_nobody_keeps_end_the_workers(exe: treadle.Executable, rows: np.ndarray, living: Living) -> None:
    results = map_batches(exe, repeated(rows, 1000, 8), batch_size=8, workers=2)
    next(results)
    del results
    assert not living()


def test_the_source_is_read_no_further_than_results_are_taken(exe: treadle.Executable, rows: np.ndarray) -> None:
    read = []

    def source() -> Iterator[np.ndarray]:
        for number in range(1000):
            read.append(number)
            yield rows[:8]

    with map_batches(exe, source(), batch_size=8, workers=2) as results:
        for _ in range(10):
            next(results)
        time.sleep(0.2)
        assert len(read) <= 10 + 20


CHILD = """
import sys, numpy as np, treadle
rows = np.ones((8, 16), np.float32)
for number, _ in enumerate(treadle.map_batches(sys.argv[1], (rows for _ in range(10**7)), batch_size=8, workers=2)):
    if number == 20:
        print("going", flush=True)
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_process_however_that_ends(path: Path, ending: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "going\n"
        found = psutil.Process(process.pid).children()
        assert len(found) == 2
        process.send_signal(ending)
        told = process.communicate(timeout=20)[1]
    finally:
        process.kill()
    assert ("KeyboardInterrupt" in told) == (ending == signal.SIGINT)
    assert not psutil.wait_procs(found, timeout=10)[1]


def test_a_source_in_threads(exe: treadle.Executable, rows: np.ndarray, right: Callable) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(lambda: map_batches(exe, rows, batch_size=10, workers=1).numpy()) for _ in range(3)]
        assert all(right(run.result(), rows) for run in runs)


# ---- handles ----


def test_a_handle_pickles_as_path_digest_and_options(exe: treadle.Executable) -> None:
    handle = Handle.of(exe, max_memory=1 << 30)
    data = pickle.dumps(handle)
    assert len(data) < 500
    assert pickle.loads(data) == handle
    assert handle.digest in handle.path
    assert Handle.of(exe) == Handle.of(handle.path)


def test_one_machine_serves_answers_of_any_options(exe: treadle.Executable) -> None:
    assert Handle.of(exe, seed=1).machine() is Handle.of(exe, seed=2).machine()
    assert Handle.of(exe, seed=1).machine() is not Handle.of(exe, max_memory=1 << 30).machine()


def test_a_handle_without_a_cache_lies_in_a_folder_of_the_process(
    exe: treadle.Executable, rows: np.ndarray, right: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_CACHE", "off")
    assert os.path.exists(Handle.of(exe).path)


def test_late_bound_constants_travel_with_an_executable(
    exe: treadle.Executable, rows: np.ndarray, right: Callable, tmp_path: Path
) -> None:
    moved = exe.move_late_bound_consts(tmp_path / "weights", byte_limit=1)
    assert right(map_batches(moved, rows, batch_size=60, workers=1).numpy(), rows)


def test_workers_share_the_memory_of_the_weights(tmp_path: Path, living: Living) -> None:
    x = var("x", ("n", 16))
    big = np.zeros((1 << 20, 16), np.float32)  # 64 MiB
    file = tmp_path / "big.trdl"
    treadle.compile(Module(main=function([x], op.max(op.matmul(x, big.T), axes=(1,), keepdims=False)))).export_library(
        file
    )
    with map_batches(file, np.ones((64, 16), np.float32), batch_size=1, workers=2) as results:
        for _ in range(20):
            next(results)
        private = [worker.memory_full_info().uss for worker in living()]
    assert len(private) == 2
    assert max(private) < 250 << 20


def test_a_handle_of_what_was_loaded_names_its_file(exe: treadle.Executable, tmp_path: Path) -> None:
    path = tmp_path / "model.trdl"
    exe.export_library(path)
    loaded = treadle.load(path)
    assert Handle.of(loaded).path == str(path)
    assert Handle.of(loaded) == Handle.of(path)
    assert Handle.of(loaded.with_native({})).path != str(path)
    path.unlink()
    assert Handle.of(loaded).load().as_bytes() == exe.as_bytes()
