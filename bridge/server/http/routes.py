"""Routes of a server's own beside the protocol, such as a webhook or a page."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from starlette.routing import BaseRoute, Match, Route

from bridge.server.auth.failures import Challenge, send_challenge
from bridge.server.auth.identity import access_of_request
from bridge.tools.lifespan import lifespan_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from starlette.types import Receive, Scope, Send

    from bridge.server.http.requests import Request


class OwnRoute(Route):
    """A route of a server's own; made by `bridge.Server.route`, which documents the arguments."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Collection[str] | None,
        name: str | None,
        include_in_schema: bool,
        auth: bool,
    ) -> None:
        super().__init__(path, endpoint, methods=methods, name=name, include_in_schema=include_in_schema)
        self.needs_credential = auth
        self.lifespan = lifespan_in(getattr(inspect.unwrap(endpoint), "__globals__", {}))
        """The lifespan of the module of its function; None if it has none."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the function. A key for some of the tools is not enough for a route that needs a credential."""
        access = access_of_request()
        if not self.needs_credential or (access.tools is None and access.profiles is None):
            await super().handle(scope, receive, send)
            return
        reason = "this route needs a key for all tools, and the key is for some of them"
        await send_challenge(send, Challenge(status=403, error="insufficient_scope", description=reason), None)


class RouteGuard:
    """Guard that finds the route of the server's own that answers a request, for the guards after it."""

    is_of_head = True

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._routes = routes

    def admits_at_once(self, request: Request) -> bool:  # noqa: ARG002 - only messages are answered at once
        """Admit every message."""
        return True

    async def admit(self, request: Request) -> bool:
        """Find it by the rule of Starlette's router: the first route that matches answers."""
        for route in self._routes:
            if route.matches(request.scope)[0] is Match.FULL:
                if isinstance(route, OwnRoute):
                    request.is_for_route, request.needs_credential = True, route.needs_credential
                break
        return True


def check_reachable(route: OwnRoute, earlier: Sequence[BaseRoute]) -> None:
    """Refuse a route that the protocol's own routes, which come before it, hide.

    Raises:
        ValueError: One does.
    """
    for method in route.methods or ("GET",):
        scope = {"type": "http", "method": method, "path": route.path, "root_path": "", "headers": []}
        if any(each.matches(scope)[0] is Match.FULL for each in earlier):
            raise ValueError(f"the route {route.path!r} is a path of the protocol; choose another")
