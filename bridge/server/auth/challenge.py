"""Challenges: answers to requests without the credential that they need (RFC 6750, section 3; RFC 9728, 5.1)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.server.http.responses import NO_STORE, send_counted_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """Why a request goes no further, and what would help."""

    status: int
    """400, 401, 403, 429 or 503."""
    description: str
    """What is wrong, fit for whoever sent the request."""
    error: str | None = None
    """The error of OAuth; None where no credential came at all."""
    scopes: frozenset[str] = frozenset()
    """What has to be granted."""
    retry_after_seconds: float | None = None
    """When trying again may help."""
    is_guess: bool = True
    """Whether the credential, where one came, may have been made up."""


_UNAVAILABLE = 503

NO_CREDENTIAL = "a key or token is needed: Authorization: Bearer KEY-OR-TOKEN"


async def send_challenge(send: Send, challenge: Challenge, metadata_url: str | None) -> None:
    """Answer a request.

    Args:
        send: Where the answer goes.
        challenge: What is wrong.
        metadata_url: Where a client learns which issuers give tokens for this server; None where none do.
    """
    told = {"error": challenge.error or "unauthorized", "error_description": challenge.description}
    headers = [NO_STORE]
    if challenge.retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(challenge.retry_after_seconds)))
    if challenge.status != _UNAVAILABLE:
        headers.append((b"www-authenticate", _written(challenge, metadata_url).encode("latin-1", "replace")))
    await send_counted_error(send, challenge.status, json.dumps(told).encode(), headers)


def _written(challenge: Challenge, metadata_url: str | None) -> str:
    parts = []
    if challenge.error is not None:
        parts = [_quoted("error", challenge.error), _quoted("error_description", challenge.description)]
    if challenge.scopes:
        parts.append(_quoted("scope", _joined(challenge.scopes)))
    if metadata_url is not None:
        parts.append(_quoted("resource_metadata", metadata_url))
    return " ".join(["Bearer", ", ".join(parts)]).rstrip()


def _quoted(name: str, value: str) -> str:
    safe = "".join("'" if each in '"\\' else each for each in value if " " <= each <= "~")
    return f'{name}="{safe}"'


def _joined(scopes: Iterable[str]) -> str:
    return " ".join(sorted(scopes))
