"""Errors of signing in."""

from __future__ import annotations


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
