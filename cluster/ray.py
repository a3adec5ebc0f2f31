"""Ray's workers: the engine of `map_batches(…, engine="ray")`, and `TreadlePredictor` for Ray Data.

    dataset.map_batches(TreadlePredictor, fn_constructor_kwargs={"exe": "model.trdl"}, batch_size=64, concurrency=2, num_cpus=1)

An actor takes as many threads as Ray gives it CPUs. `ray_serve.py` has the deployment for Ray Serve.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..formats.messages.errors import ArgumentError, MissingPackageError, WorkerError
from .handle import Exe, Handle
from .runner import Runner
from .schedule import Engine, Event, Worker
from .sources import Arrays
from .wire import decode_error, encode_error


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError('this needs Ray: pip install "ray[data,serve]"') from error
    return ray


def given_threads() -> int | None:
    """The CPUs that Ray has given this task or actor, at least one; None outside of one."""
    ray = _ray()
    if not ray.is_initialized():
        return None
    try:
        found = ray.get_runtime_context().get_assigned_resources()
    except AssertionError:  # this is the process that asks for work, not one that Ray has started
        return None
    return max(1, int(found.get("CPU", 1)))


class TreadlePredictor:
    """A class for Ray Data's `Dataset.map_batches`: columns in, columns out."""

    def __init__(
        self,
        exe: Exe,
        *,
        function: str = "main",
        columns: Mapping[str, str] | None = None,
        outputs: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        threads: int | None = None,
        **options: Any,
    ) -> None:
        """`exe` is a path that all hosts have, or a `Handle`. `columns` says which column each parameter is (None: the one of
        its name; a single column whatever its name), `outputs` how the results' columns are called (None: "output", or
        "output_0" and so on), `keep` which columns stay. `threads` None: the actor's CPUs. `options` are those of a handle."""
        self._runner = Runner(exe, function, threads or given_threads(), **options)
        self._columns, self._outputs, self._keep = dict(columns or {}), outputs, tuple(keep)

    def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The results' columns. Raises ArgumentError for columns that are not there."""
        names = self._runner.signature.names
        chosen: Mapping[str, Any] = batch
        if self._columns or len(names) > 1 or len(batch) > 1:
            chosen = {
                name: batch[self._columns.get(name, name)] for name in names if self._columns.get(name, name) in batch
            }
        result = self._runner({name: _dense(column) for name, column in chosen.items()})
        results = result if isinstance(result, tuple) else (result,)
        outputs = self._outputs or (["output"] if len(results) == 1 else [f"output_{i}" for i in range(len(results))])
        if len(outputs) != len(results):
            raise ArgumentError(f"outputs={list(outputs)!r}: the function has {len(results)} results")
        return {**{name: batch[name] for name in self._keep}, **dict(zip(outputs, results, strict=True))}


def _dense(column: Any) -> np.ndarray:
    """A column as one array; Ray keeps those of rows that are lists as arrays of arrays."""
    array = np.asarray(column)
    return np.stack([np.asarray(each) for each in array]) if array.dtype.hasobject and len(array) else array


# ---- the engine ----


class _Actor:
    """The part that runs in Ray's process. Results and errors come back as plain data."""

    def __init__(self, handle: Handle, function: str, threads: int) -> None:
        self._told: tuple[Any, ...] = (handle, function, threads)
        self._runner: Runner | None = None

    def link(self) -> Any:
        try:
            self._runner = Runner(*self._told)
        except Exception as error:
            return encode_error(error)
        return None

    def run(self, *arrays: np.ndarray) -> tuple[Any, Any]:
        assert self._runner is not None
        try:
            return self._runner.run(arrays), None
        except Exception as error:
            return None, encode_error(error)


class _Member(Worker):
    """An actor, and what it has been asked for: the reference of each answer, with the batch's number (None: to link)."""

    def __init__(self, actor: Any) -> None:
        super().__init__()
        self.actor = actor
        self.asked: dict[Any, int | None] = {actor.link.remote(): None}


class RayEngine(Engine):
    """Actors of `threads` CPUs each; None for as many as the cluster has CPUs for."""

    def __init__(
        self, handle: Handle, function: str, workers: int | None, threads: int, options: Mapping[str, Any]
    ) -> None:
        self._ray = _ray()
        if not self._ray.is_initialized():
            self._ray.init(log_to_driver=False, include_dashboard=False)
        if workers is None:
            workers = max(1, int(self._ray.cluster_resources().get("CPU", 1)) // threads)
        self._count, self._told = workers, (handle, function, threads)
        self._kind = self._ray.remote(_Actor).options(**{"num_cpus": threads, "max_restarts": 0, **options})
        self.workers: list[Worker] = []

    def start(self) -> None:
        """Starts one actor; the others start when that is ready, and find its kernels in the cache."""
        self._add()

    def _add(self) -> None:
        try:
            self.workers.append(_Member(self._kind.remote(*self._told)))
        except self._ray.exceptions.RayError as error:
            raise WorkerError(f"Ray starts no actor: {error}") from error

    def send(self, worker: Worker, number: int, arrays: Arrays) -> None:
        assert isinstance(worker, _Member)
        with contextlib.suppress(self._ray.exceptions.RayActorError):  # what it was asked before will tell
            worker.asked[worker.actor.run.remote(*arrays)] = number

    def wait(self, timeout: float | None) -> list[Event]:
        asked = {reference: worker for worker in self.workers for reference in worker.asked}  # type: ignore[attr-defined]
        found, _ = self._ray.wait(list(asked), num_returns=1, timeout=timeout)
        events = []
        for reference in found:
            worker = asked[reference]
            number = worker.asked.pop(reference)  # type: ignore[attr-defined]
            events.append(self._event(worker, number, reference))
        return events

    def _event(self, worker: Worker, number: int | None, reference: Any) -> Event:
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:  # it died, its host did, or Ray lost the result
            return Event(worker, lost=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
        if number is None:
            if answer is not None:
                return Event(worker, error=decode_error(answer))
            while len(self.workers) < self._count:
                self._add()
            return Event(worker)
        result, told = answer
        if told is not None:
            return Event(worker, number, error=decode_error(told))
        return Event(worker, number, _own(result))

    def end(self, worker: Worker) -> None:
        self._remove(worker)
        self._add()

    def _remove(self, worker: Worker) -> None:
        assert isinstance(worker, _Member)
        self.workers.remove(worker)
        with contextlib.suppress(Exception):  # Ray itself was shut down, which ends it too
            self._ray.kill(worker.actor, no_restart=True)

    def close(self) -> None:
        for worker in list(self.workers):
            self._remove(worker)


def _own(result: Any) -> Any:
    """A copy in this process's memory: Ray's is shared, read-only, and bounded."""
    return tuple(map(_own, result)) if isinstance(result, tuple) else np.array(result)
