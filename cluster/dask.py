"""Dask's workers: the engine of `map_batches(…, engine="dask")`, `map_blocks` for Dask arrays, and a `WorkerPlugin`.

    probabilities = treadle.cluster.dask.map_blocks("model.trdl", images)      # lazy, as all of Dask
    client.register_plugin(treadle.cluster.dask.TreadlePlugin("model.trdl"))   # links the program before the first batch

A worker takes as many threads as Dask gives it (`nthreads`).
"""

from __future__ import annotations

import os
import queue
import threading
from typing import Any

import numpy as np

from ..formats.messages.errors import ArgumentError, MissingPackageError
from ..formats.types import TensorType
from .handle import MOST_OPENED, Exe, Handle
from .runner import Runner, Signature
from .schedule import Engine, Event, Worker
from .sources import Arrays
from .wire import decode_error, encode_error

try:
    from distributed import WorkerPlugin as _WorkerPlugin
except ImportError:  # Dask arrays alone need no workers of their own
    _WorkerPlugin = object


_DEPTH = 8  # batches a thread that Dask has: from one task to the next, its messages take some milliseconds


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingPackageError('this needs Dask: pip install "dask[array,distributed]"') from error
    return distributed


_runners: dict[Any, Runner] = {}
_lock = threading.Lock()


def _runner(handle: Handle, function: str, threads: int | None) -> Runner:
    """This process's runner; its threads are those of the Dask worker it is in, unless a number was given."""
    with _lock:
        found = _runners.get((handle, function))
        if found is None:
            if len(_runners) >= MOST_OPENED:
                del _runners[next(iter(_runners))]
            found = _runners[handle, function] = Runner(handle, function, threads or given_threads())
        return found


def given_threads() -> int | None:
    """The threads of the Dask worker that this code runs in; None outside of one."""
    try:
        return int(_distributed().get_worker().state.nthreads)
    except (ValueError, MissingPackageError):
        return None


# ---- for programs of Dask's ----


def map_blocks(exe: Exe, *arrays: Any, function: str = "main", threads: int | None = None, **options: Any) -> Any:
    """The function's result for Dask arrays, block by block along their first dimension, as a Dask array: lazy, and computed
    by whatever scheduler Dask has. `options` are those of a handle.

    Raises ArgumentError for a function of several results, or of one whose rows are not those of its arguments.
    """
    try:
        from dask import array as dask_array
    except ImportError as error:
        raise MissingPackageError('this needs Dask: pip install "dask[array,distributed]"') from error
    handle = Handle.of(exe, **options)
    signature = Signature(handle.load(), function)
    signature.arguments(arrays, "map_blocks")
    result = signature.type.result
    if (
        not isinstance(result, TensorType)
        or not result.rank
        or not all(isinstance(size, int) for size in result.shape[1:])
    ):
        raise ArgumentError(
            f"map_blocks: a result of one tensor is expected, whose rows are those of its arguments, and whose other "
            f"dimensions are known; function {function!r} is {signature.type}"
        )
    whole = [array.rechunk(dict.fromkeys(range(1, array.ndim), -1)) for array in arrays]
    rows = whole[0].chunks[0]
    blocks = [array.rechunk({0: rows}) if array.chunks[0] != rows else array for array in whole]
    indices = [
        x for array in blocks for x in (array, ("rows", *(f"{id(array)}.{axis}" for axis in range(1, array.ndim))))
    ]
    inner = {f"result.{axis}": size for axis, size in enumerate(result.shape[1:], 1)}
    return dask_array.blockwise(
        _call_block,
        ("rows", *inner),
        *indices,
        new_axes=inner,
        concatenate=True,
        dtype=result.dtype.numpy,
        meta=np.empty((0,) * result.rank, result.dtype.numpy),
        handle=handle,
        function=function,
        threads=threads,
    )


def _call_block(*arrays: np.ndarray, handle: Handle, function: str, threads: int | None) -> np.ndarray:
    return _runner(handle, function, threads).run([np.asarray(array) for array in arrays])


class TreadlePlugin(_WorkerPlugin):
    """Links an executable's program on each worker when that joins, so that no batch waits for it."""

    name = "treadle"

    def __init__(self, exe: Exe, *, function: str = "main", threads: int | None = None, **options: Any) -> None:
        """`exe` is a path that all hosts have, or a `Handle`. `threads` None: the worker's."""
        _distributed()
        self._told = Handle.of(exe, **options), function
        self._threads = threads
        self.name = f"treadle-{self._told[0].digest[:12]}-{function}"

    def setup(self, worker: Any) -> None:
        """Called by Dask on each worker."""
        _runner(*self._told, self._threads or worker.state.nthreads)


# ---- the engine ----


def _run(handle: Handle, function: str, threads: int | None, patience: float | None, arrays: Arrays) -> tuple[Any, Any]:
    """A task. Errors come back as plain data; a call that cannot be stopped takes its process along, which Dask's nanny starts
    again."""
    timer = None
    try:
        runner = _runner(handle, function, threads)
        if patience is not None:
            timer = threading.Timer(patience, os._exit, [1])
            timer.daemon = True
            timer.start()
        return runner.run(arrays), None
    except Exception as error:
        return None, encode_error(error)
    finally:
        if timer is not None:
            timer.cancel()


class DaskEngine(Engine):
    """All workers of a client's cluster, as one: Dask itself finds the one for each batch, and another if that dies."""

    def __init__(
        self, handle: Handle, function: str, threads: int | None, patience: float | None, client: Any = None
    ) -> None:
        distributed = _distributed()
        if client is None:
            try:
                client = distributed.get_client()
            except ValueError:
                raise ArgumentError(
                    'map_batches(engine="dask") needs a cluster: make a distributed.Client before, or pass '
                    'engine_options={"client": client}'
                ) from None
        self._client, self._told = client, (handle, function, threads, patience)
        self._done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._futures: dict[int, Any] = {}
        self.workers: list[Worker] = []

    def start(self) -> None:
        """Asks Dask how many batches its workers compute at once."""
        self._client.wait_for_workers(1)
        worker = Worker(_DEPTH * max(1, sum(self._client.nthreads().values())))
        worker.is_ready = True
        self.workers.append(worker)

    def send(self, worker: Worker, number: int, arrays: Arrays) -> None:
        future = self._client.submit(_run, *self._told, arrays, pure=False, key=f"treadle-{os.urandom(8).hex()}")
        self._futures[number] = future
        future.add_done_callback(lambda done: self._done.put((number, done)))

    def wait(self, timeout: float | None) -> list[Event]:
        try:
            done = [self._done.get(timeout=timeout)]
        except queue.Empty:
            return []
        while not self._done.empty():
            done.append(self._done.get())
        return [self._event(number, future) for number, future in done if self._futures.get(number) is future]

    def _event(self, number: int, future: Any) -> Event:
        (worker,) = self.workers
        del self._futures[number]
        try:
            result, told = future.result()
        except Exception as error:  # KilledWorker; a cluster that is gone
            told = {"kind": "WorkerError", "text": f"{type(error).__name__}: {error}"}
        if told is not None:
            return Event(worker, number, error=decode_error(told))
        return Event(worker, number, result)

    def end(self, worker: Worker) -> None:
        """Dask's workers are Dask's."""

    def close(self) -> None:
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()
