"""The log of calls for people: one line each, written by a thread.

12:00:01.123 call add by alice from bridge over http: ok in 0.3 ms
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

import click

from bridge.cli.terminal import wants_colour
from bridge.telemetry.writer import StandardError
from bridge.text import escape_controls, with_count

_COLOURS = {"ok": "green", "input_required": "cyan", "task": "cyan"}
"""Colours of outcomes; that of others is red."""


class CallLines:
    """Output that gets records of calls as JSON, and writes each to standard error as a line for people.

    Args:
        shows_arguments: Write the arguments of calls.
    """

    def __init__(self, *, shows_arguments: bool) -> None:
        self._stream = StandardError()
        self._shows_arguments = shows_arguments
        self._is_coloured = wants_colour(sys.stderr)

    def write(self, lines: bytes) -> None:
        """Write whole lines."""
        texts = [self._line(json.loads(line)) for line in lines.splitlines()]
        self._stream.write("".join(f"{text}\n" for text in texts).encode(errors="backslashreplace"))

    def close(self) -> None:
        """Leave standard error open for others."""

    def _line(self, record: dict[str, Any]) -> str:
        time = datetime.fromisoformat(record["time"]).astimezone().strftime("%H:%M:%S.%f")[:-3]
        if record["event"] == "lost":
            return f"{time} {with_count(record['calls'], 'line')} of calls were dropped"
        name = _word(record.get("tool") or record.get("resource") or record.get("prompt")) or "(no name)"
        server = f" of {_word(record['server'])}" if record["server"] else ""
        caller = f" by {_word(record['caller'])}" if record["caller"] else ""
        if "team" in record:
            caller += f" of team {_word(record['team'])}"
        client = f" from {_word(record['client'])}" if record["client"] else ""
        transport = f" over {record['transport']}" if record["transport"] else ""
        called = escape_controls(f"{record['event']} {name}{server}{caller}{client}{transport}")
        outcome = f"error {record['error']}" if record["outcome"] == "error" else record["outcome"]
        if self._is_coloured:
            outcome = click.style(outcome, fg=_COLOURS.get(record["outcome"], "red"))
        arguments = ""
        if self._shows_arguments:
            text = json.dumps(record["arguments"], ensure_ascii=False, separators=(",", ":"))
            arguments = f" {escape_controls(text)}"
        return f"{time} {called}: {outcome} in {record['duration_ms']:.1f} ms{arguments}"


def _word(text: str | None) -> str | None:
    """A name that callers choose; in quotes if it could be read as other parts of the line."""
    return json.dumps(text, ensure_ascii=False) if text and (text.split() != [text] or '"' in text) else text
