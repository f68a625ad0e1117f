"""Access to the inspector's page: loopback names, its own origin, and a token.

The token is in the address that the command prints. Its first use sets a cookie, so that the token is in no further
address, and in no header that a script can read.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from bridge.server.http.host_origin import AllowedHosts

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"
"""Address that the page is served at."""
SANDBOX_PATH = "/frames/"
"""Path of documents of servers, which have a policy of their own."""

_POLICY = (
    "default-src 'none'; "
    "script-src 'self'; "
    "style-src 'self'; "
    "img-src 'self' data:; "
    "media-src data:; "
    "connect-src 'self'; "
    "frame-src 'self'; "
    "base-uri 'none'; "
    "form-action 'none'; "
    "frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; "
    "trusted-types lit-html"
)
_FRAME_POLICY = (
    "sandbox allow-scripts; "  # no origin: no cookie, no storage, no access to the page
    "default-src 'none'; "
    "script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; "
    "img-src data:; "
    "media-src data:; "
    "font-src data:; "
    "base-uri 'none'; "
    "form-action 'none'; "
    "frame-ancestors 'self'"
)
_HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_TO_PAGE = '<!doctype html><meta http-equiv="refresh" content="0;url=/"><title>bridge inspect</title>'
_OWN_SITE = frozenset({"same-origin", "none"})
_REMEDY = "open the address that `bridge inspect` has printed; it contains the token of this run\n"


class AccessGuard:
    """ASGI middleware that admits only the page itself, and adds security headers to all responses.

    Args:
        app: The application of the page.
        token: The token of this run.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token
        self._hosts = AllowedHosts(HOST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                is_frame = scope["path"].startswith(SANDBOX_PATH)
                headers["content-security-policy"] = _FRAME_POLICY if is_frame else _POLICY
            await send(message)

        response = self._refusal(scope)
        await (self._app if response is None else response)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Response to a request that may not reach the application; None if it may."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._hosts.admits_host(hosts[0]):
            return PlainTextResponse("this page is served to its own machine only\n", 421)
        is_foreign = _is_foreign(headers, hosts[0])
        cookie = f"bridge-inspect-{scope['server'][1]}"  # the ports of a host share their cookies
        given = QueryParams(scope["query_string"]).get("token")
        if given is not None and scope["path"] == "/" and scope["method"] == "GET":
            return self._signed_in(cookie, is_foreign) if self._is_token(given) else PlainTextResponse(_REMEDY, 403)
        if is_foreign:
            return PlainTextResponse("other sites may not use this page\n", 403)
        # One of another server of this machine may be malformed, which the standard library's parser would not skip.
        if not self._is_token(cookie_parser(headers.get("cookie", "")).get(cookie, "")):
            return PlainTextResponse(_REMEDY, 403)
        if scope["method"] == "POST" and _media_type(headers) != "application/json":
            return PlainTextResponse("the body has to be application/json\n", 415)
        return None

    def _is_token(self, given: str) -> bool:
        return compare_digest(given.encode(errors="replace"), self._token.encode())

    def _signed_in(self, cookie: str, is_foreign: bool) -> Response:
        """Set the cookie and lead to the page.

        A browser that comes from a local file counts as of another site, also after a redirect, and would not send the
        cookie: it is led there by a document of this origin.
        """
        response = HTMLResponse(_TO_PAGE) if is_foreign else RedirectResponse("/", 303)
        response.set_cookie(cookie, self._token, httponly=True, samesite="strict")
        return response


def _is_foreign(headers: Headers, host: str) -> bool:
    """True for a request that a page of another origin has caused."""
    # Other servers of this machine have other ports, which browsers count as the same site.
    is_own = all(origin == f"http://{host}" for origin in headers.getlist("origin"))
    return not is_own or headers.get("sec-fetch-site", "none") not in _OWN_SITE


def _media_type(headers: Headers) -> str:
    """The type of the body without its parameters, such as a charset."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()
