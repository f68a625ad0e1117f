"""Telemetry options of ``bridge serve``: metrics, traces, JSON log, audit log."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.options import Number, Pattern, count_setting, setting
from bridge.cli.reporting import CommandError
from bridge.hosting.process import print_message
from bridge.telemetry import current
from bridge.telemetry.conventions import CHILDREN

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Mapping

    from bridge.telemetry.activity import Activity
    from bridge.telemetry.audit import AuditFile
    from bridge.telemetry.instruments import Instruments
    from bridge.telemetry.prometheus import PrometheusMetrics
    from bridge.telemetry.records import CallSink
    from bridge.telemetry.tracing import Tracing

_MIB = 1024 * 1024
_AUDIT = "Audit log"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """Telemetry options."""

    metrics: bool = setting(is_flag=True, help="Over HTTP: serve metrics at /metrics.")
    traces: bool = setting(
        is_flag=True,
        help="Send traces as configured by the OTEL_* variables. Also enabled by OTEL_TRACES_EXPORTER or "
        "OTEL_EXPORTER_OTLP_ENDPOINT.",
    )
    log_format: str = setting(
        type=click.Choice(["text", "json"]),
        default="text",
        help="Format of the log; json has one object a line, and a line for each call.",
    )
    log_calls: str = setting(
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="Log a line for each call in the text format, too; auto does if standard error is a terminal.",
    )
    log_sample: float = setting(
        type=Number(0, 1),
        metavar="RATIO",
        default=1.0,
        help="Part of the calls that succeed that have a line in the log, from 0 to 1; others always have one, as all "
        "have in the audit log.",
    )
    redact: tuple[re.Pattern[str], ...] = setting(
        type=Pattern(),
        multiple=True,
        metavar="REGEX",
        help="Replace what matches this regular expression in the log and in the audit log. In the environment, one a "
        "line. Repeatable.",
    )
    log_arguments: bool = setting(
        is_flag=True, help="Include the arguments of calls in the log of calls and the audit log."
    )
    audit_log: Path | None = setting(
        type=click.Path(dir_okay=False, path_type=Path),
        help="File to which a JSON line is appended for each call, with its caller and outcome.",
        heading=_AUDIT,
    )
    audit_log_max_bytes: int = count_setting(
        "BYTES",
        "Length of the audit log at which it is renamed to FILE.1, and a new one begins.",
        default=100 * _MIB,
        heading=_AUDIT,
    )
    audit_log_kept_files: int = count_setting(
        "FILES", "Number of earlier files of the audit log that are kept.", least=0, default=10, heading=_AUDIT
    )

    @property
    def are_calls_logged(self) -> bool:
        """True if each call has a line in the log, as JSON or as text."""
        if self.log_format == "json" or self.log_calls == "always":
            return True
        return self.log_calls == "auto" and sys.stderr.isatty()

    @property
    def are_traces_wanted(self) -> bool:
        """True if tracing is on, by the option or by OpenTelemetry's variables."""
        return self.traces or (_asks_for_traces(os.environ) and _is_tracing_installed())


@dataclass(frozen=True, slots=True)
class ActiveTelemetry:
    """Active telemetry of a server."""

    metrics: PrometheusMetrics | None
    """The metrics, for ``/metrics``; None if metrics are off."""
    close: Callable[[], None]
    """Flush and close, once."""

    def closed_before(self, last_act: Callable[[], None]) -> Callable[[], None]:
        """Return a function that closes the telemetry, and then calls another one."""

        def close_and_act() -> None:
            self.close()
            last_act()

        return close_and_act


