"""Guards: conditions that an HTTP request has to meet. The same list runs before ASGI and in ASGI.

An ASGI server creates a task and messages for every request, which is a third of the time of a short call.
`PreAsgiHandler` avoids that: it runs the guards without waiting, on a request whose body is complete. A request that it
does not answer goes to `GuardMiddleware`, which runs the same guards and answers refused requests.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from bridge.server.http.requests import REQUEST, Head, Request, RequestContext
from bridge.server.http.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.http.calls import HttpCall


class Guard(Protocol):
    """A condition that a request has to meet. A guard that comes later in the list relies on those before it.

    A guard with an attribute ``is_of_head = True`` gives requests with the same head the same answer at once, so that
    `admits_at_once` is called once for them.
    """

    def admits_at_once(self, request: Request) -> bool:
        """Check a request before ASGI, without waiting and without effects other than on the request.

        Args:
            request: A POST with its body. No header is repeated.

        Returns:
            True if the request meets the condition; False if `admit` has to decide.
        """
        ...

    async def admit(self, request: Request) -> bool:
        """Check a request in ASGI.

        Args:
            request: The request. Its body is empty until `BodyLimitGuard` has read it.

        Returns:
            True if the request meets the condition; False if it has been answered, or its client has disconnected.
        """
        ...


class MessageEndpoint(Protocol):
    """Receives messages of clients."""

    def serves(self, scope: Scope) -> bool:
        """Return True if the path of a request is one of the endpoint."""
        ...

    def begin(self, request: Request) -> Response | HttpCall | None:
        """Answer a POST or a DELETE at once, or prepare its call; None if it has to wait for something.

        Args:
            request: The request, with its body.
        """
        ...

    async def answer(self, request: Request) -> None:
        """Answer a request in ASGI."""
        ...


class GuardMiddleware:
    """ASGI middleware that runs guards, then lets an endpoint answer its requests, and the app all others.

    Args:
        app: The app behind the guards.
        guards: The guards, in order.
        endpoints: The endpoints for messages.
    """

    def __init__(self, app: ASGIApp, *, guards: Sequence[Guard], endpoints: Sequence[MessageEndpoint] = ()) -> None:
        self._app = app
        self._guards = guards
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = scope.pop(REQUEST, None)
        if request is None or request.scope is not scope:
            request = Request(Head(scope))
        request.receive, request.send = receive, send
        with ExitStack() as request.exits:
            for guard in self._guards:
                if not await guard.admit(request):
                    return
            with RequestContext(request):
                for endpoint in self._endpoints:
                    if endpoint.serves(request.scope):
                        await endpoint.answer(request)
                        break
                else:
                    await self._app({**request.scope, REQUEST: request}, request.receive, request.send)


class PreAsgiHandler:
    """Answers messages without ASGI, for an HTTP server that supports it (`bridge.hosting`).

    Args:
        endpoints: The endpoints for messages.
        guards: The guards, in order.
        is_open: Returns True while the app runs and is not shutting down.
    """

    def __init__(
        self, endpoints: Sequence[MessageEndpoint], guards: Sequence[Guard], is_open: Callable[[], bool]
    ) -> None:
        self._endpoints = endpoints
        self._guards = guards
        self._guards_of_requests = guards
        """The guards that do not depend on the head alone; determined once the app runs."""
        self._is_open = is_open

    def begin(self, head: Head, body: bytes) -> Response | HttpCall | None:
        """Answer a POST, or prepare its call; None if the request has to go through ASGI.

        Args:
            head: The head, which may be that of earlier requests.
            body: The complete body.
        """
        if not (self._is_open() and (head.is_admitted or self._may_begin(head))):
            return None
        request = Request(head, body)
        for guard in self._guards_of_requests if head.is_admitted else self._guards:
            if not guard.admits_at_once(request):
                break
        else:
            begun: Response | HttpCall | None = head.endpoint.begin(request)
            if begun is not None:
                if not head.is_admitted:
                    head.is_admitted = True
                    self._guards_of_requests = [each for each in self._guards if not getattr(each, "is_of_head", False)]
                if request.usage is not None:
                    request.usage.begin()
                    if isinstance(begun, Response):
                        request.usage.end()
                return begun
        request.forget_caller()
        if not head.is_admitted:  # otherwise the head is parsed again
            head.scope[REQUEST] = request  # `GuardMiddleware` need not parse the body again
        return None

    def _may_begin(self, head: Head) -> bool:
        if head.has_repeated_headers or b"transfer-encoding" in head.headers:
            return False
        head.endpoint = next((each for each in self._endpoints if each.serves(head.scope)), None)
        return head.endpoint is not None
