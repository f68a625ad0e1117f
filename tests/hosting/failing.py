"""A tool that ends the app which serves it, as an unexpected error in the background would."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from bridge import ToolBox, tool
from bridge.server.http.session_requests import SessionRequests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_running = SessionRequests.running
_failed: list[anyio.Event] = []


@asynccontextmanager
async def _failing(endpoint: SessionRequests) -> AsyncIterator[None]:
    failed = anyio.Event()
    _failed.append(failed)

    async def fail() -> None:
        await failed.wait()
        raise RuntimeError("a mistake in the background")

    async with anyio.create_task_group() as tasks, _running(endpoint):
        tasks.start_soon(fail)
        yield
        tasks.cancel_scope.cancel()


SessionRequests.running = _failing  # type: ignore[method-assign,assignment]  # the fault


@tool
async def fail() -> str:
    """Let it fail."""
    _failed[0].set()
    return "soon"


TOOLS = ToolBox([fail])
