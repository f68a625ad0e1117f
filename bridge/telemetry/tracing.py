"""Spans of operations, through OpenTelemetry's API. Imports OpenTelemetry.

A request carries its trace context in ``_meta`` (``traceparent``, ``tracestate``, ``baggage``), whatever the transport
(SEP-414). A trace that starts here is sampled before any work is done for it; what runs within an unsampled one starts
no trace of its own, and passes ``traceparent`` on with the sampled flag cleared.
"""

from __future__ import annotations

from contextlib import contextmanager
from random import getrandbits, random
from typing import TYPE_CHECKING, Any

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from bridge.telemetry.conventions import CALLER, OWN_REQUEST_ID, REQUEST_ID, SESSION_ID, TRACE_KEYS, trace_in
from bridge.telemetry.instruments import failure_labels
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    from opentelemetry.trace import TracerProvider

    from bridge.telemetry.instruments import OperationSeries

SAMPLED = Context()
"""The parent context of a trace that was sampled here: a `RatioSampler` keeps it."""
_TRACES_PER_CONTEXT = 1000  # of unsampled traces; other instrumentation may pass its ids on


class Tracing:
    """Opens spans of operations.

    Args:
        provider: OpenTelemetry's tracer provider; None for the process's own.
        ratio: The ratio of the traces that start here to sample, with a `RatioSampler` in the provider; None to let the
            provider's sampler decide each time.
    """

    def __init__(self, provider: TracerProvider | None = None, ratio: float | None = None) -> None:
        self._tracer = trace.get_tracer("bridge", tracer_provider=provider)
        self._samples_here = ratio is not None
        self._ratio = 1.0 if ratio is None else ratio
        self._unsampled_count = 0
        self._unsampled_context = Context()

    def begins(self, meta: Mapping[str, Any] | None) -> bool:
        """True where a request is to be traced: its caller traces it, or it is sampled.

        Other requests need no span, unless they send requests to servers.
        """
        return random() < self._ratio or (meta is not None and "traceparent" in meta)  # noqa: S311 - sampling

    def serve(
        self,
        series: OperationSeries,
        meta: Mapping[str, Any] | None,
        request_id: object,
        session_id: str | None,
        *,
        is_sampled: bool,
        own_id: str = "",
        caller: str | None = None,
    ) -> CurrentSpan:
        """Open a span for a client's request and make it the current one.

        It continues the trace in the request's ``_meta``. ``is_sampled`` is the result of `begins`.
        """
        parent, links = _parent(meta)
        if self._samples_here and parent is None and not context.get_current():
            if not (is_sampled or random() < self._ratio):  # noqa: S311 - sampling
                return self._unsampled()
            parent = SAMPLED
        # All attributes at once: each one set later costs as much as these together.
        attributes = dict(series.labels)
        if request_id is not None:
            attributes[REQUEST_ID] = clip(str(request_id))
        if own_id:
            attributes[OWN_REQUEST_ID] = own_id
        if caller is not None:
            attributes[CALLER] = clip(caller)
        if session_id is not None:
            attributes[SESSION_ID] = clip(session_id)
        span = self._tracer.start_span(
            series.span_name, parent, SpanKind.SERVER, attributes, links, record_exception=False
        )
        return CurrentSpan(span, trace.set_span_in_context(span, parent))

    def start(self, name: str, attributes: Mapping[str, Any], *, is_client: bool = True) -> CurrentSpan:
        """Open a span for an operation of this process or a request to another, and make it the current one."""
        if _is_unsampled():
            return self._unsampled()
        kind = SpanKind.CLIENT if is_client else SpanKind.INTERNAL
        span = self._tracer.start_span(name, None, kind, attributes, record_exception=False)
        return CurrentSpan(span, trace.set_span_in_context(span))

    def current_trace_id(self) -> str | None:
        """Return the id of the current trace in hexadecimal digits; None if there is none, or it is not sampled."""
        current = trace.get_current_span().get_span_context()  # of a span that may have ended
        return trace.format_trace_id(current.trace_id) if current.is_valid and current.trace_flags.sampled else None

    def carry(self, meta: MutableMapping[str, Any]) -> None:
        """Write the current trace context into ``_meta``."""
        if _is_unsampled():  # W3C Trace Context, "Sampled flag"
            meta["traceparent"] = f"00-{getrandbits(128):032x}-{getrandbits(64):016x}-00"
        else:
            propagate.inject(meta)

    @contextmanager
    def continued(self, carried: Mapping[str, Any]) -> Iterator[None]:
        """Context in which a trace that `carry` has written goes on."""
        parent, _ = _parent(carried)
        token = None if parent is None else context.attach(parent)
        try:
            yield
        finally:
            if token is not None:
                context.detach(token)

    def _unsampled(self) -> CurrentSpan:
        """Make the current trace an unsampled one, at next to no cost: many share a context."""
        if self._unsampled_count % _TRACES_PER_CONTEXT == 0:
            span = _UnsampledSpan(trace.SpanContext(getrandbits(128), getrandbits(64), is_remote=False))
            self._unsampled_context = trace.set_span_in_context(span, Context())
        self._unsampled_count += 1
        return CurrentSpan(trace.get_current_span(self._unsampled_context), self._unsampled_context)


class CurrentSpan:
    """An open span, the current one until it ends; ``own_context`` is a context with it."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: trace.Span, own_context: Context) -> None:
        self._span = span
        self._token = context.attach(own_context)

    @property
    def trace_id(self) -> str | None:
        """The trace's id in hexadecimal digits; None where it is not sampled, and after the end."""
        return trace.format_trace_id(self._span.get_span_context().trace_id) if self._span.is_recording() else None

    def add(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes."""
        self._span.set_attributes(attributes)

    def end(self, error_type: str | None, code: int | None, message: str | None) -> None:
        """End the span; the one before is the current one again.

        ``error_type`` is None for a success; ``code`` and ``message`` are those of a JSON-RPC error.
        """
        context.detach(self._token)
        span = self._span
        if error_type is not None and span.is_recording():
            span.set_attributes(failure_labels(error_type, code))
            span.set_status(Status(StatusCode.ERROR, message))
        span.end()


class _UnsampledSpan(trace.NonRecordingSpan):
    """A span that is never exported: the current one within an unsampled trace."""


def _is_unsampled() -> bool:
    return isinstance(trace.get_current_span(), _UnsampledSpan)


def _parent(meta: Mapping[str, Any] | None) -> tuple[Context | None, list[Link]]:
    """The trace context of a request, and a link to the current span where that is of another trace."""
    if not meta or TRACE_KEYS.isdisjoint(meta):
        return None, []
    try:
        parent = propagate.extract(trace_in(meta))
    except (TypeError, ValueError):
        return None, []
    here = trace.get_current_span().get_span_context()
    is_another = here.is_valid and trace.get_current_span(parent).get_span_context() != here
    return parent, [Link(here)] if is_another else []
