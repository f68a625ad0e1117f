"""Greeting: the requests by which a server is greeted, as an observer hears of them.

The SDK sends them from within what opens its client, so they are timed where messages go by: from when one is handed
to the transport until its answer comes out of it. They have no spans: what is begun while one was open would be of it.
"""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from anyio.abc import ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import REQUEST_TIMEOUT, JSONRPCError, JSONRPCRequest, JSONRPCResponse

from bridge.client.peers import peer_of
from bridge.telemetry import switch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.session import Link
    from bridge.telemetry.instruments import Peer
    from bridge.telemetry.observer import Observer


class Greeting:
    """What a server is asked until it is greeted, one request after the other.

    Args:
        observer: Who is told of each.
        peer: The server.
    """

    def __init__(self, observer: Observer, peer: Peer) -> None:
        self._observer = observer
        self._peer = peer
        self._asked: tuple[object, str, float] | None = None

    def sent(self, message: object) -> None:
        """A message goes to the server; where it is a request, nobody waits for the one before it any more."""
        if isinstance(message, JSONRPCRequest):
            self.ended(REQUEST_TIMEOUT)
            self._asked = message.id, message.method, perf_counter()

    def received(self, message: object) -> None:
        """A message came from the server."""
        if self._asked is None or not isinstance(message, JSONRPCResponse | JSONRPCError):
            return
        if message.id == self._asked[0]:
            self.ended(message.error.code if isinstance(message, JSONRPCError) else None)

    def ended(self, error: BaseException | int | None) -> None:
        """What was asked last, if anything, was answered, or will not be.

        Args:
            error: What was raised instead of an answer, or the code of an error of the protocol; None for a result.
        """
        if self._asked is not None:
            _, method, start = self._asked
            self._asked = None
            self._observer.asked(method, self._peer, perf_counter() - start, error)


class GreetingWriter(ObjectSendStream[SessionMessage]):
    """The stream that the SDK writes its messages to.

    Args:
        messages: The transport's own.
        link: The connection.
    """

    def __init__(self, messages: Any, link: Link) -> None:
        self._messages = messages
        self._link = link

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        if self._link.greeting is not None:
            self._link.greeting.sent(item.message)
        await self._messages.send(item)

    async def aclose(self) -> None:
        """Write no more."""
        await self._messages.aclose()


@contextmanager
def observed_greeting(link: Link, config: ServerConfig) -> Iterator[None]:
    """A block in which a server is greeted.

    Args:
        link: The connection.
        config: The server.
    """
    if (observer := switch.observer()) is None:
        yield
        return
    greeting = link.greeting = Greeting(observer, peer_of(config, link.kind, ""))
    try:
        yield
    except BaseException as error:
        greeting.ended(error)
        raise
    finally:
        link.greeting = None
