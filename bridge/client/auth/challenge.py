"""Challenge: a server's answer that asks for a token, or for one that may do more (RFC 6750, 9449, 9728)."""

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

from bridge.client.auth.dpop import ALGORITHM, BAD_PROOF, USE_NONCE

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def challenge_in(response: httpx2.Response) -> Challenge | None:
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
