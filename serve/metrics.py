"""What `/metrics` shows, in Prometheus' format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

# Seconds: from a small model's call to a large one's under load
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("model", "function")
        self._requests = Counter(
            "treadle_requests", "Requests by what they were answered with", (*labels, "code"), registry=self.registry
        )
        self._seconds = Histogram(
            "treadle_request_seconds",
            "From the request's last byte to its answer",
            labels,
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self._counters: dict[
            tuple[str, str, str], tuple
        ] = {}  # labelled ones, since looking them up takes longer than counting

    def watch(self, waiting: Callable[[], float], running: Callable[[], float]) -> None:
        """What is asked when somebody looks."""
        Gauge("treadle_waiting", "Requests that wait for their turn", registry=self.registry).set_function(waiting)
        Gauge("treadle_running", "Calls that run", registry=self.registry).set_function(running)

    def answered(self, model: str, function: str, code: str, seconds: float) -> None:
        """A request is answered."""
        found = self._counters.get((model, function, code))
        if found is None:
            requests, latency = self._requests.labels(model, function, code), self._seconds.labels(model, function)
            found = self._counters[model, function, code] = requests, latency
        found[0].inc()
        found[1].observe(seconds)

    def text(self) -> bytes:
        """The page."""
        return generate_latest(self.registry)
