"""Allowed addresses and metadata of authorization servers.

Reach: where a login may take this program, whatever a server and its authorization server say.

Whoever is asked to log in is told by the server where to ask on: URLs of anybody's choice (MCP, Security Best
Practices, Server-Side Request Forgery). What a name resolves to is not looked at.

Fitness: whether an authorization server may be told anything, and a person be sent there.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, TypeAlias

import httpx2
from mcp.client.auth.utils import issuers_match

from bridge.client.auth.errors import SignInError
from bridge.client.auth.token_binding import object_in
from bridge.client.redaction import redact_url

if TYPE_CHECKING:
    from mcp.client.auth.oauth2 import OAuthContext
    from mcp.shared.auth import OAuthMetadata

    from bridge.client.auth.grants import OAuthLogin

_Address: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
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


def require_usable_server(context: OAuthContext, grant: OAuthLogin, reach: AllowedAddresses) -> None:
    """Refuse an authorization server before it is told anything, and before anybody is asked.

    Only a server of 2025-03-26 is its own authorization server without saying so. The SDK's client takes a server for
    one, too, whose authorization server is away, and would show it what only that may see.

    Args:
        context: What is known of both.
        grant: As whom somebody is to log in.
        reach: Where the login may lead.

    Raises:
        SignInError: It is not the one that is meant, says too little of itself, or leads astray.
    """
    metadata = context.oauth_metadata
    named = str(metadata.issuer) if metadata is not None else context.auth_server_url
    asked = named or context.get_authorization_base_url(context.server_url)
    if grant.issuer is not None and not issuers_match(asked, grant.issuer):
        raise SignInError(
            f"it leads the login to {redact_url(asked).shown!r}, and not to the issuer"
            f" {redact_url(grant.issuer).shown!r} that is named for it"
        )
    if metadata is not None:
        _require_pkce(metadata)
        for endpoint in (metadata.registration_endpoint, metadata.authorization_endpoint, metadata.token_endpoint):
            if endpoint is not None:
                reach.check(endpoint)
    elif named is not None:
        told = f"its authorization server {redact_url(named).shown!r} does not say how to log in (RFC 8414)"
        raise SignInError(told, is_permanent=False)


def prefer_authorization_server(issuer: str | None, answer: httpx2.Response) -> httpx2.Response:
    """What a server says of itself, with the named one of its authorization servers first (RFC 9728, 7.6).

    The SDK's client goes to the first.

    Args:
        issuer: The one that is named; None for none.
        answer: Whatever was answered.
    """
    if issuer is None or not answer.is_success:
        return answer
    said = object_in(answer)
    servers = said.get("authorization_servers")
    if not (isinstance(servers, list) and all(isinstance(server, str) for server in servers)):
        return answer
    ordered = sorted(servers, key=lambda server: not issuers_match(server, issuer))
    return httpx2.Response(answer.status_code, json=said | {"authorization_servers": ordered}, request=answer.request)


def _require_pkce(metadata: OAuthMetadata) -> None:
    """Refuse who does not say that a stolen code is no good without its verifier (MCP, Authorization Code Protection).

    A server of 2025-03-26 without any metadata has no place to say it: it never comes here, and is sent the challenge.
    """
    if "S256" in (metadata.code_challenge_methods_supported or ()):
        return
    raise SignInError(
        f"its authorization server {redact_url(str(metadata.issuer)).shown!r} does not say that it supports PKCE:"
        " 'code_challenge_methods_supported' of its metadata has to name 'S256'"
    )
