"""Output: data to standard output, whatever else writes there while users' code runs."""

from __future__ import annotations

import json
import sys
from typing import Any

from bridge.text import escape_controls, escaped_json


def write_data(text: str) -> None:
    """Write one piece of data and a newline to standard output, as UTF-8.

    A terminal would obey control characters, which others may have written: there they are escaped. Elsewhere the data
    is written as it is.
    """
    if sys.stdout.isatty():
        text = escape_controls(text)
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
    sys.stdout.buffer.flush()


def write_json(data: Any) -> None:
    """Write data as JSON that a person can read; for a terminal with JSON's own escapes, as `write_data` does."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    write_data(escaped_json(text) if sys.stdout.isatty() else text)
