"""Access to the inspector's page: loopback names, its own origin, a path, and a token.

The token is in the address that the command prints, and is valid once: its first use sets a cookie with another secret,
which no address contains and no script can read. Browsers send the cookies of a host to all of its ports, and so to
other servers of this machine. This cookie is for the random path of the page only, which no other server has.
"""

from __future__ import annotations

import hmac
from hmac import compare_digest
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from bridge.server.http.host_origin import AllowedHosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"
"""Address that the page is served at."""
SANDBOX_PATH = "/frames/"
"""Path of documents of servers, which have policies of their own.

They can read their own address, which is therefore outside the path of the page.
"""

POLICY = (
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
"""Content security policy of a page that is made with lit-html."""
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
SECURITY_HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of all responses of such a page, beside its policy."""
_TO_PAGE = '<!doctype html><meta http-equiv="refresh" content="0;url=./"><title>bridge inspect</title>'
_OWN_SITE = frozenset({"same-origin", "none"})
_REMEDY = (
    "open the address that `bridge inspect` has printed last; if that was opened before, it prints a new one when you "
    "open it again\n"
)
_USED = (
    "this address was opened before, and an address opens the page only once; open the new one that `bridge inspect` "
    "has just printed in its terminal\n"
)


class AccessTokens:
    """Tokens that open the page once each, its path, and the secret of the cookie that they are exchanged for.

    Args:
        on_reuse: Called with the valid token when a used one is presented, so that the user gets a new address.

    Attributes:
        path: Path of the page, without the slash at its end.
        cookie_secret: Value of the cookie.
    """

    def __init__(self, on_reuse: Callable[[str], None]) -> None:
        self.path = f"/{token_urlsafe()}"
        self.cookie_secret = token_urlsafe()
        self._on_reuse = on_reuse
        self._used: list[str] = []
        self._unused: str | None = None

    def unused(self) -> str:
        """The token that opens the page; a new one after each use."""
        if self._unused is None:
            self._unused = token_urlsafe()
        return self._unused

    def frames_path(self, number: int | str) -> str:
        """Path of the documents of a request; whoever knows it may read these, without the cookie, and nothing else."""
        key = hmac.digest(self.cookie_secret.encode(), str(number).encode(errors="replace"), "sha256")
        return f"{SANDBOX_PATH}{key.hex()}/{number}"

    def admits_path(self, path: str, *, is_known: bool) -> bool:
        """Return True for a path of the page, where its cookie was sent, and for that of a document."""
        frames, _, _ = path.rpartition("/")
        return (is_known and path.startswith(f"{self.path}/")) or _equal(
            frames, self.frames_path(frames.rpartition("/")[2])
        )

    def redeem(self, given: str) -> bool:
        """Use a token; False if it is not valid."""
        if self._unused is None or not _equal(given, self._unused):
            return False
        self._used.append(self._unused)
        self._unused = None
        return True

    def is_used(self, given: str) -> bool:
        """Return True for a token that was valid, and report the one that is."""
        is_used = any(_equal(given, each) for each in self._used)
        if is_used:
            self._on_reuse(self.unused())
        return is_used


class AccessGuard:
    """ASGI middleware that admits only the page itself, and adds security headers to all responses.

    Args:
        app: The application of the page.
        tokens: The tokens of this run.
    """

    def __init__(self, app: ASGIApp, tokens: AccessTokens) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = AllowedHosts(HOST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                if scope["path"].startswith(SANDBOX_PATH):
                    headers.setdefault("content-security-policy", _FRAME_POLICY)
                    headers["x-dns-prefetch-control"] = "off"
                else:
                    headers["content-security-policy"] = POLICY
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
        is_known = not is_foreign and any(
            _equal(each, self._tokens.cookie_secret) for each in _cookies(headers, cookie)
        )
        given = QueryParams(scope["query_string"]).get("token")
        if given is not None and scope["path"] == f"{self._tokens.path}/" and scope["method"] == "GET":
            return self._signed_in(cookie, given, is_foreign=is_foreign, is_known=is_known)
        if is_foreign:
            return PlainTextResponse("other sites may not use this page\n", 403)
        if not self._tokens.admits_path(scope["path"], is_known=is_known):
            return PlainTextResponse(_REMEDY, 403)
        if scope["method"] == "POST" and _media_type(headers) != "application/json":
            return PlainTextResponse("the body has to be application/json\n", 415)
        return None

    def _signed_in(self, cookie: str, given: str, *, is_foreign: bool, is_known: bool) -> Response:
        """Exchange a token for the cookie, and lead to the page.

        A browser that comes from a local file counts as of another site, also after a redirect, and would not send the
        cookie: it is led there by a document of this origin.
        """
        page = f"{self._tokens.path}/"
        if not self._tokens.redeem(given):
            if is_known:
                return RedirectResponse(page, 303)
            return PlainTextResponse(_USED if self._tokens.is_used(given) else _REMEDY, 403)
        response = HTMLResponse(_TO_PAGE) if is_foreign else RedirectResponse(page, 303)
        response.set_cookie(cookie, self._tokens.cookie_secret, path=page, httponly=True, samesite="strict")
        return response


def _cookies(headers: Headers, name: str) -> Iterator[str]:
    """Values of all cookies of a name: another server of this machine may have set one, with another path.

    Others of its cookies may be malformed, which the standard library's parser would not skip.
    """
    for each in ";".join(headers.getlist("cookie")).split(";"):
        key, _, value = each.partition("=")
        if key.strip() == name:
            yield value.strip()


def _equal(given: str, secret: str) -> bool:
    return compare_digest(given.encode(errors="replace"), secret.encode())


def _is_foreign(headers: Headers, host: str) -> bool:
    """True for a request that a page of another origin has caused."""
    # Other servers of this machine have other ports, which browsers count as the same site.
    is_own = all(origin == f"http://{host}" for origin in headers.getlist("origin"))
    return not is_own or headers.get("sec-fetch-site", "none") not in _OWN_SITE


def _media_type(headers: Headers) -> str:
    """The type of the body without its parameters, such as a charset."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()
