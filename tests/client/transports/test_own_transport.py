"""A transport in one file: it opens, has a label, explains its failures, and carries messages."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from bridge import ToolBox, tool
from bridge.client import Connection, McpToolProvider, ServerConfig
from bridge.client.transports.link import Cause, Link, LinkOptions, TransportFailedError
from bridge.client.transports.memory import MemoryLink
from bridge.client.transports.transport import Transport
from bridge.errors import ServerUnavailableError
from bridge.server.server import Server
from tests.client.conftest import opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.protocol.peer import PendingRequest

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@dataclass(frozen=True, slots=True)
class RelayTransport(Transport):
    """Reaches a server in this process by a relay; the first relay may be closed."""

    closed: bool = False
    hint: str | None = None
    opened: list[str] = field(default_factory=list, compare=False)
    sent: list[tuple[str, object]] = field(default_factory=list, compare=False)

    def redacted(self) -> str:
        return "relay:***"

    def scrub(self, text: str) -> str:
        return text.replace("secret", "***")

    def links(self, options: LinkOptions, last_kind: str | None) -> Sequence[Link]:
        direct = DirectRelay(self, options)
        return (direct,) if last_kind == DirectRelay.kind else (ClosedRelay(self), direct)


class ClosedRelay(Link):
    """A relay that refuses messages; a later one may accept them."""

    kind = "closed"

    def __init__(self, transport: RelayTransport) -> None:
        super().__init__()
        self._transport = transport

    def open(self) -> NoReturn:
        self._transport.opened.append(self.kind)
        raise TransportFailedError(Cause("the secret relay is closed", self._transport.hint))

    async def send(self, request: PendingRequest) -> NoReturn:
        raise AssertionError(request)

    async def post(self, text: bytes) -> NoReturn:
        raise AssertionError(text)

    def is_refused(self) -> bool:
        return not self._transport.closed


class DirectRelay(MemoryLink):
    """A relay that answers calls itself, and sends everything else to the server."""

    kind = "relay"

    def __init__(self, transport: RelayTransport, options: LinkOptions) -> None:
        super().__init__(Server(ToolBox([add]), name="relayed"), options)
        self._transport = transport

    def open(self) -> Any:
        self._transport.opened.append(self.kind)
        return super().open()

    def send_now(self, request: PendingRequest) -> bool:
        if request.method != "tools/call":
            return False
        self._transport.sent.append((request.version, json.loads(request.text)["params"]["arguments"]))
        result = {"content": [{"type": "text", "text": "sent directly"}], "structuredContent": {"result": 3}}
        answer = {"jsonrpc": "2.0", "id": request.id, "result": {"resultType": "complete", **result}}
        self._events.receive(json.dumps(answer).encode())
        return True


async def test_a_transport_may_send_at_once_what_it_can() -> None:
    transport = RelayTransport()
    async with McpToolProvider([ServerConfig(name="far", transport=transport, required=True)]) as provider:
        assert [each.name for each in provider.tools] == ["add"], "listed by the server"
        assert (await provider.call("add", {"a": 1, "b": 2})).text == "sent directly"
        (status,) = provider.status()
    assert transport.sent == [(status.connection.protocol_version, {"a": 1, "b": 2})]
    assert (status.connection.transport, status.connection.address) == ("relay", "relay:***")
    assert transport.opened == ["closed", "relay"]


async def test_the_channel_that_was_found_is_the_first_of_the_next_session() -> None:
    transport = RelayTransport()
    async with opened(ServerConfig(name="far", transport=transport)) as connection:
        session = connection._last_session
        assert session is not None
        session.fail(ConnectionError("gone"))
        await session.ended.wait()
        assert (await connection.list_tools()).tools
        assert connection.status().connects == 2
    assert transport.opened == ["closed", "relay", "relay"]


async def test_a_transport_explains_its_failure_without_its_secrets() -> None:
    transport = RelayTransport(closed=True, hint="open the relay")
    with pytest.raises(ServerUnavailableError) as raised:
        await Connection(ServerConfig(name="far", transport=transport)).open()
    failure = raised.value.failure
    assert (failure.reason, failure.hint) == ("the *** relay is closed", "open the relay")
    assert (failure.phase, failure.address) == ("connecting", "relay:***")
