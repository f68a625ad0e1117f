"""HTTP interface of the administration, below ``/admin`` of the admin port.

/admin/          the page, which has no data
/admin/state     the state, as JSON                 ╮ behind a key of their own
/admin/actions   POST: an action of an operator     ╯
"""

from __future__ import annotations

import json
import logging
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Mount, Route, request_response
from starlette.staticfiles import StaticFiles

from bridge.admin.actions import checked
from bridge.hosting.admin_pages import FullAccessRequired
from bridge.inspector.access import POLICY, SECURITY_HEADERS
from bridge.inspector.app import STATIC
from bridge.server.auth.bearer import BearerAuthGuard
from bridge.server.auth.credentials import CredentialCache
from bridge.server.auth.identity import caller_of_request
from bridge.server.http.guards import GuardMiddleware
from bridge.server.http.host_origin import HostOriginGuard
from bridge.server.http.probes import ADMIN_PATH
from bridge.telemetry import current
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bridge.admin.processes import AdminProcesses
    from bridge.server.auth.auth import Auth
    from bridge.server.http.host_origin import AllowedHosts

MAX_BODY_BYTES = 16 * 1024
"""Maximum bytes of the request of an action."""
_OWN_STATIC = Path(__file__).parent / "static"
_logger = logging.getLogger("bridge.admin")


def admin_app(processes: AdminProcesses, auth: Auth, hosts: AllowedHosts) -> ASGIApp:
    """Create the application; serve it at and below `ADMIN_PATH`.

    Args:
        processes: The state and the actions of all processes of the server.
        auth: Verifies the keys of operators.
        hosts: Hosts and origins that may reach it.
    """
    endpoints = _Endpoints(processes)
    host = HostOriginGuard(hosts, lambda: True)
    credential = BearerAuthGuard(auth, CredentialCache(auth), metadata_url=None)

    def guarded(endpoint: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
        return GuardMiddleware(FullAccessRequired(request_response(endpoint)), guards=[host, credential])

    pages = Starlette(
        routes=[
            Route("/", _page),
            Mount("/static/inspector", StaticFiles(directory=STATIC)),
            Mount("/static", StaticFiles(directory=_OWN_STATIC)),
        ]
    )
    routes = [
        Route(f"{ADMIN_PATH}/state", guarded(endpoints.state), methods=["GET"]),
        Route(f"{ADMIN_PATH}/actions", guarded(endpoints.act), methods=["POST"]),
        Mount(ADMIN_PATH, GuardMiddleware(pages, guards=[host])),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with auth.running():
            yield

    return _Secured(Starlette(routes=routes, lifespan=lifespan))


class _Secured:
    """Adds security headers to all responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers["content-security-policy"] = POLICY
            await send(message)

        await self._app(scope, receive, send_secured)


async def _page(_: Request) -> Response:
    return FileResponse(_OWN_STATIC / "index.html")


class _AsciiResponse(JSONResponse):
    """JSON in ASCII: texts of clients may have lone surrogates, which UTF-8 cannot have."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json.dumps(content, separators=(",", ":")).encode("ascii")


class _Endpoints:
    def __init__(self, processes: AdminProcesses) -> None:
        self._processes = processes

    async def state(self, _: Request) -> Response:
        return _AsciiResponse(await self._processes.state())

    async def act(self, request: Request) -> Response:
        """Do an action, and record it with its operator, whether it was done or not."""
        try:
            action, target = checked(await _body(request))
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        caller = caller_of_request()
        name = None if caller is None else caller.name
        outcome = await self._processes.act(action, target)
        _logger.warning(
            "%r: %s %s%s", name, action, clip(target), "" if outcome.is_done else f" was not done: {outcome.problem}"
        )
        if (observer := current.observer()) is not None:
            observer.acted(action, target or None, name, outcome.problem)
        if outcome.is_done:
            return JSONResponse({"done": True})
        return _AsciiResponse({"done": False, "problem": outcome.problem}, 409)


async def _body(request: Request) -> Any:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body is longer than {MAX_BODY_BYTES // 1024} KiB")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from error
