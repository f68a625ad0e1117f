"""An inspector that is served over HTTP, and a client that has opened its page."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
import uvicorn

from bridge.client import HttpTransport, ServerConfig
from bridge.client.config.loading import parse_entry
from bridge.hosting import sockets
from bridge.hosting.server import BackgroundServer
from bridge.inspector.access import AccessTokens
from bridge.inspector.app import inspector_app
from bridge.inspector.configuration import GivenServer
from bridge.inspector.inspector import Inspector
from bridge.inspector.snippets import Origin
from tests.client.conftest import RemoteServer, forked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bridge.inspector.configuration import Configuration
    from bridge.inspector.questions import SamplingModel

DEADLINE_SECONDS = 30
TRAVEL = "tests/inspector/travel.py"


def travel(**settings: Any) -> ServerConfig:
    """The travel agency as a child."""
    transport = forked("-m", "bridge", "serve", TRAVEL)
    return replace(ServerConfig(name="travel", transport=transport), **settings)


@pytest.fixture(scope="module")
def agency() -> Iterator[RemoteServer]:
    """The travel agency over HTTP."""
    server = RemoteServer(TRAVEL)
    anyio.run(server.start)
    yield server
    server.kill()


class OpenPage:
    """The page as a browser has it: it receives events, and sends requests."""

    def __init__(self, inspector: Inspector, client: httpx.AsyncClient, tokens: AccessTokens) -> None:
        self.inspector = inspector
        self.tokens = tokens
        self.client = client
        self.events: list[tuple[str, Any]] = []
        self._changed = anyio.Event()

    async def follow(self) -> None:
        """Receive events."""
        async with self.client.stream("GET", "/events") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            kind = ""
            async for line in response.aiter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    self.events.append((kind, json.loads(line.removeprefix("data: "))))
                    self._changed.set()
                    self._changed = anyio.Event()

    async def event(self, kind: str, **expected: Any) -> Any:
        """The first event of a kind with these values, which may be still to come."""
        seen = 0
        while True:
            for each, data in self.events[seen:]:
                if each == kind and expected.items() <= data.items():
                    return data
            seen = len(self.events)
            await self._changed.wait()

    async def listed(self, server: str = "travel") -> Any:
        """A server after its tools were listed."""
        while not self.inspector.servers[server].offers.tools:
            await self._changed.wait()
        return self.inspector.servers[server].summary()

    async def post(self, path: str, body: Any = None) -> Any:
        """Send a request that has to succeed."""
        response = await self.client.post(path, json={} if body is None else body)
        assert response.status_code == 200, response.text
        return response.json()

    async def get(self, path: str) -> Any:
        """Fetch JSON."""
        response = await self.client.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    async def frame(self, number: int, part: object) -> httpx.Response:
        """Fetch a document of a request."""
        return await self.client.get(self.at(f"{self.tokens.frames_path(number)}/{part}"))

    def at(self, path: str) -> httpx.URL:
        """Address of a path outside that of the page."""
        return self.client.base_url.copy_with(path=path)

    async def start(self, method: str, server: str = "travel", **params: Any) -> int:
        """Send a request to a server; returns its number."""
        sent = await self.post("/requests", {"server": server, "method": method, "params": params})
        return int(sent["number"])

    async def call(self, name: str, arguments: Any = None, server: str = "travel") -> int:
        """Start a call."""
        return await self.start("tools/call", server, name=name, arguments=arguments or {})

    async def ended(self, number: int) -> Any:
        """A request with its answer, after its end."""
        while (request := self.inspector.requests.get(number)) is None or request.state == "running":
            await self._changed.wait()
        return await self.get(f"/requests/{number}")


class NoFile:
    """Reads entries; there is no file to write them to."""

    path: str | None = None

    def read(self, name: str, entry: Any, *, is_saved: bool) -> tuple[ServerConfig, Origin]:
        """Read an entry."""
        assert not is_saved
        return parse_entry(name, entry), Origin(command=(entry["command"], *entry["args"]))

    def save(self, name: str, entry: Any) -> None:
        """Fail: a page without a file saves nothing."""
        raise AssertionError((name, entry))


@asynccontextmanager
async def inspecting(
    *configs: ServerConfig,
    origin: Origin | None = None,
    model: SamplingModel | None = None,
    configuration: Configuration | None = None,
) -> AsyncIterator[OpenPage]:
    """An inspector of these servers, with its page open."""
    own = origin or Origin(argument=TRAVEL, is_python=True)
    given = [GivenServer(name=config.name, config=config, origin=own) for config in configs]
    inspector = Inspector(given, configuration=configuration or NoFile(), model=model)
    bound = sockets.bind(sockets.resolve("127.0.0.1", 0))
    tokens = AccessTokens(lambda token: None)
    url = sockets.url_of("127.0.0.1", bound[0].getsockname()[1], tokens.path)
    config = uvicorn.Config(inspector_app(inspector, tokens), lifespan="off", log_config=None, ws="none")
    begun = asyncio.Event()
    begun.set()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            BackgroundServer(config).running(bound, begun),
            httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client,
            inspector.running(),
            anyio.create_task_group() as tasks,
        ):
            assert (await client.get("/", params={"token": tokens.unused()})).status_code == 303
            page = OpenPage(inspector, client, tokens)
            tasks.start_soon(page.follow)
            await page.event("state")
            try:
                yield page
            finally:
                tasks.cancel_scope.cancel()


@pytest.fixture
async def page(agency: RemoteServer) -> AsyncIterator[OpenPage]:
    """The page of the travel agency, whose tools are listed."""
    async with inspecting(travel(transport=HttpTransport(agency.url))) as opened:
        await opened.listed()
        yield opened
