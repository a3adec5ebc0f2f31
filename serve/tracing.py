"""Spans of OpenTelemetry, one a request, where the process has a tracer provider. Nothing of it is imported before that is so.

The provider is that of the process: `opentelemetry-instrument treadle serve models` sets one as its environment variables say, a
program around `Server` with `opentelemetry.trace.set_tracer_provider`, or hands one over.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from .. import __version__
from .errors import as_serve_error


class Tracing:
    """Begins spans. They continue the trace of the request's `traceparent`, if it has one."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import propagate, trace

        self._trace, self._extract = trace, propagate.extract
        self._tracer = trace.get_tracer("treadle.serve", __version__, provider)

    @staticmethod
    def found(provider: Any = None) -> Tracing | None:
        """With this tracer provider, or the one of the process; None where there is none."""
        if provider is None:
            trace = sys.modules.get("opentelemetry.trace")
            if trace is None:
                return None
            provider = trace.get_tracer_provider()
            if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
                return None
        return Tracing(provider)

    def start(self, headers: Iterable[tuple[str, Any]], **attributes: str) -> Span:
        """The span of a request that has these headers. `end` must follow."""
        carrier = {name: value for name, value in headers if isinstance(value, str)}
        span = self._tracer.start_span(
            "infer",
            self._extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            attributes={name.replace("_", "."): value for name, value in attributes.items()},
        )
        return Span(span, self._trace)


class Span:
    """The span of one request."""

    def __init__(self, span: Any, trace: Any) -> None:
        self._span, self._trace = span, trace

    def called(self, name: str, /, **attributes: Any) -> None:
        """The request had its model, and its turn if it got one. Attributes that are None are not known."""
        self._span.update_name(f"infer {name}")  # not before: a name that is not known here may be anything
        self._span.set_attributes({f"treadle.{key}": each for key, each in attributes.items() if each is not None})

    def failed(self, error: BaseException) -> None:
        """The request is answered with an error. One of the client's making is none of the span."""
        answer = as_serve_error(error)
        self._span.set_attribute("error.type", answer.grpc)
        if answer.http >= 500:
            self._span.set_status(self._trace.StatusCode.ERROR, str(answer))

    def end(self) -> None:
        """After the request, however it ended."""
        self._span.end()
