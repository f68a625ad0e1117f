"""HTTP client that carries messages: sign-in, redirects within an origin, limited responses.

It carries what the own connections (`bridge.client.transports.http_connections`) cannot: proxies, logins, trio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import httpx2

from bridge.client.transports.received_data import MAX_MESSAGE_BYTES, default_ssl_context, limited

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.transports.link import LinkEvents

UNAUTHORIZED = 401
"""Status of a response that demands credentials."""

NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
"""Errors before anything of a request was sent."""

START_SOON = "bridge.client.start_soon"
"""Request extension: starts a background task of the session, for `httpx2.Auth`."""

_WRITE_SECONDS = 30.0
_MAX_REDIRECTS = 5


class MessageClient:
    """Sends requests of one session to one URL.

    Args:
        url: The server's URL.
        headers: Headers of every request.
        auth: Authentication of the requests; None for none.
        events: Runs background tasks of the authentication.
        connect_seconds: Maximum seconds for a TCP connection.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        auth: httpx2.Auth | None,
        events: LinkEvents,
        connect_seconds: float,
    ) -> None:
        self._url = url
        self._events = events
        self._http = httpx2.AsyncClient(
            headers={"accept-encoding": "gzip", **headers},
            auth=auth,
            verify=default_ssl_context(),
            event_hooks={"response": [limited(MAX_MESSAGE_BYTES)]},
            timeout=httpx2.Timeout(None, connect=connect_seconds, write=_WRITE_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0),
        )

    async def aclose(self) -> None:
        """Close all connections, and forget the sign-in."""
        await self._http.aclose()
        self._http.auth = httpx2.Auth()

    def request(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None, url: str | None = None
    ) -> httpx2.Request:
        """Build a request to the server, or to another URL of it."""
        encoded = httpx2.Headers(dict(headers), "latin-1")  # an event's ID is sent back as the bytes that it was
        return self._http.build_request(method, url or self._url, headers=encoded, content=content)

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and follow redirects within its origin that keep the method (307 and 308 for a POST).

        Returns:
            The response, whose body is not read.

        Raises:
            httpx2.TransportError: The connection was lost, or this client is closed.
            SignInError: The request cannot be signed.
        """
        for _ in range(_MAX_REDIRECTS):
            if self._http.is_closed:
                raise httpx2.ConnectError("the session has ended", request=request)
            request.extensions[START_SOON] = self._events.start_soon
            response = await self._http.send(request, stream=True, follow_redirects=False)
            following = response.next_request
            if following is None or not _is_within_origin(request, following):
                break
            await response.aclose()
            request = following
        return response


async def closed(response: httpx2.Response) -> None:
    """Close a response, also when the task is cancelled."""
    with anyio.CancelScope(shield=True):
        await response.aclose()


def _is_within_origin(request: httpx2.Request, following: httpx2.Request) -> bool:
    """True for a redirect that keeps the method, origin and credentials of a request."""
    url, other = request.url, following.url
    is_upgrade = (url.scheme, url.port, other.scheme, other.port) == ("http", None, "https", None)
    is_same = (url.scheme, url.port) == (other.scheme, other.port) or is_upgrade
    has_own_user = bool(other.userinfo) and other.userinfo != url.userinfo
    return is_same and url.host == other.host and request.method == following.method and not has_own_user
