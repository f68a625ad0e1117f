"""Draft: the part of a login that one of the SDK's OAuth clients is given, and gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


class Draft:
    """What the SDK's client is given, and what it has found out (the SDK's TokenStorage)."""

    def __init__(self, client: OAuthClientInformationFull | None, tokens: OAuthToken | None) -> None:
        self.client = client
        self.tokens = tokens
        self.has_new_tokens = False

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """There are new ones."""
        self.tokens = tokens
        self.has_new_tokens = True

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client that the authorization server knows."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """There is another one."""
        self.client = client_info
