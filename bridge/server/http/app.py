"""Serving over HTTP: an ASGI app with streamable HTTP and SSE behind one edge.

Edge ── Host, Origin, started?
CorsMiddleware ── what browsers are to be told, where pages of other origins are let in
Gate ── a key or token, where one is asked for
Turnstile ── how much each caller may take, where that is limited
BodyLimitMiddleware ── body limit, fast path
  ├── /mcp, /mcp/              StreamableEndpoint   both eras
  ├── /sse, /sse/              SseStream            handshake era
  ╰── /messages, /messages/    SseMessages
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from mcp.server.sse import SseServerTransport
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from bridge.server.http.cors import CorsMiddleware
from bridge.server.http.fast import FastHttp
from bridge.server.http.guards import _ASKED_DIRECTLY, PreAsgiHandler, _guarding, _limited, _turnstile
from bridge.server.http.host_origin import AllowedHosts, HostOriginMiddleware
from bridge.server.http.requests import (
    DEFAULT_MAX_REQUEST_BYTES,
    MESSAGES_PATH,
    STREAM_PATH,
    BodyLimitMiddleware,
    shares_of_bodies,
)
from bridge.server.http.sessions import DEFAULT_MAX_SESSIONS, IDLE_SECONDS, Sessions
from bridge.server.http.sse import SseMessages, SseStream
from bridge.server.http.streamable import StreamableEndpoint
from bridge.server.http.streams import OpenStreams
from bridge.server.publisher import Publisher
from bridge.server.running_calls import Drain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from mcp.server.auth.provider import TokenVerifier

    from bridge.server.auth.auth import Auth
    from bridge.server.auth.guards import AuthGuards
    from bridge.server.cluster import Cluster
    from bridge.server.http.responses import PlainHandler
    from bridge.server.limits import Limits
    from bridge.tools.execution import ExecutionPolicy


def http_app(
    tools: object,
    *,
    name: str = "bridge",
    version: str = "",
    path: str = "/mcp",
    sse: bool = True,
    streamable: bool = True,
    host: str = "127.0.0.1",
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
    page_size: int | None = None,
    policy: ExecutionPolicy | None = None,
    publisher: Publisher | None = None,
    fast_path: bool = True,
    session_idle_seconds: float | None = IDLE_SECONDS,
    auth: Auth | TokenVerifier | None = None,
    stateless: bool = False,
    redis_url: str | None = None,
    limits: Limits | None = None,
    max_sessions: int = DEFAULT_MAX_SESSIONS,
    instructions: str | None = None,
) -> Starlette:
    """A Starlette app that serves tools over streamable HTTP, both eras, and over SSE.

    Run it with any ASGI server; its lifespan must run (see `mount` for an app inside another). A client of the modern
    era that closes its request cancels the call; in the handshake era the call goes on until it is cancelled.

    Args:
        tools: What is served: a ToolBox, whose changes are announced, or anything that one takes.
        name: What the server calls itself.
        version: The version of what is served; empty where it has none.
        path: Where streamable HTTP is served, with a slash after it and without.
        sse: Whether to serve SSE, at ``/sse`` and ``/messages/``.
        streamable: Whether to serve streamable HTTP.
        host: The host that the app will be bound to; it is let in as a Host and an Origin.
        allowed_hosts: Further hosts under which the server may be reached; see `AllowedHosts` for how they are written.
        allowed_origins: Further origins whose pages may use the server, and whose browsers are told so (CORS); see
            `AllowedHosts`.
        max_request_bytes: How long a request's body may be.
        page_size: As for `Publisher`.
        policy: As for `Publisher`.
        publisher: What publishes the tools, where more is to be said, such as a title; ``name``, ``version``,
            ``instructions``, ``page_size``, ``policy`` and ``limits`` then do not count.
        fast_path: Whether plain requests are answered without the SDK.
        session_idle_seconds: How long a session of the handshake era may go unused; None for as long as the app runs.
        auth: Who may come in: `bridge.server.auth.Auth`, or one verifier such as `ApiKeys` or `JwtVerifier`; None for
            everyone.
        stateless: Whether clients of the handshake era are served without sessions, as they have to be where each
            request may come to another process: tools cannot ask them, and changes are not announced to them.
        redis_url: The Redis by which servers of one name are one server, so that a session of streamable HTTP can go on
            with each of them, and rates are counted for all. Needs the extra ``redis``.
        limits: How much each caller may take; a publisher that is given brings its own.
        max_sessions: How many sessions of the handshake era may be open. Where all are, one in which no
            call runs is ended for a caller with fewer of them than another has.
        instructions: What a model should know about the server as a whole.

    Returns:
        The app. Its ``state.shutdown`` is a function that ends the streams that are open, for servers that, like
        uvicorn, wait for their connections before they end the lifespan: call it before they wait. Its ``state.drain``
        does the same and lets running calls end (see `bridge.server.running_calls.Drain`); run it while they wait.

    Raises:
        DefinitionError: There are no tools in what is served, or ``auth`` cannot verify a credential.
        MissingExtraError: There is to be a Redis, and the package ``redis`` is not installed.
        ValueError: Neither transport is wanted, SSE is to go without sessions, or a path, host, origin or limit is not
            written as it has to be.
    """
    if not (sse or streamable):
        raise ValueError("nothing to serve: sse=True or streamable=True")
    if stateless and redis_url is not None:
        raise ValueError("sessions are kept in Redis, or not at all: redis_url=None, or stateless=False")
    if sse and stateless:
        raise ValueError("SSE is nothing but sessions: sse=False, or stateless=False")
    if not path.startswith("/") or "{" in path:
        raise ValueError(f"a path begins with a slash and has no parameters: not {path!r}")
    if sse and streamable and path.rstrip("/") in {STREAM_PATH, MESSAGES_PATH.rstrip("/")}:
        raise ValueError(f"the path {path!r} is that of SSE; choose another, or serve without SSE")
    if max_request_bytes < 1:
        raise ValueError(f"max_request_bytes must be at least 1, not {max_request_bytes!r}")
    if max_sessions < 1:
        raise ValueError(f"max_sessions must be at least 1, not {max_sessions!r}")
    publisher = publisher or Publisher(
        tools,
        name=name,
        version=version,
        instructions=instructions,
        page_size=page_size,
        policy=policy,
        limits=limits,
    )
    guarding = None if auth is None else _guarding(auth, publisher, max_request_bytes)
    bodies = shares_of_bodies(max_request_bytes)
    service = _Service(
        publisher,
        Sessions(session_idle_seconds, max_sessions, bodies),
        max_request_bytes,
        path if streamable else None,
        sse=sse,
        fast_path=fast_path,
        guarding=guarding,
        stateless=stateless,
        shared=None if redis_url is None else partial(_shared, redis_url, session_idle_seconds),
    )
    names, any_name = AllowedHosts(host, allowed_hosts, allowed_origins), set[str]()
    middleware = [
        Middleware(HostOriginMiddleware, names=names, is_running=lambda: service.is_running, any_name=any_name),
        *([Middleware(CorsMiddleware, names=names)] if names.allows_some_origins else []),
        *([] if guarding is None else guarding.before_body),
        *([] if publisher.accounts is None else [_turnstile(publisher.accounts)]),
        Middleware(
            BodyLimitMiddleware,
            max_bytes=max_request_bytes,
            bodies=bodies,
            shortcut=None if service.fast is None else service.fast.answered,
        ),
        *([] if guarding is None else guarding.after_body),
    ]
    app = Starlette(routes=service.routes, middleware=middleware, lifespan=service.lifespan)
    app.router.redirect_slashes = False
    app.state.shutdown = service.end_streams
    app.state.drain = service.drain
    app.state.any_name = any_name
    asked_directly = _ASKED_DIRECTLY if guarding is None else _ASKED_DIRECTLY | guarding.middleware
    if service.fast is not None:
        beginner: PlainHandler = service.fast
        if publisher.accounts is not None:
            beginner, turnstile = _limited(beginner, publisher.accounts)
            asked_directly |= {turnstile}
        app.state.direct = partial(PreAsgiHandler, beginner, names, max_request_bytes, guarding)
    app.state.asked_directly = asked_directly
    app.state.unmatched = None if guarding is None else guarding.unmatched
    app.state.open_routes = [] if guarding is None else guarding.routes
    return app


def _shared(url: str, idle_seconds: float | None, publisher: Publisher, sessions: Sessions) -> Cluster:
    from bridge.server.cluster import Cluster  # noqa: PLC0415 - only for those who have replicas, and an extra

    return Cluster(url, publisher, sessions, idle_seconds)


class _Service:
    """The parts of one app, and the time during which they run."""

    def __init__(
        self,
        publisher: Publisher,
        sessions: Sessions,
        max_request_bytes: int,
        path: str | None,
        *,
        sse: bool,
        fast_path: bool,
        guarding: AuthGuards | None,
        stateless: bool,
        shared: Callable[[Publisher, Sessions], Cluster] | None,
    ) -> None:
        self.is_running = False
        self.routes: list[Route] = [] if guarding is None else list(guarding.routes)
        self._open_paths = {route.path.rstrip("/") for route in self.routes}
        self._guarding = guarding
        self._shared = None if shared is None else shared(publisher, sessions)
        self._publisher = publisher
        self._streams = OpenStreams(end_with_credentials=True)
        self._sse_streams = OpenStreams()
        farewells = [publisher.server.end_subscriptions, self._streams.end]
        self.drain = Drain(publisher.running, farewells)
        self._endpoint: StreamableEndpoint | None = None
        self.fast: FastHttp | None = None
        if path is not None:
            self._endpoint = StreamableEndpoint(
                publisher.server,
                self._streams,
                sessions,
                max_request_bytes,
                stateless=stateless,
                shared=None if self._shared is None else self._shared.sessions,
            )
            paths = self._route(path, self._endpoint)
            if fast_path:
                self.fast = FastHttp(publisher, sessions, paths)
        if sse:
            transport = SseServerTransport(MESSAGES_PATH, max_request_body_size=max_request_bytes)
            stream = SseStream(publisher.server, transport, self._sse_streams, sessions)
            self._route(STREAM_PATH, stream, methods=["GET"])
            farewells.append(stream.end_when_answered)
            self._route(MESSAGES_PATH, SseMessages(transport, max_request_bytes))

    def _route(self, path: str, endpoint: object, methods: list[str] | None = None) -> tuple[str, ...]:
        bare = path.rstrip("/")
        if bare in self._open_paths:
            raise ValueError(
                f"the path {path!r} tells everybody which issuers give tokens for this server; choose another"
            )
        forms = (bare, bare + "/") if bare else ("/",)
        for form in forms:
            self.routes.append(Route(form, endpoint=endpoint, methods=methods))  # type: ignore[arg-type]
        return forms

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._shared is not None:
                await stack.enter_async_context(self._shared.running())
            if self._endpoint is not None:
                await stack.enter_async_context(self._endpoint.running())
            if self._guarding is not None:
                await stack.enter_async_context(self._guarding.running())
            self.is_running, self._publisher.running.is_over = True, False
            try:
                yield
            finally:
                self.is_running = False
                self.end_streams()

    def end_streams(self) -> None:
        self._publisher.server.end_subscriptions()
        self._streams.end()
        self._sse_streams.end()
