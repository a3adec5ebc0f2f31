"""`treadle.map_batches`: one function of an executable over a source of any size, by several workers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..formats.messages.calling import public
from ..formats.messages.errors import ArgumentError
from ..native.processors import cpu_count
from .checkpoint import Checkpoint
from .handle import Exe, Handle
from .runner import Signature, join, nothing
from .schedule import Engine, Schedule
from .sources import Source, source_of

_ENGINES = ("local", "ray", "dask")


@public
def map_batches(
    exe: Exe,
    source: Any,
    *,
    batch_size: int,
    function: str | None = None,
    engine: str = "local",
    workers: int | None = None,
    threads: int | None = None,
    ordered: bool = True,
    retries: int = 2,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = False,
    max_seconds: float | None = None,
    grace: float = 5.0,
    engine_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Results:
    """The function's results for batches of `batch_size` rows of a source; the last batch may be smaller.

    `exe` is an executable, the path of one, or a `cluster.Handle`. `function` is by default "main"; of an executable with a
    tokenizer "encode", "classify" or "score", whose source is a list of texts, or has the columns "text" and, to score, "query";
    or "generate", whose source has the column "prompt", and whose results are texts: the prompts of a batch share the decoder's
    calls, and are answered by one worker unless `workers` says more.

    The source is an array or memory map, a tuple of arrays in the order of the parameters or a mapping by their names, a table
    of pandas, Polars or Arrow (columns by the parameters' names, or those of one matrix), the path of a file of Parquet, CSV,
    Arrow or NumPy, an iterable of such pieces of any number of rows, a Ray Dataset, or a Dask array; it is read no further ahead
    than workers need.

    Iterate over what this returns: results come in order, or with `ordered=False` as pairs (number, result) as they come. Each
    is a NumPy array, or a tuple of them, and comes once. `.numpy()` joins all. Work begins with the first; closing ends it.

    `workers` is their number (None: one for each processor; with Ray its CPUs; with Dask, which has its own, it stays None),
    `threads` how many threads each takes (None: the processors shared out, or what the scheduler gives it).
    A batch whose worker dies, or runs out of time or memory, is tried again up to `retries` times, on another worker where there
    is one. `max_seconds` bounds each batch; a worker that has not answered `grace` seconds later is ended, and counts as dead.
    `checkpoint` is a folder that keeps results: what is there is not computed again. `progress` shows a bar. `engine_options`
    are for Ray the options of its actors, for Dask {"client": …}; other options are those of `cluster.handle.OPTIONS`, and to
    generate those of `Generator.map`.

    Raises ArgumentError, FileError, FormatError, UnknownFunctionError, CheckpointError, MissingPackageError now; and while
    results are taken BatchError, which names the batch, WorkerError, and whatever the source raises.
    """
    _check_counts(batch_size=batch_size, workers=workers, threads=threads)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise ArgumentError(f"map_batches: retries={retries!r}; expected an integer, 0 or more")
    if not isinstance(grace, (int, float)) or not grace >= 0:
        raise ArgumentError(f"map_batches: grace={grace!r}; expected a number of seconds, 0 or more")
    if engine not in _ENGINES:
        raise ArgumentError(f"map_batches: engine={engine!r}; expected one of {', '.join(map(repr, _ENGINES))}")
    handle = Handle.of(exe, max_seconds=max_seconds, **options)
    signature = Signature(handle.load(), function)
    signature.check_answering(handle.answering)
    if workers is None and engine == "local" and signature.gives_texts:
        workers = 1  # the texts of a batch share a decoder's calls, and its caches
    function = signature.function
    rows = source_of(source, signature)
    patience = None if max_seconds is None else max_seconds + grace
    made = _engine(engine, handle, function, workers, threads, patience, dict(engine_options or {}))
    # an engine whose scheduler finds workers that hang, and gives their work to others, needs none of ours
    limit = None if engine == "dask" else patience
    kept = None
    if checkpoint is not None:
        work = {
            "executable": handle.digest,
            "function": function,
            "batch_size": batch_size,
            "source": rows.fingerprint(),
            **({"answering": handle.answering} if handle.answering else {}),
        }
        kept = Checkpoint(checkpoint, work)
    return Results(made, rows, signature, batch_size, ordered, retries, limit, kept, progress)


class Results:
    """The results of `map_batches`: an iterator, and a context that ends the work."""

    def __init__(
        self,
        engine: Engine,
        source: Source,
        signature: Signature,
        batch_size: int,
        ordered: bool,
        retries: int,
        patience: float | None,
        checkpoint: Checkpoint | None,
        progress: bool,
    ) -> None:
        self._ordered, self._signature, self._checkpoint = ordered, signature, checkpoint
        keeping: dict[str, Any] = {} if checkpoint is None else {"stored": checkpoint.get, "store": checkpoint.put}
        schedule = Schedule(
            engine, source.batches(batch_size), ordered=ordered, retries=retries, patience=patience, **keeping
        )
        self._total = None if source.rows is None else math.ceil(source.rows / batch_size)
        self._pairs = self._shown(iter(schedule)) if progress else iter(schedule)

    def __repr__(self) -> str:
        batches = "batches" if self._total is None else f"{self._total} batches"
        return f"<Results of {batches}: iterate over it, or .numpy() joins them>"

    def __iter__(self) -> Results:
        return self

    def __next__(self) -> Any:
        try:
            number, result = next(self._pairs)
        except BaseException:
            self.close()
            raise
        result = self._signature.texts_of(result)
        return result if self._ordered else (number, result)

    def numpy(self) -> Any:
        """The results that are left, in order, joined along their first dimension. Raises ShapeError where they cannot be."""
        with self:
            pairs = list(self._pairs)
        if not pairs:
            return nothing(self._signature)
        found = [result for _, result in sorted(pairs, key=lambda pair: pair[0])]
        return self._signature.texts_of(join(found, self._signature))

    def close(self) -> None:
        """Ends the workers, and gives up the checkpoint's folder. What was finished is kept there."""
        close = getattr(self._pairs, "close", None)
        if close is not None:
            close()
        if self._checkpoint is not None:
            self._checkpoint.close()

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_pairs"):
            self.close()

    def _shown(self, pairs: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        from tqdm import tqdm

        with tqdm(total=self._total, unit="batch") as bar:
            for pair in pairs:
                bar.update()
                yield pair


def _engine(
    name: str,
    handle: Handle,
    function: str,
    workers: int | None,
    threads: int | None,
    patience: float | None,
    options: dict[str, Any],
) -> Engine:
    if name == "ray":
        from .ray import RayEngine

        return RayEngine(handle, function, workers, threads or 1, options)
    if name == "dask":
        from .dask import DaskEngine

        if workers is not None:
            raise ArgumentError(
                f"map_batches: workers={workers}; with Dask the client's cluster says how many there are"
            )
        return DaskEngine(handle, function, threads, patience, **options)
    if options:
        raise ArgumentError(f"map_batches: engine_options={options!r}; the local engine has none")
    from .local import LocalEngine

    processors = cpu_count()
    count = workers or max(1, processors // (threads or 1))
    return LocalEngine(handle, function, count, threads or max(1, processors // count))


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is None and name != "batch_size":
            continue
        if not isinstance(count, bool) and isinstance(count, (int, np.integer)) and count > 0:
            continue
        raise ArgumentError(f"map_batches: {name}={count!r}; expected an integer from 1 on")
