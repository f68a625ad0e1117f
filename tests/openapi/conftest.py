"""The application of `tests.openapi.pets`, in this process and behind a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from bridge import InvocationContext, ToolExecutionRequest, execute, from_openapi
from tests.openapi.pets import pets_app
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from fastapi import FastAPI

    from bridge import ToolBox, ToolExecutionResult

DEADLINE_SECONDS = 60


@pytest.fixture(scope="package")
def shared_app() -> FastAPI:
    """The application, which takes time to build."""
    return pets_app()


@pytest.fixture
def app(shared_app: FastAPI) -> FastAPI:
    """The application, which has seen nothing yet."""
    shared_app.state.seen.clear()
    return shared_app


@pytest.fixture(scope="package")
def origin(shared_app: FastAPI) -> Iterator[str]:
    """Origin of the application behind a socket."""
    with serving(shared_app) as origin:
        yield origin


@pytest.fixture(params=["in process", "over HTTP"])
def tools_of(request: pytest.FixtureRequest, app: FastAPI, origin: str) -> Callable[..., ToolBox]:
    """Make tools of operations that are called in this process, or over HTTP."""
    if request.param == "in process":
        return lambda *operations, **options: from_openapi(app, operations, **options)
    return lambda *operations, **options: from_openapi(app.openapi(), operations, base_url=origin, **options)


async def call(tools: ToolBox, name: str, /, **arguments: Any) -> ToolExecutionResult:
    """Call a tool as a server and an AI service do."""
    with anyio.fail_after(DEADLINE_SECONDS):
        return await execute(tools, ToolExecutionRequest(name, arguments), InvocationContext())
