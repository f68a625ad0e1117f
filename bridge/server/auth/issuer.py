"""HTTP client for an issuer of tokens, with bounded time and length."""

from __future__ import annotations

import logging
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
from pydantic_core import from_json

from bridge.errors import DefinitionError
from bridge.server.auth.tokens import IssuerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

_logger = logging.getLogger("bridge.server.auth")

TIMEOUT_SECONDS = 5.0
"""Timeout of a request to an issuer."""
MAX_ANSWER_BYTES = 1024 * 1024
"""Maximum length of a response."""

_OK = 200


class Issuer:
    """Client for an issuer of tokens, given its identifier (RFC 8414, ``issuer``)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client: httpx2.AsyncClient | None = None

    async def get(self, url: str) -> Mapping[str, Any]:
        """Fetch the JSON object at a URL.

        Raises:
            IssuerUnavailableError: The request failed; the message says why.
        """
        return await self.request("GET", url)

    async def metadata(self) -> Mapping[str, Any]:
        """Fetch the issuer's metadata (RFC 8414, OpenID Connect Discovery 1.0).

        Raises:
            IssuerUnavailableError: There is none, or it has another ``issuer``.
        """
        error: IssuerUnavailableError | None = None
        for address in metadata_urls(self.url):
            try:
                found = await self.get(address)
            except IssuerUnavailableError as failed:
                error = error or failed
                continue
            if found.get("issuer") != self.url:
                raise IssuerUnavailableError(
                    f"{address} is the metadata of the issuer {str(found.get('issuer'))[:200]!r}, not of {self.url!r}: "
                    "write the issuer exactly as its metadata does"
                )
            return found
        assert error is not None
        raise error

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def request(self, method: str, url: str, **options: Any) -> Mapping[str, Any]:
        """Send a request with options of httpx2, and return the JSON object of the response, as `get`."""
        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=False)
        try:
            with anyio.fail_after(TIMEOUT_SECONDS):
                async with self._client.stream(method, url, **options) as response:
                    body = await _body_of(response)
        except IssuerUnavailableError:
            raise
        except Exception as error:  # metadata may contain any URL: a port too high raises a group of OverflowErrors
            raise IssuerUnavailableError(f"{url} cannot be reached: {str(error) or type(error).__name__}") from error
        if response.status_code != _OK:
            raise IssuerUnavailableError(f"{url} answered with HTTP status {response.status_code}")
        try:
            found = from_json(body)
        except ValueError as error:
            raise IssuerUnavailableError(f"{url} did not answer with JSON") from error
        if not isinstance(found, dict):
            raise IssuerUnavailableError(f"{url} did not answer with a JSON object")
        return found


async def _body_of(response: httpx2.Response) -> bytes:
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise IssuerUnavailableError(f"{response.url} answered more than {MAX_ANSWER_BYTES} bytes")
    return body


def metadata_urls(issuer: str) -> list[str]:
    """Return the URLs of an issuer's metadata, the preferred one first (RFC 8414, section 3.1; OpenID Discovery)."""
    url = httpx2.URL(issuer)
    path = url.path.rstrip("/")
    paths = [f"/.well-known/oauth-authorization-server{path}", f"/.well-known/openid-configuration{path}"]
    if path:
        paths.append(f"{path}/.well-known/openid-configuration")
    return [str(url.copy_with(path=each, query=None)) for each in paths]


def require_url(url: str, what: str, *, asked: str | None = None) -> str:
    """Validate an http(s) URL.

    Args:
        url: The URL.
        what: Name of the setting, for the message.
        asked: Name of the server there that is asked, to warn of a connection without encryption; None if none is.

    Raises:
        DefinitionError: It is invalid.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise DefinitionError(f"{what} is a URL such as https://login.example.org, not {url!r}: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.fragment or parsed.userinfo:
        shown = str(parsed.copy_with(userinfo=b"")) if parsed.userinfo else str(parsed)
        raise DefinitionError(f"{what} is an http(s) URL without a user and a fragment, not {shown!r}")
    if asked is not None and parsed.scheme == "http" and not _is_this_machine(parsed.host):
        _logger.warning(
            "%s is reached without encryption at %r: an attacker in the network can forge its answers; use https",
            asked,
            url,
        )
    return url


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
