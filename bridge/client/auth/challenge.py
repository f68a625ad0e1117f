"""WWW-Authenticate challenges, and the signing of requests (RFC 6750, 9449, 9728).

A bound token is always sent with a proof for its request (RFC 9449 section 7).
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)
from pydantic_core import to_json

from bridge.client.auth.dpop import ALGORITHM, BAD_PROOF, USE_NONCE, Nonces, add_proof, refused_proof
from bridge.client.auth.errors import BY_A_KEY
from bridge.protocol.negotiation import DISCOVER
from bridge.protocol.versions import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSIONS,
    LATEST_MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.client.auth.login import Login

_QUOTED = re.compile(r'"[^"]*"')
_PROOF_SCHEME = re.compile(r"(?:^|,)\s*DPoP(?![^\s,])", re.IGNORECASE)
_PROOF_ERROR = re.compile(rf'\berror="?({USE_NONCE}|{BAD_PROOF})\b')
QUESTION_HEADERS = {"accept": "text/event-stream", "mcp-protocol-version": HANDSHAKE_VERSIONS[-1]}
"""Headers of a GET without a token, which asks for a challenge."""
_DISCOVER_HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-method": DISCOVER,
    "mcp-protocol-version": LATEST_MODERN_VERSION,
}
_META = {
    PROTOCOL_VERSION_KEY: LATEST_MODERN_VERSION,
    CLIENT_INFO_KEY: {"name": "bridge", "version": ""},
    CAPABILITIES_KEY: {},
}
_DISCOVER = to_json({"jsonrpc": "2.0", "id": 0, "method": DISCOVER, "params": {"_meta": _META}})


@dataclass(frozen=True, slots=True)
class Challenge:
    """A server's demand for a token, or for one with more scopes."""

    is_step_up: bool = False
    """True if the token is valid but lacks a scope (403, ``insufficient_scope``)."""
    scope: str | None = None
    """Required scopes, if named."""
    metadata_url: str | None = None
    """URL of the protected resource metadata."""
    error: str | None = None
    """Error code of RFC 6750."""
    takes_proofs: bool = False
    """True if the server accepts DPoP-bound tokens with our algorithm."""
    proof_error: str | None = None
    """DPoP error code of RFC 9449."""
    is_unasked: bool = False
    """True for a login that no response asked for."""

    def response(self, request: httpx2.Request, scopes: Iterable[str] = ()) -> httpx2.Response:
        """Build the HTTP response to a request that carries this challenge, for the SDK's clients.

        Scopes of the configuration replace those of the server.
        """
        scope = union_scopes(" ".join(scopes) or None, self.scope if self.is_step_up else None) or self.scope
        fields = {
            "error": "insufficient_scope" if self.is_step_up else None,
            "scope": scope,
            "resource_metadata": self.metadata_url,
        }
        parameters = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value is not None)
        status = httpx2.codes.FORBIDDEN if self.is_step_up else httpx2.codes.UNAUTHORIZED
        headers = [(b"WWW-Authenticate", f"Bearer {parameters}".encode())]  # a server may have written any text
        return httpx2.Response(status, headers=headers, request=request)


async def request_challenge(
    http: httpx2.AsyncClient, url: httpx2.URL | str, headers: Mapping[str, str] | None = None
) -> Challenge | None:
    """Send a server requests without a token, and return its challenge; None if it has none.

    A server may answer GET by 405 before it looks for a token, and `server/discover` without one: both are sent.
    """
    for method, own, body in (("POST", _DISCOVER_HEADERS, _DISCOVER), ("GET", QUESTION_HEADERS, None)):
        with suppress(httpx2.ReadTimeout):  # an event stream sends no headers before its first event
            async with http.stream(method, url, headers={**(headers or {}), **own}, content=body) as response:
                if (challenge := parse_challenge(response)) is not None:
                    return challenge
    return None


def parse_challenge(response: httpx2.Response) -> Challenge | None:
    """Parse the challenge of a response; None if another token would not help."""
    if response.is_success:
        return None
    error = extract_field_from_www_auth(response, "error")
    is_step_up = response.status_code == httpx2.codes.FORBIDDEN and error == "insufficient_scope"
    if response.status_code != httpx2.codes.UNAUTHORIZED and not is_step_up:
        return None
    header = response.headers.get("WWW-Authenticate", "")
    proof_error = _PROOF_ERROR.search(header)
    algorithms = extract_field_from_www_auth(response, "algs")
    has_proofs = _PROOF_SCHEME.search(_QUOTED.sub('""', header)) is not None
    return Challenge(
        is_step_up=is_step_up,
        scope=extract_scope_from_www_auth(response),
        metadata_url=extract_resource_metadata_from_www_auth(response),
        error=error,
        takes_proofs=has_proofs and (algorithms is None or ALGORITHM in algorithms.split()),
        proof_error=proof_error[1] if proof_error is not None else None,
    )


def credentials_needed(challenge: Challenge, login: Login | None) -> str:
    """Describe a demand for credentials that cannot be met without a user."""
    if challenge.is_step_up:
        more = f" ({challenge.scope})" if challenge.scope else ""
        return f"the login lacks a required scope{more}"
    if login is None:
        return "it asks for credentials (HTTP 401)"
    return f"its login has expired, or was revoked{_doubt(challenge, login)}"


def token_refused(challenge: Challenge, login: Login | None) -> str:
    """Describe the rejection of a new token."""
    reason = f" ({challenge.error})" if challenge.error else ""
    return f"it refuses a newly issued token{reason}{_doubt(challenge, login)}"


def no_authorization_server(challenge: Challenge) -> str:
    """Describe a server for which no authorization server can be found."""
    if challenge.is_unasked:
        return "no login is needed: it accepts requests without one and names no authorization server"
    return f"it names no authorization server, so a login is impossible: give a key, {BY_A_KEY}"


def _doubt(challenge: Challenge, login: Login | None) -> str:
    if login is None or login.proof_key is None or challenge.takes_proofs:
        return ""
    return (
        "; the login's tokens are bound to a key (DPoP), which its challenge does not mention: if it no longer"
        " accepts such tokens, run bridge logout first"
    )


class RequestSigner:
    """Signs the requests to one server, and stores its DPoP nonces."""

    def __init__(self) -> None:
        self._nonces = Nonces()

    def put(self, request: httpx2.Request, login: Login | None) -> httpx2.Request:
        """Sign a request, if there is a login. Each attempt needs a new signature, since a proof is valid once."""
        token = login.access_token if login is not None else None
        if login is None or token is None:
            return request
        if login.proof_key is None:
            request.headers["Authorization"] = f"Bearer {token}"
            request.headers.pop("DPoP", None)  # left over from an earlier attempt with a bound token
        else:
            add_proof(request, login.proof_key, self._nonces, token)
        return request

    def wants_nonce(self, response: httpx2.Response, used: Login | None) -> bool:
        """Return True if the request must be repeated with the nonce of this response (RFC 9449 section 9)."""
        if used is None or used.proof_key is None or not self._nonces.learn(response):
            return False
        challenge = parse_challenge(response)
        return challenge is not None and challenge.proof_error == USE_NONCE

    def challenge_in(self, response: httpx2.Response, used: Login | None) -> Challenge | None:
        """Parse the challenge of a response; None if another token would not help.

        Raises:
            SignInError: The server refuses the proof.
        """
        challenge = parse_challenge(response)
        if used is None or used.proof_key is None:
            return challenge
        self._nonces.learn(response)
        if challenge is not None and challenge.proof_error is not None:
            raise refused_proof("it", challenge.proof_error)
        return challenge
