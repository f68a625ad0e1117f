"""Reach: where a login may take this program, whatever a server and its authorization server say.

Whoever is asked to log in is told by the server where to ask on: URLs of anybody's choice (MCP, Security Best
Practices, Server-Side Request Forgery). What a name resolves to is not looked at.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

import httpx2

from bridge.client.auth.errors import SignInError
from bridge.client.redaction import redact_url

_Address: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the login to one server may lead."""

    server_url: str
    """The server."""
    issuer: str | None = None
    """The authorization server, where the user has named it; it may be private wherever the server is."""

    def check(self, url: object) -> None:
        """Let a URL pass: https, or http to this machine; a private address only if the user has named such a one.

        Args:
            url: Where something is to be sent, or a person is to go: a text, or what has one.

        Raises:
            SignInError: Nobody should go there.
        """
        shown = redact_url(str(url)).shown
        parsed = _parsed(str(url))
        if parsed is None:
            raise SignInError(f"it leads the login to {shown!r}, which is no address on the web")
        if parsed.scheme == "http" and not _is_this_machine(_host(parsed)):
            raise SignInError(f"it leads the login to {shown!r}, which is not encrypted: it has to be https")
        if _is_private(_host(parsed)) and not self._may_be_private(parsed):
            raise SignInError(
                f"it leads the login to {shown!r}, an address of a private network or of this machine, where a server"
                " from outside has no business: only one that is itself named by such an address may lead there"
            )

    def _may_be_private(self, url: httpx2.URL) -> bool:
        server, issuer = _parsed(self.server_url), _parsed(self.issuer or "")
        if issuer is not None and (issuer.scheme, issuer.netloc) == (url.scheme, url.netloc):
            return True
        return server is not None and _is_private(_host(server))


def _parsed(url: str) -> httpx2.URL | None:
    """A URL of the web; None for anything else."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return None
    return parsed if parsed.scheme in {"https", "http"} and parsed.host else None


def _host(url: httpx2.URL) -> str:
    return url.raw_host.decode("ascii").lower().rstrip(".")


def _is_this_machine(host: str) -> bool:
    address = _address(host)
    if address is not None:
        return address.is_loopback or address.is_unspecified
    return host == "localhost" or host.endswith(".localhost")


def _is_private(host: str) -> bool:
    address = _address(host)
    if address is None:
        return _is_this_machine(host)
    return not address.is_global or address.is_multicast


def _address(host: str) -> _Address | None:
    """The address that a host is; None for a name."""
    try:
        address = ip_address(host)
    except ValueError:
        return _short_address(host)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _short_address(host: str) -> IPv4Address | None:
    """An address in one of the forms that only the system's resolver takes: 127.1, 2130706433, 0x7f.0.0.1."""
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None
