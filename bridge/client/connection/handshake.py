"""Opening a session over the configured transport.

Transport: from what a configuration says of a server to a link with it.

Whatever is opened here is closed here, by the same task, in the reverse order: the SDK's client, its transport, and
the child with all that it started.

Sharing: one `SignIn` for all connections to a server that sign in alike, so that one renewal serves them all.
"""

from __future__ import annotations

import shlex
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakValueDictionary

import anyio
from anyio.lowlevel import RunVar
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import DiscoverResult, Implementation
from mcp_types.version import LATEST_MODERN_VERSION

from bridge.client.auth.errors import BY_A_KEY
from bridge.client.auth.grants import OAuthLogin
from bridge.client.auth.sign_in import SignIn
from bridge.client.config.servers import HttpTransport, MemoryTransport, StdioTransport, UnusableTransport
from bridge.client.connection.callbacks import Callbacks
from bridge.client.connection.requests import HandshakeTelemetry, peer_of
from bridge.client.connection.tool_listing import filtered
from bridge.client.transports.http_client import TrackedHttpClient
from bridge.client.transports.limits import MAX_MESSAGE_BYTES
from bridge.client.transports.process import child_process
from bridge.client.transports.sse_streams import sse_streams
from bridge.client.transports.stdio_streams import stdio_streams
from bridge.errors import ConfigError
from bridge.telemetry import switch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    import httpx2

    from bridge.client.auth.grants import Grant
    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.session import Session

_SPEAKS_NO_STREAMABLE_HTTP: Final = frozenset({400, 404, 405, 406, 410, 415, 501})
"""The answers to a POST after which the older transport is tried (MCP transports, backwards compatibility)."""

_Shared: TypeAlias = "WeakValueDictionary[tuple[str, Grant], SignIn]"

_of_event_loop: RunVar[_Shared] = RunVar("bridge.client.connection.handshake")


@dataclass(slots=True)
class DetectedTransport:
    """What earlier links found out about a server, so that later ones need not."""

    is_sse: bool = False
    """It speaks HTTP with SSE, though nothing says so."""
    is_legacy: bool = False
    """It speaks the handshake era, though it was asked for the modern one first."""


@asynccontextmanager
async def open_session(
    link: Session, config: ServerConfig, handlers: ClientHandlers, findings: DetectedTransport, auth: httpx2.Auth | None
) -> AsyncIterator[Session]:
    """Reach a server and greet it; the link is ready in this block.

    Args:
        link: What is to become ready.
        config: How to reach the server.
        handlers: Who answers its questions.
        findings: What is known of it; added to.
        auth: How HTTP requests are signed.

    Raises:
        Exception: It cannot be reached or greeted; see `bridge.client.connection.failures`.
    """
    options = Callbacks(config.name, link, handlers).options()
    mode = "legacy" if findings.is_legacy and config.protocol == "auto" else config.protocol
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        stack.enter_context(link.beside(tasks))
        match config.transport:
            case StdioTransport() as transport:
                link.kind = "stdio"
                link.child = await stack.enter_async_context(child_process(transport, config.name))
                streams = filtered(stdio_streams(link.child, link.child_ended, link.undelivered), link)
                client = await _greeted(stack, link, config, streams, mode, options)
            case MemoryTransport(server=server):
                link.kind = "memory"
                client = await _greeted(stack, link, config, server, mode, options)
            case UnusableTransport(problems=problems):
                raise ConfigError(config.name, problems)
            case HttpTransport() as transport:
                client = await _greeted_over_http(stack, link, config, transport, mode, options, findings, auth)
        link.greeted(client)
        findings.is_legacy = link.era == "handshake"
        yield link


@cache
def _bridge() -> Implementation:
    """What servers are told of this client; looking the version up takes as long as all the rest of a greeting."""
    return Implementation(name="bridge", version=version("mcp-toolbridge"))


async def _greeted(
    stack: AsyncExitStack, link: Session, config: ServerConfig, server: Any, mode: str, options: Mapping[str, Any]
) -> Client:
    client = Client(
        server,
        mode=mode,
        cache=None,
        client_info=_bridge(),
        **options,
    )
    with observed_handshake(link, config):
        await stack.enter_async_context(client)
        if mode == LATEST_MODERN_VERSION:  # the SDK has sent nothing yet, and knows nothing of the server
            said = await client.session.send_discover(mode)
            client.session.adopt(DiscoverResult.model_validate(said))
    return client


async def _greeted_over_http(
    stack: AsyncExitStack,
    link: Session,
    config: ServerConfig,
    transport: HttpTransport,
    mode: str,
    options: Mapping[str, Any],
    findings: DetectedTransport,
    auth: httpx2.Auth | None,
) -> Client:
    def http_client(*, is_sse: bool) -> TrackedHttpClient:
        return TrackedHttpClient(
            link,
            is_sse=is_sse,
            headers=dict(transport.headers),
            connect_seconds=config.connect_timeout_seconds,
            auth=auth if auth is not None else shared_sign_in(transport),
        )

    if transport.kind == "http" or (transport.kind is None and not findings.is_sse):
        link.kind = "http"
        inner = AsyncExitStack()
        try:
            http = await inner.enter_async_context(http_client(is_sse=False))
            messages = streamable_http_client(transport.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
            streams = filtered(messages, link)
            client = await _greeted(inner, link, config, streams, mode, options)
        except BaseException as error:
            await inner.aclose()
            if not isinstance(error, Exception) or not _may_speak_sse(transport, link, mode):
                raise
        else:
            await stack.enter_async_context(inner)
            return client
    link.kind = "sse"
    streams = filtered(sse_streams(transport.url, http_client(is_sse=True)), link)
    # The specification has no modern era over SSE.
    client = await _greeted(stack, link, config, streams, "legacy", options)
    findings.is_sse = transport.kind is None
    return client


def _may_speak_sse(transport: HttpTransport, link: Session, mode: str) -> bool:
    return transport.kind is None and link.status in _SPEAKS_NO_STREAMABLE_HTTP and mode != LATEST_MODERN_VERSION


def shared_sign_in(transport: HttpTransport) -> SignIn | None:
    """What signs the requests to a server; None where a header does.

    Where nothing is said of how to sign in, it is as whoever has logged in, if anybody has.
    """
    if any(name.lower() == "authorization" for name in transport.headers):
        return None
    hint = f"run: bridge login {shlex.quote(transport.login_target or transport.redacted())}"
    key_hint = None
    if transport.auth is None:
        nonetheless = f"it names no authorization server; if it has logins nonetheless, {hint}"
        key_hint = f"it wants a key: give it {BY_A_KEY} ({nonetheless})"
        hint += " (or give it an 'Authorization' header in 'headers')"
    grant = transport.auth or OAuthLogin()
    shared = _of_event_loop.get(None)
    if shared is None:
        shared = WeakValueDictionary()
        _of_event_loop.set(shared)
    signing = shared.get((transport.url, grant))
    if signing is None:
        signing = shared[transport.url, grant] = SignIn(transport.url, grant, hint=hint, key_hint=key_hint)
    return signing


@contextmanager
def observed_handshake(link: Session, config: ServerConfig) -> Iterator[None]:
    """A block in which a server is greeted.

    Args:
        link: The connection.
        config: The server.
    """
    if (observer := switch.observer()) is None:
        yield
        return
    greeting = link.greeting = HandshakeTelemetry(observer, peer_of(config, link.kind, ""))
    try:
        yield
    except BaseException as error:
        greeting.ended(error)
        raise
    finally:
        link.greeting = None
