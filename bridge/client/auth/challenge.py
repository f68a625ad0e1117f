"""WWW-Authenticate challenges; signing requests.

Challenge: a server's answer that asks for a token, or for one that may do more (RFC 6750, 9449, 9728).

Signature: what a request to a server is signed with: a token, and a proof of having the key that it is bound to.

A token that is bound goes with a proof that was made for its request, and never without one (RFC 9449, 7).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)

from bridge.client.auth.dpop import ALGORITHM, BAD_PROOF, USE_NONCE, Nonces, add_proof, refused_proof
from bridge.client.auth.errors import BY_A_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.client.auth.login import Login

_ASKING_STATUSES = (401, 403)

_QUOTED = re.compile(r'"[^"]*"')

_PROOF_SCHEME = re.compile(r"(?:^|,)\s*DPoP(?![^\s,])", re.IGNORECASE)

_PROOF_ERROR = re.compile(rf'\berror="?({USE_NONCE}|{BAD_PROOF})\b')


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a server asks for."""

    is_step_up: bool = False
    """It knows who asks, and wants them to be allowed more."""
    scope: str | None = None
    """The scopes that it names."""
    metadata_url: str | None = None
    """Where it describes itself."""
    error: str | None = None
    """What is wrong, as RFC 6750 has it."""
    takes_proofs: bool = False
    """It takes tokens that are bound to a key like ours (DPoP)."""
    proof_error: str | None = None
    """What is wrong with the proof, as RFC 9449 has it."""
    is_unasked: bool = False
    """It asks for nothing: somebody wants to log in nonetheless."""

    def response(self, request: httpx2.Request, scopes: Iterable[str] = ()) -> httpx2.Response:
        """The challenge as an answer to a request.

        Args:
            request: What is answered.
            scopes: What to ask for, whatever the server names; empty for that.
        """
        scope = union_scopes(" ".join(scopes) or None, self.scope if self.is_step_up else None) or self.scope
        fields = {
            "error": "insufficient_scope" if self.is_step_up else None,
            "scope": scope,
            "resource_metadata": self.metadata_url,
        }
        said = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value is not None)
        status = httpx2.codes.FORBIDDEN if self.is_step_up else httpx2.codes.UNAUTHORIZED
        return httpx2.Response(status, headers={"WWW-Authenticate": f"Bearer {said}"}, request=request)


def parse_challenge(response: httpx2.Response) -> Challenge | None:
    """What an answer asks for; None where it asks for nothing that a token could give."""
    if response.status_code not in _ASKING_STATUSES:
        return None
    error = extract_field_from_www_auth(response, "error")
    is_step_up = response.status_code == httpx2.codes.FORBIDDEN and error == "insufficient_scope"
    if response.status_code != httpx2.codes.UNAUTHORIZED and not is_step_up:
        return None
    said = response.headers.get("WWW-Authenticate", "")
    proof_error = _PROOF_ERROR.search(said)
    return Challenge(
        is_step_up=is_step_up,
        scope=extract_scope_from_www_auth(response),
        metadata_url=extract_resource_metadata_from_www_auth(response),
        error=error,
        takes_proofs=_takes_proofs(said, extract_field_from_www_auth(response, "algs")),
        proof_error=proof_error[1] if proof_error is not None else None,
    )


def _takes_proofs(said: str, algorithms: str | None) -> bool:
    is_named = _PROOF_SCHEME.search(_QUOTED.sub('""', said)) is not None
    return is_named and (algorithms is None or ALGORITHM in algorithms.split())


def credentials_needed(challenge: Challenge, login: Login | None) -> str:
    """What is told where a server wants what nobody may be asked for.

    Args:
        challenge: What it asks for.
        login: What there is; None for nothing.
    """
    if challenge.is_step_up:
        more = f" ({challenge.scope})" if challenge.scope else ""
        return f"it wants the login to be allowed more{more}"
    if login is None:
        return "it asks for credentials (HTTP 401)"
    return f"its login has expired, or was revoked{_doubt(challenge, login)}"


def token_refused(challenge: Challenge, login: Login | None) -> str:
    """What is told where a server refuses what has just come.

    Args:
        challenge: What it asks for still.
        login: What it was given; None for nothing.
    """
    said = f" ({challenge.error})" if challenge.error else ""
    return f"it refuses the token that it was just given{said}{_doubt(challenge, login)}"


def no_authorization_server(challenge: Challenge) -> str:
    """What is told where nobody can log in, because a server and its neighbourhood say nothing of how.

    Args:
        challenge: What it asks for.
    """
    if challenge.is_unasked:
        return "no login is needed: it answers without, and names no authorization server"
    return f"it names no authorization server, so nobody can log in there: it wants a key, {BY_A_KEY}"


def _doubt(challenge: Challenge, login: Login | None) -> str:
    if login is None or login.proof_key is None or challenge.takes_proofs:
        return ""
    return (
        "; the login's tokens are bound to a key (DPoP), of which it says nothing: where it takes no such tokens any"
        " more, bridge logout comes first"
    )


class RequestSigner:
    """Signs the requests to one server; it remembers what the server wants to find in proofs."""

    def __init__(self) -> None:
        self._nonces = Nonces()

    def put(self, request: httpx2.Request, login: Login | None) -> httpx2.Request:
        """Sign a request, which is then sent once; one that was sent before gets a new proof.

        Args:
            request: The request.
            login: What to sign with; None for nothing.
        """
        token = login.access_token if login is not None else None
        if login is None or token is None:
            return request
        if login.proof_key is None:
            request.headers["Authorization"] = f"Bearer {token}"
            request.headers.pop("DPoP", None)  # of a token that it was sent with before
        else:
            add_proof(request, login.proof_key, self._nonces, token)
        return request

    def wants_nonce(self, response: httpx2.Response, used: Login | None) -> bool:
        """Whether an answer asks for the request again, with a nonce in the proof that it gives (RFC 9449, 9).

        Args:
            response: The answer.
            used: What the request was signed with.
        """
        if used is None or used.proof_key is None or not self._nonces.learn(response):
            return False
        challenge = parse_challenge(response)
        return challenge is not None and challenge.proof_error == USE_NONCE

    def challenge_in(self, response: httpx2.Response, used: Login | None) -> Challenge | None:
        """What an answer asks for that another token could give; None where there is no such thing.

        Args:
            response: The answer.
            used: What the request was signed with.

        Raises:
            SignInError: The server does not take the proof.
        """
        challenge = parse_challenge(response)
        if used is None or used.proof_key is None:
            return challenge
        self._nonces.learn(response)
        if challenge is not None and challenge.proof_error is not None:
            raise refused_proof("it", challenge.proof_error)
        return challenge
