"""Sinks: where the records of calls go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.telemetry.records import RECORD_END, log_end

if TYPE_CHECKING:
    from bridge.telemetry.records import Records
    from bridge.telemetry.writer import Writer

_END_OF_SUCCESS = log_end(None)


class CallLog:
    """The log, which has a level in each line.

    Args:
        writer: What writes it.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def put(self, records: Records) -> None:
        """Have records written."""
        lines, failures = records
        if failures:
            self._writer.put([line + log_end(failures.get(index)) for index, line in enumerate(lines)])
        else:
            self._writer.put(lines, _END_OF_SUCCESS)


class AuditLog:
    """The audit log.

    Args:
        writer: What writes it.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def put(self, records: Records) -> None:
        """Have records written."""
        self._writer.put(records.lines, RECORD_END)
