"""Log configuration of commands."""

from __future__ import annotations

import json
import logging
import re

import pytest

from bridge.cli.reporting import configure_logging
from bridge.client import StdioTransport
from tests.client.conftest import opened, python_config
from tests.client.scripted import listed, scripted_config

pytestmark = pytest.mark.anyio

BAD_REQUEST = "Invalid HTTP request received."


@pytest.mark.parametrize("form", ["text", "json"])
def test_warnings_of_libraries_about_requests_are_repeated_once_in_a_while(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("info", form)
    for number in range(100):
        logging.getLogger("uvicorn.error").warning(BAD_REQUEST)
        logging.getLogger("opentelemetry.baggage.propagation").warning("Invalid baggage entry: `%s`", number)
        logging.getLogger("uvicorn.error").error("failed %d", number)
        logging.getLogger("tools").warning("of a tool")
    lines = capsys.readouterr().err.splitlines()
    counts = [sum(text in line for line in lines) for text in (BAD_REQUEST, "baggage entry", "failed", "of a tool")]
    assert counts == [1, 1, 100, 100]


@pytest.mark.parametrize(("variable", "is_coloured"), [("FORCE_COLOR", True), ("NO_COLOR", False), ("TERM", False)])
def test_the_levels_of_problems_are_coloured_where_colours_are_wanted(
    variable: str, is_coloured: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "1")
    configure_logging("info")
    for level in (logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger("tools").log(level, "said")
    plain = ["INFO tools: said", "WARNING tools: said", "ERROR tools: said"]
    coloured = ["INFO tools: said", "\x1b[33mWARNING\x1b[0m tools: said", "\x1b[31mERROR\x1b[0m tools: said"]
    assert capsys.readouterr().err.splitlines() == (coloured if is_coloured else plain)


def test_a_level_that_shows_everything_shows_each(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug")
    for _ in range(3):
        logging.getLogger("uvicorn.error").warning(BAD_REQUEST)
    assert capsys.readouterr().err.count(BAD_REQUEST) == 3


@pytest.mark.parametrize(("level", "shows"), [("info", False), ("debug", True)])
async def test_a_malformed_notification_of_a_server_is_logged_at_the_level_of_everything_only(
    level: str, shows: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    config = scripted_config([listed("add")])
    assert isinstance(config.transport, StdioTransport)
    told = 'print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress"}), flush=True)'
    code = config.transport.args[-1].replace(
        '    elif method == "tools/call":', f'    elif method == "tools/call":\n        {told}'
    )
    configure_logging(level)
    async with opened(python_config(code)) as connection:
        await connection.call_tool("add", {})
    assert ("dropped a malformed notification" in capsys.readouterr().err) == shows


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_in_urls_that_libraries_request_are_not_logged(capsys: pytest.CaptureFixture[str], form: str) -> None:
    configure_logging("debug", form)
    try:
        url = "https://ada:hunter2@files.example/mcp?token=s3cret-value#part"
        logging.getLogger("httpx2").info('HTTP Request: POST %s "HTTP/1.1 200 OK"', url)
    finally:
        configure_logging("warning")
    shown = capsys.readouterr().err
    assert "files.example/mcp" in shown
    assert "200 OK" in shown
    assert "hunter2" not in shown
    assert "s3cret" not in shown


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_matches_a_pattern_is_redacted_in_messages_and_tracebacks(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    configure_logging("info", form, [re.compile("ada@[a-z.]+")])
    try:
        int("no mail to ada@example.com")
    except ValueError:
        logging.getLogger("tools").exception("cannot write to %s", "ada@example.com")
    shown = capsys.readouterr().err
    assert "cannot write to [redacted]" in shown
    assert "no mail to [redacted]" in shown
    assert "ada@" not in shown
    assert form == "text" or json.loads(shown)["message"] == "cannot write to [redacted]"
