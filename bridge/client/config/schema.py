"""Pydantic models of the configuration, and its JSON Schema.

`ServerEntry` validates an entry after its keys were converted to the canonical form; the JSON Schema is generated from
it. A null value means an absent key. The ``auth`` key has these forms:

    "auth": "oauth"                            login in a browser with bridge login
    "auth": {"clientId": …, "scopes": […]}     the same, with a pre-registered client
    "auth": {"type": "client_credentials", …}  the program's own credentials
    "auth": {"type": …, "per": "caller"}       a credential for each caller of a gateway
    "auth": "${TOKEN}"                         a bearer token
    "oauth": {…}                               alias of Claude Code; Cursor writes "CLIENT_ID" and so on
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema

from bridge.client.auth.grants import ClientAuthentication, SubjectTokenType
from bridge.client.config.document import EXTENSION_RULE
from bridge.client.config.profiles import ProfileEntry
from bridge.client.config.servers import (
    Prefixing,
    ProtocolPin,
    StartMode,
    ToolListing,
    is_configurable_extension,
)
from bridge.client.config.variables import InputDefinition
from bridge.client.pins import PinMode
from bridge.wire.extension import EXTENSION_PATTERN

if TYPE_CHECKING:
    from pydantic_core.core_schema import NullableSchema, WithDefaultSchema

    from bridge.client.config.document import Diagnostics
    from bridge.types import Json


def _number_as_text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _scalar_as_text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool) else _number_as_text(value)


def _configurable(extensions: dict[str, Json]) -> dict[str, Json]:
    if not all(map(is_configurable_extension, extensions)):
        raise ValueError(EXTENSION_RULE)
    return extensions


_Text = Annotated[str, BeforeValidator(_number_as_text, json_schema_input_type=str | float)]
_Variable = Annotated[str | None, BeforeValidator(_scalar_as_text, json_schema_input_type=str | float | bool | None)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_Extensions = Annotated[
    dict[str, dict[str, Any]],
    AfterValidator(_configurable),
    Field(json_schema_extra={"propertyNames": {"pattern": EXTENSION_PATTERN}}),
]

_PINS = "A lock file of bridge pin: tools, resources and prompts that differ from it are refused."
_PIN_MODE = "Refuse what differs from the lock file (refuse, the default), or use it with a warning (flag)."


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
        default=None, description="The transport; by default stdio for a command, and detected for a URL."
    )
    command: str | None = Field(default=None, description="The program to start.")
    args: list[_Text] | None = Field(default=None, description="The program's arguments.")
    env: dict[str, _Variable] | None = Field(default=None, description="Environment variables of the program.")
    env_file: str | None = Field(default=None, description="A .env file with variables; env overrides it.")
    cwd: str | None = Field(default=None, description="The folder to start the program in.")
    inherit_env: Literal["minimal", "all"] | list[str] | None = Field(
        default=None,
        description="Environment variables that the program inherits: minimal (the default), all, or names.",
    )
    url: str | None = Field(default=None, description="The server's URL, http or https.")
    headers: dict[str, _Text] | None = Field(default=None, description="Headers of every request.")
    auth: str | AuthEntry | None = Field(
        default=None, description="Authentication: oauth for a login with bridge login, a token, or an object."
    )
    list_per: Literal["caller"] | None = Field(
        default=None,
        description="List tools, resources and prompts for each caller of a gateway, with the caller's own credential.",
    )
    disabled: bool | None = Field(default=None, description="Do not use this server.")
    timeout: _Seconds | None = Field(
        default=None, description="Maximum seconds of a call without progress; 60 by default."
    )
    max_call_seconds: _Seconds | None = Field(default=None, description="Maximum seconds of a call; 600 by default.")
    connect_timeout_seconds: _Seconds | None = Field(
        default=None, description="Maximum seconds of start and handshake; 30 by default."
    )
    connect_wait_seconds: _Seconds | None = Field(
        default=None, description="Maximum seconds that a call waits for an unavailable server; 5 by default."
    )
    start: StartMode | None = Field(
        default=None,
        description="Start the program with the gateway (eager, the default), or when it is first needed (lazy).",
    )
    idle_seconds: _Seconds | None = Field(
        default=None,
        description="Seconds without calls after which a program started when needed is ended; 300 by default.",
    )
    max_memory_mib: int | None = Field(
        default=None, gt=0, description="Maximum MiB of memory of the program, and of its children."
    )
    max_cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Maximum CPUs of the program and its children; if the service manager delegates a control group.",
    )
    max_cpu_seconds: int | None = Field(
        default=None, gt=0, description="Seconds of CPU time after which the program is killed, and started again."
    )
    process_per: Literal["caller"] | None = Field(
        default=None, description="Start the program for each caller of a gateway, instead of one for all of them."
    )
    required: bool | None = Field(default=None, description="Fail at startup if this server is unavailable.")
    trusted: bool | None = Field(
        default=None,
        description="Rely on the server's annotations: repeat calls of tools annotated as idempotent or read-only, and "
        "run read-only tools without approval.",
    )
    prefix: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_.-]*$", description="Text that is prepended to the server's tool names."
    )
    include: list[str] | None = Field(default=None, description="The only tools to use; * and ? are wildcards.")
    exclude: list[str] | None = Field(default=None, description="Tools to leave out; * and ? are wildcards.")
    include_resources: list[str] | None = Field(
        default=None, description="The only resources to use, by URI or URI template; * and ? are wildcards."
    )
    exclude_resources: list[str] | None = Field(
        default=None, description="Resources to leave out, by URI or URI template; * and ? are wildcards."
    )
    include_prompts: list[str] | None = Field(
        default=None, description="The only prompts to use; * and ? are wildcards."
    )
    exclude_prompts: list[str] | None = Field(default=None, description="Prompts to leave out; * and ? are wildcards.")
    always_visible: list[str] | None = Field(
        default=None, description="Tools to list even if clients search for the others; * and ? are wildcards."
    )
    extensions: _Extensions | None = Field(
        default=None,
        description="Extensions to declare to the server, with their settings; a gateway passes them on.",
    )
    unjudged_results: Literal["pass", "refuse"] | None = Field(
        default=None,
        description="Refuse results that take too long to validate against their schema, or pass them (the default).",
    )
    spill_chars: int | None = Field(
        default=None,
        gt=0,
        description="Characters up to which results of its tools stay whole; a gateway keeps larger ones aside.",
    )
    protocol: ProtocolPin | None = Field(
        default=None,
        description="The protocol: the handshake era (legacy), or this version; negotiated by default (auto).",
    )
    pins: str | None = Field(default=None, description=_PINS)
    pin_mode: PinMode | None = Field(default=None, description=_PIN_MODE)


class Document(BaseModel):
    """Servers to connect to."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", alias_generator=to_camel, title="bridge: MCP servers"
    )

    mcp_servers: dict[str, ServerEntry] = Field(description="The servers by name.")
    inputs: list[InputDefinition] | None = Field(default=None, description="Values to ask the user for.")
    pins: str | None = Field(default=None, description=f"{_PINS} For servers that name no lock file.")
    pin_mode: PinMode | None = Field(default=None, description=_PIN_MODE)
    prefix: Prefixing | None = Field(
        default=None,
        description="When the server's name is prepended to its tool names; by default with several servers.",
    )
    tools: ToolListing | None = Field(
        default=None,
        description="Tools that clients of bridge serve list: all (the default); or those that search for the others "
        "(search); or the latter if there are many (auto); or those that search for them and run scripts (code).",
    )
    profiles: dict[str, ProfileEntry] | None = Field(
        default=None, description="What bridge serve serves at URLs of their own, by the last part of their paths."
    )


