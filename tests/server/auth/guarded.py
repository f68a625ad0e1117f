"""A guarded server for the tests, and requests to it in every era and transport."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bridge.tools.context import InvocationContext  # noqa: TC001 - read when the tools are made
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.server import http_server as http

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

ADA = "ada-ada-ada-ada-ada-ada"
BOB = "bob-bob-bob-bob-bob-bob"


@tool
async def whoami(context: InvocationContext) -> dict[str, Any]:
    """Return the caller."""
    caller = context.caller
    if caller is None:
        return {}
    return {
        "name": caller.name,
        "scopes": sorted(caller.scopes),
        "iss": caller.claims.get("iss"),
        "memory": context.memory_id,
    }


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def delete_all() -> str:
    """Delete everything."""
    return "deleted"


def toolbox() -> ToolBox:
    """Three tools: one that reports progress, and two that do not."""
    return ToolBox(whoami, add, delete_all)


def bearer(token: str) -> dict[str, str]:
    """Return the header of a credential."""
    return {"authorization": f"Bearer {token}"}


class Modern:
    """Sends requests of the modern era."""

    def __init__(self, client: httpx.Client, origin: str, credential: dict[str, str]) -> None:
        self.client = client
        self.url = f"{origin}/mcp"
        self.credential = credential

    def send(self, message: dict[str, Any]) -> httpx.Response:
        """Send a request."""
        message = http.modern(message)
        return self.client.post(self.url, json=message, headers=http.modern_headers(message) | self.credential)

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON-RPC response to a request."""
        return http.answer(self.send(message))


class Handshake(Modern):
    """Sends requests of the handshake era, in a session."""

    def __init__(self, client: httpx.Client, origin: str, credential: dict[str, str]) -> None:
        super().__init__(client, origin, credential)
        client.headers.update(credential)
        self.headers = http.open_session(client, self.url)
        for name in credential:
            del client.headers[name]

    def send(self, message: dict[str, Any]) -> httpx.Response:
        """Send a request."""
        return self.client.post(self.url, json=message, headers=self.headers | self.credential)


class Sse(Modern):
    """Sends requests over SSE, whose responses arrive on the stream."""

    def __init__(self, client: httpx.Client, origin: str, credential: dict[str, str]) -> None:
        super().__init__(client, origin, credential)
        self._origin = origin
        self._stream = client.stream("GET", f"{origin}/sse", headers=credential)
        self.lines = self._stream.__enter__().iter_lines()
        path = next(line for line in self.lines if line.startswith("data: ")).removeprefix("data: ")
        self.messages_url = origin + path
        self.ask(http.initialize())
        self.send(http.notification("notifications/initialized"))

    def send(self, message: dict[str, Any]) -> httpx.Response:
        """Post a message."""
        return self.client.post(self.messages_url, json=message, headers=http.HEADERS | self.credential)

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Post a request, and read its response."""
        self.send(message).raise_for_status()
        return next(each for each in http.events(self.lines) if each.get("id") == message["id"])

    def close(self) -> None:
        """Close the stream."""
        self._stream.__exit__(None, None, None)


KINDS: dict[str, type[Modern]] = {"modern": Modern, "handshake": Handshake, "sse": Sse}


@contextmanager
def talking(kind: str, origin: str, token: str) -> Iterator[Modern]:
    """Return a client of one kind, with a credential."""
    with http.whole_client() as client:
        peer = KINDS[kind](client, origin, bearer(token))
        try:
            yield peer
        finally:
            if isinstance(peer, Sse):
                peer.close()
