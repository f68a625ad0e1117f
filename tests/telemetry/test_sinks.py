from __future__ import annotations

import json

from bridge.telemetry.records import Records
from bridge.telemetry.sinks import AuditLog, CallLog
from bridge.telemetry.writer import Writer


class Output:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def write(self, lines: bytes) -> None:
        self.lines += map(json.loads, lines.splitlines())

    def close(self) -> None:
        """Nothing is open."""


def test_the_log_has_a_level_in_each_line_and_the_audit_log_none() -> None:
    log, audit = Output(), Output()
    writers = [Writer("log", log, str), Writer("audit log", audit, str)]
    successes = Records(['{"call":1', '{"call":2'], {})
    some_failed = Records(['{"call":3', '{"call":4', '{"call":5'], {0: "tool_error", 2: "-32602"})
    for records in (successes, some_failed):
        CallLog(writers[0]).put(records)
        AuditLog(writers[1]).put(records)
    for writer in writers:
        writer.close()
    levels = ["info", "info", "warning", "info", "error"]
    assert log.lines == [
        {"call": number + 1, "level": level, "logger": "bridge.calls"} for number, level in enumerate(levels)
    ]
    assert audit.lines == [{"call": number + 1} for number in range(5)]
