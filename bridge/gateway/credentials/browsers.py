"""Browsers at the connect pages: a cookie for each, the caller who has signed in with it, and forms of its own only."""

from __future__ import annotations

import hmac
from dataclasses import asdict, dataclass, field
from secrets import token_urlsafe
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.requests import cookie_parser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from bridge.gateway.credentials.links import OnceStore
    from bridge.tools.caller import Caller

SIGNED_IN_SECONDS = 900.0
"""Seconds after which a caller has to sign in again."""

_NAME = "browser:"
_SECRET_CHARS = 43
_OWN_SITE = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The caller who has signed in with a browser."""

    issuer: str
    """As `bridge.tools.caller.Caller.issuer`."""
    subject: str
    """As `bridge.gateway.credentials.store.CredentialKey.subject`."""
    name: str
    """Name for the caller's eyes."""

    @classmethod
    def of(cls, caller: Caller) -> SignedIn:
        """Return an authenticated caller."""
        return cls(caller.issuer, caller.subject or caller.name, caller.name)


@dataclass(frozen=True, slots=True)
class Browser:
    """One browser."""

    secret: str = field(repr=False)
    """Value of its cookie."""
    caller: SignedIn | None = None
    """Its caller; None before it has signed in."""

    @property
    def id(self) -> str:
        """Identifier without the secret."""
        return self._derived("id")

    @property
    def form_token(self) -> str:
        """Secret in its forms, which no other page can find out."""
        return self._derived("form")

    def _derived(self, purpose: str) -> str:
        return hmac.digest(self.secret.encode(), purpose.encode(), "sha256").hex()


class Browsers:
    """The browsers of a gateway, for all of its processes and replicas.

    Args:
        store: Keeps who has signed in; methods raise `CredentialStoreError` if it cannot be used.
    """

    def __init__(self, store: OnceStore) -> None:
        self._store = store

    async def of(self, request: Request, base: str) -> Browser:
        """Return the browser of a request; a new one if it has no cookie."""
        secret = cookie_parser(request.headers.get("cookie", "")).get(cookie_name(base), "")
        if len(secret) != _SECRET_CHARS:
            return Browser(token_urlsafe())
        kept = await self._store.find_once(_NAME + secret)
        return Browser(secret, None if kept is None else SignedIn(**kept))

    async def sign_in(self, browser: Browser, caller: SignedIn) -> Browser:
        """Sign a caller in; return the browser with a new cookie, so that nobody else knows its value."""
        await self.sign_out(browser)
        signed_in = Browser(token_urlsafe(), caller)
        await self._store.put_once(_NAME + signed_in.secret, asdict(caller), SIGNED_IN_SECONDS)
        return signed_in

    async def sign_out(self, browser: Browser) -> None:
        """Forget who has signed in."""
        await self._store.take_once(_NAME + browser.secret)


def is_own_form(request: Request, form: Mapping[str, object], browser: Browser, base: str) -> bool:
    """Return True for a form of a page of this gateway in this browser, and False for one of any other site.

    Args:
        request: The request.
        form: Its fields.
        browser: Its browser.
        base: Public URL of the gateway, which a proxy may reach under another host.
    """
    origin, token = request.headers.get("origin"), form.get("token")
    return (
        origin is not None
        and urlsplit(origin).netloc in {request.headers["host"], urlsplit(base).netloc}
        and request.headers.get("sec-fetch-site", "none") in _OWN_SITE
        and isinstance(token, str)
        and hmac.compare_digest(token.encode(), browser.form_token.encode())
    )


def cookie_name(base: str) -> str:
    """Return the name of the cookie for a gateway's public URL; ports of a host share their cookies."""
    parts = urlsplit(base)
    return "__Host-bridge-connect" if parts.scheme == "https" else f"bridge-connect-{parts.port or 80}"


def set_cookie(response: Response, browser: Browser, base: str) -> None:
    """Give a browser its cookie, which no script can read, and other sites cannot send along with a form."""
    is_secure = base.startswith("https:")
    response.set_cookie(
        cookie_name(base),
        browser.secret,
        max_age=int(SIGNED_IN_SECONDS),
        path="/" if is_secure else f"{urlsplit(base).path}/connect",  # as the prefix of the name demands
        secure=is_secure,
        httponly=True,
        samesite="lax",  # sent with the redirect of an authorization server
    )
