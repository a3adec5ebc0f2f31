"""The metrics at `/metrics`, in Prometheus' format."""

from __future__ import annotations

import bisect
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from .repository import Repository
from .statistics import INTERVALS, Statistics

# Seconds: from a small model's call to a large one's under load
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_ENDS = (*map(floatToGoString, _BUCKETS), "+Inf")


class _Times:
    """A histogram."""

    def __init__(self) -> None:
        self.counts, self.sum = [0] * len(_ENDS), 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(_BUCKETS, seconds)] += 1
        self.sum += seconds


class _Counts:
    """Of one function."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.seconds, self.queued = _Times(), _Times()


class Metrics:
    """Counters of one server. They are kept here and read on demand: Prometheus' own take longer to count."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], _Counts] = {}
        self._tokens: dict[str, int] = {}  # by model
        self._firsts: dict[str, _Times] = {}
        self._repository: Repository | None = None
        self.registry.register(self)
        ProcessCollector(registry=self.registry)  # memory, processors' time, descriptors

    def follow(self, repository: Repository) -> None:
        """Whose models are told of, too."""
        self._repository = repository

    def watch(self, waiting: Callable[[], float], running: Callable[[], float]) -> None:
        """Sets the gauges' sources, which are read on each scrape."""
        Gauge("treadle_waiting", "Requests that wait for their turn", registry=self.registry).set_function(waiting)
        Gauge("treadle_running", "Calls that run", registry=self.registry).set_function(running)

    def answered(self, model: str, function: str, code: str, seconds: float, queued: float | None = None) -> None:
        """A request is answered after `seconds`; `queued` of them it waited for its turn, if it had one."""
        with self._lock:
            counts = self._counts.get((model, function))
            if counts is None:
                counts = self._counts[model, function] = _Counts()
            counts.codes[code] = counts.codes.get(code, 0) + 1
            counts.seconds.add(seconds)
            if queued is not None:
                counts.queued.add(queued)

    def took_tokens(self, model: str, count: int) -> None:
        """The texts of a request had `count` tokens."""
        with self._lock:
            self._tokens[model] = self._tokens.get(model, 0) + count

    def spoke(self, model: str, seconds: float) -> None:
        """Counts the seconds until the first token of an answer."""
        with self._lock:
            self._firsts.setdefault(model, _Times()).add(seconds)

    def collect(self) -> Iterator[Any]:
        """The metrics, for Prometheus' registry."""
        labels = ("model", "function")
        requests = CounterMetricFamily(
            "treadle_requests", "Requests by what they were answered with", labels=(*labels, "code")
        )
        seconds = HistogramMetricFamily(
            "treadle_request_seconds", "From the request's last byte to its answer", labels=labels
        )
        queued = HistogramMetricFamily(
            "treadle_queue_seconds", "That requests which were called waited for their turn", labels=labels
        )
        with self._lock:
            for key, counts in self._counts.items():
                for code, count in counts.codes.items():
                    requests.add_metric((*key, code), count)
                for family, times in ((seconds, counts.seconds), (queued, counts.queued)):
                    _add(family, key, times)
            tokens = CounterMetricFamily("treadle_tokens", "Tokens of texts that were taken", labels=("model",))
            for model, count in self._tokens.items():
                tokens.add_metric((model,), count)
            firsts = HistogramMetricFamily(
                "treadle_first_token_seconds", "From a request to its answer's first token", labels=("model",)
            )
            for model, times in self._firsts.items():
                _add(firsts, (model,), times)
        yield from (requests, seconds, queued, tokens, firsts)
        if self._repository is not None:
            yield from _of_models(self._repository)

    def text(self) -> bytes:
        """The page."""
        return generate_latest(self.registry)


def _add(family: HistogramMetricFamily, labels: tuple[str, ...], times: _Times) -> None:
    sums = itertools.accumulate(times.counts)
    family.add_metric(labels, list(zip(_ENDS, sums, strict=True)), times.sum)


# Of a generator's engine: its counts, and what they say
_TEXTS = {
    "running": (GaugeMetricFamily, "treadle_texts_running", "Answers that are made"),
    "waiting": (GaugeMetricFamily, "treadle_texts_waiting", "Answers that wait for room in the cache"),
    "tokens": (CounterMetricFamily, "treadle_generated_tokens", "Tokens of answers"),
    "prompt_tokens": (CounterMetricFamily, "treadle_prompt_tokens", "Tokens of prompts"),
    "cached_tokens": (CounterMetricFamily, "treadle_cached_tokens", "Those of them that were computed before"),
    "drafted": (CounterMetricFamily, "treadle_drafted_tokens", "Tokens that were guessed ahead"),
    "accepted": (CounterMetricFamily, "treadle_accepted_tokens", "Those of them that were right"),
}
_BATCH_ROWS = tuple(2**power for power in range(11))


def _of_models(repository: Repository) -> Iterator[Any]:
    """Metrics of the loaded models, counted where calls are made, and the states of files."""
    labels = ("model", "function")
    rows = HistogramMetricFamily("treadle_batch_rows", "Rows of a call, of one request or several", labels=labels)
    compute = HistogramMetricFamily(
        "treadle_compute_seconds", "That a call took, of one request or several", labels=labels
    )
    merged = GaugeMetricFamily("treadle_merged", "1 where waiting requests become one call, else 0", labels=labels)
    info = GaugeMetricFamily("treadle_model_info", "1 for what is served", labels=("model", "version", "sha256"))
    held = GaugeMetricFamily("treadle_model_bytes", "Of a model's constants", labels=("model", "version"))
    counted: dict[tuple[str, str], list[Statistics]] = {}
    for model in repository.models():
        info.add_metric((model.name, str(model.version), model.digest), 1)
        held.add_metric((model.name, str(model.version)), model.constant_bytes)
        for function, statistics in model.statistics.items():
            counted.setdefault((model.name, function), []).append(statistics)
            if len(counted[model.name, function]) == 1:
                merged.add_metric((model.name, function), function in model.merged)
    for key, several in counted.items():
        sizes = [(size, call.count) for each in several for size, (_, call) in each.sizes.copy().items()]
        ends = [(str(end), sum(count for size, count in sizes if size <= end)) for end in _BATCH_ROWS]
        rows.add_metric(
            key, [*ends, ("+Inf", sum(count for _, count in sizes))], sum(size * count for size, count in sizes)
        )
        counts = itertools.accumulate(map(sum, zip(*(each.computes for each in several), strict=True)))
        seconds = sum(call.ns for each in several for _, call in each.sizes.copy().values()) / 1e9
        ends = list(zip((*map(floatToGoString, INTERVALS), "+Inf"), counts, strict=True))
        compute.add_metric(key, ends, seconds)
    loads = CounterMetricFamily("treadle_loads", "Files that were loaded", labels=("model",))
    failures = CounterMetricFamily("treadle_load_failures", "Files that could not be loaded", labels=("model",))
    for family, by_name in ((loads, repository.loads), (failures, repository.failures)):
        for name, count in by_name.copy().items():
            family.add_metric((name,), count)
    texts = {name: kind(*named, labels=("model",)) for name, (kind, *named) in _TEXTS.items()}
    generated: dict[str, Counter[str]] = {}
    for model in repository.models():
        generated.setdefault(model.name, Counter()).update(getattr(model.texts, "statistics", dict)())
    for model_name, each in generated.items():
        for name, count in each.items():
            texts[name].add_metric((model_name,), count)
    yield from (rows, compute, merged, info, held, loads, failures, *texts.values())
