"""Guards: conditions that an HTTP request has to meet. The same list runs before ASGI and in ASGI.

An ASGI server creates a task and messages for every request, which is a third of the time of a plain call.
`PreAsgiHandler` avoids that: it runs the guards without waiting, on a request whose body is complete. A request that it
does not answer goes to `GuardMiddleware`, which runs the same guards and answers refused requests.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from mcp.server.auth.middleware.auth_context import auth_context_var

from bridge.server.http.requests import BODY_BYTES, REQUEST, Head, Request, replay_body
from bridge.server.http.responses import PlainResponse
from bridge.server.limits.accounts import current_account

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from contextvars import Token

    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.http.fast import FastHttp
    from bridge.server.http.pending_calls import PendingCall
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


class GuardMiddleware:
    """ASGI middleware that runs guards, then offers the request to the fast path, then calls the app.

    Args:
        app: The app behind the guards.
        guards: The guards, in order.
        fast: The fast path; None without one.
    """

    def __init__(self, app: ASGIApp, *, guards: Sequence[Guard], fast: FastHttp | None = None) -> None:
        self._app = app
        self._guards = guards
        self._fast = fast

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = scope.pop(REQUEST, None)
        if request is None or request.scope is not scope:
            request = Request(Head(scope))
        request.receive, request.send = receive, send
        if request.channel is not None:  # the fast path runs its call, and has handed it over
            request.receive = replay_body(request.body, receive)
            with _RequestContext(request):
                await self._call_app(request)
            return
        with ExitStack() as request.exits:
            for guard in self._guards:
                if not await guard.admit(request):
                    return
            with _RequestContext(request):
                if self._fast is None or not await self._fast.answered(request):
                    await self._call_app(request)

    async def _call_app(self, request: Request) -> None:
        scope = request.scope
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        inner = {**scope, "headers": headers, REQUEST: request, BODY_BYTES: request.counted_bytes}
        try:
            await self._app(inner, request.receive, request.send)
        finally:
            if request.channel is not None:
                request.channel.abandon()


class PreAsgiHandler:
    """Answers plain requests without ASGI, for an HTTP server that supports it (`bridge.hosting`).

    Args:
        fast: The fast path.
        guards: The guards, in order.
        is_open: Returns True while the app runs and is not shutting down.
    """

    def __init__(self, fast: FastHttp, guards: Sequence[Guard], is_open: Callable[[], bool]) -> None:
        self._fast = fast
        self._guards = guards
        self._guards_of_requests = guards
        """The guards that do not depend on the head alone; determined once the app runs."""
        self._is_open = is_open

    def begin(self, head: Head, body: bytes) -> PlainResponse | PendingCall | None:
        """Answer a plain request, or prepare its call; None if the request has to go through ASGI.

        Args:
            head: The head, which may be that of earlier requests.
            body: The complete body.
        """
        if not (self._is_open() and (head.is_admitted or _can_be_plain(head))):
            return None
        request = Request(head, body)
        for guard in self._guards_of_requests if head.is_admitted else self._guards:
            if not guard.admits_at_once(request):
                break
        else:
            begun = self._fast.begin(request)
            if begun is not None:
                if not head.is_admitted:
                    head.is_admitted = True
                    self._guards_of_requests = [each for each in self._guards if not getattr(each, "is_of_head", False)]
                if request.user is None and request.usage is None:
                    return begun
                return _admitted(begun, request)
            request.was_offered = True
        request.forget_caller()
        if not head.is_admitted:  # otherwise the head is parsed again
            head.scope[REQUEST] = request  # `GuardMiddleware` need not parse the body again
        return None


def _can_be_plain(head: Head) -> bool:
    return not head.has_repeated_headers and b"transfer-encoding" not in head.headers


def _admitted(begun: PlainResponse | PendingCall, request: Request) -> PlainResponse | PendingCall:
    """Count an admitted request, and wrap its call so that it runs in the request's context."""
    if request.usage is not None:
        request.usage.begin()
    if not isinstance(begun, PlainResponse):
        return _AdmittedCall(begun, request)
    if request.usage is not None:
        request.usage.end()
    return begun


class _AdmittedCall:
    """A call that is run later, in the context of its request."""

    __slots__ = ("_call", "ends_with_client", "may_talk", "request")

    def __init__(self, call: PendingCall, request: Request) -> None:
        self._call = call
        self.request = request
        self.ends_with_client = call.ends_with_client
        self.may_talk = call.may_talk

    def start(self, step: Step) -> PlainResponse | None:
        """Start the call, in the context of its request."""

        def step_in_context(work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
            return step(_in_context(self.request, work))  # the coroutine runs in a context of its own

        answer: PlainResponse | None = None
        try:
            with _RequestContext(self.request):
                answer = self._call.start(step_in_context)
        except BaseException:
            self._end()
            raise
        if answer is not None:
            self._end()
        return answer

    def pass_on(self, _receive: Callable[[PlainResponse | None], None]) -> bool:
        return False  # what is called then would not run in the context

    def cancel(self) -> None:
        self._call.cancel()

    async def run(self) -> PlainResponse | None:
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


class _RequestContext:
    """Makes the user and the account of a request the current ones."""

    __slots__ = ("_account", "_request", "_user")

    def __init__(self, request: Request) -> None:
        self._request = request
        self._user: Token[AuthenticatedUser | None] | None = None
        self._account: Token[Account | None] | None = None

    def __enter__(self) -> None:
        user, usage = self._request.user, self._request.usage
        if user is not None:
            self._user = auth_context_var.set(user)
        if usage is not None:
            self._account = current_account.set(usage.account)

    def __exit__(self, *_: object) -> None:
        if self._user is not None:
            auth_context_var.reset(self._user)
        if self._account is not None:
            current_account.reset(self._account)
