"""A deployment for Ray Serve that joins single requests into batches.

    application = treadle.cluster.ray_serve.deployment("model.trdl", max_batch_size=32, batch_wait_timeout_s=0.005)
    handle = serve.run(application)
    handle.remote({"x": row}).result()          # from Python
    curl -d '{"x": [0.5, …]}' http://…:8000/    # from anywhere: JSON in, {"output": …} out

A request is one row: the arguments by name without their first dimension.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..formats.messages.errors import ArgumentError, MissingPackageError, TreadleError
from .handle import Exe, Handle
from .ray import given_threads
from .runner import Runner
from .schedule import DEPTH


def deployment(
    exe: Exe,
    *,
    function: str = "main",
    max_batch_size: int = 8,
    batch_wait_timeout_s: float = 0.005,
    options: Mapping[str, Any] | None = None,
    **deployment_options: Any,
) -> Any:
    """An application for `serve.run`. A batch is of `max_batch_size` requests at most, and waits for others no longer than
    `batch_wait_timeout_s` seconds. `options` are those of a handle; the others are those of `serve.deployment`, such as
    num_replicas and ray_actor_options, whose num_cpus is also the number of threads."""
    try:
        from ray import serve
        from starlette.requests import Request
    except ImportError as error:
        raise MissingPackageError('this needs Ray Serve: pip install "ray[serve]"') from error

    class Treadle:
        def __init__(self, handle: Handle) -> None:
            self._runner = Runner(handle, function, given_threads())

        @serve.batch(max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s)
        async def _batched(self, requests: list[Mapping[str, Any]]) -> list[Any]:
            return await asyncio.to_thread(answers, self._runner, requests)

        async def __call__(self, request: Any) -> Any:
            if not isinstance(request, Request):
                return _raised(await self._batched(request))
            from starlette.responses import JSONResponse

            try:
                answer = await self._batched(await request.json())
            except ValueError:
                answer = ArgumentError("the request's body is not JSON")
            if isinstance(answer, Exception):
                return JSONResponse({"error": str(answer)}, status_code=400)
            return JSONResponse(_listed(answer))

    # one batch is computed while the next gathers; a queue of more requests than that is Serve's to keep
    bound = {"max_ongoing_requests": DEPTH * max_batch_size, **deployment_options}
    return serve.deployment(**bound)(Treadle).bind(Handle.of(exe, **(options or {})))


def answers(runner: Runner, requests: Sequence[Mapping[str, Any]]) -> list[Any]:
    """For each request its answer, or the error that it has earned; one that does not fit costs the others nothing."""
    rows: list[Any] = [_row(runner, request) for request in requests]
    good = [number for number, row in enumerate(rows) if not isinstance(row, Exception)]
    kinds: dict[Any, list[int]] = {}
    for number in good:  # requests of one shape are one call
        kinds.setdefault(tuple(array.shape for array in rows[number]), []).append(number)
    for numbers in kinds.values():
        try:
            result = runner.run(
                [np.stack(arrays) for arrays in zip(*(rows[number] for number in numbers), strict=True)]
            )
            results = result if isinstance(result, tuple) else (result,)
            for place, number in enumerate(numbers):
                rows[number] = _named([each[place] for each in results])
        except TreadleError as error:
            for number in numbers:
                rows[number] = error
    return rows


def _row(runner: Runner, request: Any) -> Any:
    """The arrays of one request, one for each parameter, or an error."""
    types = runner.signature.type.params
    try:
        if not isinstance(request, Mapping):
            raise ArgumentError(
                f"expected a mapping of parameters to values as the request, got a {type(request).__name__}"
            )
        values = runner.signature.arguments(dict(request), "the request")
        return [np.asarray(value, type_.dtype.numpy) for value, type_ in zip(values, types, strict=True)]  # type: ignore[union-attr]
    except TreadleError as error:
        return error
    except (ValueError, TypeError) as error:
        return ArgumentError(f"the request's values are not an array: {error}")


def _named(results: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {"output": results[0]} if len(results) == 1 else {f"output_{i}": result for i, result in enumerate(results)}


def _listed(answer: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: array.tolist() for name, array in answer.items()}


def _raised(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer
