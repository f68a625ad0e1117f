"""Opening of a session: the link, then the handshake. Both are closed by the same task in reverse order."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING

import anyio

from bridge.client.connection.server_messages import ServerMessages
from bridge.client.transports.link import LinkOptions
from bridge.protocol.messages import ProtocolError, notification
from bridge.protocol.negotiation import DISCOVER, Negotiation
from bridge.protocol.peer import PendingRequest
from bridge.protocol.results import InvalidResultError
from bridge.protocol.versions import REQUEST_TIMEOUT
from bridge.telemetry import current
from bridge.telemetry.conventions import SERVER_ADDRESS, SERVER_PORT
from bridge.telemetry.instruments import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.session import Session
    from bridge.client.connection.status import Era
    from bridge.client.transports.link import Link
    from bridge.protocol.negotiation import Agreement, Mode
    from bridge.types import Json

PROBE_SECONDS = 10.0
"""Seconds after which a server that does not answer a probe is taken for one of the handshake era."""


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
        last_kind: Kind of the link of the previous session; None for none.
        last_era: Era of the previous handshake, which is not probed again; None to probe.

    Raises:
        Exception: The server cannot be reached, or the handshake fails; see `bridge.client.connection.failures`.
    """
    mode: Mode = config.protocol
    if mode == "auto" and last_era is not None:
        mode = "2026-07-28" if last_era == "modern" else "legacy"
    options = LinkOptions(
        server=config.name,
        events=session,
        connect_seconds=config.connect_timeout_seconds,
        auth=auth,
    )
    session.messages = ServerMessages(
        config.name, session, handlers, has_extensions=bool(config.extensions or handlers.extensions)
    )
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        stack.enter_context(session.run_background_tasks(tasks))
        links = config.transport.links(options, last_kind)
        for link in links:
            session.link = link
            try:
                async with AsyncExitStack() as attempt:
                    await attempt.enter_async_context(link.open())
                    negotiation = Negotiation(
                        "legacy" if link.is_legacy else mode,
                        _bridge(),
                        partial(handlers.capabilities, further=config.extensions),
                    )
                    agreement = await _agreement(session, negotiation, _labels(config, link, ""), mode)
                    stack.push_async_exit(attempt.pop_all())
                break
            except Exception:
                if link is links[-1] or mode == "2026-07-28" or not link.is_refused():
                    if links[0].reason:  # it says more than the absence of the other transport
                        session.link = links[0]
                    raise
        session.ready(agreement, _labels(config, link, agreement.version))
        link.agreed()
        yield


@cache
def _bridge() -> Json:
    """Describe this client to servers; cached, since reading the version is slow."""
    return {"name": "bridge", "version": version("mcp-toolbridge")}


def _labels(config: ServerConfig, link: Link, protocol_version: str) -> Peer:
    """Describe a server and its link, for telemetry; the protocol version is empty before the handshake."""
    address: tuple[tuple[str, str | int], ...] = ()
    if (host_and_port := config.transport.host_and_port) is not None:
        address = ((SERVER_ADDRESS, host_and_port[0]), (SERVER_PORT, host_and_port[1]))
    return Peer(link.kind, protocol_version, config.name, address)


async def _agreement(session: Session, negotiation: Negotiation, labels: Peer, mode: Mode) -> Agreement:
    """Agree with the server on a version; raises as `open_session`."""
    while negotiation.agreement is None:
        opening = negotiation.request()
        session.peer.use(opening.version, {})
        error: BaseException | int | None = None
        began = perf_counter()
        try:
            with anyio.fail_after(PROBE_SECONDS if opening.method == DISCOVER and mode == "auto" else None):
                session.write(opening.method, opening.params, request := PendingRequest())
                negotiation.answered(await session.finish(request))
        except (ProtocolError, InvalidResultError) as refusal:
            error = refusal
            negotiation.refused(refusal)
        except TimeoutError:
            error = REQUEST_TIMEOUT
            negotiation.refused(ProtocolError(REQUEST_TIMEOUT, f"Request {opening.method!r} timed out"))
        except BaseException as other:
            error = other
            raise
        finally:
            if (observer := current.observer()) is not None:
                observer.asked(opening.method, labels, perf_counter() - began, error)
    agreement = negotiation.agreement
    session.peer.use(agreement.version, agreement.stamps)
    if not session.peer.is_modern:
        await session.post(notification("notifications/initialized"))
    return agreement
