"""A credential that was verified, and what is known of its bearer."""

from __future__ import annotations

from typing import Any

from mcp.server.auth.provider import AccessToken
from pydantic import Field


class VerifiedToken(AccessToken):
    """What a verifier of this package makes of a good credential: the SDK's AccessToken, and what its bearer may do.

    Neither its ``repr`` nor anything that logs it shows the credential.
    """

    token: str = Field(repr=False)
    claims: dict[str, Any] | None = Field(default=None, repr=False)
    tools: tuple[str, ...] | None = None
    """Names and patterns of the tools that the bearer may know of; None for all."""
    has_all_scopes: bool = False
    """Whether the bearer has every scope that the server knows, beside `scopes`."""
    keep_seconds: float = 0.0
    """How long the verdict may be kept without asking the verifier again."""
    is_key: bool = False
    """Whether it is a key, whose bearer is called as its operator said, and not as an issuer did."""