KEYS: tuple[str, ...] = tuple(field.alias or name for name, field in ServerEntry.model_fields.items())
"""Every key of an entry, in canonical form."""


def config_json_schema() -> dict[str, Any]:
    """Generate the JSON Schema (2020-12) of a configuration in canonical form.

    It is stricter than the parser: it omits key aliases and rejects unknown keys of a server, so that editors mark
    them.
    """
    schema = Document.model_json_schema(by_alias=True, schema_generator=_PlainSchema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


class _PlainSchema(GenerateJsonSchema):
    """Omits null and titles, which are of no use to authors of a configuration."""

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


AuthType: TypeAlias = Literal[
    "oauth", "client_credentials", "workload_identity", "bearer", "login", "exchange", "identity_assertion", "secret"
]
"""Kind of authentication to a server."""


class AuthEntry(BaseModel):
    """Authentication to one server."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True
    )

    type: AuthType | None = Field(
        default=None,
        description="A login in a browser (oauth, the default), the program's own credentials, the identity that its "
        "platform gives it, or a token; with 'per': 'caller' each caller's login, token exchange, identity assertion "
        "or secret.",
    )
    per: Literal["caller"] | None = Field(
        default=None, description="Each caller of a gateway has a credential of its own."
    )
    anonymous: Literal["refuse", "shared"] | None = Field(
        default=None,
        description="Refuse callers without an identity (the default), or send the headers alone; with 'per'.",
    )
    token_url: str | None = Field(default=None, description="The token endpoint of an exchange (RFC 8693).")
    audience: str | None = Field(default=None, description="Name of the server at that endpoint.")
    resource: str | None = Field(default=None, description="URL of the server, as a resource indicator.")
    subject_token_type: SubjectTokenType | None = Field(
        default=None, description="Kind of the callers' tokens that are exchanged; access_token by default."
    )
    idp_token_url: str | None = Field(
        default=None, description="The identity provider's token endpoint, for an identity assertion."
    )
    idp_client_id: str | None = Field(
        default=None, description="The client's ID at the identity provider; clientId by default."
    )
    idp_client_secret: str | None = Field(default=None, description="The client's secret at the identity provider.")
    header: str | None = Field(
        default=None,
        description="The header of a caller's secret; 'Authorization: Bearer {secret}' by default.",
    )
    token: str | None = Field(default=None, description="The bearer token.")
    client_id: str | None = Field(default=None, description="ID of a pre-registered client.")
    client_secret: str | None = Field(default=None, description="The client's secret.")
    client_authentication: ClientAuthentication | None = Field(
        default=None, description="How the secret is sent; by default as the authorization server supports it."
    )
    client_metadata_url: str | None = Field(default=None, description="URL of the Client ID Metadata Document, https.")
    private_key: str | None = Field(default=None, description="The client's private key as PEM, instead of a secret.")
    private_key_file: str | None = Field(default=None, description="A file with that key.")
    signing_algorithm: str | None = Field(default=None, description="Algorithm of the key; RS256 by default.")
    assertion_file: str | None = Field(
        default=None, description="The file in which the platform keeps a workload's token; read for each request."
    )
    issuer: str | None = Field(default=None, description="The authorization server at which the client is registered.")
    scopes: _Scopes | None = Field(
        default=None, description="Scopes to request; by default those that the server asks for."
    )
    redirect_uri: str | None = Field(
        default=None, description="Redirect URI of a login, http on this machine; a free port by default."
    )
    callback_port: int | None = Field(
        default=None, gt=0, lt=65536, description="The port of http://localhost:PORT/callback, as the redirectUri."
    )


_KEYS = tuple(field.alias or name for name, field in AuthEntry.model_fields.items())
_SPELLINGS = {"scope": "scopes", "tokenEndpointAuthMethod": "clientAuthentication", "redirectUrl": "redirectUri"}


def normalize_auth(server: str, key: str, value: Any, diagnostics: Diagnostics) -> Any:
    """Convert the keys of an ``auth`` entry to their canonical form; `key` is the original spelling of ``auth``."""
    if not isinstance(value, dict):
        return value
    normalized: dict[str, Any] = {}
    for name, inner in value.items():
        camel = to_camel(str(name).lower()) if "_" in str(name) else str(name)
        canonical = _SPELLINGS.get(camel, camel)
        if canonical not in _KEYS:
            diagnostics.warning("unknown, ignored", server=server, key=f"{key}.{name}")
        elif inner is not None:
            normalized[canonical] = inner
    return normalized
