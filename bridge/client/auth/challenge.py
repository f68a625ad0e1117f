"""Challenge: a server's answer that asks for a token, or for one that may do more (RFC 6750, RFC 9728)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_ASKING_STATUSES = (401, 403)


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
    return Challenge(
        is_step_up=is_step_up,
        scope=extract_scope_from_www_auth(response),
        metadata_url=extract_resource_metadata_from_www_auth(response),
        error=error,
    )
