"""Sinks: where the records of calls go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.telemetry.records import log_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.telemetry.records import CallRecord
    from bridge.telemetry.writer import Writer


class CallLog:
    """The log, which has a level in each line.

    Args:
        writer: What writes it.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def put(self, records: Sequence[CallRecord]) -> None:
        """Have records written."""
        self._writer.put(map(log_line, records))


class AuditLog:
    """The audit log.

    Args:
        writer: What writes it.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def put(self, records: Sequence[CallRecord]) -> None:
        """Have records written."""
        self._writer.put(record.line for record in records)