@contextmanager
def telemetry_enabled(
    options: TelemetryOptions, name: str, *, counts_teams: bool = False, activity: Activity | None = None
) -> Iterator[ActiveTelemetry]:
    """Enable telemetry during this block; the server must be built within it.

    Args:
        options: The options.
        name: Name of the server.
        counts_teams: True to count the calls of teams, for ``/status``.
        activity: Keeps what the administration shows; None without it.

    Raises:
        MissingExtraError: OpenTelemetry, or an exporter, is not installed.
        CommandError: The audit log cannot be opened, or an environment variable is invalid.
    """
    has_traces = options.are_traces_wanted
    if activity is None and not (
        has_traces or counts_teams or options.metrics or options.audit_log or options.are_calls_logged
    ):
        yield ActiveTelemetry(None, lambda: None)
        return
    from bridge.telemetry.instruments import Instruments  # noqa: PLC0415 - only where telemetry is wanted
    from bridge.telemetry.observer import Observer  # noqa: PLC0415 - as above
    from bridge.telemetry.records import NO_REDACTION, Redaction  # noqa: PLC0415 - as above

    with ExitStack() as closing:
        tracer = _tracer(name, closing) if has_traces else None
        metrics = None
        if options.metrics:
            from bridge.telemetry.prometheus import PrometheusMetrics  # noqa: PLC0415 - an extra

            metrics = PrometheusMetrics(name)
            closing.callback(metrics.close)
        instruments = Instruments(None if metrics is None else metrics.provider)
        instruments.observe(CHILDREN, "Child processes: the stdio servers of this process.", _running_children)
        sinks = list(_sinks(options, instruments, closing))
        observer = Observer(
            instruments,
            tracer=tracer,
            sinks=sinks,
            shows_arguments=options.log_arguments,
            redaction=Redaction(options.redact) if options.redact else NO_REDACTION,
            activity=activity,
        )
        closing.callback(observer.flush)
        with current.enabled(observer):
            yield ActiveTelemetry(metrics, closing.close)


def set_draining_source(is_draining: Callable[[], bool]) -> None:
    """Set the source of the gauge ``bridge.draining``."""
    if (observer := current.observer()) is not None:
        observer.is_draining = is_draining


def _tracer(name: str, closing: ExitStack) -> Tracing:
    from bridge.telemetry.otel_setup import DEFAULT_RATIO, tracing_from_environment  # noqa: PLC0415 - an extra

    try:
        tracer, close = tracing_from_environment(name)
    except ValueError as error:
        raise CommandError(str(error)) from error
    closing.callback(close)
    if "OTEL_TRACES_SAMPLER" not in os.environ:
        print_message(f"tracing {DEFAULT_RATIO:.0%} of calls, and those that callers trace (see OTEL_TRACES_SAMPLER)")
    return tracer


def _sinks(options: TelemetryOptions, instruments: Instruments, closing: ExitStack) -> Iterator[CallSink]:
    from bridge.telemetry import records  # noqa: PLC0415 - only where telemetry is wanted
    from bridge.telemetry.writer import BackgroundWriter, StandardError  # noqa: PLC0415 - as above

    def sampled(sink: CallSink) -> CallSink:
        return sink if options.log_sample == 1 else records.SampledCalls(sink, options.log_sample)

    if options.log_format == "json":
        writer = BackgroundWriter("log of calls", StandardError(), records.log_gap_line)
        closing.callback(writer.close)
        yield sampled(records.CallLog(writer))
    elif options.are_calls_logged:
        from bridge.cli.serve.call_lines import CallLines  # noqa: PLC0415 - as above

        output = CallLines(shows_arguments=options.log_arguments)
        writer = BackgroundWriter("log of calls", output, records.audit_gap_line)
        closing.callback(writer.close)
        yield sampled(records.AuditLog(writer))
    if options.audit_log is not None:
        lost = instruments.lost_audit_lines
        writer = BackgroundWriter("audit log", _audit_file(options), records.audit_gap_line, lost.add)
        closing.callback(writer.close)
        yield records.AuditLog(writer)


def _audit_file(options: TelemetryOptions) -> AuditFile:
    from bridge.telemetry.audit import AuditFile  # noqa: PLC0415 - only where it is wanted

    path = options.audit_log
    assert path is not None
    try:
        return AuditFile(path, max_bytes=options.audit_log_max_bytes, kept_files=options.audit_log_kept_files)
    except OSError as error:
        raise CommandError(f"the audit log {str(path)!r} cannot be written: {error.strerror}") from error


def _running_children() -> int:
    from bridge.client.transports.process import running_children  # noqa: PLC0415 - only when metrics are collected

    return running_children()


def _asks_for_traces(environment: Mapping[str, str]) -> bool:
    """True if OpenTelemetry's environment variables request traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporters = environment.get("OTEL_TRACES_EXPORTER")
    if exporters is not None:
        return exporters.strip().lower() not in {"", "none"}
    return bool(environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))


def _is_tracing_installed() -> bool:
    if find_spec("opentelemetry") is not None and find_spec("opentelemetry.sdk") is not None:
        return True
    print_message(
        "the environment enables traces (OTEL_*), but OpenTelemetry is not installed: "
        "pip install 'mcp-toolbridge[otel]'"
    )
    return False
