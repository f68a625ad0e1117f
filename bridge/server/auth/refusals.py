"""Refusals: why a credential lets nobody in."""

from __future__ import annotations

from bridge.errors import BridgeError


class TokenRefusedError(BridgeError):
    """A token is known to be bad. The message is fit for its bearer, and shows nothing of the token."""


class TokenExpiredError(TokenRefusedError):
    """A token was good, as its issuer's signature or word says, and has expired: whoever sends it makes no guess."""


class IssuerUnavailableError(BridgeError):
    """Nobody can tell whether a token is good, because what issued it cannot be asked.

    Attributes:
        retry_after_seconds: When asking again may help.
    """

    def __init__(self, message: str, retry_after_seconds: float = 10.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
