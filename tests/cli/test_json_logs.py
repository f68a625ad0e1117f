from __future__ import annotations

import json
import logging
import sys

import pytest

from bridge.cli.reporting import (
    MAX_MESSAGE_CHARS,
    MAX_TRACEBACK_CHARS,
    JsonFormatter,
    TextFormatter,
    UsersTracebackFormatter,
    message_as_json,
)


def formatted(
    message: str,
    error: Exception | None = None,
    formatter: logging.Formatter | None = None,
    request_id: str = "0123456789abcdef" * 8,
) -> str:
    info = None
    if error is not None:
        try:
            raise error
        except type(error):
            info = sys.exc_info()
    record = logging.LogRecord("bridge.server", logging.WARNING, "x.py", 1, "%s", (message,), info)
    record.request_id = request_id
    return (formatter or JsonFormatter(shows_all_frames=True)).format(record)


def test_the_id_of_a_request_is_in_lines_about_it() -> None:
    shown = "0123456789abcdef" * 4 + "…"
    assert json.loads(formatted("failed"))["request_id"] == shown
    text = formatted("failed", ValueError("x"), UsersTracebackFormatter("%(levelname)s %(name)s: %(message)s"))
    assert text.startswith(f"WARNING bridge.server: failed (request {shown})\nTraceback")


NASTY = pytest.mark.parametrize("nasty", ["\n", "\r", "\x1b[2J", "\x85", "\u2028", "\ud800"])


@NASTY
def test_whatever_the_id_of_a_request_is_its_line_is_one(nasty: str) -> None:
    text = formatted("failed", None, TextFormatter("%(message)s"), f"a{nasty}ERROR forged")
    assert text == f"failed (request a{ascii(nasty)[1:-1]}ERROR forged)"


@NASTY
def test_whatever_a_message_quotes_it_is_one_line(nasty: str) -> None:
    text = f'a{nasty}{{"level":"error"}}'
    for line in (formatted(text, ValueError(text)), message_as_json(text, "info", text)):
        assert len(line.splitlines()) == 1
        assert json.loads(line)["message"] == text


def test_a_long_message_is_cut_with_a_mark() -> None:
    said = json.loads(formatted("x" * (MAX_MESSAGE_CHARS + 1)))["message"]
    assert said == "x" * MAX_MESSAGE_CHARS + "…"


def test_of_a_long_traceback_beginning_and_end_are_written() -> None:
    said = json.loads(formatted("failed", ValueError("x" * 100_000 + "the end")))["exception"]
    assert said.startswith("Traceback")
    assert said.endswith("the end")
    assert "\n…\n" in said
    assert len(said) <= MAX_TRACEBACK_CHARS + 3
