"""Errors of signing in."""

from __future__ import annotations

BY_A_KEY = "by --header 'Authorization: Bearer ${KEY}', or by 'headers' in its entry of an mcp.json"
"""How a server is given a key that wants one."""


class SignInError(Exception):
    """A server's requests cannot be signed; nothing in the message is secret.

    Attributes:
        hint: What to do about it.
        is_permanent: Trying again will fail again, until somebody does something.
        is_step_up: There is a token, which only is not good for this one request.
    """

    def __init__(
        self, reason: str, *, hint: str | None = None, is_permanent: bool = True, is_step_up: bool = False
    ) -> None:
        super().__init__(reason)
        self.hint = hint
        self.is_permanent = is_permanent
        self.is_step_up = is_step_up


class SpentAssertionError(SignInError):
    """An assertion, which may be good for one use, went with a proof that lacked a nonce; the nonce is known now."""

    def __init__(self) -> None:
        super().__init__("its authorization server wants another nonce in each proof (DPoP)", is_permanent=False)


class UnboundTokenError(SignInError):
    """An authorization server gave a token that whoever has it may use, where it has to be bound to a key."""

    def __init__(self) -> None:
        super().__init__(
            "its authorization server gave a token that is not bound to a key (DPoP), and it has to be: the server asks"
            " for it, or the login was bound before (bridge logout forgets that)"
        )
