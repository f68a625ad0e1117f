"""Tracing: spans through OpenTelemetry's API, and its SDK set up by the environment as the SDK's own tools do it.

A request says in ``_meta`` to which trace it belongs (``traceparent``, ``tracestate``, ``baggage``), whatever the
transport. Importing this imports OpenTelemetry.
"""

from __future__ import annotations

import os
from random import random
from typing import TYPE_CHECKING, Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from bridge.errors import MissingExtraError
from bridge.telemetry.conventions import REQUEST_ID, SESSION_ID, TRACE_KEYS
from bridge.telemetry.left_out import LeftOut, is_left_out, left_out_traceparent
from bridge.telemetry.measures import failure_labels
from bridge.telemetry.texts import abridged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import TracerProvider

    from bridge.telemetry.measures import Labels, Series
    from bridge.telemetry.operations import Span
    from bridge.telemetry.sampling import ShareSampler

DEFAULT_SHARE = 0.01
"""How many of the calls that no caller traces are traced, unless ``OTEL_TRACES_SAMPLER`` says otherwise: one in 100."""

_MCP_SDK = "mcp-python-sdk"
_LIST_SEPARATOR = ","


class Tracing:
    """Opens spans of operations.

    Args:
        provider: OpenTelemetry's tracer provider; None for the one that is set for the whole process.
        sampler: The provider's sampler of traces that begin here, where it is one of ours: what it leaves out is then
            left out before the SDK has begun to work for it. None to ask the SDK each time.
    """

    def __init__(self, provider: TracerProvider | None = None, sampler: ShareSampler | None = None) -> None:
        self._tracer = trace.get_tracer("bridge", tracer_provider=provider)
        self._sampler = sampler
        self._share = 1.0 if sampler is None else sampler.share
        self._left_out = LeftOut()

    def begins(self, meta: Mapping[str, Any] | None) -> bool:
        """Whether what a client asks is to be traced: it says a trace, or is one of those that are kept.

        Of what is not, nobody has to hear further, unless it asks other servers something.
        """
        return random() < self._share or (meta is not None and "traceparent" in meta)  # noqa: S311 - a lot, no secret

    def serve(
        self,
        series: Series,
        meta: Mapping[str, Any] | None,
        request_id: object,
        session_id: str | None,
        *,
        is_drawn: bool,
    ) -> Span:
        """Open a span for what a client asked; it is the current one until it ends.

        Args:
            series: What was asked.
            meta: What the request carries in ``_meta``: its trace, which is continued, above all.
            request_id: The request's id.
            session_id: The session.
            is_drawn: `begins` said so.
        """
        parent, links = _parent(meta)
        if self._sampler is not None and parent is None and not context.get_current():
            if not (is_drawn or random() < self._share):  # noqa: S311 - as above
                return self._left_out.enter()
            parent = self._sampler.drawn
        # All at once: each that comes later costs as much as the rest of them.
        attributes = dict(series.labels)
        if request_id is not None:
            attributes[REQUEST_ID] = abridged(str(request_id))
        if session_id is not None:
            attributes[SESSION_ID] = abridged(session_id)
        return OpenSpan(self._begin(series, attributes, SpanKind.SERVER, parent, links), parent)

    def ask(self, series: Series) -> Span:
        """Open a span for what the other side is asked; it is the current one until it ends."""
        if is_left_out():
            return self._left_out.enter()
        return OpenSpan(self._begin(series, series.labels, SpanKind.CLIENT, None, []), None)

    def carry(self, meta: MutableMapping[str, Any]) -> None:
        """Write the current trace into ``_meta``."""
        if is_left_out():
            meta["traceparent"] = left_out_traceparent()
        else:
            propagate.inject(meta)

    def _begin(
        self, series: Series, attributes: Labels, kind: SpanKind, parent: Context | None, links: list[Link]
    ) -> trace.Span:
        return self._tracer.start_span(series.span_name, parent, kind, attributes, links, record_exception=False)


