"""Serving over HTTP: an ASGI app with streamable HTTP and SSE behind one list of guards.

GuardMiddleware ── HostOriginGuard, CorsGuard, BearerAuthGuard, RateLimitGuard, BodyLimitGuard, ToolScopeGuard
  ├── FastHttp                 plain requests of both eras
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

from bridge.errors import DefinitionError
from bridge.server.http.cors import CorsGuard
from bridge.server.http.fast import FastHttp
from bridge.server.http.guards import GuardMiddleware, PreAsgiHandler
from bridge.server.http.host_origin import AllowedHosts, HostOriginGuard
from bridge.server.http.requests import (
    DEFAULT_MAX_REQUEST_BYTES,
    MESSAGES_PATH,
    STREAM_PATH,
    BodyLimitGuard,
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
    from bridge.server.http.guards import Guard
    from bridge.server.limits import Limits
    from bridge.server.limits.accounts import Accounts
    from bridge.server.limits.guard import RateLimitGuard
    from bridge.server.unmatched_names import UnmatchedAuthNames
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
) -> BridgeApp:
    """Make a Starlette app that serves tools over streamable HTTP, both eras, and over SSE.

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
        The app. Its ``shutdown()`` ends the open streams, for servers that, like uvicorn, wait for their connections
        before they end the lifespan: call it before they wait. Its ``drain`` does the same and lets running calls end
        (see `bridge.server.running_calls.Drain`); run it while they wait. Both are in the app's ``state``, too.

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
    return BridgeApp(
        publisher,
        Sessions(session_idle_seconds, max_sessions, shares_of_bodies(max_request_bytes)),
        AllowedHosts(host, allowed_hosts, allowed_origins),
        path=path if streamable else None,
        sse=sse,
        fast_path=fast_path,
        max_request_bytes=max_request_bytes,
        auth=None if auth is None else _auth_guards(auth, publisher),
        stateless=stateless,
        shared=None if redis_url is None else partial(_shared, redis_url, session_idle_seconds),
    )


def _auth_guards(auth: Auth | TokenVerifier, publisher: Publisher) -> AuthGuards:
    if not hasattr(auth, "verify_token"):  # the value may be a secret: the message does not contain it
        raise DefinitionError(
            f"auth takes Auth(…) or one verifier, and got a {type(auth).__name__!r}; "
            "keys are let in by auth=Auth(ApiKeys(ApiKey(…))), all of bridge.server.auth"
        )
    from bridge.server.auth.guards import AuthGuards  # noqa: PLC0415 - only where a credential is required

    return AuthGuards(auth, publisher)


def _rate_limit_guard(accounts: Accounts) -> RateLimitGuard:
    from bridge.server.limits.guard import RateLimitGuard  # noqa: PLC0415 - only where there are limits

    return RateLimitGuard(accounts)


def _shared(url: str, idle_seconds: float | None, publisher: Publisher, sessions: Sessions) -> Cluster:
    from bridge.server.cluster import Cluster  # noqa: PLC0415 - only for those who have replicas, and an extra

    return Cluster(url, publisher, sessions, idle_seconds)


