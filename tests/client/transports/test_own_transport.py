"""A transport in one file: it opens, has a label, explains its failures, and may send requests itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from bridge import ToolBox, tool
from bridge.client import Connection, McpToolProvider, ServerConfig
from bridge.client.transports.channel import (
    Cause,
    Channel,
    ChannelOptions,
    OutgoingRequest,
    ProgressListener,
    RequestSender,
    TransportFailedError,
)
from bridge.client.transports.memory import MemoryChannel
from bridge.client.transports.transport import Transport
from bridge.errors import ServerUnavailableError
from bridge.server.publisher import Publisher
from tests.client.conftest import opened

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from mcp import Client

    from bridge.types import Json

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

    def channels(self, options: ChannelOptions, last_kind: str | None) -> Sequence[Channel]:
        direct = DirectRelay(self)
        return (direct,) if last_kind == DirectRelay.kind else (ClosedRelay(self), direct)


class ClosedRelay(Channel):
    """A relay that refuses messages; a later one may accept them."""

    kind = "closed"

    def __init__(self, transport: RelayTransport) -> None:
        super().__init__()
        self._transport = transport

    def open(self) -> NoReturn:
        self._transport.opened.append(self.kind)
        raise TransportFailedError(Cause("the secret relay is closed", self._transport.hint))

    def is_refused(self) -> bool:
        return not self._transport.closed


class DirectRelay(MemoryChannel):
    """A relay that sends calls itself, and everything else through the SDK's session."""

    kind = "relay"

    def __init__(self, transport: RelayTransport) -> None:
        super().__init__(Publisher(ToolBox([add]), name="relayed").server)
        self._transport = transport

    def open(self) -> AbstractAsyncContextManager[Any]:
        self._transport.opened.append(self.kind)
        return super().open()

    def request_sender(self, client: Client) -> RequestSender:
        async def send(params: Mapping[str, Any]) -> Json:
            self._transport.sent.append((client.protocol_version, params["arguments"]))
            return {"content": [{"type": "text", "text": "sent directly"}], "structuredContent": {"result": 3}}

        def sender(
            method: str, params: Mapping[str, Any], outgoing: OutgoingRequest, on_progress: ProgressListener | None
        ) -> Coroutine[Any, Any, Json] | None:
            assert outgoing.call is not None
            return send(params) if method == "tools/call" and on_progress is not None else None

        return sender


async def test_a_transport_sends_what_it_can_and_leaves_the_rest_to_the_session() -> None:
    transport = RelayTransport()
    async with McpToolProvider([ServerConfig(name="far", transport=transport, required=True)]) as provider:
        assert [each.name for each in provider.tools] == ["add"], "listed by the SDK's session"
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
