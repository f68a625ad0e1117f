"""Requests to callbacks, whose URLs callers choose: to public addresses over https, or to origins that are allowed.

A name is resolved for each request, and the request is sent to the address that was checked, so that a name cannot
change between both (DNS rebinding). Redirects are not followed. Clauses: SEP-3415, "Webhook Security".
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from socket import SOCK_STREAM, gaierror
from typing import TYPE_CHECKING, Literal, NamedTuple

import anyio
import httpx2

from bridge.errors import BridgeError, DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Reason = Literal["connection_refused", "timeout", "tls_error", "http_4xx", "http_5xx", "challenge_failed"]
"""Reason of a failure, which callers learn in place of what the callback has sent."""

MAX_URL_CHARS = 2048
"""Maximum length of the URL of a callback."""
TIMEOUT_SECONDS = 10.0
"""Maximum duration of a request."""
MAX_ANSWER_BYTES = 8 * 1024
"""Maximum bytes of an answer that are read."""
_PORTS = {"http": 80, "https": 443}
_SERVER_ERROR = 500
_MAX_ADDRESSES = 4
_NAT64 = IPv6Address("64:ff9b::").packed[:12]
_UNICAST = IPv6Network("2000::/3")
"""All public addresses of IPv6: others are local, translated, deprecated, or not assigned (RFC 4291, IANA)."""
_DOCUMENTATION = IPv6Network("3fff::/20")
"""Not public (RFC 9637), which not every Python knows."""


class CallbackError(BridgeError):
    """A callback cannot be reached, or refuses a request.

    Attributes:
        reason: The reason, for callers.
        status: HTTP status; None without an answer.
    """

    def __init__(self, reason: Reason, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.status = status


class _Address(NamedTuple):
    scheme: str
    host: str
    port: int


class Callbacks:
    """Sends requests to callbacks.

    Args:
        allowed_origins: Origins, such as ``http://127.0.0.1:8080``, that may have private addresses and use http.

    Raises:
        DefinitionError: One is no origin.
    """

    def __init__(self, allowed_origins: Iterable[str] = ()) -> None:
        self._allowed = frozenset(map(_origin, allowed_origins))

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return httpx2.create_ssl_context()  # which takes 10 ms; SSL_CERT_FILE names further authorities

    def problem_of(self, url: object) -> str | None:
        """Return the reason why a URL cannot be a callback, as far as it is known without a request; None if it can."""
        if not isinstance(url, str) or len(url) > MAX_URL_CHARS:
            return f"it must be text of up to {MAX_URL_CHARS} characters"
        try:
            address = _address_of(url)
        except ValueError as error:
            return str(error)
        if address in self._allowed:
            return None
        if address.scheme != "https":
            return "it must begin with https://"
        return "its address is not a public one" if _is_private_literal(address.host) else None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Send a request; return the beginning of the body of a successful answer.

        Raises:
            CallbackError: The address is not allowed, there is no answer, or its status is not 2xx.
        """
        try:
            with anyio.fail_after(TIMEOUT_SECONDS):
                return await self._post(url, body, headers)
        except TimeoutError as error:
            raise CallbackError("timeout", f"no answer within {TIMEOUT_SECONDS:g} seconds") from error
        except httpx2.TimeoutException as error:
            raise CallbackError("timeout", "no answer in time") from error
        except (httpx2.HTTPError, OSError) as error:
            is_tls = any(isinstance(each, ssl.SSLError) for each in _causes(error))
            raise CallbackError("tls_error" if is_tls else "connection_refused", f"no connection: {error}") from error

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        address, parsed = _address_of(url), httpx2.URL(url)
        *targets, last = await self._resolved(address)
        for target in targets:
            with suppress(httpx2.ConnectError):  # so that nothing was sent
                return await self._sent(address, parsed, target, body, headers)
        return await self._sent(address, parsed, last, body, headers)

    async def _sent(
        self, address: _Address, parsed: httpx2.URL, target: str, body: bytes, headers: Mapping[str, str]
    ) -> bytes:
        """Send a request to an address; see `post`."""
        pinned = parsed.copy_with(host=target)
        extensions = {"sni_hostname": address.host}
        # Without kept connections, so that one for a name is never used for another name at the same address.
        limits = httpx2.Limits(max_keepalive_connections=0)
        async with httpx2.AsyncClient(
            verify=self._tls, timeout=TIMEOUT_SECONDS, follow_redirects=False, trust_env=False, limits=limits
        ) as client:
            named = {**headers, "Host": parsed.netloc.decode("ascii"), "User-Agent": "mcp-toolbridge"}
            request = client.build_request("POST", pinned, content=body, headers=named, extensions=extensions)
            answer = await client.send(request, stream=True)
            try:
                found = b""
                async for part in answer.aiter_raw():
                    found += part
                    if len(found) >= MAX_ANSWER_BYTES:
                        break
            finally:
                await answer.aclose()
        if answer.is_success:
            return found[:MAX_ANSWER_BYTES]
        reason: Reason = "http_5xx" if answer.status_code >= _SERVER_ERROR else "http_4xx"
        raise CallbackError(reason, f"the status of the answer is {answer.status_code}", answer.status_code)

    async def _resolved(self, address: _Address) -> list[str]:
        """Return the addresses to connect to, of which each is allowed.

        Raises:
            CallbackError: The name cannot be resolved, or has an address that is not public.
        """
        try:
            found = await anyio.getaddrinfo(address.host, address.port, type=SOCK_STREAM)
        except (gaierror, UnicodeError) as error:
            raise CallbackError("connection_refused", f"the name {address.host!r} cannot be resolved") from error
        targets = list(dict.fromkeys(str(each[4][0]) for each in found))
        if address not in self._allowed and any(map(_is_private, targets)):
            raise CallbackError("connection_refused", f"{address.host!r} has an address that is not a public one")
        return targets[:_MAX_ADDRESSES]