class BridgeApp(Starlette):
    """The app that `http_app` makes. ``state.shutdown`` and ``state.drain`` are `shutdown` and `drain`.

    Args:
        publisher: The tools.
        sessions: Sessions of the handshake era.
        names: Allowed hosts and origins.
        path: Path of streamable HTTP; None without it.
        sse: True to serve SSE.
        fast_path: True to answer plain requests without the SDK.
        max_request_bytes: Maximum length of a request's body.
        auth: Guards that authenticate callers; None where no credential is required.
        stateless: True to serve the handshake era without sessions.
        shared: Makes what is shared with other replicas; None without replicas.
    """

    def __init__(
        self,
        publisher: Publisher,
        sessions: Sessions,
        names: AllowedHosts,
        *,
        path: str | None,
        sse: bool,
        fast_path: bool,
        max_request_bytes: int,
        auth: AuthGuards | None,
        stateless: bool,
        shared: Callable[[Publisher, Sessions], Cluster] | None,
    ) -> None:
        self.public_routes: list[Route] = [] if auth is None else auth.routes
        """Routes that need no credential: the metadata of the issuers of tokens."""
        self.unmatched_names: UnmatchedAuthNames | None = None if auth is None else auth.unmatched
        """Warns of names in the configuration of authentication that no tool has; None without authentication."""
        self.limits_requests = publisher.accounts is not None
        """True when requests are limited by caller, who may be known by address only."""
        self.any_host_paths: set[str] = set()
        """Paths that are served under any host; may be added to until the app starts."""
        self._is_running = False
        self._publisher = publisher
        self._auth = auth
        self._cluster = None if shared is None else shared(publisher, sessions)
        self._streams = OpenStreams(end_with_credentials=True)
        self._sse_streams = OpenStreams()
        self._endpoint: StreamableEndpoint | None = None
        self._fast: FastHttp | None = None
        routes = list(self.public_routes)
        farewells = [publisher.server.end_subscriptions, self._streams.end]
        self.drain = Drain(publisher.running, farewells)
        """Ends streams, and lets running calls end; run it while the server waits for its connections."""
        if path is not None:
            self._endpoint = StreamableEndpoint(
                publisher.server,
                self._streams,
                sessions,
                max_request_bytes,
                stateless=stateless,
                shared=None if self._cluster is None else self._cluster.sessions,
            )
            served = self._routes(path, self._endpoint)
            routes += served
            if fast_path:
                self._fast = FastHttp(publisher, sessions, [route.path for route in served])
        if sse:
            transport = SseServerTransport(MESSAGES_PATH, max_request_body_size=max_request_bytes)
            stream = SseStream(publisher.server, transport, self._sse_streams, sessions)
            farewells.append(stream.end_when_answered)
            routes += self._routes(STREAM_PATH, stream, methods=["GET"])
            routes += self._routes(MESSAGES_PATH, SseMessages(transport))

        self.guards: list[Guard] = [HostOriginGuard(names, lambda: self._is_running, self.any_host_paths)]
        """Guards of all requests, in order; may be changed until the app starts."""
        if names.allows_some_origins:
            self.guards.append(CorsGuard(names))
        if auth is not None:
            self.guards.append(auth.credential)
        if publisher.accounts is not None:
            self.guards.append(_rate_limit_guard(publisher.accounts))
        self.guards.append(BodyLimitGuard(max_request_bytes, sessions.bodies))
        if auth is not None and auth.scopes is not None:
            self.guards.append(auth.scopes)
        guarding = Middleware(GuardMiddleware, guards=self.guards, fast=self._fast)
        super().__init__(routes=routes, middleware=[guarding], lifespan=lambda _: self._lifespan())
        self.router.redirect_slashes = False
        self.state.shutdown = self.shutdown
        self.state.drain = self.drain

    def shutdown(self) -> None:
        """End the open streams; call it before the server waits for its connections."""
        self._publisher.server.end_subscriptions()
        self._streams.end()
        self._sse_streams.end()

    def pre_asgi_handler(self, is_open: Callable[[], bool]) -> PreAsgiHandler | None:
        """Return a handler for a server that can answer plain requests without ASGI.

        Args:
            is_open: Returns True while the app has started and is not ending.

        Returns:
            The handler; None without the fast path, and with further middleware, which has to see every request.
        """
        middleware: set[object] = {each.cls for each in self.user_middleware}
        if self._fast is None or middleware != {GuardMiddleware}:
            return None
        return PreAsgiHandler(self._fast, self.guards, is_open)

    def _routes(self, path: str, endpoint: object, methods: list[str] | None = None) -> list[Route]:
        """Routes of an endpoint, with a slash at the end and without."""
        bare = path.rstrip("/")
        if bare in {route.path.rstrip("/") for route in self.public_routes}:
            raise ValueError(
                f"the path {path!r} tells everybody which issuers give tokens for this server; choose another"
            )
        forms = (bare, bare + "/") if bare else ("/",)
        return [Route(form, endpoint=endpoint, methods=methods) for form in forms]  # type: ignore[arg-type]

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._cluster is not None:
                await stack.enter_async_context(self._cluster.running())
            if self._endpoint is not None:
                await stack.enter_async_context(self._endpoint.running())
            if self._auth is not None:
                await stack.enter_async_context(self._auth.running())
            self._is_running, self._publisher.running.is_over = True, False
            try:
                yield
            finally:
                self._is_running = False
                self.shutdown()
