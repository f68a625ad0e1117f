"""Authentication options of ``bridge serve``: API keys, and tokens of an identity provider."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from bridge.cli.options import setting, texts_setting, usage_errors
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.auth.provider import TokenVerifier

    from bridge.server.auth import Auth

_logger = logging.getLogger("bridge.cli")
_GIVEN = frozenset({ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT})

_KEYS, _TOKENS, _SCOPES = "Keys", "Tokens of OAuth", "Scopes and teams"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthOptions:
    """Authentication options."""

    api_key: tuple[str, ...] = texts_setting(
        metavar="KEY[,KEY…]",
        help="Over HTTP: a key that callers send as Authorization: Bearer KEY; better set in the environment. Separate "
        "several by commas; each of several needs at least 16 characters. Repeatable.",
        repr=False,
        heading=_KEYS,
    )
    api_keys: Path | None = setting(
        type=click.Path(dir_okay=False, path_type=Path),
        help="Over HTTP: a file of keys, one a line: NAME KEY [tools=…] [scopes=…] [profiles=…] [team=…] [rate=…] "
        "[concurrency=…] [tasks=…] [bytes=…]. Changes are applied at once.",
        heading=_KEYS,
    )
    oauth_issuer: str | None = setting(
        metavar="URL", help="Over HTTP: accept tokens of this issuer; its exact identifier.", heading=_TOKENS
    )
    oauth_audience: str | None = setting(
        help="Audience that tokens must have; by default the --resource-url.", heading=_TOKENS
    )
    oauth_jwks_url: str | None = setting(
        metavar="URL", help="URL of the issuer's keys; by default the one in its metadata.", heading=_TOKENS
    )
    oauth_public_key: Path | None = setting(
        type=click.Path(dir_okay=False, path_type=Path),
        help="File of the issuer's public key in PEM, or of its keys as a JWKS, in place of its server.",
        heading=_TOKENS,
    )
    oauth_introspection_url: str | None = setting(
        metavar="URL", help="Verify tokens by introspection at this URL (RFC 7662).", heading=_TOKENS
    )
    oauth_client_id: str | None = setting(help="Client id for introspection.", heading=_TOKENS)
    oauth_client_secret: str | None = setting(
        help="Client secret for introspection; better set in the environment.", repr=False, heading=_TOKENS
    )
    resource_url: str | None = setting(
        metavar="URL",
        help="URL under which clients reach this server; required with --oauth-issuer, unless there are a "
        "--oauth-public-key and --oauth-audience.",
        heading=_TOKENS,
    )
    required_scope: tuple[str, ...] = texts_setting(
        metavar="SCOPE", help="A scope that every caller needs. Repeatable.", heading=_SCOPES
    )
    tool_scope: tuple[str, ...] = texts_setting(
        metavar="TOOL=SCOPE",
        help="A scope that callers of a tool, resource or prompt need, by name or pattern: delete_*=write. Repeatable.",
        heading=_SCOPES,
    )

    team_claim: str | None = setting(
        metavar="NAME",
        help="Claim of tokens whose value is the team of their bearers; of a list, the first.",
        heading=_SCOPES,
    )
    team_scope: tuple[str, ...] = texts_setting(
        metavar="SCOPE=TEAM",
        help="Team of the bearers of tokens with a scope, in place of a claim. Repeatable.",
        heading=_SCOPES,
    )

    limits_claim: str | None = setting(
        metavar="NAME",
        help='Claim of tokens that has limits of their bearers: {"rate": "100/1m", "concurrency": 4, "tasks": 2}.',
        heading=_SCOPES,
    )

    @property
    def are_callers_known(self) -> bool:
        """True if callers need credentials."""
        return bool(self.api_key or self.api_keys or self.oauth_issuer)

    def auth(self, ctx: click.Context) -> Auth | None:
        """Build the authentication; None without credentials."""
        self._check(ctx)
        if not self.are_callers_known:
            return None
        from bridge.server.auth import Auth  # noqa: PLC0415 - only with authentication

        with usage_errors(ctx, BridgeError):
            return Auth(
                *self._key_verifiers(ctx),
                *self._token_verifiers(),
                resource_url=self.resource_url,
                required_scopes=self.required_scope,
                tool_scopes=self._tool_scopes(ctx),
                team_claim=self.team_claim,
                team_scopes=self._team_scopes(ctx),
                limits_claim=self.limits_claim,
            )

    def _check(self, ctx: click.Context) -> None:
        for parameter, value in (("api_key", self.api_key), ("oauth_issuer", self.oauth_issuer)):
            if not value and ctx.get_parameter_source(parameter) in _GIVEN:
                option_name = "--" + parameter.replace("_", "-")
                raise click.UsageError(f"{option_name} is empty; give it a value, or leave it out", ctx)
        for name, file in (("--api-keys", self.api_keys), ("--oauth-public-key", self.oauth_public_key)):
            if file == Path():  # click's value for an empty text
                raise click.UsageError(f"{name} is empty; give the path of a file, or leave it out", ctx)
        sources = {
            "--oauth-jwks-url": self.oauth_jwks_url,
            "--oauth-public-key": self.oauth_public_key,
            "--oauth-introspection-url": self.oauth_introspection_url,
        }
        dependent = {"--oauth-audience": self.oauth_audience, **sources, "--oauth-issuer": self.oauth_issuer}
        has_audience = bool(self.resource_url or (self.oauth_public_key and self.oauth_audience))
        for name, is_given, meaning in (
            ("--oauth-issuer", bool(self.oauth_issuer), "the identifier of the issuer"),
            ("--resource-url", has_audience, "the URL under which clients reach this server"),
        ):
            given = next((each for each, setting in dependent.items() if setting and each != name), None)
            if given is not None and not is_given:
                raise click.UsageError(f"{given} needs {name}, {meaning}", ctx)
        if self.oauth_introspection_url and not (self.oauth_client_id and self.oauth_client_secret):
            raise click.UsageError("--oauth-introspection-url needs --oauth-client-id and --oauth-client-secret", ctx)
        if len(several := [name for name, value in sources.items() if value]) > 1:
            raise click.UsageError(f"{' and '.join(several)} exclude each other: leave one out", ctx)
        if (self.required_scope or self.tool_scope) and not self.are_callers_known:
            raise click.UsageError("scopes need credentials: give --oauth-issuer or --api-keys", ctx)

    def _key_verifiers(self, ctx: click.Context) -> list[TokenVerifier]:
        from bridge.server.auth import ApiKey, ApiKeys, KeyFile  # noqa: PLC0415 - as above
        from bridge.server.auth.keys import MIN_KEY_CHARS  # noqa: PLC0415

        keys = [ApiKey(f"key-{number}", key) for number, key in enumerate(self.api_key, start=1)]
        if keys and ctx.get_parameter_source("api_key") is ParameterSource.COMMANDLINE:
            _logger.warning(
                "every user of this machine can read --api-key in the list of processes: "
                "set BRIDGE_API_KEY in the environment, or use --api-keys"
            )
        for key in keys:
            if key.is_short and len(keys) > 1:
                raise click.UsageError(
                    f"{key.name} of {len(keys)} is shorter than {MIN_KEY_CHARS} characters and can be guessed; "
                    "keys are separated by commas, so a key must not contain one; create keys by: openssl rand -hex 32",
                    ctx,
                )
            if key.is_short:
                _logger.warning("%s can be guessed: use %d characters or more", key.name, MIN_KEY_CHARS)
        verifiers: list[TokenVerifier] = [ApiKeys(*keys)] if keys else []
        return verifiers if self.api_keys is None else [*verifiers, KeyFile(self.api_keys)]

    def _token_verifiers(self) -> list[TokenVerifier]:
        from bridge.server.auth import Introspection, JwtVerifier  # noqa: PLC0415 - as above

        audience = self.oauth_audience or self.resource_url
        if self.oauth_issuer is None or audience is None:
            return []
        if self.oauth_public_key is not None:
            from bridge.server.auth.local_keys import is_key_set  # noqa: PLC0415 - as above

            if is_key_set(self.oauth_public_key):
                return [JwtVerifier(self.oauth_issuer, audience, jwks=self.oauth_public_key)]
            return [JwtVerifier(self.oauth_issuer, audience, public_key=self.oauth_public_key)]
        if self.oauth_introspection_url is None:
            return [JwtVerifier(self.oauth_issuer, audience, jwks_url=self.oauth_jwks_url)]
        return [
            Introspection(
                self.oauth_introspection_url,
                self.oauth_client_id or "",
                self.oauth_client_secret or "",
                audience=audience,
                issuer=self.oauth_issuer,
            )
        ]

    def _team_scopes(self, ctx: click.Context) -> dict[str, str]:
        pairs = [text.rpartition("=") for text in self.team_scope]
        if not all(scope and team for scope, _, team in pairs):
            raise click.UsageError("--team-scope has the form SCOPE=TEAM, such as data:read=data", ctx)
        return {scope: team for scope, _, team in pairs}

    def _tool_scopes(self, ctx: click.Context) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for text in self.tool_scope:
            tool, sign, scope = text.partition("=")
            if not (tool and sign and scope):
                raise click.UsageError(
                    f"--tool-scope has the form TOOL=SCOPE, such as delete_*=write, not {text!r}", ctx
                )
            found[tool] = (*found.get(tool, ()), scope)
        return found