class OpenSpan:
    """A span that is the current one."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: trace.Span, parent: Context | None) -> None:
        self._span = span
        self._token = context.attach(trace.set_span_in_context(span, parent))

    @property
    def trace_id(self) -> str | None:
        """Its trace, in hexadecimal digits; None where nobody will see it, and when it has ended."""
        return trace.format_trace_id(self._span.get_span_context().trace_id) if self._span.is_recording() else None

    def end(self, error_type: str | None, code: int | None, message: str | None) -> None:
        """Close it; another is the current one again.

        Args:
            error_type: What went wrong, in a word; None where nothing did.
            code: The code of an error of the protocol.
            message: The words of that error.
        """
        context.detach(self._token)
        span = self._span
        if error_type is not None and span.is_recording():
            span.set_attributes(failure_labels(error_type, code))
            span.set_status(Status(StatusCode.ERROR, message))
        span.end()


def _parent(meta: Mapping[str, Any] | None) -> tuple[Context | None, list[Link]]:
    """The trace that a request says, and a link to the one that is here already, such as that of HTTP."""
    if not meta or TRACE_KEYS.isdisjoint(meta):
        return None, []
    try:
        said = propagate.extract({key: meta[key] for key in TRACE_KEYS & meta.keys() if isinstance(meta[key], str)})
    except (TypeError, ValueError):
        return None, []
    here = trace.get_current_span().get_span_context()
    is_another = here.is_valid and trace.get_current_span(said).get_span_context() != here
    return said, [Link(here)] if is_another else []


# --- the SDK ---------------------------------------------------------------------------------------------------------


def tracing_by_environment(service: str) -> tuple[Tracing, Callable[[], None]]:
    """Set OpenTelemetry's SDK up as the environment says, for the whole process.

    Spans go where ``OTEL_TRACES_EXPORTER`` says (``otlp``, ``console``, ``none``, several with commas between them), in
    batches, from a thread. Unless ``OTEL_TRACES_SAMPLER`` says otherwise, one call in a hundred is traced, and every
    call whose caller traces it.

    Args:
        service: What the service is called, unless ``OTEL_SERVICE_NAME`` or ``OTEL_RESOURCE_ATTRIBUTES`` say it.

    Returns:
        What opens spans, and what sends the last of them and ends it.

    Raises:
        MissingExtraError: The SDK, or the exporter that is asked for, is not installed.
        ValueError: The environment asks for an exporter that is not known.
    """
    try:
        from opentelemetry.sdk.trace import TracerProvider as SdkProvider  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

        from bridge.telemetry.sampling import ShareSampler  # noqa: PLC0415 - it stands on the SDK
    except ImportError as error:
        raise MissingExtraError("tracing", "opentelemetry-sdk", "otel") from error

    class Provider(SdkProvider):
        """The SDK's provider, but the MCP SDK opens no spans beside ours."""

        def get_tracer(self, instrumenting_module_name: str, *arguments: Any, **named: Any) -> trace.Tracer:
            if instrumenting_module_name == _MCP_SDK:
                return trace.NoOpTracer()
            return super().get_tracer(instrumenting_module_name, *arguments, **named)

    share = _share()
    sampler = None if share is None else ShareSampler(share)
    provider = Provider(sampler=sampler, resource=resource_named(service))
    for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(_LIST_SEPARATOR):
        exporter = _exporter(name.strip().lower())
        if exporter is not None:
            provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return Tracing(provider, sampler), provider.shutdown


def _share() -> float | None:
    """Which share of the traces that begin here is sampled; None where the SDK's own samplers are to decide."""
    name = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if name == "":
        return DEFAULT_SHARE
    if name != "parentbased_traceidratio":
        return None
    try:
        return min(max(float(os.environ.get("OTEL_TRACES_SAMPLER_ARG") or 1.0), 0.0), 1.0)
    except ValueError:
        return None  # the SDK says what is wrong with it


def resource_named(service: str) -> Resource:
    """What the SDK says of this process: what the environment says, and else the service's name."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415 - an extra

    said = Resource.create()
    is_said = not str(said.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service")
    return said if is_said else said.merge(Resource({SERVICE_NAME: service}))


def _exporter(name: str) -> SpanExporter | None:
    if name in {"", "none"}:
        return None
    if name == "console":
        import sys  # noqa: PLC0415 - for those who look

        from opentelemetry.sdk.trace.export import ConsoleSpanExporter  # noqa: PLC0415 - an extra

        return ConsoleSpanExporter(out=sys.stderr)  # standard output is the protocol's
    if name != "otlp":
        raise ValueError(f"OTEL_TRACES_EXPORTER={name}: known are otlp, console and none")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    try:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found]  # noqa: PLC0415 - who wants gRPC installs it
                OTLPSpanExporter as GrpcExporter,
            )

            return GrpcExporter()  # type: ignore[no-any-return]  # as above
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
    except ImportError as error:
        package = f"opentelemetry-exporter-otlp-proto-{'grpc' if protocol == 'grpc' else 'http'}"
        raise MissingExtraError("sending traces over OTLP", package, "otel") from error
    return OTLPSpanExporter()
