"""Telemetry: metrics, traces and a record of every call, if enabled.

    hooks in server and client ──> Observer ──> Instruments ──> /metrics          (`instruments`, `prometheus`)
    (`current.observer()`)             ├───────> spans       ──> OTLP              (`tracing`, `otel_setup`)
                                      ╰───────> records     ──> log, audit log    (`records`, `writer`, `audit`)

Names and labels are those of OpenTelemetry's conventions for MCP (`conventions`). OpenTelemetry is an extra, and
imported only if telemetry is enabled.
"""
