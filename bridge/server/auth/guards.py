"""Authentication of one app: its guards, the routes of its metadata (RFC 9728), and the tasks that run beside it.

`ToolScopeGuard` refuses a call without the scope of its tool, before it is dispatched.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
from pydantic_core import to_json
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route, request_response

from bridge.errors import DefinitionError
from bridge.protocol.envelope import client_name
from bridge.protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from bridge.server.auth.auth import Auth
from bridge.server.auth.bearer import BearerAuthGuard
from bridge.server.auth.credential_monitor import CredentialMonitor
from bridge.server.auth.credentials import CredentialCache
from bridge.server.auth.failures import Challenge, send_challenge
from bridge.server.http.pages import is_below
from bridge.server.http.profiles import path_of
from bridge.server.http.requests import is_message
from bridge.server.methods.registry import methods_of
from bridge.server.unmatched_names import unmatched_auth_names
from bridge.telemetry import current
from bridge.telemetry.instruments import Peer
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from mcp.server.auth.provider import TokenVerifier
    from starlette.requests import Request

    from bridge.server.core import ServerCore
    from bridge.server.http.requests import Request as HttpRequest
    from bridge.server.methods.method import Target
    from bridge.tools.caller import Caller
    from bridge.types import Json

_logger = logging.getLogger("bridge.server.auth")

_INSUFFICIENT_SCOPE = "insufficient_scope"
"""The error code of RFC 6750, section 3.1."""
WELL_KNOWN_PATH = "/.well-known/oauth-protected-resource"
_METHODS = ["GET", "OPTIONS"]
_HEADERS = {"cache-control": "public, max-age=3600"}


class AuthGuards:
    """Authentication of one app; clients are notified when what they may use has changed."""

    def __init__(self, auth: Auth | TokenVerifier, server: ServerCore, profiles: Mapping[str, ServerCore]) -> None:
        self._auth = self.auth = Auth.of(auth)
        if self._auth.has_limits and not (server.limits is not None and server.limits.of_callers):
            raise DefinitionError("some keys have limits of their own: give the server limits=Limits(of_callers=True)")
        self._server = server
        self._monitor = CredentialMonitor(self._auth)
        self.routes = metadata_routes(self._auth, server.title or server.name)
        """Routes that need no credential."""
        self.unmatched = unmatched_auth_names(self._auth, *(dict.fromkeys(profiles.values()) or (server,)))
        """Warns of names in the configuration that no tool, resource or prompt has."""
        self._keys_of = {
            each: partial(self._auth.access_by_keys, profile=each.profile) for each in (server, *profiles.values())
        }
        for each in self._keys_of:
            self._auth.on_change(each.changes.notify_lists)

        self.metadata_url = metadata_url = metadata_url_of(self._auth)
        """URL of the metadata; None without an issuer of tokens."""
        self.credential = BearerAuthGuard(
            self._auth,
            CredentialCache(self._auth),
            metadata_url=metadata_url,
            open_paths=[route.path for route in self.routes],
            pages_path=None if (pages := server.features.pages) is None else pages.path,
            monitor=self._monitor,
            has_profiles=bool(profiles),
        )
        """Guard before the body."""
        needs_scopes = bool(self._auth.tool_scopes)
        self.scopes = ToolScopeGuard(self._auth, server, metadata_url, profiles) if needs_scopes else None
        """Guard after the body; None if no tool needs a scope."""

    def page_routes(self, endpoint_path: str) -> list[Route]:
        """Return the routes of the server's web pages, which need no credential.

        Raises:
            ValueError: The endpoint is below their path, so that it would need no credential either.
        """
        if (pages := self._server.features.pages) is None:
            return []
        if is_below(endpoint_path, pages.path):
            raise ValueError(f"the path {endpoint_path!r} is one of the pages at {pages.path}; choose another")
        return [*pages.routes(self._auth, endpoint_path)]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the tasks of authentication; a context in which requests are served."""
        with self.unmatched.watching(self._server.changes), self._judging_webhooks():
            async with self._auth.running(self._monitor.keep):
                yield

    @contextmanager
    def _judging_webhooks(self) -> Iterator[None]:
        """Context in which the keys of this app count for webhooks, beside those of other apps of the same server."""
        for server, keys in self._keys_of.items():
            server.keys_of_apps = (*server.keys_of_apps, keys)
        try:
            yield
        finally:
            for server, keys in self._keys_of.items():
                server.keys_of_apps = tuple(each for each in server.keys_of_apps if each is not keys)


class _Refused(NamedTuple):
    """A request whose caller lacks a scope."""

    message: Json
    noun: str
    target: Target
    name: str
    missing: frozenset[str]


