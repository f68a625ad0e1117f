"""How a command logs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from bridge.cli.reporting import configure_logging

if TYPE_CHECKING:
    from collections.abc import Iterator

BAD_REQUEST = "Invalid HTTP request received."


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Leave logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("uvicorn", "mcp", "httpx", "httpx2", "httpcore")}
    yield
    root.handlers[:], root.level = handlers, level
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    logging.captureWarnings(capture=False)


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


def test_a_level_that_shows_everything_shows_each(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug")
    for _ in range(3):
        logging.getLogger("uvicorn.error").warning(BAD_REQUEST)
    assert capsys.readouterr().err.count(BAD_REQUEST) == 3
