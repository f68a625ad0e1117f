"""Encryption of credentials at rest (AES-256-GCM), bound to the caller and the server that they belong to."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pydantic import ValidationError

from bridge.gateway.credentials.store import Credential
from bridge.protocol.rounds import StateSeal, binding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.gateway.credentials.store import CredentialKey
    from bridge.types import Json

_AUDIENCE = "credentials of callers"
_UNLIMITED_SECONDS = 1e12
_logger = logging.getLogger("bridge.gateway")


class CredentialSeal:
    """Encrypts credentials and values that may be used once.

    Args:
        keys: Secrets of at least 32 bytes, as for ``requestState``: the first encrypts, all decrypt; None for a random
            key, with which the credentials end with the process.

    Raises:
        ValueError: A key is too short, or there is none.
    """

    def __init__(self, keys: Sequence[bytes] | None) -> None:
        self._seal = StateSeal(keys, _AUDIENCE, _UNLIMITED_SECONDS)

    def of_credential(self, credential: Credential, key: CredentialKey) -> str:
        """Encrypt a credential."""
        return self._seal.seal(credential.model_dump(mode="json", exclude_none=True), _bound(key))

    def credential(self, sealed: str, key: CredentialKey) -> Credential | None:
        """Decrypt a credential; None, which is logged, if that is impossible."""
        state = self._seal.opened(sealed, _bound(key))
        try:
            return Credential.model_validate(state)
        except ValidationError:
            reason = "no key decrypts it" if state is None else "it is malformed"
            _logger.warning("the credential of %r for the server %r is not used: %s", key.subject, key.server, reason)
            return None

    def rotated(self, sealed: str, key: CredentialKey) -> str | None:
        """Encrypt a credential with the first key; None if it is already, or cannot be decrypted."""
        if self._seal.is_latest(sealed) or (state := self._seal.opened(sealed, _bound(key))) is None:
            return None
        return self._seal.seal(state, _bound(key))

    def of_value(self, value: Json, name: str) -> str:
        """Encrypt a value that may be used once, under a name."""
        return self._seal.seal(value, binding("used once", name))

    def value(self, sealed: str, name: str) -> Json | None:
        """Decrypt a value that may be used once; None if that is impossible."""
        return self._seal.opened(sealed, binding("used once", name))


def _bound(key: CredentialKey) -> bytes:
    return binding("credential", key.issuer, key.subject, key.server)
