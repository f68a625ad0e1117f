"""One connection for each route, shared by all tests: the fixture's task opens and closes it, as the SDK requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge import ToolBox
from bridge.server import http_app
from bridge.server.server import Server
from tests.interop.counterpart import ROUTES, TRIO_ROUTES, Route, connected, serving
from tests.interop.tools import TOOLS
from tests.server import hypercorn_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.interop.counterpart import Counterpart

PAGE_SIZE = 4


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The backend, with the scope of the connections."""
    return "asyncio"


@pytest.fixture(scope="module", params=[*ROUTES, *TRIO_ROUTES], ids=str)
def route(request: pytest.FixtureRequest) -> Route:
    """Each transport, with each way to negotiate over it."""
    route: Route = request.param
    return route


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """A server over HTTP."""
    with serving() as origin:
        yield origin


@pytest.fixture(scope="module")
def trio_origin() -> Iterator[str]:
    """The same tools on trio."""
    with hypercorn_server.serving(http_app(TOOLS)) as origin:
        yield origin


@pytest.fixture
def paging_origin(route: Route) -> Iterator[str]:
    """A server over HTTP whose list has several pages."""
    is_on_trio = route in TRIO_ROUTES
    listed = [tool for tool in TOOLS if tool.name != "guest"]  # which other tests add to the list
    options = ("--page-size", str(PAGE_SIZE))
    if is_on_trio:
        server = Server(ToolBox(*listed), name="bridge", page_size=PAGE_SIZE)
        paging = hypercorn_server.serving(http_app(server))
    else:
        paging = serving(*options)
    with paging as origin:
        yield origin


@pytest.fixture(scope="module")
async def connection(route: Route, request: pytest.FixtureRequest) -> AsyncIterator[Counterpart]:
    """The official client, connected."""
    origin = request.getfixturevalue("trio_origin" if route in TRIO_ROUTES else "origin")
    async with connected(route, origin) as counterpart:
        yield counterpart


@pytest.fixture
def counterpart(connection: Counterpart) -> Counterpart:
    """The official client, connected, without the records of earlier tests."""
    connection.forget()
    return connection
