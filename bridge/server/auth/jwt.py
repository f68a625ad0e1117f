"""JWT access tokens (RFC 9068, RFC 8725) and the public keys of their issuer (RFC 7517), fetched or given."""

from __future__ import annotations

import logging
import math
import time
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
import jwt
from anyio.to_thread import run_sync
from jwt import PyJWK, PyJWTError

from bridge.errors import DefinitionError
from bridge.server.auth.issuer import Issuer, require_url
from bridge.server.auth.local_keys import key_in_pem, keys_in_set
from bridge.server.auth.tokens import (
    IssuerUnavailableError,
    TokenExpiredError,
    TokenRefusedError,
    VerifiedToken,
    audiences_of,
)
from bridge.tools.checks import require_seconds, require_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from bridge.server.auth.local_keys import Keys

_logger = logging.getLogger("bridge.server.auth")

REFRESH_SECONDS = 600.0
"""Seconds between fetches of the keys."""
REFETCH_SECONDS = 30.0
"""Default minimum seconds between fetches that tokens with unknown keys cause."""
RETRY_SECONDS = 5.0
"""Seconds between fetches while there are no keys."""

_FETCH_SECONDS = 10.0

_FAMILIES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Type of key (``kty``) by the first two letters of an algorithm."""

ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
)
"""Accepted algorithms: asymmetric ones only, since with others this server could sign tokens."""

MAX_TOKEN_BYTES = 16 * 1024
"""Maximum length of a token."""
LEEWAY_SECONDS = 30.0
"""Default tolerance for differences between the issuer's clock and this machine's."""
KEEP_SECONDS = 60.0
"""Maximum seconds for which a verified token is cached, and a revoked key stays in use."""

_PROBLEMS: Mapping[type[Exception], str] = {
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidAudienceError: "the token is for another audience",
    jwt.InvalidIssuerError: "the token is from another issuer",
}
_TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})


class KeySet:
    """Public keys of one issuer, fetched at start, periodically, and when a token names an unknown key.

    Args:
        issuer: The issuer.
        url: URL of its keys; None for the one in its metadata.
        refetch_seconds: Minimum seconds between fetches that tokens with unknown keys cause.
        read: Reads the keys, in a worker thread, instead of fetching them; None to fetch them.
    """

    def __init__(
        self,
        issuer: Issuer,
        url: str | None,
        refetch_seconds: float = REFETCH_SECONDS,
        read: Callable[[], Keys] | None = None,
    ) -> None:
        self._issuer = issuer
        self._url = url
        self._read = read
        self._refetch_seconds = refetch_seconds
        self._keys: Keys | None = None
        self._parsed: dict[tuple[int, str], PyJWK] = {}
        self._lock = anyio.Lock()
        self._asked_at: float | None = None
        self._failure: IssuerUnavailableError | None = None

    async def find(self, key_id: str | None, algorithm: str) -> PyJWK:
        """Find the key of a token by its ``kid`` and ``alg``; fetch the keys if it is unknown.

        Raises:
            TokenRefusedError: The issuer has no such key.
            IssuerUnavailableError: The keys cannot be fetched.
        """
        found = self._find_known(key_id, algorithm)
        if found is None:
            await self._refetch(self._keys)
            found = self._find_known(key_id, algorithm)
        if found is not None:
            return found
        if self._keys is None or self._failure is not None:
            raise self._failure or IssuerUnavailableError(f"the keys of {self._issuer.url} have not been fetched")
        raise TokenRefusedError("the token is signed by a key that its issuer does not have")

    async def _refresh(self) -> None:
        """Fetch the keys. If that fails, the previous keys stay in use, and `_failure` is set."""
        self._failure = None
        try:
            with anyio.fail_after(_FETCH_SECONDS):
                self._keys, self._parsed = await self._fetched(), {}
        except IssuerUnavailableError as error:
            self._failure = error
        except TimeoutError:
            self._failure = IssuerUnavailableError(f"{self._issuer.url} takes too long to answer")
        except Exception as error:  # noqa: BLE001 - logged, and raised where a key is needed
            self._failure = IssuerUnavailableError(f"the answer of {self._issuer.url} cannot be parsed: {error!r}")
        if self._failure is not None:
            state = "no token can be verified" if self._keys is None else "the previous keys stay in use"
            _logger.error("the keys of %s were not fetched: %s; %s", self._issuer.url, self._failure, state)

    async def keep_current(self) -> None:
        """Fetch the keys periodically, until cancelled."""
        while True:
            async with self._lock:
                await self._refresh()
                seconds = REFRESH_SECONDS if self._failure is None else self._pause_seconds
            await anyio.sleep(seconds)

    async def _refetch(self, insufficient: Keys | None) -> None:
        """Fetch the keys once for all waiting callers, unless they were fetched recently."""
        async with self._lock:
            now = monotonic()
            is_recent = self._asked_at is not None and now - self._asked_at < self._pause_seconds
            if self._keys is insufficient and not is_recent:
                self._asked_at = now
                with anyio.CancelScope(shield=True):  # clients that hang up would prevent it for all others
                    await self._refresh()

    @property
    def _pause_seconds(self) -> float:
        return min(RETRY_SECONDS, self._refetch_seconds) if self._keys is None else self._refetch_seconds

    async def _fetched(self) -> Keys:
        if self._read is not None:
            try:
                return await run_sync(self._read)
            except DefinitionError as error:
                raise IssuerUnavailableError(str(error)) from error
        url = self._url
        if url is None:
            found = (await self._issuer.metadata()).get("jwks_uri")
            if not isinstance(found, str):
                raise IssuerUnavailableError(f"the metadata of {self._issuer.url} names no jwks_uri")
            if found.startswith("http:") and self._issuer.url.startswith("https:"):
                raise IssuerUnavailableError(
                    f"the metadata of {self._issuer.url} names a jwks_uri without encryption, {found[:200]!r}: "
                    "an attacker in the network could replace the keys"
                )
            url = found
        keys = (await self._issuer.get(url)).get("keys")
        if not isinstance(keys, list):
            raise IssuerUnavailableError(f"{url} did not answer with a set of keys")
        return tuple(key for key in keys if isinstance(key, dict))

    def _find_known(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        fit = [
            (position, key)
            for position, key in enumerate(self._keys or ())
            if (key_id is None or key.get("kid") == key_id) and _signs(key, algorithm)
        ]
        # A token without a key id must not match several keys.
        if not fit or (key_id is None and len(fit) > 1):
            return None
        position, key = fit[0]
        parsed = self._parsed.get((position, algorithm))
        if parsed is None:
            try:
                parsed = PyJWK(dict(key), algorithm)
                weakness = parsed.Algorithm.check_key_length(parsed.key)
            except (PyJWTError, ValueError, TypeError) as error:
                raise TokenRefusedError("the token is signed by a key that its issuer published incorrectly") from error
            if weakness is not None:  # RFC 7518, 3.3 and 3.5
                raise TokenRefusedError(f"the token is signed by a key that is too short: {weakness}")
            self._parsed[position, algorithm] = parsed
        return parsed


def _signs(key: Mapping[str, Any], algorithm: str) -> bool:
    """True if a key verifies signatures of an algorithm; symmetric keys never do."""
    return (
        key.get("kty") == _FAMILIES.get(algorithm[:2])
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and "verify" in key.get("key_ops", ["verify"])
    )


class JwtVerifier:
    """Verifies signed tokens of one issuer: a `TokenVerifier` of the SDK.

    Its keys are fetched, unless they are given. Files of keys are read again every ten minutes, and when a token names
    an unknown key; if that fails, the previous keys stay in use.

    Args:
        issuer: Identifier of the issuer; required ``iss`` of tokens. A URL if the keys are fetched, else any text.
        audience: Required ``aud`` of tokens, usually the URL of this server.
        public_key: The issuer's only key: PEM of a public key or certificate, or the path of a file with it. The key id
            in tokens is ignored.
        jwks: The issuer's keys: a set, ``{"keys": […]}``, or the path of a file with it.
        jwks_url: URL of the issuer's keys; None for the one in its metadata.
        algorithms: Accepted algorithms, out of `ALGORITHMS`.
        leeway_seconds: Tolerance for differences between the issuer's clock and this machine's.
        refetch_seconds: Minimum seconds between fetches that tokens with unknown keys cause.

    Raises:
        DefinitionError: A URL is invalid, the issuer or audience is empty, an algorithm is not one of `ALGORITHMS`, a
            key is invalid, private or a shared secret, or there are several sources of keys.
    """

    def __init__(
        self,
        issuer: str,
        audience: str,
        *,
        public_key: str | bytes | Path | None = None,
        jwks: Mapping[str, Any] | Path | None = None,
        jwks_url: str | None = None,
        algorithms: Collection[str] = ALGORITHMS,
        leeway_seconds: float = LEEWAY_SECONDS,
        refetch_seconds: float = REFETCH_SECONDS,
    ) -> None:
        for name, seconds in (("leeway_seconds", leeway_seconds), ("refetch_seconds", refetch_seconds)):
            require_seconds(seconds, name, optional=False, may_be_zero=True)
        require_type(audience, str, "audience", "text")
        if unsafe := sorted(set(algorithms) - ALGORITHMS):
            raise DefinitionError(f"the algorithms {unsafe!r} are not accepted; choose among {sorted(ALGORITHMS)}")
        if not audience:
            raise DefinitionError("audience must be set: else tokens for any other service would be accepted")
        sources = {"public_key": public_key, "jwks": jwks, "jwks_url": jwks_url}
        given = [name for name, source in sources.items() if source is not None]
        if len(given) > 1:
            raise DefinitionError(f"{' and '.join(given)} exclude each other: give one source of keys")
        read = None if public_key is None else partial(key_in_pem, public_key)
        read = read if jwks is None else partial(keys_in_set, jwks)
        if read is None:
            require_url(issuer, "an issuer", asked="the issuer")
        elif not issuer:
            raise DefinitionError("issuer must be set: the iss of the tokens")
        else:
            read()
        if jwks_url is not None:
            require_url(jwks_url, "jwks_url", asked="the keys of the issuer")
        self.issuer = issuer
        self.audience = audience
        self._algorithms = frozenset(algorithms)
        self._leeway_seconds = leeway_seconds
        self._issuer = Issuer(issuer)
        self._keys = KeySet(self._issuer, jwks_url, refetch_seconds, read)
        self._has_one_key = public_key is not None

    async def verify_token(self, token: str) -> VerifiedToken | None:
        """Verify a token.

        Returns:
            The verified token; None if it is not a JWT.

        Raises:
            TokenExpiredError: It has expired.
            TokenRefusedError: It is invalid.
            IssuerUnavailableError: The issuer's keys cannot be fetched.
        """
        if token.count(".") != 2:  # noqa: PLR2004 - between its three parts
            return None
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenRefusedError(f"the token is over {MAX_TOKEN_BYTES} bytes long")
        try:
            header = jwt.get_unverified_header(token)
        except (PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenRefusedError("the token is malformed") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise TokenRefusedError("the token is signed by an algorithm that is not accepted")
        if "crit" in header or str(header.get("typ", "jwt")).lower() not in _TYPES:
            raise TokenRefusedError("the token is not an access token")
        is_named = isinstance(key_id, str) and not self._has_one_key
        key = await self._keys.find(key_id if is_named else None, algorithm)
        claims = self._claims_of(token, key, algorithm)
        try:
            expires_at = math.ceil(float(claims["exp"]) + self._leeway_seconds)
        except (ValueError, OverflowError, TypeError):
            raise TokenRefusedError("the token's exp is not a time") from None
        keep_seconds = min(KEEP_SECONDS, expires_at - time.time())
        return VerifiedToken.of(token, claims, expires_at=expires_at, resource=self.audience, keep_seconds=keep_seconds)

    async def keep_current(self, changed: Callable[[], None]) -> None:  # noqa: ARG002 - tokens are cached briefly anyway
        """Keep the issuer's keys up to date, until cancelled."""
        try:
            await self._keys.keep_current()
        finally:
            await self._issuer.aclose()

    def _claims_of(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=audiences_of(self.audience),
                issuer=self.issuer,
                leeway=self._leeway_seconds,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise TokenExpiredError("the token has expired") from None
        except jwt.MissingRequiredClaimError as error:
            raise TokenRefusedError(f"the token has no claim {error.claim}") from None
        except (PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise TokenRefusedError(_PROBLEMS.get(type(error), "the token's signature or content is invalid")) from None

    def __repr__(self) -> str:
        return f"JwtVerifier({self.issuer!r}, {self.audience!r})"
