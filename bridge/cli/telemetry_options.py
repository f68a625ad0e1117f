"""Options of ``bridge serve`` for those who watch it: metrics, traces, a line of log for each call, an audit log."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.failures import CommandError, say
from bridge.cli.numbers import WholeNumber
from bridge.cli.options import grouped, option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bridge.telemetry.metrics import Metrics
    from bridge.telemetry.observer import Observer
    from bridge.telemetry.operations import Sink, Tracer

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """What is observed, and where it is told."""

    metrics: bool
    traces: bool
    log_format: str
    log_arguments: bool
    audit_log: Path | None
    audit_log_max_bytes: int
    audit_log_kept_files: int

    @property
    def are_traces_wanted(self) -> bool:
        """Whether spans are opened: because of the option, or of OpenTelemetry's own words in the environment."""
        return self.traces or (_asks_for_traces(os.environ) and _is_tracing_installed())


telemetry_options = grouped(
    option("--metrics", is_flag=True, help="Over HTTP: count and time what is done, and serve it at /metrics."),
    option(
        "--traces",
        is_flag=True,
        help="Send traces as the OTEL_* variables say. Without it they are sent where OTEL_TRACES_EXPORTER or "
        "OTEL_EXPORTER_OTLP_ENDPOINT is set.",
    ),
    option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="How to log; json has one object a line, and one for each call.",
    ),
    option("--log-arguments", is_flag=True, help="Write the arguments of calls into JSON log and audit log."),
    option(
        "--audit-log",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Append a line of JSON for each call: who called what, with which outcome.",
    ),
    option(
        "--audit-log-max-bytes",
        type=WholeNumber(1),
        metavar="BYTES",
        default=100 * _MIB,
        show_default=True,
        help="How long the audit log may become before it is renamed to FILE.1 and begun anew.",
    ),
    option(
        "--audit-log-kept-files",
        type=WholeNumber(0),
        metavar="FILES",
        default=10,
        show_default=True,
        help="How many earlier files of the audit log are kept.",
    ),
)
"""The options of `TelemetryOptions`."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What is observed of one server."""

    metrics: Metrics | None = None
    """The metrics, for ``/metrics``; None where nothing is counted."""
    closings: list[Callable[[], object]] = field(default_factory=list)

    def close(self) -> None:
        """Write and send what still waits; once."""
        while self.closings:
            self.closings.pop()()


@contextmanager
def observed(options: TelemetryOptions, name: str) -> Iterator[Observed]:
    """Have everything observed in this block, as far as the options say; what is served is built within it.

    Args:
        options: What is to be observed.
        name: What the server calls itself.

    Raises:
        MissingExtraError: OpenTelemetry, or an exporter, is not installed.
        CommandError: The audit log cannot be opened, or the environment cannot be understood.
    """
    has_traces = options.are_traces_wanted
    if not (has_traces or options.metrics or options.audit_log or options.log_format == "json"):
        yield Observed()
        return
    from bridge.telemetry.observer import Observer  # noqa: PLC0415 - for those who observe
    from bridge.telemetry.switch import switched_on  # noqa: PLC0415 - as above

    observer = Observer(shows_arguments=options.log_arguments)
    closings: list[Callable[[], object]] = []
    result = Observed(closings=closings)
    try:
        if has_traces:
            observer.tracer = _tracer(name, closings)
        if options.log_format == "json":
            observer.sinks += (_call_log(closings),)
        if options.audit_log is not None:
            observer.sinks += (_audit_log(options, options.audit_log, observer, closings),)
        if options.metrics:
            result = replace(result, metrics=_metrics(observer, name, closings))
        closings.append(observer.close)
        with switched_on(observer):
            yield result
    finally:
        result.close()


def tell_draining(is_draining: Callable[[], bool]) -> None:
    """Let the metrics say whether this process takes its leave."""
    from bridge.telemetry import switch  # noqa: PLC0415 - as above

    if (observer := switch.observer()) is not None:
        observer.is_draining = is_draining


def _tracer(name: str, closings: list[Callable[[], object]]) -> Tracer:
    from bridge.telemetry.tracing import DEFAULT_SHARE, tracing_by_environment  # noqa: PLC0415 - as above

    try:
        tracer, close = tracing_by_environment(name)
    except ValueError as error:
        raise CommandError(str(error)) from error
    closings.append(close)
    if "OTEL_TRACES_SAMPLER" not in os.environ:
        say(f"tracing {DEFAULT_SHARE:.0%} of calls, and those whose callers trace them; OTEL_TRACES_SAMPLER decides")
    return tracer


def _call_log(closings: list[Callable[[], object]]) -> Sink:
    from bridge.telemetry.records import log_gap  # noqa: PLC0415 - as above
    from bridge.telemetry.sinks import CallLog  # noqa: PLC0415 - as above
    from bridge.telemetry.writer import StandardError, Writer  # noqa: PLC0415 - as above

    writer = Writer("log of calls", StandardError(), log_gap)
    closings.append(writer.close)
    return CallLog(writer)


def _audit_log(options: TelemetryOptions, path: Path, observer: Observer, closings: list[Callable[[], object]]) -> Sink:
    from bridge.telemetry.audit import AuditFile  # noqa: PLC0415 - as above
    from bridge.telemetry.conventions import AUDIT_LOST  # noqa: PLC0415 - as above
    from bridge.telemetry.records import audit_gap  # noqa: PLC0415 - as above
    from bridge.telemetry.sinks import AuditLog  # noqa: PLC0415 - as above
    from bridge.telemetry.writer import Writer  # noqa: PLC0415 - as above

    try:
        file = AuditFile(path, max_bytes=options.audit_log_max_bytes, kept_files=options.audit_log_kept_files)
    except OSError as error:
        raise CommandError(f"the audit log {str(path)!r} cannot be written: {error.strerror}") from error

    def lost(count: int) -> None:
        observer.measures.add(AUDIT_LOST, count)

    writer = Writer("audit log", file, audit_gap, lost)
    closings.append(writer.close)
    return AuditLog(writer)


def _metrics(observer: Observer, name: str, closings: list[Callable[[], object]]) -> Metrics:
    from bridge.telemetry.conventions import AUDIT_LOST, CHILDREN  # noqa: PLC0415 - as above
    from bridge.telemetry.measures import Gauge  # noqa: PLC0415 - as above
    from bridge.telemetry.metrics import Metrics  # noqa: PLC0415 - as above

    def children() -> int:
        from bridge.client.process import running_children  # noqa: PLC0415 - nobody waits for a count

        return running_children()

    measures = observer.measures
    measures.watch(Gauge(CHILDREN, "Servers that run as children of this process.", lambda: [(children(), {})]))
    measures.watch(
        Gauge(
            AUDIT_LOST,
            "Lines of the audit log that were dropped, because it could not be written for long.",
            lambda: [(measures.of(AUDIT_LOST).get("", 0), {})],
            is_counter=True,
        )
    )
    metrics = Metrics(observer, name)
    closings.append(metrics.close)
    return metrics


def _asks_for_traces(environment: Mapping[str, str]) -> bool:
    """Whether the environment asks for traces, in OpenTelemetry's words."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporters = environment.get("OTEL_TRACES_EXPORTER")
    if exporters is not None:
        return exporters.strip().lower() not in {"", "none"}
    return bool(environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))


def _is_tracing_installed() -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - only where the environment asks

    if find_spec("opentelemetry") is not None and find_spec("opentelemetry.sdk") is not None:
        return True
    say(
        "the environment asks for traces (OTEL_*), and OpenTelemetry is not installed: "
        "pip install 'mcp-toolbridge[otel]'"
    )
    return False
