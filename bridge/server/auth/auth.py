"""All that lets callers in: several verifiers as one, and what they have to be granted."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from anyio import create_task_group

from bridge.errors import DefinitionError
from bridge.server.auth.access import EVERYTHING, Access, ToolScopes, scopes_of
from bridge.server.auth.issuer import require_url
from bridge.server.auth.keys import ApiKeys, KeyFile
from bridge.server.auth.tokens import (
    IssuerUnavailableError,
    TokenExpiredError,
    TokenRefusedError,
    VerifiedToken,
    issuer_in,
    name_of,
)
from bridge.telemetry.repetitions import Repetitions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from mcp.server.auth.provider import AccessToken, TokenVerifier

_logger = logging.getLogger("bridge.server.auth")


@runtime_checkable
class WatchedVerifier(Protocol):
    """A verifier that has to do something while the server runs."""

    async def keep_current(self, changed: Callable[[], None]) -> None:
        """Follow what verdicts depend on, until cancelled.

        Args:
            changed: To be called when earlier verdicts no longer hold.
        """
        ...


class Auth:
    """Who may come in, and with which scopes; a `TokenVerifier` of the SDK made of others.

    No two callers have one name (`bridge.server.auth.tokens`): where several issuers' tokens are accepted, or it is
    not said which issuer's are, the issuer is part of the name.

    Args:
        verifiers: Who tells a good credential: `ApiKeys`, `KeyFile`, `JwtVerifier`, `Introspection`, or any other
            `TokenVerifier` of the SDK. They are asked in this order, until one knows the credential.
        resource_url: The URL under which clients reach this server, where they are to be told of the issuers that give
            tokens for it (RFC 9728).
        required_scopes: What everyone has to be granted.
        tool_scopes: What beside that has to be granted, by the names of tools or patterns (``delete_*``).
        authorization_servers: The issuers, where the verifiers do not say.

    Raises:
        DefinitionError: There is no verifier, or a URL or scope is none.
    """

    def __init__(
        self,
        *verifiers: TokenVerifier,
        resource_url: str | None = None,
        required_scopes: Iterable[str] = (),
        tool_scopes: Mapping[str, Iterable[str]] | None = None,
        authorization_servers: Iterable[str] = (),
    ) -> None:
        if not verifiers:
            raise DefinitionError("nobody could come in: Auth needs a verifier, such as ApiKeys or JwtVerifier")
        self._verifiers = verifiers
        self._changed: list[Callable[[], None]] = []
        self._repetitions = Repetitions()
        self.resource_url = None if resource_url is None else require_url(resource_url, "resource_url")
        self.required_scopes = scopes_of(required_scopes)
        self.tool_scopes = ToolScopes(tool_scopes)
        issuers = [getattr(verifier, "issuer", None) for verifier in verifiers]
        self.authorization_servers = tuple(dict.fromkeys([*authorization_servers, *filter(None, issuers)]))
        """The issuers whose tokens are accepted."""
        self._issuers = frozenset(filter(None, issuers))
        self._sources = _sources_of(verifiers)
        self._has_several = len(set(filter(None, self._sources))) > 1
        self._names_issuers = self._has_several or not self._issuers

    @classmethod
    def of(cls, auth: Auth | TokenVerifier) -> Auth:
        """Itself, or what one verifier makes."""
        return auth if isinstance(auth, Auth) else cls(auth)

    @property
    def scopes(self) -> frozenset[str]:
        """Every scope that the server knows."""
        return self.required_scopes | self.tool_scopes.all

    @property
    def key_tools(self) -> frozenset[str]:
        """The names and patterns of tools that keys are for."""
        return frozenset().union(*(each.tools for each in self._verifiers if isinstance(each, ApiKeys | KeyFile)))

    async def verify_token(self, token: str) -> AccessToken | None:
        """Who bears a credential.

        Returns:
            The credential, verified; None where nobody knows it.

        Raises:
            TokenExpiredError: It was good, and has expired.
            TokenRefusedError: It is known to be bad.
            IssuerUnavailableError: Nobody knows it, and one could not be asked.
        """
        refusal: TokenRefusedError | IssuerUnavailableError | None = None
        for verifier, source in zip(self._verifiers, self._sources, strict=True):
            try:
                found = await verifier.verify_token(token)
            except IssuerUnavailableError as error:
                if (addition := self._repetitions.addition(str(error))) is not None:
                    _logger.warning("a caller was asked to wait: %s%s", error, addition)
                refusal = error
                continue
            except TokenRefusedError as error:
                if refusal is None or (isinstance(error, TokenExpiredError) and isinstance(refusal, TokenRefusedError)):
                    refusal = error
                continue
            if found is not None:
                told = self._with_issuer(found, verifier, source)
                self._check_name(verifier, told)
                return self._with_all_scopes(told)
        if refusal is not None:
            raise refusal
        return None

    def name_of(self, token: AccessToken) -> str:
        """What the bearer of a credential is called, as no other is."""
        return name_of(token, names_issuer=self._names_issuers)

    def access_of(self, token: AccessToken) -> Access:
        """What the bearer of a credential may do."""
        tools = token.tools if isinstance(token, VerifiedToken) else None
        if tools is None and not self.tool_scopes:
            return EVERYTHING
        # Of a token's scopes only those that matter: what is kept for each access is kept for few.
        return Access(tools=tools, scopes=self.tool_scopes.all.intersection(token.scopes), tool_scopes=self.tool_scopes)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever earlier verdicts no longer hold."""
        self._changed.append(listener)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The time during which callers come: files are followed, and issuers' keys kept."""
        async with create_task_group() as tasks:
            for verifier in self._verifiers:
                if isinstance(verifier, WatchedVerifier):
                    tasks.start_soon(verifier.keep_current, self._tell)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    def _tell(self) -> None:
        for listener in self._changed:
            listener()

    def _with_issuer(self, token: AccessToken, verifier: TokenVerifier, source: str | None) -> AccessToken:
        """A token that says where it is from, where there are several such places: sessions, too, go by that."""
        if source is None or not self._names_issuers:
            return token
        said = issuer_in(token)
        if getattr(verifier, "issuer", None):
            is_right = said == source
        elif said is None:
            is_right = not self._has_several
        else:
            is_right = said not in self._issuers  # of which others vouch for the tokens
        return token if is_right else token.model_copy(update={"claims": {**(token.claims or {}), "iss": source}})

    def _check_name(self, verifier: TokenVerifier, token: AccessToken) -> None:
        """No issuer makes a caller out of the name of a key: memory, limits and audits go by the name."""
        name = self.name_of(token)
        keys: Any = next((each for each in self._verifiers if name in getattr(each, "names", ())), None)
        if keys is not None and not hasattr(verifier, "names"):
            if (addition := self._repetitions.addition(name)) is not None:
                told = "a token was refused: its bearer %r is called as a key is; give the key another name%s"
                _logger.error(told, name, addition)
            raise TokenRefusedError("the token's bearer is called as another caller is")

    def _with_all_scopes(self, token: AccessToken) -> AccessToken:
        if isinstance(token, VerifiedToken) and token.has_all_scopes:
            return token.model_copy(update={"scopes": sorted(self.scopes.union(token.scopes))})
        return token

    def __repr__(self) -> str:
        return f"Auth({', '.join(map(repr, self._verifiers))})"


def _sources_of(verifiers: Iterable[TokenVerifier]) -> list[str | None]:
    """Where the tokens of each verifier are from: its issuer, else what tells it from the others; None for keys."""
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
