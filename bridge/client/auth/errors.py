"""Errors of signing in to a server."""

from __future__ import annotations

BY_A_KEY = "by --header 'Authorization: Bearer ${KEY}', or by 'headers' in its entry of an mcp.json"
"""Ways to configure an API key, for hints."""


class SignInError(Exception):
    """A server's requests cannot be signed. The message contains no secret.

    Attributes:
        hint: Suggested action.
        is_permanent: True if a retry fails until the user acts.
        is_step_up: True if the token is valid but lacks a scope for this request.
    """

    def __init__(
        self, reason: str, *, hint: str | None = None, is_permanent: bool = True, is_step_up: bool = False
    ) -> None:
        super().__init__(reason)
        self.hint = hint
        self.is_permanent = is_permanent
        self.is_step_up = is_step_up


class SpentAssertionError(SignInError):
    """The assertion was sent with a proof without a nonce and may be used up; the nonce is now known."""

    def __init__(self) -> None:
        super().__init__("its authorization server asks for a new nonce in each proof (DPoP)", is_permanent=False)


class UnboundTokenError(SignInError):
    """The authorization server issued a bearer token where a bound token is required."""

    def __init__(self) -> None:
        super().__init__(
            "its authorization server issued a token that is not bound to a key (DPoP), which is required: the server"
            " demands it, or the login was bound before (reset with: bridge logout)"
        )


class UnauthorizedError(Exception):
    """The server demands credentials.

    Attributes:
        status: HTTP status of the response.
        why: Reason for the missing credentials; None if sign-in is not configured.
    """

    def __init__(self, status: int, why: SignInError | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.why = why
