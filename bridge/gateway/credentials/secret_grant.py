"""Secrets: each caller gives a key or token of its own, once, which is sent in a header."""

from __future__ import annotations

import re
from time import monotonic
from typing import TYPE_CHECKING

from bridge.client.auth.errors import SignInError
from bridge.client.callers import CallerAuth
from bridge.gateway.credentials.errors import CallerRefusedError, CredentialNeededError, CredentialStoreError
from bridge.gateway.credentials.grants import GrantDescription
from bridge.gateway.credentials.store import CHECK_SECONDS, Credential

if TYPE_CHECKING:
    from collections.abc import Generator

    import httpx2

    from bridge.client.auth.grants import SecretHeader
    from bridge.errors import ServerAuthError
    from bridge.gateway.credentials.keeper import CredentialKeeper
    from bridge.gateway.credentials.store import CredentialKey, GrantKind

_MAX_CHARS = 8192
_SENDABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_UNAUTHORIZED = 401


class CallerSecretGrant:
    """A `bridge.gateway.credentials.grants.SecretGrant`.

    Args:
        server: Name of the server.
        address: The server's URL, redacted.
        header: The header in which secrets are sent.
    """

    kind: GrantKind = "secret"

    def __init__(self, server: str, address: str, header: SecretHeader) -> None:
        self.server = server
        self.header = header
        self._address = address

    def describe(self) -> GrantDescription:
        """Describe what the caller is asked for."""
        return GrantDescription(server=self.server, kind=self.kind, address=self._address, header=self.header.name)

    async def accept_secret(self, key: CredentialKey, text: str) -> Credential:  # noqa: ARG002 - the protocol's
        """Check the form of a secret; see `SecretGrant.accept_secret`."""
        text = text.strip()
        if not text:
            raise SignInError("the key is empty")
        if len(text) > _MAX_CHARS or not _SENDABLE.fullmatch(text):
            raise SignInError("the key cannot be sent in a header: it is too long, or has characters beyond ASCII")
        return Credential(kind=self.kind, secret=text)


class SecretAuth(CallerAuth):
    """Sends one caller's secret."""

    def __init__(self, keeper: CredentialKeeper, key: CredentialKey, header: SecretHeader) -> None:
        self.owner = key
        self._keeper = keeper
        self._key = key
        self._header = header
        self._secret: str | None = None
        self._headers: dict[str, str] | None = None
        self._check_at = 0.0

    def ready_headers(self) -> dict[str, str] | None:
        """Return the header; None if it has to be loaded."""
        return self._headers if monotonic() < self._check_at else None

    async def prepare(self) -> None:
        """Load the secret."""
        if self.ready_headers() is not None:
            return
        try:
            credential = await self._keeper.load(self._key)
        except CredentialStoreError as error:
            raise CallerRefusedError(self._key.server, str(error), is_permanent=False) from error
        self._secret = None if credential is None else credential.secret
        if self._secret is None:
            raise CredentialNeededError(self._key.server, "secret", self._key)
        self._headers = {self._header.name: self._header.template.replace("{secret}", self._secret)}
        self._check_at = monotonic() + CHECK_SECONDS

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Sign a request.

        Raises:
            SignInError: There is no secret, or the server refuses it.
        """
        if self._headers is None:
            raise SignInError("the caller has given no key")
        request.headers.update(self._headers)
        response = yield request
        if response.status_code == _UNAUTHORIZED:
            raise SignInError("it refuses the caller's key (HTTP 401)")

    async def refused(self, error: ServerAuthError) -> ServerAuthError:
        """Delete the secret, which its caller has to give again."""
        if not error.failure.is_permanent:
            return error
        self._headers = None
        await self._keeper.drop(self._key, self._secret)
        return CredentialNeededError(self._key.server, "secret", self._key, refused=True)
