"""A stored login and the SDK's token storage over it.

Login: what is known of one login: the client, its tokens, and where they can be renewed.

Draft: the part of a login that one of the SDK's OAuth clients is given, and gives back.

Keeping: the login to one server where it is kept, and what is done where it cannot be.
"""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Literal, Protocol

from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ConfigDict, Field

from bridge.client.auth.dpop import ProofKey
from bridge.client.auth.errors import SignInError
from bridge.errors import WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

_MAX_MARGIN_SECONDS = 30.0
"""How long before its end a token is renewed, at most."""

_MARGIN_OF_LIFETIME = 0.1

_logger = logging.getLogger("bridge.client")


class Login(BaseModel):
    """One login, as it is kept. Its repr shows nothing secret."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    version: Literal[1] = 1
    """Of the form in which it is kept."""
    server_url: str
    """The server, without what may be secret in its URL."""
    client: OAuthClientInformationFull | None = Field(default=None, repr=False)
    """The client that the authorization server knows."""
    tokens: OAuthToken | None = Field(default=None, repr=False)
    """The tokens; None where they are no good any more."""
    expires_at: float | None = None
    """When the access token ends, in seconds since 1970; None where nobody said."""
    metadata: OAuthMetadata | None = Field(default=None, repr=False)
    """What the authorization server says of itself (RFC 8414)."""
    resource: ProtectedResourceMetadata | None = Field(default=None, repr=False)
    """What the server says of itself (RFC 9728)."""
    wanted_scope: str | None = None
    """What the server has asked for since, and the tokens do not have."""
    proof_key: ProofKey | None = Field(default=None, repr=False)
    """The key that the tokens are bound to; None where whoever has them may use them."""

    @property
    def access_token(self) -> str | None:
        """What requests are signed with; None for nothing."""
        return self.tokens.access_token if self.tokens is not None else None

    @property
    def can_be_refreshed(self) -> bool:
        """Whether the access token can be renewed without a person."""
        return self.tokens is not None and self.tokens.refresh_token is not None and self.client is not None

    @property
    def is_stale(self) -> bool:
        """Whether the access token has ended, or soon will have."""
        if self.expires_at is None:
            return False
        lifetime_seconds = self.tokens.expires_in if self.tokens is not None else None
        margin = min(_MAX_MARGIN_SECONDS, (lifetime_seconds or 0) * _MARGIN_OF_LIFETIME)
        return time.time() >= self.expires_at - margin

    @property
    def has_ended(self) -> bool:
        """Whether the access token has ended."""
        return self.expires_at is not None and time.time() >= self.expires_at

    def renewed(self, tokens: OAuthToken | None) -> Login:
        """The login with other tokens, which have just come."""
        expires_in = tokens.expires_in if tokens is not None else None
        expires_at = None if expires_in is None else time.time() + expires_in
        return self.model_copy(update={"tokens": tokens, "expires_at": expires_at})


class SdkTokenStorage:
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


class StoredLogin:
    """Where the login to one server is kept.

    Args:
        logins: Where all of them are.
        key: Which of them it is.
        shown: The server, as it may be shown.
        hint: What a person should do where what is kept is no login.
    """

    def __init__(self, logins: Logins, key: str, *, shown: str, hint: str | None) -> None:
        self._logins = logins
        self._key = key
        self._shown = shown
        self._hint = hint

    async def load(self) -> Login | None:
        """The login; None for none.

        Raises:
            SignInError: It cannot be read.
        """
        try:
            return await self._logins.load(self._key)
        except WireError as error:
            raise SignInError(str(error), hint=self._hint) from error
        except OSError as error:
            raise SignInError(f"its login cannot be read: {error}") from error

    async def load_if_readable(self) -> Login | None:
        """The login; None for none, and for one that another is to take the place of: the store keeps it."""
        try:
            return await self.load()
        except SignInError:
            return None

    async def save(self, login: Login) -> None:
        """Keep a login; where that cannot be done, the log says so."""
        try:
            await self._logins.save(self._key, login)
        except OSError as error:
            _logger.warning("the login to %s cannot be kept: %s", self._shown, error)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """The time in which no other process renews it; where that cannot be had, the log says so."""
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._logins.locked(self._key))
            except OSError as error:
                _logger.warning("logins cannot be locked, and are renewed without: %s", error)
            yield


class Logins(Protocol):
    """Where logins are kept."""

    async def load(self, key: str) -> Login | None:
        """The login under a key; None where there is none.

        Raises:
            WireError: What is there is no login.
            OSError: It cannot be read.
        """

    async def save(self, key: str, login: Login) -> None:
        """Keep a login.

        Raises:
            OSError: It cannot be written; what was there still is.
        """

    def locked(self, key: str) -> AbstractAsyncContextManager[None]:
        """Be the only one who renews a login, in this block."""
