"""Errors of callers' credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import BridgeError, ServerAuthError, ServerFailure

if TYPE_CHECKING:
    from bridge.gateway.credentials.store import CredentialKey, GrantKind


class CredentialStoreError(BridgeError):
    """A store of credentials cannot be read or written; the message names the store and the reason."""


class CredentialNeededError(ServerAuthError):
    """A call needs a credential that only its caller can give, in a browser; the call never ran.

    Raised on the way of a call, read or listing: before the caller has a credential, after the server has refused the
    one it had, and when the server asks for more scopes (``insufficient_scope``).

    Attributes:
        kind: ``login`` or ``secret``.
        key: Caller and server.
        scope: Scopes that the server asks for beside those of the caller's login, separated by spaces; None for none.
        refused: True if the server has refused the caller's last credential.
    """

    def __init__(
        self, server: str, kind: GrantKind, key: CredentialKey, *, scope: str | None = None, refused: bool = False
    ) -> None:
        reason = "it refused your credential" if refused else "you have not connected it yet"
        if scope is not None:
            reason = f"your login lacks a required scope ({scope})"
        super().__init__(ServerFailure(server=server, phase="authorizing", reason=reason, is_permanent=True))
        self.kind = kind
        self.key = key
        self.scope = scope
        self.refused = refused


class CallerRefusedError(ServerAuthError):
    """A call's caller can have no credential of its own, as it is anonymous, or the grant was refused to it.

    Args:
        server: Name of the server.
        reason: The cause, without secrets.
        is_permanent: False if a repetition may succeed, as the authorization server could not be reached.
    """

    def __init__(self, server: str, reason: str, *, is_permanent: bool = True) -> None:
        super().__init__(ServerFailure(server=server, phase="authorizing", reason=reason, is_permanent=is_permanent))
