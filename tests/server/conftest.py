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
    """Serve an app by a real server until the end of the test; returns its origin."""
    with ExitStack() as stack:

        def serve(app: Starlette, **options: Any) -> str:
            return stack.enter_context(http_server.serving(app, **options))

        yield serve


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the log messages of level error and above so far."""
    caplog.set_level(logging.INFO)
    return lambda: [f"{record.name}: {record.getMessage()}" for record in caplog.records if record.levelno > 30]
