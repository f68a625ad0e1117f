"""Allowed addresses and metadata checks of authorization servers.

A server chooses the URLs of a login, so they are checked (MCP, Security Best Practices, Server-Side Request Forgery).
Names are not resolved.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

import httpx2
from mcp.client.auth.utils import issuers_match

from bridge.client.auth.errors import SignInError
from bridge.client.auth.token_binding import object_in
from bridge.redaction import redact_url

if TYPE_CHECKING:
    from mcp.client.auth.oauth2 import OAuthContext

    from bridge.client.auth.grants import OAuthLogin


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
    """Addresses that the login to one server may use."""

    server_url: str
    """The MCP server."""
    issuer: str | None = None
    """The configured authorization server; it may have a private address in any case."""

    def check(self, url: object) -> None:
        """Require https, or http to this machine; private addresses only if the user configured one.

        Raises:
            SignInError: The URL, to request or to open in a browser, is not allowed.
        """
        shown = redact_url(str(url)).shown
        parsed = _parsed(str(url))
        if parsed is None:
            raise SignInError(f"its login uses {shown!r}, which is not a valid HTTP URL")
        if parsed.scheme == "http" and not _is_this_machine(_host(parsed)):
            raise SignInError(f"its login uses {shown!r}, which is not encrypted: it must be https")
        server, issuer = _parsed(self.server_url), _parsed(self.issuer or "")
        is_issuer = issuer is not None and (issuer.scheme, issuer.netloc) == (parsed.scheme, parsed.netloc)
        may_be_private = is_issuer or (server is not None and _is_private(_host(server)))
        if _is_private(_host(parsed)) and not may_be_private:
            raise SignInError(
                f"its login uses {shown!r}, an address of a private network or of this machine: only a server that is"
                " itself configured with such an address may use one"
            )


def _parsed(url: str) -> httpx2.URL | None:
    """Parse an HTTP URL; None for anything else."""
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


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address; None for a host name."""
    try:
        address = ip_address(host)
    except ValueError:
        try:  # forms that only the system's resolver accepts: 127.1, 2130706433, 0x7f.0.0.1
            return IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def require_usable_server(context: OAuthContext, grant: OAuthLogin, reach: AllowedAddresses) -> None:
    """Check an authorization server before any secret or user is sent to it (MCP, Authorization Code Protection).

    Only a server of 2025-03-26 may be its own authorization server without metadata. The SDK's client also assumes this
    when an authorization server is unavailable, and would send the MCP server secrets meant for the authorization
    server.

    Raises:
        SignInError: It is not the configured issuer, its metadata is insufficient, or an endpoint is not allowed.
    """
    metadata = context.oauth_metadata
    named = str(metadata.issuer) if metadata is not None else context.auth_server_url
    issuer = named or context.get_authorization_base_url(context.server_url)
    if grant.issuer is not None and not issuers_match(issuer, grant.issuer):
        raise SignInError(
            f"its login uses {redact_url(issuer).shown!r}, not the configured issuer {redact_url(grant.issuer).shown!r}"
        )
    if metadata is not None:
        # A server of 2025-03-26 without metadata cannot declare PKCE; it gets the code challenge anyway.
        if "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise SignInError(
                f"its authorization server {redact_url(issuer).shown!r} does not declare support for PKCE:"
                " 'code_challenge_methods_supported' of its metadata must include 'S256'"
            )
        for endpoint in (metadata.registration_endpoint, metadata.authorization_endpoint, metadata.token_endpoint):
            if endpoint is not None:
                reach.check(endpoint)
    elif named is not None:
        message = f"its authorization server {redact_url(named).shown!r} provides no metadata (RFC 8414)"
        raise SignInError(message, is_permanent=False)


def prefer_authorization_server(issuer: str | None, answer: httpx2.Response) -> httpx2.Response:
    """Move the configured authorization server to the front of a server's metadata (RFC 9728 section 7.6).

    The SDK's client uses the first one. Any other response is returned unchanged.
    """
    if issuer is None or not answer.is_success:
        return answer
    metadata = object_in(answer)
    servers = metadata.get("authorization_servers")
    if not (isinstance(servers, list) and all(isinstance(server, str) for server in servers)):
        return answer
    ordered = sorted(servers, key=lambda server: not issuers_match(server, issuer))
    return httpx2.Response(
        answer.status_code, json=metadata | {"authorization_servers": ordered}, request=answer.request
    )
