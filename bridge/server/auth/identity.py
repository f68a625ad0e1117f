"""Identity: who sent the request that is being answered, and what the sender may do."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

from bridge.server.auth.access import EVERYTHING
from bridge.tools.context import Caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mcp.server.auth.provider import AccessToken

    from bridge.server.auth.access import Access
    from bridge.server.auth.credential_monitor import Tenure


class KnownUser(AuthenticatedUser):
    """The SDK's authenticated user, with what tools are told of it.

    Args:
        token: The credential, verified.
        access: What it lets its bearer do.
        tenure: How long it holds for streams; None where there are none.
        name: What its bearer is called; None for the credential's subject, else its client.
    """

    def __init__(
        self, token: AccessToken, access: Access, tenure: Tenure | None = None, *, name: str | None = None
    ) -> None:
        super().__init__(token)
        self.tenure = tenure
        self.caller = _caller_of(token, name)
        self.access = access


def caller_of_request() -> Caller | None:
    """Who calls, where the transport let nobody in without a credential."""
    user = auth_context_var.get()
    if user is None:
        return None
    return user.caller if isinstance(user, KnownUser) else _caller_of(user.access_token)


def access_of_request() -> Access:
    """What the caller may do: everything, where nobody was asked for a credential."""
    user = auth_context_var.get()
    return user.access if isinstance(user, KnownUser) else EVERYTHING


def ending_with_credential(end: Callable[[], object]) -> AbstractContextManager[None]:
    """The time during which the stream is open that the request asked for.

    Args:
        end: Called when the credential of the request holds no more.
    """
    user = auth_context_var.get()
    tenure = user.tenure if isinstance(user, KnownUser) else None
    return nullcontext() if tenure is None else tenure.ending(end)


def _caller_of(token: AccessToken, name: str | None = None) -> Caller:
    return Caller(name or token.subject or token.client_id, frozenset(token.scopes), token.claims or {})
