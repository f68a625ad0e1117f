"""Loopback HTTP listener for the redirect after a browser login (RFC 8252 section 7.3)."""

from __future__ import annotations

import html
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketAttribute
from mcp.client.auth import AuthorizationCodeResult, OAuthFlowError

from bridge.client.auth.errors import SignInError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from anyio.abc import Listener, SocketStream

LOCAL_HOSTS: Final = {"127.0.0.1": ("127.0.0.1",), "::1": ("::1",), "localhost": ("127.0.0.1", "::1")}
"""Hosts allowed in a redirect URI, with the addresses to listen on."""

_MAX_REQUEST_BYTES = 16 * 1024
_MAX_ERROR_CHARS = 200
_READ_SECONDS = 10.0
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""Errors of connections that a browser opens and does not use."""
_PAGE = """<!doctype html><meta charset="utf-8"><title>bridge</title>
<body style="font-family: sans-serif; margin: 4em auto; max-width: 30em"><h1>{title}</h1><p>{text}</p>"""


class RedirectListener:
    """Receives the redirect of one login."""

    def __init__(
        self,
        redirect_uri: str,
        listeners: Iterable[Listener[SocketStream]],
        show_page: Callable[[str], Awaitable[None]],
    ) -> None:
        self.redirect_uri = redirect_uri
        self._path = urlsplit(redirect_uri).path or "/"
        self._listeners = tuple(listeners)
        self._show_page = show_page
        self._page = ""
        self._check_issuer: Callable[[str | None], None]
        self._state: str | None = None
        self._result: AuthorizationCodeResult | SignInError | None = None
        self._answered = anyio.Event()

    async def show(self, url: str, check_issuer: Callable[[str | None], None]) -> None:
        """Set the login page, which `answer` shows; `check_issuer` raises `OAuthFlowError` for an unexpected issuer."""
        self._page = url
        self._check_issuer = check_issuer
        self._state = _only(parse_qs(urlsplit(url).query), "state")

    async def answer(self) -> AuthorizationCodeResult:
        """Show the login page and wait for the redirect.

        Raises:
            SignInError: The user refused, or the page cannot be shown.
        """
        async with anyio.create_task_group() as tasks:
            for listener in self._listeners:
                tasks.start_soon(listener.serve, self._serve)
            tasks.start_soon(self._shown)
            await self._answered.wait()
            tasks.cancel_scope.cancel()
        if isinstance(self._result, AuthorizationCodeResult):
            return self._result
        raise self._result or SignInError("no login page could be shown")

    async def _shown(self) -> None:
        try:
            await self._show_page(self._page)
        except Exception as error:  # noqa: BLE001 - a user-provided function
            self._result = self._result or SignInError(f"the login page cannot be shown: {error}")
            self._answered.set()

    def receive(self, target: str) -> tuple[int, str, str]:
        """Handle a browser's request; returns the status, title and text of the page to respond with."""
        parts = urlsplit(target)
        if parts.path != self._path:
            return 404, "Not found", "There is no page at this address."
        fields = parse_qs(parts.query, keep_blank_values=True)
        if self._state is None or _only(fields, "state") != self._state:
            return 400, "Not expected", "This is not the login that bridge is waiting for."
        try:
            self._check_issuer(_only(fields, "iss"))
        except OAuthFlowError:
            # Nothing in such a response may be used or displayed, least of all its error (RFC 9207 section 2.4).
            message = "the login failed: its response is not from the expected authorization server (iss)"
            self._result = self._result or SignInError(message)
            return 400, "Not expected", "This response is not from the expected authorization server."
        if (error := _only(fields, "error")) is not None:
            reason = ": ".join(filter(None, (error, _only(fields, "error_description"))))
            reason = "".join(char for char in reason if char.isprintable())[:_MAX_ERROR_CHARS]
            self._result = self._result or SignInError(f"the login was refused ({reason})")
            return 200, "Not logged in", f"The login was refused ({reason}). You can close this window."
        if (code := _only(fields, "code")) is None:
            return 400, "Not expected", "There is no code in this address."
        self._result = self._result or AuthorizationCodeResult(code=code, state=self._state, iss=_only(fields, "iss"))
        return 200, "Thank you", "bridge continues. You can close this window."

    async def _serve(self, stream: SocketStream) -> None:
        """Serve one request of a browser."""
        async with stream:
            with anyio.move_on_after(_READ_SECONDS), suppress(*_GONE):
                head = b""
                while b"\r\n\r\n" not in head and len(head) < _MAX_REQUEST_BYTES:
                    head += await stream.receive()
                match head.partition(b"\r\n")[0].decode("latin-1").split(" "):
                    case ["GET", target, _]:
                        page = self.receive(target)
                    case _:
                        page = 400, "Not understood", "A browser is expected here."
                await stream.send(_response(*page))
        if self._result is not None:
            self._answered.set()


@asynccontextmanager
async def listen_for_redirect(
    redirect_uri: str | None, show_page: Callable[[str], Awaitable[None]]
) -> AsyncIterator[RedirectListener]:
    """Listen for the browser's redirect during this block.

    Args:
        redirect_uri: The redirect URI, ``http`` on this machine; None for a free port.
        show_page: Shows a page to the user.

    Raises:
        SignInError: The port is in use.
    """
    parts = urlsplit(redirect_uri or "http://127.0.0.1:0/callback")
    listeners = []
    port = parts.port if parts.port is not None else 80
    for address in LOCAL_HOSTS[parts.hostname or ""]:
        try:
            listeners.append(await anyio.create_tcp_listener(local_host=address, local_port=port))
        except OSError as error:
            if address == "::1" and listeners:
                continue  # a machine without IPv6
            raise SignInError(
                f"cannot listen on {address} port {port} for the browser's redirect: {error.strerror}"
            ) from error
        port = listeners[0].extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
    try:
        yield RedirectListener(redirect_uri or f"http://127.0.0.1:{port}/callback", listeners, show_page)
    finally:
        for listener in listeners:
            await listener.aclose()


def _response(status: int, title: str, text: str) -> bytes:
    body = _PAGE.format(title=html.escape(title), text=html.escape(text)).encode()
    head = (
        f"HTTP/1.1 {status} -\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _only(fields: dict[str, list[str]], name: str) -> str | None:
    values = fields.get(name)
    return values[0] if values else None
