"""Authentication: several verifiers as one, and the scopes that are required."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from anyio import create_task_group

from bridge.errors import DefinitionError
from bridge.server.auth.access import EVERYTHING, Access, ToolScopes, scopes_of
from bridge.server.auth.issuer import require_url
from bridge.server.auth.keys import KEYS, ApiKey, ApiKeys
from bridge.server.auth.tokens import (
    IssuerUnavailableError,
    TokenExpiredError,
    TokenRefusedError,
    VerifiedToken,
    issuer_in,
    name_of,
)
from bridge.server.limits.limits import CallerLimits
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping

    from mcp.server.auth.provider import AccessToken, TokenVerifier

    from bridge.server.auth.access import Restricted
    from bridge.tools.caller import Caller

_logger = logging.getLogger("bridge.server.auth")
_MAX_TEAM_CHARS = 64


@runtime_checkable
class WatchedVerifier(Protocol):
    """A verifier with a background task, such as one that watches a file."""

    async def keep_current(self, changed: Callable[[], None]) -> None:
        """Keep keys up to date, until cancelled.

        Args:
            changed: Call it when earlier results of `verify_token` are no longer valid.
        """
        ...


class Auth:
    """Authentication of callers: a `TokenVerifier` of the SDK that combines others.

    Names of callers are unique (`bridge.server.auth.tokens`): if tokens of several issuers, or of unknown issuers, are
    accepted, the issuer is part of the name.

    Args:
        verifiers: `ApiKeys`, `KeyFile`, `JwtVerifier`, `Introspection`, or any other `TokenVerifier` of the SDK. They
            are tried in this order, until one accepts the credential.
        resource_url: URL under which clients reach this server; if given, metadata names the issuers of its tokens
            (RFC 9728).
        required_scopes: Scopes that every caller needs.
        tool_scopes: Further scopes, by the name of a tool, resource or prompt, or a pattern (``delete_*``).
        authorization_servers: URLs of issuers that the verifiers do not name.
        team_claim: Claim whose value is the team of a token's bearer; of a list, the first. None for none.
        team_scopes: Teams by the scope of their members; the first that a token has applies, in place of the claim.
        limits_claim: Claim whose value is an object with limits of a token's bearer: ``rate``, ``concurrency`` and
            ``tasks``. None for none.

    Raises:
        DefinitionError: There is no verifier, or a URL or scope is invalid.
    """

    def __init__(
        self,
        *verifiers: TokenVerifier,
        resource_url: str | None = None,
        required_scopes: Iterable[str] = (),
        tool_scopes: Mapping[str, Iterable[str]] | None = None,
        authorization_servers: Iterable[str] = (),
        team_claim: str | None = None,
        team_scopes: Mapping[str, str] | None = None,
        limits_claim: str | None = None,
    ) -> None:
        if not verifiers:
            raise DefinitionError("Auth needs at least one verifier, such as ApiKeys or JwtVerifier")
        self._verifiers = verifiers
        self._team_claim, self._team_scopes = team_claim, dict(team_scopes or {})
        self._limits_claim = limits_claim
        self._changed: list[Callable[[], None]] = []
        self._repetitions = Repetitions()
        self.resource_url = None if resource_url is None else require_url(resource_url, "resource_url")
        self.required_scopes = scopes_of(required_scopes)
        self.tool_scopes = ToolScopes(tool_scopes)
        self.scopes = self.required_scopes | self.tool_scopes.all
        """Every scope that the server or a tool requires."""
        issuers = [getattr(verifier, "issuer", None) for verifier in verifiers]
        urls = [each for each in issuers if each and each.startswith(("https://", "http://"))]
        self.authorization_servers = tuple(dict.fromkeys([*authorization_servers, *urls]))
        """URLs of the issuers whose tokens are accepted; an issuer whose keys are given may have none."""
        self._issuers = frozenset(filter(None, issuers))
        self._sources = _sources_of(verifiers)
        self._has_several = len(set(filter(None, self._sources))) > 1
        self._names_issuers = self._has_several or not self._issuers
        for each in verifiers:
            if isinstance(each, ApiKeys):
                each.on_change(self._notify)

    @classmethod
    def of(cls, auth: Auth | TokenVerifier) -> Auth:
        """Return an `Auth` as it is, or wrap one verifier."""
        return auth if isinstance(auth, Auth) else cls(auth)

    @property
    def takes_keys(self) -> bool:
        """True if a verifier accepts credentials that no issuer's login gives, such as keys."""
        return not all(getattr(verifier, "issuer", None) for verifier in self._verifiers)

    @property
    def key_tools(self) -> frozenset[str]:
        """Names and patterns in the configuration of keys."""
        return frozenset().union(*(each.tools for each in self._verifiers if isinstance(each, ApiKeys)))

    @property
    def key_profiles(self) -> frozenset[str]:
        """Names and patterns of profiles in the configuration of keys."""
        return frozenset(profile for each in self.keys for profile in each.profiles or ())

    async def verify_token(self, token: str) -> AccessToken | None:
        """Verify a credential.

        Returns:
            The verified credential; None if no verifier knows it.

        Raises:
            TokenExpiredError: It has expired.
            TokenRefusedError: It is invalid.
            IssuerUnavailableError: No verifier knows it, and an issuer could not be reached.
        """
        refusal: TokenRefusedError | IssuerUnavailableError | None = None
        for verifier, source in zip(self._verifiers, self._sources, strict=True):
            try:
                found = await verifier.verify_token(token)
            except IssuerUnavailableError as error:
                if (addition := self._repetitions.addition(str(error))) is not None:
                    _logger.warning("a token could not be verified: %s%s", error, addition)
                refusal = error
                continue
            except TokenRefusedError as error:
                if refusal is None or (isinstance(error, TokenExpiredError) and isinstance(refusal, TokenRefusedError)):
                    refusal = error
                continue
            if found is not None:
                named = self._with_issuer(found, verifier, source)
                self._check_name(verifier, named)
                if isinstance(named, VerifiedToken) and named.has_all_scopes:
                    return named.model_copy(update={"scopes": sorted(self.scopes.union(named.scopes))})
                return named
        if refusal is not None:
            raise refusal
        return None

    def name_of(self, token: AccessToken) -> str:
        """Return the unique name of the bearer of a credential."""
        return name_of(token, names_issuer=self._names_issuers)

    def team_of(self, token: AccessToken) -> str:
        """Return the team of the bearer of a credential; empty for none."""
        if isinstance(token, VerifiedToken) and token.is_key:
            return token.team
        if (
            team := next((team for scope, team in self._team_scopes.items() if scope in token.scopes), None)
        ) is not None:
            return team
        found: Any = None if self._team_claim is None else (token.claims or {}).get(self._team_claim)
        if isinstance(found, list):
            found = found[0] if found else None
        return clip(found, _MAX_TEAM_CHARS) if isinstance(found, str) else ""

    def limits_of(self, token: AccessToken) -> CallerLimits | None:
        """Return the limits of the bearer of a credential, in place of those of all; None for those.

        A token's claim that is malformed is ignored, with a warning.
        """
        if isinstance(token, VerifiedToken) and token.is_key:
            return token.limits
        found: Any = None if self._limits_claim is None else (token.claims or {}).get(self._limits_claim)
        if not isinstance(found, dict):
            return None
        try:
            return CallerLimits.read({name: str(value) for name, value in found.items()})
        except DefinitionError as error:
            if (addition := self._repetitions.addition("limits", str(error))) is not None:
                message = "the claim %r of a token of %r is not used: %s%s"
                _logger.warning(message, self._limits_claim, clip(self.name_of(token)), error, addition)
            return None

    @property
    def has_teams(self) -> bool:
        """True if a caller may have a team."""
        of_keys = any(getattr(verifier, "has_teams", False) for verifier in self._verifiers)
        return of_keys or self._team_claim is not None or bool(self._team_scopes)

    @property
    def keys(self) -> tuple[ApiKey, ...]:
        """The API keys, without secrets."""
        return tuple(key for verifier in self._verifiers for key in getattr(verifier, "keys", ()))

    def access_by_keys(self, caller: Caller, profile: Restricted | None = None) -> tuple[Access, ...] | None:
        """Return the permissions that a caller's keys have now, each once; empty if all of them were removed.

        None for a caller whose credential is no key, or a key that its verifier does not list. Keys to which the
        profile is not given are left out.
        """
        is_listed = all(hasattr(each, "keys") or getattr(each, "issuer", None) for each in self._verifiers)
        if caller.issuer != KEYS or not is_listed:
            return None
        own = (each for each in self.keys if each.name == caller.identity[1])
        return tuple(
            Access(
                tools=key.tools,
                tags=key.tags,
                profiles=key.profiles,
                scopes=self.tool_scopes.all if key.scopes is None else self.tool_scopes.all.intersection(key.scopes),
                tool_scopes=self.tool_scopes,
            )
            for key in own
            if (key.scopes is None or self.required_scopes <= key.scopes)
            and (profile is None or profile.is_given_to(key.as_token(), key.profiles))
        )

    @property
    def has_limits(self) -> bool:
        """True if a caller may have limits of its own."""
        of_keys = any(getattr(verifier, "has_limits", False) for verifier in self._verifiers)
        return of_keys or self._limits_claim is not None

    def access_of(self, token: AccessToken) -> Access:
        """Return the permissions of the bearer of a credential."""
        given = (token.tools, token.tags, token.profiles) if isinstance(token, VerifiedToken) else (None, None, None)
        tools, tags, profiles = given
        if tools is None and tags is None and profiles is None and not self.tool_scopes:
            return EVERYTHING
        # Keep only the scopes that tools require: lists of tools are cached for each distinct `Access`.
        scopes = self.tool_scopes.all.intersection(token.scopes)
        return Access(tools=tools, tags=tags, profiles=profiles, scopes=scopes, tool_scopes=self.tool_scopes)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever earlier results of `verify_token` are no longer valid, in any thread."""
        self._changed.append(listener)

    @asynccontextmanager
    async def running(self, *others: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
        """Run the background tasks of the verifiers, and others; a context in which requests are served."""
        async with create_task_group() as tasks:
            for other in others:
                tasks.start_soon(other)
            for verifier in self._verifiers:
                if isinstance(verifier, WatchedVerifier):
                    tasks.start_soon(verifier.keep_current, self._notify)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    def _notify(self) -> None:
        for listener in self._changed:
            listener()

    def _with_issuer(self, token: AccessToken, verifier: TokenVerifier, source: str | None) -> AccessToken:
        """Set the claim ``iss`` if the issuer is part of names, so that sessions are bound to it, too."""
        if source is None or not self._names_issuers:
            return token
        claimed = issuer_in(token)
        if getattr(verifier, "issuer", None):
            is_right = claimed == source
        elif claimed is None:
            is_right = not self._has_several
        else:
            is_right = claimed not in self._issuers  # their tokens are verified by other verifiers
        return token if is_right else token.model_copy(update={"claims": {**(token.claims or {}), "iss": source}})

    def _check_name(self, verifier: TokenVerifier, token: AccessToken) -> None:
        """Refuse a token whose bearer has the name of a key, since memory, limits and audits depend on the name."""
        name = self.name_of(token)
        keys: Any = next((each for each in self._verifiers if name in getattr(each, "names", ())), None)
        if keys is not None and not hasattr(verifier, "names"):
            if (addition := self._repetitions.addition(name)) is not None:
                message = "a token was refused: its bearer %r has the name of a key; give the key another name%s"
                _logger.error(message, name, addition)
            raise TokenRefusedError("the token's bearer has the name of another caller")

    def __repr__(self) -> str:
        return f"Auth({', '.join(map(repr, self._verifiers))})"


def _sources_of(verifiers: Iterable[TokenVerifier]) -> list[str | None]:
    """Return the source of each verifier's tokens: its issuer, its URL, or a unique type name; None for keys."""
    sources: list[str | None] = []
    for verifier in verifiers:
        if hasattr(verifier, "names"):
            sources.append(None)
            continue
        issuer = getattr(verifier, "issuer", None)
        source = str(issuer or getattr(verifier, "url", None) or type(verifier).__name__)
        is_taken = not issuer and source in sources
        sources.append(f"{source}-{len(sources) + 1}" if is_taken else source)
    return sources
