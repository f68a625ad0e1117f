"""Serving over HTTP: an ASGI app with streamable HTTP and SSE behind one list of guards.

GuardMiddleware ── HostOriginGuard, RouteGuard, CorsGuard, BearerAuthGuard, ProfileGuard, RateLimitGuard,
  │                BodyLimitGuard, ToolScopeGuard
  ├── /mcp, /mcp/              Endpoint       both eras
  ├── /mcp/NAME, /mcp/NAME/    Endpoint       of each profile
  ├── /sse, /sse/              SseStream      handshake era
  ├── /messages, /messages/    SseMessages
  ╰── routes of the server's own
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware as HttpMiddleware
from starlette.routing import Route

from bridge.errors import DefinitionError
from bridge.portal import runs_on_asyncio
from bridge.server.http.cards import card_routes
from bridge.server.http.endpoint import Endpoint
from bridge.server.http.guards import GuardMiddleware, PreAsgiHandler
from bridge.server.http.host_origin import AllowedHosts, CorsGuard, HostOriginGuard
from bridge.server.http.requests import (
    DEFAULT_MAX_REQUEST_BYTES,
    MESSAGES_PATH,
    STREAM_PATH,
    BodyLimitGuard,
    shares_of_bodies,
)
from bridge.server.http.routes import RouteGuard, check_reachable
from bridge.server.http.served import served_at, served_profiles
from bridge.server.http.session_requests import SessionRequests
from bridge.server.http.sessions import DEFAULT_MAX_SESSIONS, IDLE_SECONDS, Sessions
from bridge.server.http.sse import SseMessages, SseSessions, SseStream
from bridge.server.http.streams import OpenStreams
from bridge.server.lifespans import lifespans_open, running_tasks
from bridge.server.observed import dispatch_of
from bridge.server.running_calls import Drain
from bridge.server.server import Server
from bridge.server.unmatched_names import warn_of_profiles
from bridge.tools.annotated_checks import checked
from bridge.tools.lifespan import why_not_opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from mcp.server.auth.provider import TokenVerifier

    from bridge.server.auth.auth import Auth
    from bridge.server.auth.guards import AuthGuards
    from bridge.server.dispatch import Dispatch
    from bridge.server.http.guards import Guard, MessageEndpoint
    from bridge.server.http.routes import OwnRoute
    from bridge.server.http.served import ServedServer
    from bridge.server.profiles import Profile
    from bridge.server.unmatched_names import UnmatchedNames


_NAME, _PATH = "bridge", "/mcp"


@checked()
def http_app(
    tools: object,
    *,
    path: str = _PATH,
    sse: bool = True,
    streamable: bool = True,
    host: str = "127.0.0.1",
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
    session_idle_seconds: float | None = IDLE_SECONDS,
    auth: Auth | TokenVerifier | None = None,
    stateless: bool = False,
    redis_url: str | None = None,
    max_sessions: int = DEFAULT_MAX_SESSIONS,
    profiles: Iterable[Profile] = (),
) -> BridgeApp:
    """Make a Starlette app that serves tools over streamable HTTP, both eras, and over SSE.

    Run it with any ASGI server; its lifespan must run (see `mount` for an app inside another). A client of the modern
    era that closes its request cancels the call; in the handshake era the call continues until it is cancelled.

    Args:
        tools: A `Server`, which describes what is served: its name, limits, middleware and more. Or a ToolBox, whose
            changes are announced to clients, or anything that a ToolBox takes; the server's name is then ``bridge``.
        path: Path of streamable HTTP, served with and without a trailing slash.
        sse: True to serve SSE, at ``/sse`` and ``/messages/``.
        streamable: True to serve streamable HTTP.
        host: The host that the app will be bound to; it is allowed as a Host and an Origin.
        allowed_hosts: Further allowed hosts; see `AllowedHosts` for their form.
        allowed_origins: Further origins whose pages may use the server (CORS); see `AllowedHosts` for their form.
        max_request_bytes: Maximum length of a request's body.
        session_idle_seconds: Seconds after which an unused session of the handshake era is ended; None for never.
        auth: Authentication: `bridge.server.auth.Auth`, or one verifier such as `ApiKeys` or `JwtVerifier`; None to
            admit everyone.
        stateless: True to serve clients of the handshake era without sessions, which is needed if requests of one
            client may reach different processes. Tools cannot ask such clients, and changes are not announced to them.
        redis_url: URL of a Redis that replicas with the same server name share: each replica continues sessions of
            streamable HTTP, and rates are counted together. Needs the extra ``redis``, and a server on asyncio.
        max_sessions: Maximum number of open sessions of the handshake era. At the maximum, a caller with fewer sessions
            than another gets the place of an idle session of that other.
        profiles: Selections of the server's features, each served at its name below ``path``, over streamable HTTP. The
            profile ``default`` is served at ``path`` itself and over SSE; without it, nothing is.

    Returns:
        The app. A server such as uvicorn waits for its connections before it ends the lifespan: call ``shutdown()``
        before that to end open streams, or run ``drain`` meanwhile to also let running calls end (see
        `bridge.server.running_calls.Drain`). Both are in the app's ``state``, too.

    Raises:
        DefinitionError: ``tools`` contains no tool, or ``auth`` cannot verify a credential, or an argument has the
            wrong type or is too small.
        MissingExtraError: ``redis_url`` is given, and the package ``redis`` is not installed.
        ValueError: Neither transport is enabled, SSE is combined with ``stateless``, an argument is given that nothing
            uses, or a path, host or origin is invalid.
    """
    _check_transports(path, sse=sse, streamable=streamable, stateless=stateless, is_shared=redis_url is not None)
    server = tools if isinstance(tools, Server) else Server(tools, name=_NAME)
    bodies = shares_of_bodies(max_request_bytes)
    served = served_at(
        path,
        server,
        tuple(profiles),
        lambda: Sessions(session_idle_seconds, max_sessions, bodies),
        session_idle_seconds=session_idle_seconds,
        redis_url=redis_url,
        streamable=streamable,
        has_auth=auth is not None,
    )
    return BridgeApp(
        server,
        served,
        AllowedHosts(host, allowed_hosts, allowed_origins),
        path=path,
        sse=sse,
        streamable=streamable,
        body_limit=BodyLimitGuard(max_request_bytes, bodies),
        auth=None if auth is None else _auth_guards(auth, server, served_profiles(served, path)),
        stateless=stateless,
    )


def _check_transports(path: str, *, sse: bool, streamable: bool, stateless: bool, is_shared: bool) -> None:
    if not (sse or streamable):
        raise ValueError("no transport is enabled; pass sse=True or streamable=True")
    if stateless and is_shared:
        raise ValueError("stateless=True and redis_url exclude each other: pass redis_url=None, or stateless=False")
    if sse and stateless:
        raise ValueError("SSE needs sessions: pass sse=False, or stateless=False")
    if not path.startswith("/") or "{" in path:
        raise ValueError(f"a path begins with a slash and has no parameters: not {path!r}")
    if sse and streamable and path.rstrip("/") in {STREAM_PATH, MESSAGES_PATH.rstrip("/")}:
        raise ValueError(f"the path {path!r} is used by SSE; choose another, or serve without SSE")
    if not streamable and path != _PATH:
        raise ValueError(f"path={path!r} is that of streamable HTTP, which is not served; SSE is at {STREAM_PATH}")


def _auth_guards(auth: Auth | TokenVerifier, server: Server, profiles: Mapping[str, Server]) -> AuthGuards:
    if not hasattr(auth, "verify_token"):  # the value may be a secret: leave it out of the message
        raise DefinitionError(
            f"auth takes Auth(…) or one verifier, and got a {type(auth).__name__!r}; "
            "for keys, write auth=Auth(ApiKeys(ApiKey(…))), all from bridge.server.auth"
        )
    from bridge.server.auth.guards import AuthGuards  # noqa: PLC0415 - only where a credential is required

    return AuthGuards(auth, server, profiles)


class BridgeApp(Starlette):
    """The app that `http_app` makes. ``state.shutdown`` and ``state.drain`` are `shutdown` and `drain`."""

    _is_running = False
    why_not_started: str | None = None
    """The reason, once a lifespan could not be opened."""

    def __init__(
        self,
        server: Server,
        served: Mapping[str, ServedServer],
        names: AllowedHosts,
        *,
        path: str,
        sse: bool,
        streamable: bool,
        body_limit: BodyLimitGuard,
        auth: AuthGuards | None,
        stateless: bool,
    ) -> None:
        self.public_routes: list[Route] = [] if auth is None else auth.routes
        """Routes that need no credential: the metadata of the issuers of tokens."""
        self.unmatched_names: UnmatchedNames | None = None if auth is None else auth.unmatched
        """Warns of configured names that match no tool; None without authentication."""
        self.limits_requests = server.accounts is not None
        """True when requests are limited by caller, who may be identified by address alone."""
        self.any_host_paths: set[str] = set()
        """Paths that are served under any host; may be changed until the app starts."""
        self.any_origin_paths: set[str] = set()
        """Paths that pages of any origin may read."""
        self.own_routes: Sequence[OwnRoute] = server.final_routes()
        """Routes of the server's own."""
        self.profiles = {each.profile.name: each.server for each in served.values() if each.profile is not None}
        """The servers of the profiles, which are served in place of the server itself."""
        self._server, self._auth, self._at = server, auth, served
        self._streams = OpenStreams()
        self._sse = SseSessions()
        self._endpoints: list[MessageEndpoint] = []
        self.served: Sequence[ServedServer] = [*served.values()]
        """The servers: the server itself, or those of the profiles."""
        self._dispatches = [dispatch_of(each.server, has_sessions=not stateless) for each in self.served]
        self._handshakes: list[SessionRequests] = []
        routes = [*self.public_routes, *([] if auth is None else auth.page_routes(path if streamable else _PATH))]
        shutdown_steps = [
            *(each.close for each in self._dispatches),
            self._streams.end,
            *(each.server.drain_tasks for each in self.served),
        ]
        self.drain = Drain(server.running, shutdown_steps)
        """Ends streams, then waits for running calls; run it while the server waits for its connections."""
        profiles: dict[str, Profile] = {}
        for (at, each), dispatch in zip(served.items(), self._dispatches, strict=True):
            paths = self._paths(at) if streamable else ()
            if streamable:
                shared = None if each.cluster is None else each.cluster.sessions
                handshake = SessionRequests(
                    each.server, dispatch, each.sessions, self._streams, stateless=stateless, shared=shared
                )
                self._handshakes.append(handshake)
                endpoint = Endpoint(dispatch, server.running, handshake, paths)
                self._endpoints.append(endpoint)
                routes += [Route(path, endpoint=endpoint) for path in paths]
            if sse and at == path:
                paths = (*paths, *self._paths(STREAM_PATH), *self._paths(MESSAGES_PATH))
                routes += self._sse_routes(each, dispatch)
                shutdown_steps.append(self._sse.end_when_answered)
            if each.profile is not None:
                profiles |= dict.fromkeys(paths, each.profile)
        for own in self.own_routes:
            check_reachable(own, routes)
        cards = self._cards(routes, path if streamable else None, sse=sse)

        self.guards = self._guards(names, body_limit, profiles)
        """Guards of all requests, in order; may be changed until the app starts."""
        guarding = HttpMiddleware(GuardMiddleware, guards=self.guards, endpoints=self._endpoints)
        super().__init__(
            routes=[*routes, *self.own_routes, *cards], middleware=[guarding], lifespan=lambda _: self._lifespan()
        )
        self.guards.insert(1, RouteGuard(self.router.routes))  # before those that depend on the route
        self.router.redirect_slashes = False
        self.state.shutdown, self.state.drain = self.shutdown, self.drain

    def _sse_routes(self, served: ServedServer, dispatch: Dispatch) -> list[Route]:
        stream = SseStream(served.server, dispatch, served.sessions, self._sse)
        paths = self._paths(MESSAGES_PATH)
        messages = SseMessages(self._sse, paths)
        self._endpoints.append(messages)
        return [
            *(Route(each, endpoint=stream, methods=["GET"]) for each in self._paths(STREAM_PATH)),
            *(Route(each, endpoint=messages) for each in paths),
        ]

    def _cards(self, others: Iterable[Route], path: str | None, *, sse: bool) -> list[OwnRoute]:
        """Return the routes of the server's card, which other routes may hide; none if its endpoint is not served."""
        if self.profiles and path not in self._at:
            return []
        hidden = [route.path for route in (*others, *self.own_routes)]
        auth = None if self._auth is None else self._auth.auth
        cards = card_routes(self._server, path=path, sse_path=STREAM_PATH if sse else None, auth=auth, hidden=hidden)
        self.any_origin_paths |= {each.path for each in cards}
        return cards

    def _guards(self, names: AllowedHosts, body_limit: BodyLimitGuard, profiles: Mapping[str, Profile]) -> list[Guard]:
        auth, accounts = self._auth, self._server.accounts
        guards: list[Guard] = [
            HostOriginGuard(names, lambda: self._is_running, self.any_host_paths, self.any_origin_paths)
        ]
        if names.allows_some_origins:
            methods = {method for route in self.own_routes for method in route.methods or ()}
            guards.append(CorsGuard(names, methods))
        if auth is not None:
            guards.append(auth.credential)
            if profiles:
                from bridge.server.http.profiles import ProfileGuard  # noqa: PLC0415 - only with profiles

                guards.append(ProfileGuard(profiles, auth.metadata_url))
                warn_of_profiles(auth.auth, self.profiles)
        if accounts is not None:
            from bridge.server.limits.guard import RateLimitGuard  # noqa: PLC0415 - only where there are limits

            guards.append(RateLimitGuard(accounts))
        guards.append(body_limit)
        if auth is not None and auth.scopes is not None:
            guards.append(auth.scopes)
        return guards

    def shutdown(self) -> None:
        """End the open streams; call it before the server waits for its connections."""
        for dispatch in self._dispatches:
            dispatch.close()
        self._streams.end()
        self._sse.end()

    def pre_asgi_handler(self, is_open: Callable[[], bool]) -> PreAsgiHandler | None:
        """Return a handler for a server that can answer messages without ASGI.

        Args:
            is_open: Returns True while the app runs and is not shutting down.

        Returns:
            The handler; None with further middleware, which has to run for every request.
        """
        middleware: set[object] = {each.cls for each in self.user_middleware}
        if middleware != {GuardMiddleware}:
            return None
        return PreAsgiHandler(self._endpoints, self.guards, is_open)

    def _paths(self, path: str) -> tuple[str, ...]:
        """Return the forms of a path, with and without a trailing slash."""
        bare = path.rstrip("/")
        if bare in {route.path.rstrip("/") for route in self.public_routes}:
            raise ValueError(
                f"the path {path!r} is used by the metadata of the issuers of tokens (RFC 9728); choose another"
            )
        return (bare, bare + "/") if bare else ("/",)

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(lifespans_open(self._server.features, self._server.lifespan))
                for needed in {route.lifespan for route in self.own_routes}:
                    if needed is not None:
                        await stack.enter_async_context(needed.opened())
            except Exception as error:
                self.why_not_started = why_not_opened(error)
                raise
            for cluster in [each.cluster for each in self.served if each.cluster is not None]:
                if not runs_on_asyncio():
                    raise DefinitionError(
                        "redis_url needs a server on asyncio, because the client of Redis does; not trio"
                    )
                await stack.enter_async_context(cluster.running())
            for handshake in self._handshakes:
                await stack.enter_async_context(handshake.running())
            if self._auth is not None:
                await stack.enter_async_context(self._auth.running())
            self._is_running, self._server.running.is_over = True, False
            for each in self.served:
                await stack.enter_async_context(running_tasks(each.server))
            try:
                yield
            finally:
                self._is_running = False
                self.shutdown()
