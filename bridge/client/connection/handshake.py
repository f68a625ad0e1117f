"""Opening of a session: the channel, then the handshake.

Both are closed by the same task in reverse order: the SDK's client, its message streams, the channel.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import anyio
from anyio.abc import ObjectSendStream
from mcp import Client
from mcp.client import ClientExtension, ResultClaim, advertise
from mcp.shared.message import SessionMessage
from mcp_types import CLIENT_CAPABILITIES_META_KEY, DiscoverResult, Implementation, JSONRPCRequest, Result
from mcp_types.version import LATEST_MODERN_VERSION

from bridge.client.connection.handlers import Callbacks
from bridge.client.connection.listing import ListFilter
from bridge.client.connection.telemetry import HandshakeTelemetry, peer_of
from bridge.client.transports.channel import ChannelOptions, current_request
from bridge.telemetry import switch
from bridge.wire.tasks import TASKS_EXTENSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    import httpx2

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.session import Session
    from bridge.client.connection.state import Era
    from bridge.client.transports.channel import Channel
    from bridge.telemetry.instruments import Peer


class _CreatedTask(Result):
    """Task in place of the result of a call."""

    result_type: Literal["task"] = "task"


class _Tasks(ClientExtension):
    """Declares tasks in the requests of the modern era; `bridge.client.connection.tasks` waits for them."""

    identifier = TASKS_EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the claim without which the SDK would declare the extension in the handshake era as well."""
        return (ResultClaim(result_type="task", model=_CreatedTask, resolve=_unresolved),)


async def _unresolved(*_: object) -> NoReturn:
    raise AssertionError("sessions read the results of calls themselves")


@asynccontextmanager
async def open_session(
    session: Session,
    config: ServerConfig,
    handlers: ClientHandlers,
    *,
    auth: httpx2.Auth | None,
    last_kind: str | None,
    last_era: Era | None,
) -> AsyncIterator[None]:
    """Reach a server and complete the handshake; the session is ready in this block.

    Args:
        session: The new session.
        config: The server.
        handlers: Handlers of server requests.
        auth: Authentication of HTTP requests; None to use the configuration.
        last_kind: Kind of the channel of the previous session; None for none.
        last_era: Era of the previous handshake, which is not probed again; None to probe. The SDK's probe takes a lost
            connection for an answer of the handshake era.

    Raises:
        Exception: The server cannot be reached, or the handshake fails; see `bridge.client.connection.failures`.
    """
    declared = {**handlers.extensions, **config.extensions}
    extensions = [_Tasks(), *(advertise(*extension) for extension in declared.items())]
    options = {**Callbacks(config.name, session, handlers).options(), "extensions": extensions}
    mode: str = config.protocol
    if mode == "auto" and last_era is not None:
        mode = LATEST_MODERN_VERSION if last_era == "modern" else "legacy"
    channel_options = ChannelOptions(
        server=config.name,
        events=session,
        connect_seconds=config.connect_timeout_seconds,
        auth=auth,
        fast_path=config.fast_path and session.on_message is None,
    )
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        stack.enter_context(session.run_background_tasks(tasks))
        channels = config.transport.channels(channel_options, last_kind)
        for channel in channels:
            session.channel = channel
            try:
                async with AsyncExitStack() as attempt:
                    client = await _initialized(attempt, session, config, channel, mode, options)
                    stack.push_async_exit(attempt.pop_all())
                break
            except Exception:
                if channel is channels[-1] or mode == LATEST_MODERN_VERSION or not channel.is_refused():
                    raise
        session.ready(client, peer_of(config, channel, client.protocol_version))
        yield


@cache
def _bridge() -> Implementation:
    """Describe this client to servers; cached, since reading the version is slow."""
    return Implementation(name="bridge", version=version("mcp-toolbridge"))


async def _initialized(
    stack: AsyncExitStack,
    session: Session,
    config: ServerConfig,
    channel: Channel,
    mode: str,
    options: Mapping[str, Any],
) -> Client:
    if channel.is_legacy:
        mode = "legacy"
    target = await stack.enter_async_context(channel.open())
    client = Client(
        _filtered(target, session) if channel.records_requests else target,
        mode=mode,
        cache=None,
        client_info=_bridge(),
        **options,
    )
    with _observed_handshake(session, peer_of(config, channel, "")):
        await stack.enter_async_context(client)
        if mode == LATEST_MODERN_VERSION:  # the SDK has sent nothing yet, and knows nothing of the server
            result = await client.session.send_discover(mode)
            client.session.adopt(DiscoverResult.model_validate(result))
    return client


@asynccontextmanager
async def _filtered(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], session: Session
) -> AsyncIterator[tuple[ListFilter, Any]]:
    """Wrap a transport's streams with `ListFilter` and `SessionWriter`."""
    async with transport as (messages, writer):
        yield ListFilter(messages, session), SessionWriter(writer, session)


@contextmanager
def _observed_handshake(session: Session, peer: Peer) -> Iterator[None]:
    """Report the handshake requests that are sent in this block."""
    if (observer := switch.observer()) is None:
        yield
        return
    handshake = session.handshake = HandshakeTelemetry(observer, peer)
    try:
        yield
    except BaseException as error:
        handshake.ended(error)
        raise
    finally:
        session.handshake = None


class SessionWriter(ObjectSendStream[SessionMessage]):
    """Stream that the SDK writes messages to.

    It reports them, and handshake requests to telemetry. A request that declares capabilities of its own gets them in
    place of those that the SDK has written.
    """

    def __init__(self, messages: Any, session: Session) -> None:
        self._messages = messages
        self._session = session

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        request, message = current_request.get(), item.message
        if request is not None and request.capabilities is not None and isinstance(message, JSONRPCRequest):
            meta = (message.params or {}).get("_meta", {})
            if CLIENT_CAPABILITIES_META_KEY in meta:  # only in the modern era
                meta[CLIENT_CAPABILITIES_META_KEY] = request.capabilities
        self._session.report("sent", item.message)
        if self._session.handshake is not None:
            self._session.handshake.sent(item.message)
        await self._messages.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._messages.aclose()
