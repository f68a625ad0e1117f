"""Errors of signing in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.client.auth.challenge import Challenge
    from bridge.client.auth.login import Login


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


def need(challenge: Challenge, login: Login | None) -> str:
    """What is told where a server wants what nobody may be asked for.

    Args:
        challenge: What it asks for.
        login: What there is; None for nothing.
    """
    if challenge.is_step_up:
        more = f" ({challenge.scope})" if challenge.scope else ""
        return f"it wants the login to be allowed more{more}"
    if login is None:
        return "it asks for credentials (HTTP 401)"
    return f"its login has expired, or was revoked{_doubt(challenge, login)}"


def refusal(challenge: Challenge, login: Login | None) -> str:
    """What is told where a server refuses what has just come.

    Args:
        challenge: What it asks for still.
        login: What it was given; None for nothing.
    """
    said = f" ({challenge.error})" if challenge.error else ""
    return f"it refuses the token that it was just given{said}{_doubt(challenge, login)}"


def undescribed(challenge: Challenge) -> str:
    """What is told where nobody can log in, because a server and its neighbourhood say nothing of how.

    Args:
        challenge: What it asks for.
    """
    if challenge.is_unasked:
        return "no login is needed: it answers without, and names no authorization server"
    return f"it names no authorization server, so nobody can log in there: it wants a key, {BY_A_KEY}"


def _doubt(challenge: Challenge, login: Login | None) -> str:
    if login is None or login.proof_key is None or challenge.takes_proofs:
        return ""
    return (
        "; the login's tokens are bound to a key (DPoP), of which it says nothing: where it takes no such tokens any"
        " more, bridge logout comes first"
    )
