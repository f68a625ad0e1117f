"""One connection for each route, shared by all tests: the fixture's task opens and closes it, as the SDK requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.counterpart import ROUTES, Route, connected, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.interop.counterpart import Counterpart

PAGE_SIZE = 4


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The backend, with the scope of the connections."""
    return "asyncio"


@pytest.fixture(scope="module", params=ROUTES, ids=str)
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
def paging_origin() -> Iterator[str]:
    """A server over HTTP whose list has several pages."""
    with serving("--page-size", str(PAGE_SIZE)) as origin:
        yield origin


@pytest.fixture(scope="module")
async def connection(route: Route, origin: str) -> AsyncIterator[Counterpart]:
    """The official client, connected."""
    async with connected(route, origin) as counterpart:
        yield counterpart


@pytest.fixture
def counterpart(connection: Counterpart) -> Counterpart:
    """The official client, connected, without the records of earlier tests."""
    connection.forget()
    return connection
