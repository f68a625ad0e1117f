"""Telemetry: metrics, traces and a record of every call, doing nothing until it is switched on.

    hooks in server and client ──> Observer ──> Measures ──> /metrics           (`measures`, `metrics`)
    (`switch.observer()`)             ├───────> spans     ──> OTLP              (`tracing`)
                                      ╰───────> records   ──> log, audit log    (`records`, `writer`, `audit`)

Names and labels are those of OpenTelemetry's conventions for MCP (`conventions`). OpenTelemetry itself is an extra, and
only `metrics` and `tracing` import it. What a call costs is counted here and not by OpenTelemetry's instruments, whose
one histogram takes as long as the rest of this together; its exporter writes what was counted down for Prometheus.
"""
