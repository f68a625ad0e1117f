"""Entry: what a configuration says under ``auth``, in this package's own spelling, and other hosts' brought to it.

"auth": "oauth"                            a person logs in: bridge login
"auth": {"clientId": …, "scopes": […]}     the same, as a client that was registered by hand
"auth": {"type": "client_credentials", …}  this program has credentials of its own
"auth": "${TOKEN}"                         a token that goes with every request
"oauth": {…}                               Claude Code's word; Cursor writes "CLIENT_ID" and so on
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from bridge.client.auth.grants import ClientAuthentication

if TYPE_CHECKING:
    from bridge.client.config.document import Findings


def _words(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


_Scopes = Annotated[list[str], BeforeValidator(_words, json_schema_input_type=str | list[str])]


class AuthEntry(BaseModel):
    """How this side signs in to one server."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True
    )

    type: Literal["oauth", "client_credentials", "bearer"] | None = Field(
        default=None,
        description="A person logs in (oauth, the default), the program has credentials of its own, or a token.",
    )
    token: str | None = Field(default=None, description="The token of bearer.")
    client_id: str | None = Field(default=None, description="The client, where it was registered by hand.")
    client_secret: str | None = Field(default=None, description="The client's secret.")
    client_authentication: ClientAuthentication | None = Field(
        default=None, description="How the secret is shown; as the authorization server takes it, if unsaid."
    )
    client_metadata_url: str | None = Field(default=None, description="Where the client describes itself: https.")
    private_key: str | None = Field(default=None, description="The client's key, as PEM, instead of a secret.")
    private_key_file: str | None = Field(default=None, description="A file with that key.")
    signing_algorithm: str | None = Field(default=None, description="What the key signs with; RS256 if unsaid.")
    issuer: str | None = Field(default=None, description="The authorization server that knows the client.")
    scopes: _Scopes | None = Field(default=None, description="What to ask for; what the server asks for, if unsaid.")
    redirect_uri: str | None = Field(
        default=None, description="Where the browser goes after a login: http on this machine; a free port if unsaid."
    )
    callback_port: int | None = Field(
        default=None, gt=0, lt=65536, description="The port of http://localhost:PORT/callback, as the redirectUri."
    )


_KEYS = tuple(field.alias or name for name, field in AuthEntry.model_fields.items())
_SPELLINGS = {"scope": "scopes", "tokenEndpointAuthMethod": "clientAuthentication", "redirectUrl": "redirectUri"}


def spelled_auth(server: str, key: str, value: Any, findings: Findings) -> Any:
    """Bring what is said under ``auth`` to our own spelling.

    Args:
        server: The server's name.
        key: How ``auth`` was written.
        value: What is said.
        findings: Where what is not known is told.
    """
    if not isinstance(value, dict):
        return value
    said: dict[str, Any] = {}
    for name, inner in value.items():
        camel = to_camel(str(name).lower()) if "_" in str(name) else str(name)
        canonical = _SPELLINGS.get(camel, camel)
        if canonical not in _KEYS:
            findings.warning("not known, and ignored", server=server, key=f"{key}.{name}")
        elif inner is not None:
            said[canonical] = inner
    return said
