"""Fixtures of the tests of the server."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.applications import Starlette

Serving = "Callable[..., str]"


@pytest.fixture
def serving() -> Iterator[Callable[..., str]]:
    """Serves an app by a real server until the test is over; gives its origin."""
    with ExitStack() as stack:

        def serve(app: Starlette, **options: Any) -> str:
            return stack.enter_context(http_server.serving(app, **options))

        yield serve


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Gives what was logged at error level or above so far."""
    caplog.set_level(logging.INFO)
    return lambda: [f"{record.name}: {record.getMessage()}" for record in caplog.records if record.levelno > 30]