class ToolScopeGuard:
    """Guard that refuses calls, reads and prompts whose scope the caller was not granted, with 403; after the body.

    What is not visible to the caller is admitted, and answered as unknown.
    """

    def __init__(
        self, auth: Auth, server: ServerCore, metadata_url: str | None, profiles: Mapping[str, ServerCore]
    ) -> None:
        self._auth = auth
        self._methods = methods_of(server)
        self._of_profiles = {path: methods_of(each) for path, each in profiles.items()}
        self._metadata_url = metadata_url
        self._repetitions = Repetitions()

    def admits_at_once(self, request: HttpRequest) -> bool:
        """Admit a request unless `admit` has to refuse it."""
        return self._refused(request) is None

    def _refused(self, request: HttpRequest) -> _Refused | None:
        """Return what a request is for, if its caller lacks a scope of that; None for any other request."""
        message = request.message
        if not (isinstance(message, dict) and isinstance(message.get("method"), str)):
            return None
        methods = (
            self._methods
            if not self._of_profiles
            else self._of_profiles.get(path_of(request).rstrip("/"), self._methods)
        )
        method, params = methods.get(message["method"]), message.get("params")
        target = method.target(params, request.access) if method is not None and isinstance(params, dict) else None
        if method is None or target is None or target.name is None:
            return None
        missing = request.access.missing(target.name)
        return _Refused(message, method.noun, target, target.name, missing) if missing else None

    async def admit(self, request: HttpRequest) -> bool:
        """Check the scopes of a request."""
        may_call = request.scope["method"] == "POST" and not request.is_for_route
        refused = self._refused(request) if may_call else None
        if refused is None:
            return True
        message, noun, target, name, missing = refused
        caller = request.caller
        _observe_refusal(request, message, noun, target, caller)
        shown = None if caller is None else clip(caller.name)
        if (addition := self._repetitions.addition(shown, name)) is not None:
            text = "refused %r the %s %r: not granted %s%s"
            _logger.warning(text, shown, noun, name, " ".join(sorted(missing)), addition)
        challenge = Challenge(
            status=403,
            error=_INSUFFICIENT_SCOPE,
            description=f"the {noun} {name} needs the scope {' '.join(sorted(missing))}",
            scopes=self._auth.required_scopes | self._auth.tool_scopes.of(name),
        )
        await send_challenge(request.send, challenge, self._metadata_url)
        return False


def _observe_refusal(request: HttpRequest, message: Json, noun: str, target: Target, caller: Caller | None) -> None:
    """Count, trace and audit a refused request."""
    if (observer := current.observer()) is None:
        return
    params = message["params"]
    version = request.headers.get(b"mcp-protocol-version", b"").decode("latin-1")
    is_known = version in MODERN_VERSIONS or version in HANDSHAKE_VERSIONS
    team = "" if caller is None else caller.team
    transport = "sse" if is_message(request.scope) else "http"
    peer = Peer(transport, version if is_known else "", team=observer.team(team))
    arguments, meta = params.get("arguments"), params.get("_meta")
    details = observer.call_details(
        target.requested,
        target.upstream,
        None if caller is None else caller.name,
        peer.transport,
        arguments if isinstance(arguments, dict) else {},
        noun,
        client_name(params),
        team=team,
    )
    trace = meta if isinstance(meta, dict) else None
    series, session_id = observer.series(message["method"], target.name, peer), request.headers.get(b"mcp-session-id")
    session = None if session_id is None else session_id.decode("latin-1")
    name = None if caller is None else caller.name
    observer.serve(series, message.get("id"), trace, session, details, caller=name).end(_INSUFFICIENT_SCOPE)


def metadata_url_of(auth: Auth) -> str | None:
    """URL of the metadata; None without an issuer of tokens."""
    if auth.resource_url is None or not auth.authorization_servers:
        return None
    resource = httpx2.URL(auth.resource_url)
    rest = resource.raw_path.decode("ascii")
    if resource.path == "/":
        rest = rest.removeprefix("/")
    return str(resource.copy_with(raw_path=(WELL_KNOWN_PATH + rest).encode("ascii")))


def metadata_routes(auth: Auth, name: str) -> list[Route]:
    """Routes of the metadata: with the path of the resource, as in RFC 9728, and without it."""
    url = metadata_url_of(auth)
    if url is None:
        return []
    body = to_json(_metadata(auth, name))

    async def answer(_: Request) -> Response:
        return Response(body, media_type="application/json", headers=_HEADERS)

    endpoint = CORSMiddleware(request_response(answer), "*", _METHODS, ["mcp-protocol-version"])
    paths = {WELL_KNOWN_PATH, httpx2.URL(url).path}
    return [Route(path, endpoint=endpoint, methods=_METHODS) for path in sorted(paths)]


def _metadata(auth: Auth, name: str) -> dict[str, Any]:
    """Return the metadata of RFC 9728, section 2. URLs are not normalised, since clients compare them as strings."""
    found = {
        "resource": auth.resource_url,
        "authorization_servers": list(auth.authorization_servers),
        "bearer_methods_supported": ["header"],
        "resource_name": name,
    }
    return found | ({"scopes_supported": sorted(auth.scopes)} if auth.scopes else {})
