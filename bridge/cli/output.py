"""Output: data to standard output, whatever else writes there while users' code runs."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from bridge.text import escape_controls, escaped_json

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def stdout_diverted() -> Iterator[None]:
    """Send to standard error what is written to standard output meanwhile, by this process or its children."""
    sys.stdout.flush()
    if isinstance(sys.stdout, TextIOWrapper):
        # As standard error does: a line is seen when it ends, and no character can make a print fail.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


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
