"""Guards: conditions that an HTTP request has to meet. The same list runs before ASGI and in ASGI.

An ASGI server creates a task and messages for every request, which is a third of the time of a short call.
`PreAsgiHandler` avoids that: it runs the guards without waiting, on a request whose body is complete. A request that it
does not answer goes to `GuardMiddleware`, which runs the same guards and answers refused requests.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from bridge.server.auth.identity import current_user
from bridge.server.http.requests import REQUEST, Head, Request
from bridge.server.http.responses import Response
from bridge.server.limits.accounts import current_account

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from contextvars import Token

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.auth.identity import User
    from bridge.server.http.calls import HttpCall
    from bridge.server.http.sessions import HttpSession
    from bridge.server.http.streams import StreamBody
    from bridge.server.limits.accounts import Account
    from bridge.types import Step


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
            with _RequestContext(request):
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

    def begin(self, head: Head, body: bytes) -> Response | HttpCall | _AdmittedCall | None:
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
                if request.user is None and request.usage is None:
                    return begun
                return _admitted(begun, request)
        request.forget_caller()
        if not head.is_admitted:  # otherwise the head is parsed again
            head.scope[REQUEST] = request  # `GuardMiddleware` need not parse the body again
        return None

    def _may_begin(self, head: Head) -> bool:
        if head.has_repeated_headers or b"transfer-encoding" in head.headers:
            return False
        head.endpoint = next((each for each in self._endpoints if each.serves(head.scope)), None)
        return head.endpoint is not None


def _admitted(begun: Response | HttpCall, request: Request) -> Response | _AdmittedCall:
    """Count an admitted request, and wrap its call so that it runs in the request's context."""
    if request.usage is not None:
        request.usage.begin()
    if not isinstance(begun, Response):
        return _AdmittedCall(begun, request)
    if request.usage is not None:
        request.usage.end()
    return begun


class _AdmittedCall:
    """A call that is run later, in the context of its request."""

    __slots__ = ("_call", "ends_with_client", "request", "session")

    def __init__(self, call: HttpCall, request: Request) -> None:
        self._call = call
        self.request = request
        self.ends_with_client = call.ends_with_client
        self.session: HttpSession | None = call.session

    @property
    def open_body(self) -> Callable[[], StreamBody] | None:
        return self._call.open_body

    @open_body.setter
    def open_body(self, made: Callable[[], StreamBody] | None) -> None:
        self._call.open_body = made

    @property
    def is_stream(self) -> bool:
        return self._call.is_stream

    def start(self, step: Step) -> Response | None:
        """Start the call, in the context of its request."""

        def step_in_context(work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
            return step(_in_context(self.request, work))  # the coroutine runs in a context of its own

        answer: Response | None = None
        try:
            with _RequestContext(self.request):
                answer = self._call.start(step_in_context)
        except BaseException:
            self._end()
            raise
        if answer is not None:
            self._end()
        return answer

    def send_at_once(self, _receive: Callable[[Response | None], None]) -> bool:
        return False  # what is called then would not run in the context

    def cancel(self) -> None:
        self._call.cancel()

    async def keep_alive(self) -> None:
        await self._call.keep_alive()

    async def run(self) -> Response:
        try:
            with _RequestContext(self.request):
                return await self._call.run()
        finally:
            self._end()

    def _end(self) -> None:
        if self.request.usage is not None:
            self.request.usage.end()


async def _in_context(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in the context of a request."""
    with _RequestContext(request):
        return await work


BegunCall: TypeAlias = "HttpCall | _AdmittedCall"
"""A call that an HTTP server starts and runs."""


class _RequestContext:
    """Makes the user and the account of a request the current ones."""

    __slots__ = ("_account", "_request", "_user")

    def __init__(self, request: Request) -> None:
        self._request = request
        self._user: Token[User | None] | None = None
        self._account: Token[Account | None] | None = None

    def __enter__(self) -> None:
        user, usage = self._request.user, self._request.usage
        if user is not None:
            self._user = current_user.set(user)
        if usage is not None:
            self._account = current_account.set(usage.account)

    def __exit__(self, *_: object) -> None:
        if self._user is not None:
            current_user.reset(self._user)
        if self._account is not None:
            current_account.reset(self._account)