def _address_of(url: str) -> _Address:
    """Return where a URL is.

    Raises:
        ValueError: It is not a URL of a callback.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ValueError(f"it is not a URL: {error}") from error
    if parsed.scheme not in _PORTS or not parsed.host:
        raise ValueError("it must be an absolute URL that begins with https://")
    if parsed.userinfo or parsed.fragment:
        raise ValueError("it must have neither credentials nor a fragment")
    host = parsed.raw_host.decode("ascii").lower().rstrip(".")
    return _Address(parsed.scheme, host, parsed.port or _PORTS[parsed.scheme])


def host_of(url: str) -> str:
    """Return the host of the URL of a callback, in one form, however the URL is written."""
    return _address_of(url).host


def _origin(text: str) -> _Address:
    example = "such as 'https://hooks.internal:8443'"
    try:
        address, parsed = _address_of(text), httpx2.URL(text)
    except (ValueError, TypeError) as error:
        raise DefinitionError(f"{text!r} is not an origin of callbacks, {example}: {error}") from error
    if parsed.path not in {"", "/"} or parsed.query:
        raise DefinitionError(f"{text!r} has a path, and an origin of callbacks has none, {example}")
    return address


def _is_private_literal(host: str) -> bool:
    """True for an address that is not public, in place of a name, and for names of this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False  # it is resolved with each request
    return _is_private(host)


def _is_private(text: str) -> bool:
    """True for an address that is not public (RFC 6890), also within an IPv6 address."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv4Address):
        return not address.is_global or address.is_multicast
    if address.ipv4_mapped is not None:
        return _is_private(str(address.ipv4_mapped))
    if address.packed[:12] == _NAT64:
        return _is_private(str(IPv4Address(address.packed[12:])))
    inner = address.sixtofour or (address.teredo or (None, None))[1]
    if inner is not None and _is_private(str(inner)):
        return True
    return not address.is_global or address not in _UNICAST or address in _DOCUMENTATION


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
