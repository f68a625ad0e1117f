"""Pydantic models of the configuration; its JSON Schema.

An entry: one server of a configuration as it is written, in this package's own spelling.

`ServerEntry` says which keys there are and what they may hold; the JSON Schema is made from it, and other dialects'
spellings are translated into it before it judges. Null says nothing, as if the key were not there.

Entry: what a configuration says under ``auth``, in this package's own spelling, and other hosts' brought to it.

"auth": "oauth"                            a person logs in: bridge login
"auth": {"clientId": …, "scopes": […]}     the same, as a client that was registered by hand
"auth": {"type": "client_credentials", …}  this program has credentials of its own
"auth": "${TOKEN}"                         a token that goes with every request
"oauth": {…}                               Claude Code's word; Cursor writes "CLIENT_ID" and so on
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema

from bridge.client.auth.grants import ClientAuthentication
from bridge.client.config.servers import Prefixing, ProtocolPin
from bridge.client.config.variables import InputDefinition
from bridge.client.tool_pins import PinMode

if TYPE_CHECKING:
    from pydantic_core.core_schema import NullableSchema, WithDefaultSchema

    from bridge.client.config.document import Diagnostics


def _number_as_text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _scalar_as_text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool) else _number_as_text(value)


_Text = Annotated[str, BeforeValidator(_number_as_text, json_schema_input_type=str | float)]


_Variable = Annotated[str | None, BeforeValidator(_scalar_as_text, json_schema_input_type=str | float | bool | None)]


_PINS = "A lock file of bridge pin: tools that are not as it has them are refused."


_PIN_MODE = "Whether those are refused, as by default, or taken with a warning (flag)."


_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ServerEntry(BaseModel):
    """One server: a command to start, or a URL to connect to."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        hide_input_in_errors=True,
        json_schema_extra={"oneOf": [{"required": ["command"]}, {"required": ["url"]}]},
    )

    type: Literal["stdio", "http", "sse"] | None = Field(
        default=None, description="The transport; by default stdio for a command, and for a URL whatever answers."
    )
    command: str | None = Field(default=None, description="The program to start.")
    args: list[_Text] | None = Field(default=None, description="The program's arguments.")
    env: dict[str, _Variable] | None = Field(default=None, description="Variables for the program.")
    env_file: str | None = Field(default=None, description="A .env file with variables; those of env come before it.")
    cwd: str | None = Field(default=None, description="The folder to start the program in.")
    inherit_env: Literal["minimal", "all"] | list[str] | None = Field(
        default=None, description="What the program inherits of the environment: minimal (the default), all, or names."
    )
    url: str | None = Field(default=None, description="Where the server is: http or https.")
    headers: dict[str, _Text] | None = Field(default=None, description="Headers that go with every request.")
    auth: str | AuthEntry | None = Field(
        default=None, description="How to sign in: oauth for a login by bridge login, a token, or more in an object."
    )
    disabled: bool | None = Field(default=None, description="Leave this server out.")
    timeout: _Seconds | None = Field(default=None, description="Seconds a call may go without progress; 60 if unsaid.")
    max_call_seconds: _Seconds | None = Field(default=None, description="Seconds a call may take; 600 if unsaid.")
    connect_timeout_seconds: _Seconds | None = Field(
        default=None, description="Seconds the server may take to start and to greet; 30 if unsaid."
    )
    connect_wait_seconds: _Seconds | None = Field(
        default=None, description="Seconds a call waits for the server while it is down; 5 if unsaid."
    )
    required: bool | None = Field(default=None, description="Fail at the start without this server.")
    trusted: bool | None = Field(
        default=None,
        description="Rely on its annotations: repeat calls that it says are idempotent or read-only, and run those "
        "that it says are read-only without approval.",
    )
    prefix: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_.-]*$", description="Stands before the names of the server's tools."
    )
    include: list[str] | None = Field(default=None, description="The only tools to take; * and ? match.")
    exclude: list[str] | None = Field(default=None, description="Tools to leave out; * and ? match.")
    unjudged_results: Literal["pass", "refuse"] | None = Field(
        default=None,
        description="Refuse results that are too much work to check against their schema, or pass them, as by default.",
    )
    protocol: ProtocolPin | None = Field(
        default=None, description="Speak the handshake era (legacy) or this version; negotiated if unsaid (auto)."
    )
    pins: str | None = Field(default=None, description=_PINS)
    pin_mode: PinMode | None = Field(default=None, description=_PIN_MODE)


class Document(BaseModel):
    """Servers to connect to."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", alias_generator=to_camel, title="bridge: MCP servers"
    )

    mcp_servers: dict[str, ServerEntry] = Field(description="The servers by name.")
    inputs: list[InputDefinition] | None = Field(default=None, description="Values to ask a person for.")
    pins: str | None = Field(default=None, description=f"{_PINS} For servers that name none.")
    pin_mode: PinMode | None = Field(default=None, description=_PIN_MODE)
    prefix: Prefixing | None = Field(
        default=None,
        description="When a server's name stands before the names of its tools; if unsaid, with several servers.",
    )


STDIO_KEYS = frozenset({"args", "env", "envFile", "cwd", "inheritEnv"})
"""Keys that mean something only beside a command."""


HTTP_KEYS = frozenset({"auth", "headers"})
"""Keys that mean something only beside a URL."""


KEYS: tuple[str, ...] = tuple(field.alias or name for name, field in ServerEntry.model_fields.items())
"""Every key of an entry, as it is written."""


def config_json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a configuration in this package's own form.

    It is narrower than what is read: other dialects' spellings are left out, and an unknown key of a server is refused
    where reading only warns, so that an editor underlines it.
    """
    schema = Document.model_json_schema(by_alias=True, schema_generator=_PlainSchema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


class _PlainSchema(GenerateJsonSchema):
    """Leaves out what a person who writes a configuration has no use for: null for "unsaid", and titles."""

    def nullable_schema(self, schema: NullableSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: WithDefaultSchema) -> dict[str, Any]:
        if schema.get("default") is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - no field has one
        return False


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


def normalize_auth(server: str, key: str, value: Any, findings: Diagnostics) -> Any:
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
