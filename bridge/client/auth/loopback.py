"""Loopback: where a person's browser hands over what the person agreed to (RFC 8252, 7.3)."""

from __future__ import annotations

import html
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketAttribute
from mcp.client.auth import AuthorizationCodeResult, OAuthFlowError

from bridge.client.auth.errors import SignInError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from anyio.abc import Listener, SocketStream

    _Listener: TypeAlias = Listener[SocketStream]

LOCAL_HOSTS: Final = {"127.0.0.1": ("127.0.0.1",), "::1": ("::1",), "localhost": ("127.0.0.1", "::1")}
"""The hosts that a redirect may name, each with the addresses that it is listened on."""

_MAX_REQUEST_BYTES = 16 * 1024
_MAX_ERROR_CHARS = 200
_READ_SECONDS = 10.0
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""A browser may open a connection that it does not use."""
_PAGE = """<!doctype html><meta charset="utf-8"><title>bridge</title>
<body style="font-family: sans-serif; margin: 4em auto; max-width: 30em"><h1>{title}</h1><p>{text}</p>"""


class RedirectListener:
    """One login's way back from the browser.

    Args:
        redirect_uri: Where the browser goes afterwards.
        listeners: The sockets behind that.
        show_page: Shows a page to the person.
    """

    def __init__(
        self, redirect_uri: str, listeners: Iterable[_Listener], show_page: Callable[[str], Awaitable[None]]
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
        """The page on which the person agrees is this; it is shown by `answer`.

        Args:
            url: The page.
            check_issuer: Raises `OAuthFlowError` where the issuer that an answer names, or None, is not who was asked.
        """
        self._page = url
        self._check_issuer = check_issuer
        self._state = _only(parse_qs(urlsplit(url).query), "state")

    async def answer(self) -> AuthorizationCodeResult:
        """Ask the person; returns what they said.

        Raises:
            SignInError: They said no, or cannot be asked.
        """
        async with anyio.create_task_group() as tasks:
            for listener in self._listeners:
                tasks.start_soon(listener.serve, self._serve)
            tasks.start_soon(self._shown)
            await self._answered.wait()
            tasks.cancel_scope.cancel()
        if isinstance(self._result, AuthorizationCodeResult):
            return self._result
        raise self._result or SignInError("nobody could be asked to log in")

    async def _shown(self) -> None:
        try:
            await self._show_page(self._page)
        except Exception as error:  # noqa: BLE001 - whoever is to show pages may fail in any way
            self._result = SignInError(f"the login page cannot be shown: {error}")
            self._answered.set()

    def hear(self, target: str) -> tuple[int, str, str]:
        """Take what a browser asks for; returns the status, the title and the text of the page that it is shown."""
        parts = urlsplit(target)
        if parts.path != self._path:
            return 404, "Not here", "There is nothing at this address."
        fields = parse_qs(parts.query, keep_blank_values=True)
        if self._state is None or _only(fields, "state") != self._state:
            return 400, "Not expected", "This is not the login that bridge waits for."
        try:
            self._check_issuer(_only(fields, "iss"))
        except OAuthFlowError:
            # Nothing that stands in such an answer is acted on or shown, an error least of all (RFC 9207, 2.4).
            told = "the login failed: its answer is not from the authorization server that was asked (iss)"
            self._result = self._result or SignInError(told)
            return 400, "Not expected", "This answer is not from where you were sent to log in."
        if (error := _only(fields, "error")) is not None:
            said = ": ".join(filter(None, (error, _only(fields, "error_description"))))
            said = "".join(char for char in said if char.isprintable())[:_MAX_ERROR_CHARS]
            self._result = self._result or SignInError(f"the login was refused ({said})")
            return 200, "Not logged in", f"The login was refused ({said}). You can close this window."
        if (code := _only(fields, "code")) is None:
            return 400, "Not expected", "There is no code in this address."
        self._result = self._result or AuthorizationCodeResult(code=code, state=self._state, iss=_only(fields, "iss"))
        return 200, "Thank you", "bridge goes on. You can close this window."

    async def _serve(self, stream: SocketStream) -> None:
        """Answer one request of a browser."""
        async with stream:
            with anyio.move_on_after(_READ_SECONDS), suppress(*_GONE):
                target = _target(await _head(stream))
                page = (400, "Not understood", "A browser is expected here.") if target is None else self.hear(target)
                await stream.send(_response(*page))
        if self._result is not None:
            self._answered.set()


@asynccontextmanager
async def listen_for_redirect(
    redirect_uri: str | None, show_page: Callable[[str], Awaitable[None]]
) -> AsyncIterator[RedirectListener]:
    """Listen for a browser, in this block.

    Args:
        redirect_uri: Where it is to go: ``http`` on this machine; None for a free port.
        show_page: Shows a page to the person.

    Raises:
        SignInError: The port is taken.
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
                f"{address} port {port}, where the browser is to go, cannot be listened on: {error.strerror}"
            ) from error
        port = listeners[0].extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
    try:
        yield RedirectListener(redirect_uri or f"http://127.0.0.1:{port}/callback", listeners, show_page)
    finally:
        for listener in listeners:
            await listener.aclose()


async def _head(stream: SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MAX_REQUEST_BYTES:
        head += await stream.receive()
    return head


def _target(head: bytes) -> str | None:
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return words[1] if len(words) == 3 and words[0] == "GET" else None  # noqa: PLR2004 - method, target, version


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
