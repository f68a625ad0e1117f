"""Set-up of OpenTelemetry's SDK from the environment (``OTEL_*``). Imports the SDK."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from bridge.errors import MissingExtraError
from bridge.telemetry.tracing import SAMPLED, Tracing

try:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    from opentelemetry.sdk.trace.sampling import Decision, ParentBased, SamplingResult, TraceIdRatioBased
except ImportError as missing:
    raise MissingExtraError("tracing", "opentelemetry-sdk", "otel") from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Link, SpanKind, TraceState
    from opentelemetry.util.types import Attributes

DEFAULT_RATIO = 0.01
"""Ratio of the untraced callers' calls that are sampled, unless ``OTEL_TRACES_SAMPLER`` is set: one in a hundred."""

_MCP_SDK = "mcp-python-sdk"


class RatioSampler(ParentBased):
    """Samples a ratio of the traces that start here, and follows the parent of others.

    A trace whose parent context is `bridge.telemetry.tracing.SAMPLED` was sampled before, and is kept.

    Args:
        ratio: The ratio, from 0 to 1.
    """

    def __init__(self, ratio: float) -> None:
        super().__init__(TraceIdRatioBased(ratio))
        self._ratio = ratio

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Decide on a span; called by the SDK."""
        if parent_context is SAMPLED:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return super().should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        """The sampler's name, for the SDK."""
        return f"RatioSampler{{{self._ratio}}}"


class _Provider(TracerProvider):
    """The SDK's provider, without the spans of the MCP SDK, which would be second ones."""

    def get_tracer(self, instrumenting_module_name: str, *arguments: Any, **named: Any) -> trace.Tracer:
        if instrumenting_module_name == _MCP_SDK:
            return trace.NoOpTracer()
        return super().get_tracer(instrumenting_module_name, *arguments, **named)


def tracing_from_environment(service: str) -> tuple[Tracing, Callable[[], None]]:
    """Set the SDK up for the whole process.

    Spans go to the exporters in ``OTEL_TRACES_EXPORTER`` (``otlp``, ``console``, ``none``, separated by commas), in
    batches, from a thread. Unless ``OTEL_TRACES_SAMPLER`` is set, one call in a hundred is traced, and every call that
    its caller traces.

    Args:
        service: The service's name, unless ``OTEL_SERVICE_NAME`` or ``OTEL_RESOURCE_ATTRIBUTES`` gives one.

    Returns:
        The tracing, and a function that exports the last spans and shuts the SDK down.

    Raises:
        MissingExtraError: The exporter is not installed.
        ValueError: The exporter is unknown.
    """
    ratio = _ratio()
    provider = _Provider(sampler=None if ratio is None else RatioSampler(ratio), resource=resource_named(service))
    for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        exporter = _exporter(name.strip().lower())
        if exporter is not None:
            provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return Tracing(provider, ratio), provider.shutdown


def resource_named(service: str) -> Resource:
    """The SDK's resource of this process, with a service name unless the environment gives one."""
    resource = Resource.create()
    is_named = not str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service")
    return resource if is_named else resource.merge(Resource({SERVICE_NAME: service}))


def _ratio() -> float | None:
    """The ratio to sample of the traces that start here; None where one of the SDK's own samplers decides."""
    name = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if name == "":
        return DEFAULT_RATIO
    if name != "parentbased_traceidratio":
        return None
    try:
        return min(max(float(os.environ.get("OTEL_TRACES_SAMPLER_ARG") or 1.0), 0.0), 1.0)
    except ValueError:
        return None  # the SDK reports it


def _exporter(name: str) -> SpanExporter | None:
    if name in {"", "none"}:
        return None
    if name == "console":
        return ConsoleSpanExporter(out=sys.stderr)  # standard output is the protocol's
    if name != "otlp":
        raise ValueError(f"OTEL_TRACES_EXPORTER={name} is unknown: use otlp, console or none")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    try:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found]  # noqa: PLC0415 - an extra
                OTLPSpanExporter as GrpcExporter,
            )

            return GrpcExporter()  # type: ignore[no-any-return]  # as above
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
    except ImportError as error:
        package = f"opentelemetry-exporter-otlp-proto-{'grpc' if protocol == 'grpc' else 'http'}"
        raise MissingExtraError("sending traces over OTLP", package, "otel") from error
    return OTLPSpanExporter()
