"""Assertion: what an enterprise's identity provider says of a person, for another authorization server (RFC 8693)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from bridge.client.auth.errors import SignInError
from bridge.client.limits import authority_client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.client.auth.grants import AssertionSource

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a kind of token
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
_SECONDS = 10.0


class _Exchanged(BaseModel):
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    access_token: str
    issued_token_type: str


def exchanged(
    token_endpoint: str,
    *,
    client_id: str,
    id_token: Callable[[], Awaitable[str]],
    client_secret: str | None = None,
) -> AssertionSource:
    """Assertions that an identity provider gives for the ID token of whoever is logged in there.

    Args:
        token_endpoint: The identity provider's.
        client_id: This program, as the identity provider knows it.
        id_token: Gives the person's ID token.
        client_secret: What the identity provider knows this program by; None for nothing.

    Returns:
        For `bridge.client.auth.grants.IdentityAssertion`. It raises `SignInError` where the identity provider refuses.
    """

    async def source(issuer: str, resource: str) -> str:
        fields = {
            "grant_type": _EXCHANGE,
            "requested_token_type": _ID_JAG,
            "audience": issuer,
            "resource": resource,
            "subject_token": await id_token(),
            "subject_token_type": _ID_TOKEN,
            "client_id": client_id,
        }
        if client_secret is not None:
            fields["client_secret"] = client_secret
        async with authority_client(_SECONDS) as http:
            answer = await http.post(token_endpoint, data=fields)
        if not answer.is_success:
            raise SignInError(f"the identity provider gives no assertion (HTTP {answer.status_code})")
        try:
            found = _Exchanged.model_validate_json(answer.content)
        except ValidationError:
            raise SignInError("the identity provider's answer is no token (RFC 8693)") from None
        if found.issued_token_type != _ID_JAG:
            raise SignInError(f"the identity provider gave a {found.issued_token_type!r}, and no identity assertion")
        return found.access_token

    return source
